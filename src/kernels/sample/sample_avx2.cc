#include "kernels/simd/vec_avx2.h"
//
#include "kernels/sample/sample_body.h"

namespace bolide::isa {
const SampleFunctions kSampleAvx2 = kSampleFunctions;
}  // namespace bolide::isa
