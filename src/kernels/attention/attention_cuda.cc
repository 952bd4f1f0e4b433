#include "kernels/attention/attention_cuda.h"

#include "kernels/attention/attention_cuda_parts.h"
#include "kernels/attention/attention_parts.h"
#include "kernels/attention/decode_shape.h"
#include "kernels/common/cuda.h"

namespace bolide {
namespace {

constexpr int64_t kTokensMax = 65535;  // a grid's second dimension

bool supports(const Problem& problem) {
  const auto* op = attributes<PagedAttention>(problem);
  return op != nullptr && op->head_dim <= cuda::kAttentionDimMax && problem.sizes[Symbol::kTokens] <= kTokensMax &&
         is_activation(problem.in[0].dtype) && is_activation(problem.out[0].dtype);
}

// One new token a sequence: a bucket of as many tokens as sequences. f32 queries ask for more than bf16 products give.
bool supports_decode(const Problem& problem) {
  const auto* op = attributes<PagedAttention>(problem);
  return supports(problem) && problem.device->gpu.has_value() && problem.device->gpu->compute_capability == 90 &&
         problem.sizes[Symbol::kTokens] == problem.sizes[Symbol::kSequences] && problem.in[0].dtype == DType::kBF16 &&
         (op->head_dim == 64 || op->head_dim == 96 || op->head_dim == 128) && op->heads % op->kv_heads == 0 &&
         op->heads / op->kv_heads <= cuda::kDecodeGroupMax;
}

// More tokens than sequences: prompts, or chunks of them, beside new tokens of other sequences.
bool supports_prompt(const Problem& problem) {
  const auto* op = attributes<PagedAttention>(problem);
  return supports(problem) && problem.device->gpu.has_value() && problem.device->gpu->compute_capability == 90 &&
         problem.sizes[Symbol::kTokens] > problem.sizes[Symbol::kSequences] && problem.in[0].dtype == DType::kBF16 &&
         problem.out[0].dtype == DType::kBF16 && (op->head_dim == 64 || op->head_dim == 96 || op->head_dim == 128) &&
         op->heads % op->kv_heads == 0 && op->heads / op->kv_heads <= cuda::kPromptGroupMax;
}

bool is_prompt_work(const cuda::AttentionWork& work) {
  const auto whole = [](const void* p, int64_t stride) {
    return (reinterpret_cast<uintptr_t>(p) | static_cast<uintptr_t>(stride * 2)) % 16 == 0;
  };
  const int block = work.block_tokens;
  return (work.pool == DType::kBF16 || work.pool == DType::kF8E4M3) && whole(work.q.data, work.q.stride) &&
         whole(work.out.data, work.out.stride) && whole(work.k, 0) && whole(work.v, 0) &&
         (block == 16 || block == 32 || block == 64 || block % 128 == 0);
}

cuda::AttentionWork work_of(const Launch& launch) {
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
  return work;
}

// (q [T, H*D], order edge) -> [T, H*D].
Result<> launch(const Launch& launch, Stream& stream) {
  return launched(stream, cuda::attention(target_of(stream), work_of(launch)), "attention_cuda");
}
// The cache is not part of the problem: those of f32 and of odd pages are the other kernel's.
Result<> launch_decode(const Launch& launch, Stream& stream) {
  const cuda::AttentionWork work = work_of(launch);
  const int status = cuda::can_decode(work) ? cuda::attention_decode(target_of(stream), work)
                                            : cuda::attention(target_of(stream), work);
  return launched(stream, status, "attention_decode_cuda");
}

Result<> launch_prompt(const Launch& launch, Stream& stream) {
  const cuda::AttentionWork work = work_of(launch);
  const CudaTarget target = target_of(stream);
  const int status = !is_prompt_work(work)         ? cuda::attention(target, work)
                     : work.pool == DType::kF8E4M3 ? cuda::attention_prompt_f8(target, work)
                                                   : cuda::attention_prompt_bf16(target, work);
  return launched(stream, status, "attention_prompt_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "attention_decode_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports_decode,
     .launch = launch_decode,
     .batch_invariant = false},  // sequences decide how many blocks share a context
    {.name = "attention_prompt_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports_prompt,
     .launch = launch_prompt,
     .batch_invariant = false},  // of the same token alone another kernel would take care
    {.name = "attention_cuda", .device = DeviceKind::kCuda, .supports = supports, .launch = launch, .reference = true},
};

}  // namespace

std::span<const Kernel> attention_cuda_kernels() { return kKernels; }

}  // namespace bolide
