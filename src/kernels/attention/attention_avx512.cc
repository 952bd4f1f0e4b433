#include "kernels/simd/vec_avx512.h"
//
#include "kernels/attention/attention_body.h"

namespace bolide::isa {
const AttentionFunctions kAttentionAvx512 = kAttentionFunctions;
}  // namespace bolide::isa
