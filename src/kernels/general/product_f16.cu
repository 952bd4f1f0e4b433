#include "kernels/general/product_half.cuh"

namespace bolide {

int product_tiled_choices() { return cuda::kTiles * cuda::kSplitKinds; }

int run_product_tiled(const CudaTarget& target, const ProductJob& job, int choice) {
  if (job.dtype == DType::kF32) return run_product_f32(target, job, choice);
  return job.dtype == DType::kF16 ? run_product_f16(target, job, choice) : run_product_bf16(target, job, choice);
}

int run_product_f16(const CudaTarget& target, const ProductJob& job, int choice) {
  return cuda::run_product<__half>(target, job, choice);
}

}  // namespace bolide
