#include "kernels/general/product_half.cuh"

namespace bolide {

int run_product_bf16(const CudaTarget& target, const ProductJob& job, int choice) {
  return cuda::run_product<__nv_bfloat16>(target, job, choice);
}

}  // namespace bolide
