// Products with weights of f64, f32, f16, bf16 and 8-bit floats.
#include "kernels/linear/product_cuda.cuh"

namespace bolide::cuda {

int product_floats(const CudaTarget& target, const CudaProduct& product, bool tiles) {
  return dispatch_floats(product.weight.kind, [&]<class W>() { return product_of<W>(target, product, tiles); });
}

}  // namespace bolide::cuda
