// Products with weights of block schemes of 256 elements.
#include "kernels/linear/product_cuda.cuh"

namespace bolide::cuda {

int product_blocks256(const CudaTarget& target, const CudaProduct& product, bool tiles) {
  return dispatch_blocks256(product.weight.kind, [&]<class W>() { return product_of<W>(target, product, tiles); });
}

}  // namespace bolide::cuda
