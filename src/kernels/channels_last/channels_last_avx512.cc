#include "kernels/simd/vec_avx512.h"
//
#include "kernels/channels_last/channels_last_body.h"

namespace bolide::channels_last {
const Functions kAvx512 = kFunctions;
}  // namespace bolide::channels_last
