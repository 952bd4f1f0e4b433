#include "kernels/simd/vec_avx512.h"
//
#include "kernels/rows/rows_body.h"

namespace bolide::isa {
const RowFunctions kRowsAvx512 = kRowFunctions;
}  // namespace bolide::isa
