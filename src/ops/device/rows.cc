// Normalisation, softmax, sums along axes and pools on GPUs.
#include <algorithm>
#include <array>

#include "ops/device/device_op.h"
#include "ops/window.h"

namespace bolide {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";

struct NormInputs {
  int scale = -1, bias = -1, skip = -1, skip_bias = -1;
  int sum = -1;  // output
  bool centred = true;
  float epsilon = 1e-5f;
};

Result<bool> run_norm(DeviceContext& c, const NormInputs& n) {
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const float epsilon, c.attributes().number("epsilon", n.epsilon));
  if (!c.is_half_or_single(0)) return false;
  const Shape& shape = c.shape(0);
  if (shape.rank < 1) return false;
  BOLIDE_TRY(const int axis, axis_of(n.skip >= 0 ? -1 : given, shape.rank));
  NormJob job;
  job.columns = 1, job.epsilon = epsilon, job.centred = n.centred;
  for (int d = axis; d < shape.rank; ++d) job.columns *= shape[d];
  constexpr int64_t kColumnsMax = 48 << 10;
  if (job.columns == 0 || job.columns > kColumnsMax) return false;
  job.rows = shape.elements() / job.columns;
  for (const int i : {n.scale, n.bias, n.skip_bias})
    if (i >= 0 && c.has(static_cast<size_t>(i)) && c.shape(static_cast<size_t>(i)).elements() != job.columns)
      return false;
  for (size_t i = 1; i < c.outputs(); ++i)
    if (static_cast<int>(i) != n.sum && c.is_output_used(i)) return false;
  const auto vector = [&](int i) -> Result<const float*> {
    if (i < 0 || !c.has(static_cast<size_t>(i))) return nullptr;
    return c.floats(static_cast<size_t>(i));
  };
  BOLIDE_TRY(job.scale, vector(n.scale));
  BOLIDE_TRY(job.bias, vector(n.bias));
  BOLIDE_TRY(job.skip_bias, vector(n.skip_bias));
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  DeviceTensor skip;
  if (n.skip >= 0) {
    const auto i = static_cast<size_t>(n.skip);
    if (!c.has(i) || c.dtype(i) != c.dtype(0) || c.shape(i).elements() % job.columns != 0 ||
        c.shape(i)[-1] != shape[-1])
      return false;
    job.skip_rows = c.shape(i).elements() / job.columns;
    if (job.skip_rows == 0 || job.rows % job.skip_rows != 0) return false;
    BOLIDE_TRY(skip, c.rows(i));
    job.skip = skip.data();
  }
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), shape));
  job.x = x.data(), job.y = y.data(), job.dtype = x.dtype;
  if (n.sum >= 0 && static_cast<size_t>(n.sum) < c.outputs() && c.is_output_used(static_cast<size_t>(n.sum))) {
    BOLIDE_TRY(const DeviceTensor sum, c.make(static_cast<size_t>(n.sum), c.dtype(0), shape));
    job.sum = sum.data();
  }
  BOLIDE_TRY(launch_norm(c.stream(), job));
  return true;
}
Result<bool> run_layer_norm(DeviceContext& c) { return run_norm(c, {.scale = 1, .bias = 2}); }
Result<bool> run_rms_norm(DeviceContext& c) { return run_norm(c, {.scale = 1, .centred = false}); }
Result<bool> run_skip_layer_norm(DeviceContext& c) {
  return run_norm(c, {.scale = 2, .bias = 3, .skip = 1, .skip_bias = 4, .sum = 3, .epsilon = 1e-12f});
}
Result<bool> run_skip_rms_norm(DeviceContext& c) {
  return run_norm(c, {.scale = 2, .skip = 1, .skip_bias = 3, .sum = 3, .centred = false, .epsilon = 1e-12f});
}

Result<bool> run_softmax(DeviceContext& c) {
  if (!c.is_half_or_single(0) || c.shape(0).rank < 1) return false;
  const bool flat = c.version() < 13;
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", flat ? 1 : -1));
  BOLIDE_TRY(const int axis, axis_of(given, c.shape(0).rank));
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), x.shape));
  SoftmaxJob job{.in = x.data(), .out = y.data(), .dtype = x.dtype, .outer = 1, .count = x.shape[axis], .inner = 1};
  for (int d = 0; d < axis; ++d) job.outer *= x.shape[d];
  for (int d = axis + 1; d < x.shape.rank; ++d) (flat ? job.count : job.inner) *= x.shape[d];
  job.logarithm = c.name() == "LogSoftmax";
  BOLIDE_TRY(launch_softmax(c.stream(), job));
  return true;
}

// Axes that lie side by side, in one of the two orders.
Result<bool> reduce_as(DeviceContext& c, Reduction kind, const std::array<bool, kRankMax>& over, bool keep,
                       const DeviceTensor& x) {
  const Shape& shape = x.shape;
  Shape result;
  for (int d = 0; d < shape.rank; ++d) {
    const bool gone = over[static_cast<size_t>(d)];
    if (!gone || keep) result.dims[static_cast<size_t>(result.rank++)] = gone ? 1 : shape[d];
  }
  std::vector<int> order;  // axes as they lie
  for (int d = 0; d < shape.rank; ++d) order.push_back(d);
  if (x.channels_last) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  int first = shape.rank, end = shape.rank, pieces = 0;
  for (int i = 0; i < shape.rank; ++i) {
    const auto is_over = [&](int k) { return over[static_cast<size_t>(order[static_cast<size_t>(k)])]; };
    if (!is_over(i)) continue;
    if (i == 0 || !is_over(i - 1)) first = i, ++pieces;
    end = i + 1;
  }
  if (pieces > 1) return false;
  ReduceJob job{.kind = kind, .in = x.data(), .in_dtype = x.dtype, .outer = 1, .count = 1, .inner = 1};
  for (int i = 0; i < shape.rank; ++i)
    (i < first ? job.outer : i < end ? job.count : job.inner) *= shape[order[static_cast<size_t>(i)]];
  if (job.count == 0) return false;
  // What is kept of a channels-last tensor lies so too, where all its axes are kept.
  const bool last = x.channels_last && keep;
  if (x.channels_last && !keep && job.inner != 1 && result.rank > 2) return false;
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), result, last));
  job.out = y.data(), job.out_dtype = y.dtype;
  // Long columns of which there are too few to fill the GPU are cut into chunks.
  constexpr int64_t kLong = 512, kBlocks = 512, kChunksMax = 64;
  const int64_t blocks = (job.inner + 31) / 32 * job.outer;
  if (job.inner > 1 && job.count >= kLong && blocks < kBlocks) {
    job.chunks = std::clamp<int64_t>(std::min(kBlocks / std::max<int64_t>(blocks, 1), job.count / 128), 1, kChunksMax);
    BOLIDE_TRY(const auto partial, c.scratch(static_cast<size_t>(job.outer * job.chunks * job.inner) * sizeof(float)));
    job.partial = reinterpret_cast<float*>(partial.get());
  }
  BOLIDE_TRY(launch_reduce(c.stream(), job));
  return true;
}
Result<bool> reduce(DeviceContext& c, Reduction kind, const std::array<bool, kRankMax>& over, bool keep) {
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  BOLIDE_TRY(const bool done, reduce_as(c, kind, over, keep, x));
  if (done || !x.channels_last) return done;
  BOLIDE_TRY(const DeviceTensor rows, c.rows(0));
  return reduce_as(c, kind, over, keep, rows);
}

Result<bool> run_reduce(DeviceContext& c) {
  constexpr std::pair<std::string_view, Reduction> kKinds[] = {
      {"ReduceSum", Reduction::kSum}, {"ReduceMean", Reduction::kMean},        {"ReduceMax", Reduction::kMax},
      {"ReduceMin", Reduction::kMin}, {"ReduceProd", Reduction::kProduct},     {"ReduceL1", Reduction::kL1},
      {"ReduceL2", Reduction::kL2},   {"ReduceSumSquare", Reduction::kSquares}};
  const auto* const kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto& k) { return k.first == c.name(); });
  if (kind == std::end(kKinds) || !c.is_half_or_single(0)) return false;
  BOLIDE_TRY(std::vector<int64_t> axes, c.attributes().integers("axes"));
  if (c.has(1)) {
    const auto known = c.integers(1);
    if (!known) return false;
    axes = *known;
  }
  BOLIDE_TRY(const int64_t keep, c.attributes().integer("keepdims", 1));
  BOLIDE_TRY(const int64_t nothing, c.attributes().integer("noop_with_empty_axes", 0));
  if (axes.empty() && nothing != 0) return false;
  std::array<bool, kRankMax> over{};
  if (axes.empty()) over.fill(true);
  for (const int64_t given : axes) {
    BOLIDE_TRY(const int axis, axis_of(given, c.shape(0).rank));
    over[static_cast<size_t>(axis)] = true;
  }
  return reduce(c, kind->second, over, keep != 0);
}

template <Reduction kind>
Result<bool> run_global_pool(DeviceContext& c) {
  if (!c.is_half_or_single(0) || c.shape(0).rank < 3) return false;
  std::array<bool, kRankMax> over{};
  for (int d = 2; d < c.shape(0).rank; ++d) over[static_cast<size_t>(d)] = true;
  return reduce(c, kind, over, true);
}

Result<bool> run_pool(DeviceContext& c) {
  if (!c.is_half_or_single(0) || c.shape(0).rank < 3 || c.shape(0).rank > 4) return false;
  for (size_t i = 1; i < c.outputs(); ++i)
    if (c.is_output_used(i)) return false;
  Window window;
  Shape shape;
  BOLIDE_TRY(c.with_shapes([&](RunContext& r) -> Result<> {
    BOLIDE_TRY(const Tensor* x, r.tensor(0));
    BOLIDE_TRY(const int64_t ceil, r.attributes().integer("ceil_mode", 0));
    BOLIDE_TRY(window, forward_window(r, *x, {}, ceil != 0));
    BOLIDE_TRY(shape, output_shape(window, x->dim(0), x->dim(1)));
    return {};
  }));
  BOLIDE_TRY(const int64_t padded, c.attributes().integer("count_include_pad", 0));
  PoolJob job;
  job.kind = c.name() == "MaxPool" ? Pool::kMax : padded != 0 ? Pool::kMeanWithPadding : Pool::kMean;
  BOLIDE_TRY(const auto at, geometry_of(window, shape[0], c.shape(0)[1]));
  if (!at) return false;
  job.at = *at;
  const bool two = window.rank == 2;
  job.limit_w = window.input[two ? 1 : 0] + window.end[two ? 1 : 0];
  job.limit_h = two ? window.input[0] + window.end[0] : 1;
  BOLIDE_TRY(const DeviceTensor x, c.last(0));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), shape, true));
  job.in = x.data(), job.out = y.data(), job.dtype = x.dtype;
  BOLIDE_TRY(launch_pool(c.stream(), job));
  return true;
}

constexpr DeviceOp kRows[] = {
    {"", "LayerNormalization", run_layer_norm},
    {kMicrosoft, "LayerNormalization", run_layer_norm},
    {"", "RMSNormalization", run_rms_norm},
    {"", "SimplifiedLayerNormalization", run_rms_norm},
    {kMicrosoft, "SimplifiedLayerNormalization", run_rms_norm},
    {kMicrosoft, "SkipLayerNormalization", run_skip_layer_norm},
    {kMicrosoft, "SkipSimplifiedLayerNormalization", run_skip_rms_norm},
    {"", "Softmax", run_softmax},
    {"", "LogSoftmax", run_softmax},
    {"", "ReduceSum", run_reduce},
    {"", "ReduceMean", run_reduce},
    {"", "ReduceMax", run_reduce},
    {"", "ReduceMin", run_reduce},
    {"", "ReduceProd", run_reduce},
    {"", "ReduceL1", run_reduce},
    {"", "ReduceL2", run_reduce},
    {"", "ReduceSumSquare", run_reduce},
    {"", "GlobalAveragePool", run_global_pool<Reduction::kMean>},
    {"", "GlobalMaxPool", run_global_pool<Reduction::kMax>},
    {"", "MaxPool", run_pool},
    {"", "AveragePool", run_pool},
};

}  // namespace

Result<std::optional<Geometry>> geometry_of(const Window& window, int64_t N, int64_t C) {
  constexpr int64_t kMost = 1 << 24;
  if (window.rank < 1 || window.rank > 2) return std::nullopt;
  for (size_t d = 0; d < static_cast<size_t>(window.rank); ++d)
    for (const int64_t size : {window.input[d], window.output[d], window.kernel[d], window.stride[d],
                               window.dilation[d], std::abs(window.begin[d])})
      if (size > kMost) return std::nullopt;
  Geometry at;
  const size_t w = static_cast<size_t>(window.rank - 1);
  at.N = N, at.C = C;
  at.W = window.input[w], at.OW = window.output[w], at.S = window.kernel[w];
  at.stride_w = static_cast<int>(window.stride[w]), at.pad_w = static_cast<int>(window.begin[w]);
  at.dilation_w = static_cast<int>(window.dilation[w]);
  at.H = at.OH = at.R = 1;
  if (window.rank == 2) {
    at.H = window.input[0], at.OH = window.output[0], at.R = window.kernel[0];
    at.stride_h = static_cast<int>(window.stride[0]), at.pad_h = static_cast<int>(window.begin[0]);
    at.dilation_h = static_cast<int>(window.dilation[0]);
  }
  if (at.H * at.W > INT32_MAX / std::max<int64_t>(1, at.C) || at.N * at.OH * at.OW > INT32_MAX) return std::nullopt;
  return at;
}

std::span<const DeviceOp> device_row_ops() { return kRows; }

}  // namespace bolide
