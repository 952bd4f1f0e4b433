#include "kernels/attention/attention_cuda.h"

#include "kernels/attention/attention_cuda_parts.h"
#include "kernels/attention/attention_parts.h"
#include "kernels/common/cuda.h"

namespace bolide {
namespace {

constexpr int64_t kTokensMax = 65535;  // a grid's second dimension

bool supports(const Problem& problem) {
  const auto* op = attributes<PagedAttention>(problem);
  return op != nullptr && op->head_dim <= cuda::kAttentionDimMax && problem.sizes[Symbol::kTokens] <= kTokensMax &&
         is_activation(problem.in[0].dtype) && is_activation(problem.out[0].dtype);
}

// (q [T, H*D], order edge) -> [T, H*D].
Result<> launch(const Launch& launch, Stream& stream) {
  const auto& op = attributes<PagedAttention>(launch);
  attention::check_cache(op, launch.batch);
  const BatchInputs& batch = *launch.batch;
  const KvLayer& layer = batch.kv.layers[static_cast<size_t>(op.layer)];
  cuda::AttentionWork work;
  work.q = matrix_of(launch.in[0]), work.out = matrix_of(launch.out[0]);
  work.heads = static_cast<int>(op.heads), work.kv_heads = static_cast<int>(op.kv_heads);
  work.head_dim = static_cast<int>(op.head_dim);
  work.scale = op.scale, work.softcap = op.softcap, work.window = op.window;
  work.k = layer.k, work.v = layer.v, work.pool = batch.kv.dtype, work.block_tokens = batch.kv.block_tokens;
  work.cu_tokens = batch.cu_tokens, work.context = batch.context;
  work.block_table = batch.block_table, work.block_table_stride = batch.block_table_stride;
  work.sequences = static_cast<int>(batch.sizes[Symbol::kSequences]);
  return launched(stream, cuda::attention(target_of(stream), work), "attention_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "attention_cuda", .device = DeviceKind::kCuda, .supports = supports, .launch = launch, .reference = true},
};

}  // namespace

std::span<const Kernel> attention_cuda_kernels() { return kKernels; }

}  // namespace bolide
