#include "kernels/simd/vec_avx2.h"
//
#include "kernels/act/act_body.h"

namespace bolide::isa {
const ActFunctions kActAvx2 = kActFunctions;
}  // namespace bolide::isa
