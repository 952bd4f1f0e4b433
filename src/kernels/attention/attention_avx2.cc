#include "kernels/simd/vec_avx2.h"
//
#include "kernels/attention/attention_body.h"

namespace bolide::isa {
const AttentionFunctions kAttentionAvx2 = kAttentionFunctions;
}  // namespace bolide::isa
