#include "kernels/attention/attention_decode.cuh"

namespace bolide::cuda {

int attention_decode_bf16(const CudaTarget& target, const AttentionWork& work, DecodeShape shape) {
  return decode_of<BF16Pool>(target, work, shape);
}

}  // namespace bolide::cuda
