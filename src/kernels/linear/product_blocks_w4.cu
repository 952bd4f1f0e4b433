// Products with weights of the w4 block schemes.
#include "kernels/linear/product_cuda.cuh"

namespace bolide::cuda {

int product_blocks_w4(const CudaTarget& target, const CudaProduct& product, bool tiles) {
  return dispatch_blocks_w4(product.weight.kind, [&]<class W>() { return product_of<W>(target, product, tiles); });
}

}  // namespace bolide::cuda
