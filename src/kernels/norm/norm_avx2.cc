#include "kernels/simd/vec_avx2.h"
//
#include "kernels/norm/norm_body.h"

namespace bolide::isa {
const NormFunctions kNormAvx2 = kNormFunctions;
}  // namespace bolide::isa
