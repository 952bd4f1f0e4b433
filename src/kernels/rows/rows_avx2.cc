#include "kernels/simd/vec_avx2.h"
//
#include "kernels/rows/rows_body.h"

namespace bolide::isa {
const RowFunctions kRowsAvx2 = kRowFunctions;
}  // namespace bolide::isa
