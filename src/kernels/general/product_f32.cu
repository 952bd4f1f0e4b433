#include "kernels/general/product_half.cuh"

namespace bolide {
namespace cuda {
namespace {

// Warps have smaller parts of a tile than those of f16: a value has two parts, and twice the registers.
template <Parts kParts>
int run_f32(const CudaTarget& target, const ProductJob& job, int choice) {
  const int splits = 1 << choice % kSplitKinds;
  switch (choice / kSplitKinds) {
    case 0: return run_tile<float, TileShape<128, 128, 4, 2, 3>, kParts>(target, job, splits);
    case 1: return run_tile<float, TileShape<128, 64, 4, 2, 4>, kParts>(target, job, splits);
    case 2: return run_tile<float, TileShape<64, 64, 2, 2, 4>, kParts>(target, job, splits);
    case 3: return run_tile<float, TileShape<32, 64, 2, 2, 6>, kParts>(target, job, splits);
    default: return kNoSuchChoice;
  }
}

}  // namespace
}  // namespace cuda

int run_product_f32(const CudaTarget& target, const ProductJob& job, int choice) {
  return job.tf32 ? cuda::run_f32<cuda::Parts::kTf32>(target, job, choice)
                  : cuda::run_f32<cuda::Parts::kThreeTf32>(target, job, choice);
}

}  // namespace bolide
