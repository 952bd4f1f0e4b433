#include "kernels/attention/attention_decode.cuh"

namespace bolide::cuda {

int attention_decode_f8(const CudaTarget& target, const AttentionWork& work, DecodeShape shape) {
  return decode_of<F8Pool>(target, work, shape);
}

}  // namespace bolide::cuda
