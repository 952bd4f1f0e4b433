#include "kernels/general/product_half.cuh"

namespace bolide {

int product_half_choices() { return cuda::kTiles * cuda::kSplitKinds; }

int run_product_half(const CudaTarget& target, const ProductJob& job, int choice) {
  return job.dtype == DType::kF16 ? run_product_f16(target, job, choice) : run_product_bf16(target, job, choice);
}

int run_product_f16(const CudaTarget& target, const ProductJob& job, int choice) {
  return cuda::run_product<__half>(target, job, choice);
}

}  // namespace bolide
