#include "kernels/simd/vec_avx512.h"
//
#include "kernels/act/act_body.h"

namespace bolide::isa {
const ActFunctions kActAvx512 = kActFunctions;
}  // namespace bolide::isa
