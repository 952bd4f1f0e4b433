// Every kernel of GPUs. One line per list; the lists' headers stand beside the kernels.
#include "kernels/act/act_cuda.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/embed/embed_cuda.h"
#include "kernels/gather_rows/gather_rows_cuda.h"
#include "kernels/linear/cublaslt_cuda.h"
#include "kernels/linear/gemv_cuda.h"
#include "kernels/linear/linear_cuda.h"
#include "kernels/moe/moe_cuda.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/registry.h"
#include "kernels/rope/rope_cuda.h"
#include "kernels/sample/sample_cuda.h"

namespace bolide {

const KernelRegistry& cuda_kernels() {
  static const std::span<const Kernel> kLists[] = {
      act_cuda_kernels(),  attention_cuda_kernels(), embed_cuda_kernels(),  gather_rows_cuda_kernels(),
      gemv_cuda_kernels(), cublaslt_cuda_kernels(),  linear_cuda_kernels(), moe_cuda_kernels(),
      norm_cuda_kernels(), rope_cuda_kernels(),      sample_cuda_kernels(),
  };
  static const KernelRegistry kRegistry(kLists);
  return kRegistry;
}

}  // namespace bolide
