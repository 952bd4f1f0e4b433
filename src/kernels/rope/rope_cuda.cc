#include "kernels/rope/rope_cuda.h"

#include <algorithm>

#include "kernels/common/cuda.h"
#include "kernels/rope/rope_launch_cuda.h"
#include "kernels/rope/rope_parts.h"

namespace bolide {
namespace rope {

bool fits_cuda(const RopeSpec& spec) { return spec.rotary_dim / 2 <= cuda::kRopeHalfMax; }

cuda::RopeParameters parameters_of(const RopeSpec& spec, const BatchInputs* batch) {
  cuda::RopeParameters p;
  using Kind = cuda::RopeParameters::Kind;
  p.kind = spec.kind == RopeKind::kFixed     ? Kind::kFixed
           : spec.kind == RopeKind::kDynamic ? Kind::kDynamic
                                             : Kind::kLong;
  p.half = static_cast<int>(spec.rotary_dim / 2);
  p.attention_factor = spec.attention_factor, p.theta = spec.theta, p.factor = spec.factor;
  p.original_context = spec.original_context;
  if (p.kind != Kind::kFixed) {
    BOLIDE_CHECK(batch != nullptr && batch->rope_length != nullptr && batch->cu_tokens != nullptr,
                 "rope that depends on the length needs the batch's sequences");
    p.cu_tokens = batch->cu_tokens, p.rope_length = batch->rope_length;
    p.sequences = static_cast<int>(batch->sizes[Symbol::kSequences]);
  }
  std::copy(spec.inv_freq.begin(), spec.inv_freq.end(), p.inv_freq);
  std::copy(spec.inv_freq_long.begin(), spec.inv_freq_long.end(), p.inv_freq_long);
  return p;
}

cuda::KvPools pools_of(const Launch& launch, int64_t layer, int64_t kv_heads, int64_t head_dim) {
  const rope::KvTarget target = kv_target(launch, layer, kv_heads, head_dim);
  return {target.layer->k,         target.layer->v,     target.kv->dtype,
          target.kv->block_tokens, target.kv->kv_heads, target.slots};
}

}  // namespace rope

namespace {

using rope::parameters_of;
using rope::pools_of;

bool supports_rope(const Problem& problem) {
  const auto* op = attributes<Rope>(problem);
  return op != nullptr && rope::fits_cuda(op->rope) && same_activations(problem.in.first(1)) &&
         problem.out[0].dtype == problem.in[0].dtype;
}
bool supports_rope_kv_write(const Problem& problem) {
  const auto* op = attributes<RopeKvWrite>(problem);
  return op != nullptr && rope::fits_cuda(op->rope) && same_activations(problem.in.first(3)) &&
         problem.out[0].dtype == problem.in[0].dtype;
}
bool supports_kv_write(const Problem& problem) {
  return attributes<KvWrite>(problem) != nullptr && same_activations(problem.in.first(2));
}

// (x [T, H*D], positions i32 [T]) -> [T, H*D].
Result<> rope_launch(const Launch& launch, Stream& stream) {
  const auto& op = attributes<Rope>(launch);
  cuda::RopeWork work;
  work.q = matrix_of(launch.in[0]), work.out = matrix_of(launch.out[0]);
  work.positions = launch.in[1].as<const int32_t>();
  work.tokens = work.q.rows, work.head_dim = static_cast<int>(op.head_dim);
  const int status = cuda::rope(target_of(stream), work, parameters_of(op.rope, launch.batch), {});
  return launched(stream, status, "rope_cuda");
}

// (q [T, H*D], k [T, G*D], v [T, G*D], positions i32 [T]) -> (rotated q [T, H*D], order edge).
Result<> rope_kv_write(const Launch& launch, Stream& stream) {
  const auto& op = attributes<RopeKvWrite>(launch);
  cuda::RopeWork work;
  work.q = matrix_of(launch.in[0]), work.out = matrix_of(launch.out[0]);
  work.k = matrix_of(launch.in[1]), work.v = matrix_of(launch.in[2]);
  work.positions = launch.in[3].as<const int32_t>();
  work.tokens = work.q.rows, work.head_dim = static_cast<int>(op.head_dim);
  const int status = cuda::rope(target_of(stream), work, parameters_of(op.rope, launch.batch),
                                pools_of(launch, op.layer, op.kv_heads, op.head_dim));
  return launched(stream, status, "rope_kv_write_cuda");
}

// (k [T, G*D], v [T, G*D]) -> order edge.
Result<> kv_write(const Launch& launch, Stream& stream) {
  const auto& op = attributes<KvWrite>(launch);
  cuda::RopeWork work;
  work.k = matrix_of(launch.in[0]), work.v = matrix_of(launch.in[1]);
  work.tokens = work.k.rows, work.head_dim = static_cast<int>(op.head_dim);
  const int status = cuda::rope(target_of(stream), work, {}, pools_of(launch, op.layer, op.kv_heads, op.head_dim));
  return launched(stream, status, "kv_write_cuda");
}

constexpr Kernel kKernels[] = {
    {.name = "rope_cuda", .device = DeviceKind::kCuda, .supports = supports_rope, .launch = rope_launch},
    {.name = "rope_kv_write_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports_rope_kv_write,
     .launch = rope_kv_write},
    {.name = "kv_write_cuda", .device = DeviceKind::kCuda, .supports = supports_kv_write, .launch = kv_write},
};

}  // namespace

std::span<const Kernel> rope_cuda_kernels() { return kKernels; }

}  // namespace bolide
