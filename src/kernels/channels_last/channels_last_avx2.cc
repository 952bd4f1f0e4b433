#include "kernels/simd/vec_avx2.h"
//
#include "kernels/channels_last/channels_last_body.h"

namespace bolide::channels_last {
const Functions kAvx2 = kFunctions;
}  // namespace bolide::channels_last
