#include "kernels/simd/vec_avx512.h"
//
#include "kernels/rope/rope_body.h"

namespace bolide::isa {
const RopeFunctions kRopeAvx512 = kRopeFunctions;
}  // namespace bolide::isa
