// Ops on GPUs that treat each channel of [N, C, ...] by itself: normalisation with known or measured statistics.
#include <cmath>

#include "ops/device/device_op.h"
#include "ops/moves.h"

namespace bolide {
namespace {

struct Channels {
  int64_t N = 0, C = 0, plane = 1;
};
Channels channels_of(const Shape& shape) {
  Channels n{shape[0], shape[1], 1};
  for (int d = 2; d < shape.rank; ++d) n.plane *= shape[d];
  return n;
}

// What kernels do behind: an activation only.
bool can_follow(const DeviceContext& c) { return c.follow_bias() == nullptr && c.residual() == nullptr; }

Result<bool> scale_channels(DeviceContext& c, const DeviceTensor& x, bool by_image, const float* scale,
                            const float* shift) {
  const Channels n = channels_of(x.shape);
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), x.shape, x.channels_last));
  ChannelsJob job{.x = x.data(), .y = y.data(), .dtype = x.dtype, .N = n.N, .C = n.C, .plane = n.plane};
  job.last = x.channels_last, job.by_image = by_image, job.scale = scale, job.shift = shift, job.then = c.then();
  BOLIDE_TRY(launch_channels(c.stream(), job));
  return true;
}

// With constant statistics: one scale and one shift a channel.
Result<bool> run_batch_norm(DeviceContext& c) {
  if (!c.is_half_or_single(0) || c.shape(0).rank < 2 || !can_follow(c)) return false;
  BOLIDE_TRY(const float epsilon, c.attributes().number("epsilon", 1e-5f));
  BOLIDE_TRY(const int64_t spatial, c.attributes().integer("spatial", 1));
  BOLIDE_TRY(const int64_t training, c.attributes().integer("training_mode", 0));
  if (c.version() < 7 || spatial == 0 || training != 0 || (c.version() < 14 && c.outputs() > 1)) return false;
  for (size_t i = 1; i < c.outputs(); ++i)
    if (c.is_output_used(i)) return false;
  const auto C = static_cast<size_t>(c.shape(0)[1]);
  std::array<std::vector<double>, 4> given;  // scale, bias, mean, variance
  for (size_t i = 0; i < 4; ++i) {
    if (c.known(i + 1) == nullptr) return false;
    BOLIDE_TRY(given[i], doubles_of(*c.known(i + 1)));
    if (given[i].size() != C) return false;
  }
  BOLIDE_TRY(Tensor scale, Tensor::make(DType::kF32, {c.shape(0)[1]}));
  BOLIDE_TRY(Tensor shift, Tensor::make(DType::kF32, {c.shape(0)[1]}));
  for (size_t i = 0; i < C; ++i) {
    const double factor = given[0][i] / std::sqrt(given[3][i] + static_cast<double>(epsilon));
    scale.mutate<float>()[i] = static_cast<float>(factor);
    shift.mutate<float>()[i] = static_cast<float>(given[1][i] - given[2][i] * factor);
  }
  BOLIDE_TRY(const void* scales, c.table(scale));
  BOLIDE_TRY(const void* shifts, c.table(shift));
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  return scale_channels(c, x, false, static_cast<const float*>(scales), static_cast<const float*>(shifts));
}

// Groups of channels of each image, by statistics of their own.
Result<bool> normalise_groups(DeviceContext& c, int64_t groups, bool by_group) {
  if (!c.is_half_or_single(0) || !can_follow(c)) return false;
  BOLIDE_TRY(const float epsilon, c.attributes().number("epsilon", 1e-5f));
  const Channels n = channels_of(c.shape(0));
  if (groups < 1 || n.C == 0 || n.C % groups != 0 || n.N * n.plane == 0) return false;
  for (const size_t i : {1, 2})
    if (!c.has(i) || c.shape(i) != Shape{by_group ? groups : n.C}) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  MomentsJob job{.x = x.data(), .dtype = x.dtype, .N = n.N, .C = n.C, .plane = n.plane, .groups = groups};
  job.last = x.channels_last, job.by_group = by_group, job.epsilon = epsilon;
  BOLIDE_TRY(job.scale, c.floats(1));
  BOLIDE_TRY(job.bias, c.floats(2));
  const auto room = [&](int64_t floats) -> Result<float*> {
    BOLIDE_TRY(const auto memory, c.scratch(static_cast<size_t>(floats) * sizeof(float)));
    return reinterpret_cast<float*>(memory.get());
  };
  BOLIDE_TRY(job.partial, room(moments_chunks(n.plane) * n.N * n.C * 2));
  BOLIDE_TRY(job.scales, room(n.N * n.C));
  BOLIDE_TRY(job.shifts, room(n.N * n.C));
  BOLIDE_TRY(launch_moments(c.stream(), job));
  return scale_channels(c, x, true, job.scales, job.shifts);
}
Result<bool> run_instance_norm(DeviceContext& c) {
  return c.shape(0).rank < 2 ? Result<bool>(false) : normalise_groups(c, c.shape(0)[1], false);
}
Result<bool> run_group_norm(DeviceContext& c) {
  BOLIDE_TRY(const int64_t groups, c.attributes().integer("num_groups", 0));
  return c.shape(0).rank < 2 ? Result<bool>(false) : normalise_groups(c, groups, c.version() < 21);
}

Result<bool> run_local_norm(DeviceContext& c) {
  BOLIDE_TRY(const float alpha, c.attributes().number("alpha", 1e-4f));
  BOLIDE_TRY(const float beta, c.attributes().number("beta", 0.75f));
  BOLIDE_TRY(const float bias, c.attributes().number("bias", 1));
  BOLIDE_TRY(const int64_t size, c.attributes().integer("size", 0));
  if (!c.is_half_or_single(0) || c.shape(0).rank < 2 || size < 1) return false;
  const Channels n = channels_of(c.shape(0));
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), x.shape, x.channels_last));
  LocalNormJob job{.x = x.data(), .y = y.data(), .dtype = x.dtype, .N = n.N, .C = n.C, .plane = n.plane};
  job.before = std::min((size - 1) / 2, n.C), job.after = std::min(size - 1 - (size - 1) / 2, n.C);
  job.last = x.channels_last;
  job.alpha = alpha / static_cast<float>(size), job.beta = beta, job.bias = bias;
  BOLIDE_TRY(launch_local_norm(c.stream(), job));
  return true;
}

constexpr DeviceOp kRows[] = {
    {"", "BatchNormalization", run_batch_norm, true},
    {"", "InstanceNormalization", run_instance_norm, true},
    {"", "GroupNormalization", run_group_norm, true},
    {"", "LRN", run_local_norm},
};

}  // namespace

std::span<const DeviceOp> device_channel_ops() { return kRows; }

}  // namespace bolide
