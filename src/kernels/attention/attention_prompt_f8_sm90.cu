#include "kernels/attention/attention_prompt.cuh"

namespace bolide::cuda {
namespace {

template <int kDim>
int launch_dim(const CudaTarget& target, const AttentionWork& work) {
  return work.softcap > 0 ? prompt::launch<prompt::F8Tactic<kDim, true>>(target, work)
                          : prompt::launch<prompt::F8Tactic<kDim, false>>(target, work);
}

}  // namespace

int attention_prompt_f8(const CudaTarget& target, const AttentionWork& work) {
  switch (work.head_dim) {
    case 64: return launch_dim<64>(target, work);
    case 96: return launch_dim<96>(target, work);
    case 128: return launch_dim<128>(target, work);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace bolide::cuda
