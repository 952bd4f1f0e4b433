// Products with weights of block schemes of 32 elements.
#include "kernels/linear/product_cuda.cuh"

namespace bolide::cuda {

int product_blocks32(const CudaTarget& target, const CudaProduct& product, bool tiles) {
  return dispatch_blocks32(product.weight.kind, [&]<class W>() { return product_of<W>(target, product, tiles); });
}

}  // namespace bolide::cuda
