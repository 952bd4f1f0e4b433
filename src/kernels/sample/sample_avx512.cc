#include "kernels/simd/vec_avx512.h"
//
#include "kernels/sample/sample_body.h"

namespace bolide::isa {
const SampleFunctions kSampleAvx512 = kSampleFunctions;
}  // namespace bolide::isa
