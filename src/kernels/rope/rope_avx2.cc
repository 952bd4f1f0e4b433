#include "kernels/simd/vec_avx2.h"
//
#include "kernels/rope/rope_body.h"

namespace bolide::isa {
const RopeFunctions kRopeAvx2 = kRopeFunctions;
}  // namespace bolide::isa
