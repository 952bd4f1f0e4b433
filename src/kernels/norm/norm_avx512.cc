#include "kernels/simd/vec_avx512.h"
//
#include "kernels/norm/norm_body.h"

namespace bolide::isa {
const NormFunctions kNormAvx512 = kNormFunctions;
}  // namespace bolide::isa
