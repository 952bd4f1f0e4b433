// MatMul, Gemm, Conv and their fused kin on GPUs. Constant weights are packed once as the kernels read them: rows of K.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/convolution.h"
#include "ops/device/device_op.h"

namespace bolide {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";

// The activation that a fused op names; nullopt: one that products cannot do.
std::optional<Element> named_activation(std::string_view name, float p, float q) {
  using enum ElementOp;
  if (name.empty()) return Element{};
  if (name == "Relu") return Element{kRelu};
  if (name == "Tanh") return Element{kTanh};
  if (name == "Sigmoid") return Element{kSigmoid};
  if (name == "LeakyRelu") return Element{kLeakyRelu, p};
  if (name == "Clip") return Element{kClip, p, q};
  if (name == "HardSigmoid") return Element{kHardSigmoid, p, q};
  if (name == "HardSwish") return Element{kHardSwish};
  if (name == "Silu") return Element{kSilu, 1};
  return std::nullopt;
}

// Elements of f32, or of 16 bits as they are: what packing moves.
bool is_packable(const Tensor* tensor) {
  return tensor != nullptr &&
         (tensor->dtype() == DType::kF32 || tensor->dtype() == DType::kF16 || tensor->dtype() == DType::kBF16);
}

// [K, N] as [N, K]; blocks that stay in the cache.
template <class T>
void turn(const T* from, T* to, int64_t K, int64_t N, Workers& workers) {
  constexpr int64_t kBlock = 32;
  workers.run((N + kBlock - 1) / kBlock, [&](int64_t block, int) {
    const int64_t n0 = block * kBlock;
    for (int64_t k0 = 0; k0 < K; k0 += kBlock)
      for (int64_t n = n0; n < std::min(N, n0 + kBlock); ++n)
        for (int64_t k = k0; k < std::min(K, k0 + kBlock); ++k) to[n * K + k] = from[k * N + n];
  });
}
Result<Tensor> turned(const Tensor& tensor, Workers& workers) {
  const int64_t K = tensor.dim(0), N = tensor.dim(1);
  BOLIDE_TRY(Tensor to, Tensor::make(tensor.dtype(), {N, K}));
  if (element_bytes(tensor.dtype()) == 4)
    turn(reinterpret_cast<const uint32_t*>(tensor.data()), reinterpret_cast<uint32_t*>(to.mutable_data()), K, N,
         workers);
  else
    turn(reinterpret_cast<const uint16_t*>(tensor.data()), reinterpret_cast<uint16_t*>(to.mutable_data()), K, N,
         workers);
  return to;
}

// B as rows [N, K]: of a constant, packed once; else turned on the device.
struct Right {
  std::shared_ptr<std::byte> memory;
  bool is_constant = false;
};
Result<Right> right_of(DeviceContext& c, size_t input, bool is_turned, int64_t batch, int64_t K, int64_t N) {
  if (c.is_constant(input) && is_packable(c.known(input)) && batch == 1) {
    const Tensor& tensor = *c.known(input);
    const Tensor matrix = tensor.reshaped(is_turned ? Shape{N, K} : Shape{K, N});
    BOLIDE_TRY(auto memory, c.packed(input, is_turned ? "rows" : "turned", [&]() -> Result<Tensor> {
      return is_turned ? Result<Tensor>(matrix) : turned(matrix, c.workers());
    }));
    return Right{std::move(memory), true};
  }
  BOLIDE_TRY(const DeviceTensor b, c.rows(input));
  if (is_turned) return Right{b.memory, false};
  BOLIDE_TRY(auto memory, c.scratch(static_cast<size_t>(batch * K * N) * element_bytes(b.dtype)));
  BOLIDE_TRY(launch_turn(c.stream(), {.in = b.data(),
                                      .out = memory.get(),
                                      .in_dtype = b.dtype,
                                      .out_dtype = b.dtype,
                                      .batch = batch,
                                      .rows = K,
                                      .columns = N,
                                      .padded = K}));
  return Right{std::move(memory), false};
}

// What follows the node, or a residual of its own, must fit the output [rows, N].
bool fits(const DeviceContext& c, const Shape& out) {
  if (DeviceSlot* bias = c.follow_bias(); bias != nullptr && bias->shape.elements() != out[-1]) return false;
  if (DeviceSlot* added = c.residual(); added != nullptr && added->shape != out) return false;
  return true;
}

Result<bool> run_matmul(DeviceContext& c) {
  if (!c.is_half_or_single(0) || c.dtype(1) != c.dtype(0)) return false;
  const Shape &a = c.shape(0), &b = c.shape(1);
  if (a.rank < 2 || b.rank < 2 || a[-1] != b[-2]) return false;
  const int64_t K = a[-1], N = b[-1];
  Shape outer_a = a, outer_b = b;
  outer_a.rank -= 2, outer_b.rank -= 2;
  BOLIDE_TRY(Shape shape, broadcast(outer_a, outer_b));
  const int64_t count_a = outer_a.elements(), count_b = outer_b.elements(), count = shape.elements();
  if ((count_a != 1 && count_a != count) || (count_b != 1 && count_b != count)) return false;
  shape.dims[static_cast<size_t>(shape.rank++)] = a[-2];
  shape.dims[static_cast<size_t>(shape.rank++)] = N;
  if (!fits(c, shape) || K == 0) return false;
  ProductJob job;
  job.M = a[-2], job.N = N, job.K = K;
  job.batch = count;
  if (count_b == 1 && count_a == count) job.M *= count, job.batch = 1;  // one tall matrix
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  BOLIDE_TRY(const Right right, right_of(c, 1, false, count_b, K, N));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), shape));
  std::vector<DeviceTensor> held;
  BOLIDE_TRY(job.epilogue, c.epilogue(-1, y, held));
  job.a = x.data(), job.b = right.memory.get(), job.out = y.data(), job.dtype = x.dtype;
  job.b_is_constant = right.is_constant;
  job.a_stride = job.b_stride = K, job.out_stride = job.epilogue.residual_stride = N;
  job.a_batch = count_a == 1 ? 0 : job.M * K, job.b_batch = count_b == 1 ? 0 : K * N;
  job.out_batch = job.epilogue.residual_batch = job.M * N;
  BOLIDE_TRY(c.product(job));
  return true;
}

Result<bool> run_gemm_then(DeviceContext& c, std::optional<Element> then) {
  if (!then || !c.is_half_or_single(0) || c.dtype(1) != c.dtype(0)) return false;
  BOLIDE_TRY(const float alpha, c.attributes().number("alpha", 1));
  BOLIDE_TRY(const float beta, c.attributes().number("beta", 1));
  BOLIDE_TRY(const int64_t turn_a, c.attributes().integer("transA", 0));
  BOLIDE_TRY(const int64_t turn_b, c.attributes().integer("transB", 0));
  const Shape &a = c.shape(0), &b = c.shape(1);
  if (a.rank != 2 || b.rank != 2) return false;
  const int64_t M = a[turn_a != 0 ? 1 : 0], K = a[turn_a != 0 ? 0 : 1], N = b[turn_b != 0 ? 0 : 1];
  if (b[turn_b != 0 ? 1 : 0] != K || K == 0) return false;
  const Shape shape{M, N};
  const bool has_bias = c.has(2) && beta != 0;
  const bool is_row =
      has_bias && c.shape(2).elements() == N && (c.shape(2).rank == 1 || (c.shape(2).rank == 2 && c.shape(2)[0] == 1));
  if (has_bias && (beta != 1 || c.dtype(2) != c.dtype(0) || (!is_row && c.shape(2) != shape))) return false;
  if (!fits(c, shape) ||
      (c.is_followed() && (then->op != ElementOp::kCopy || has_bias) && (c.follow_bias() != nullptr)))
    return false;
  if (c.is_followed() && (then->op != ElementOp::kCopy || (has_bias && !is_row && c.residual() != nullptr)))
    return false;
  ProductJob job{.M = M, .N = N, .K = K};
  BOLIDE_TRY(DeviceTensor x, c.rows(0));
  job.a = x.data();
  if (turn_a != 0) {
    BOLIDE_TRY(const Right left, right_of(c, 0, false, 1, K, M));
    x.memory = left.memory;
    job.a = x.data();
  }
  BOLIDE_TRY(const Right right, right_of(c, 1, turn_b != 0, 1, K, N));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), shape));
  std::vector<DeviceTensor> held;
  BOLIDE_TRY(job.epilogue, c.epilogue(is_row ? 2 : -1, y, held));
  if (has_bias && !is_row) {
    BOLIDE_TRY(const DeviceTensor added, c.rows(2));
    held.push_back(added);
    job.epilogue.residual = added.data();
  }
  if (then->op != ElementOp::kCopy) job.epilogue.then = *then;
  job.epilogue.alpha = alpha;
  job.b = right.memory.get(), job.out = y.data(), job.dtype = x.dtype, job.b_is_constant = right.is_constant;
  job.a_stride = job.b_stride = K, job.out_stride = job.epilogue.residual_stride = N;
  BOLIDE_TRY(c.product(job));
  return true;
}
Result<bool> run_gemm(DeviceContext& c) { return run_gemm_then(c, Element{}); }
Result<bool> run_fused_gemm(DeviceContext& c) {
  BOLIDE_TRY(const std::string name, c.attributes().text("activation", ""));
  BOLIDE_TRY(const float alpha, c.attributes().number("activation_alpha", name == "LeakyRelu" ? 0.01f : 0.2f));
  BOLIDE_TRY(const float beta, c.attributes().number("activation_beta", 0.5f));
  return run_gemm_then(c, named_activation(name, alpha, beta));
}

// W [M, C, taps] as [M, taps, padded C], each row filled up to `depth` elements.
template <class T>
Tensor packed_taps(const Tensor& w, int64_t padded, int64_t depth, Tensor to) {
  const int64_t M = w.dim(0), C = w.dim(1), taps = M * C == 0 ? 0 : w.elements() / (M * C);
  const T* from = reinterpret_cast<const T*>(w.data());
  T* out = reinterpret_cast<T*>(to.mutable_data());
  std::fill_n(out, M * depth, T{});
  for (int64_t m = 0; m < M; ++m)
    for (int64_t channel = 0; channel < C; ++channel)
      for (int64_t t = 0; t < taps; ++t) out[m * depth + t * padded + channel] = from[(m * C + channel) * taps + t];
  return to;
}
// W [M, C, taps] as [taps, M, C].
template <class T>
Tensor packed_groups(const Tensor& w, Tensor to) {
  const int64_t M = w.dim(0), C = w.dim(1), taps = M * C == 0 ? 0 : w.elements() / (M * C);
  const T* from = reinterpret_cast<const T*>(w.data());
  T* out = reinterpret_cast<T*>(to.mutable_data());
  for (int64_t i = 0; i < M * C; ++i)
    for (int64_t t = 0; t < taps; ++t) out[t * M * C + i] = from[i * taps + t];
  return to;
}

// X [N, H, W, padded C]: zeros in the channels that it has not.
Result<std::shared_ptr<std::byte>> padded_input(DeviceContext& c, int64_t padded) {
  const Shape& shape = c.shape(0);
  if (shape[1] == padded) {
    BOLIDE_TRY(const DeviceTensor x, c.last(0));
    return x.memory;
  }
  BOLIDE_TRY(DeviceTensor x, c.raw(0));
  if (x.channels_last) {
    BOLIDE_TRY(x, c.rows(0));
  }
  const DType kept = c.machine().kept(c.dtype(0));
  int64_t plane = 1;
  for (int d = 2; d < shape.rank; ++d) plane *= shape[d];
  BOLIDE_TRY(auto memory, c.scratch(static_cast<size_t>(shape[0] * plane * padded) * element_bytes(kept)));
  BOLIDE_TRY(launch_turn(c.stream(), {.in = x.data(),
                                      .out = memory.get(),
                                      .in_dtype = x.dtype,
                                      .out_dtype = kept,
                                      .batch = shape[0],
                                      .rows = shape[1],
                                      .columns = plane,
                                      .padded = padded}));
  return memory;
}

Result<bool> run_conv_then(DeviceContext& c, std::optional<Element> then, bool has_residual) {
  if (!then || !c.is_half_or_single(0) || c.dtype(1) != c.dtype(0) || !is_packable(c.known(1))) return false;
  Convolution v;
  BOLIDE_TRY(c.with_shapes([&](RunContext& r) -> Result<> {
    BOLIDE_TRY(const Tensor* x, r.tensor(0));
    BOLIDE_TRY(const Tensor* w, r.tensor(1));
    BOLIDE_TRY(const Tensor* b, r.tensor_if(2));
    BOLIDE_TRY(v, read_convolution(r, *x, *w, b));
    return {};
  }));
  BOLIDE_TRY(auto at, geometry_of(v.window, v.N, v.C));
  if (!at || v.shape.elements() == 0 || v.C == 0) return false;
  if (has_residual && (c.shape(3) != v.shape || c.dtype(3) != c.dtype(0))) return false;
  if (c.is_followed() && (then->op != ElementOp::kCopy || has_residual)) return false;
  if (c.follow_bias() != nullptr || (c.residual() != nullptr && c.residual()->shape != v.shape)) return false;
  const Tensor& w = *c.known(1);
  const DType kept = c.machine().kept(c.dtype(0));
  const bool is_half = kept != DType::kF32, is_small = element_bytes(w.dtype()) == 2;
  const int64_t taps = at->R * at->S;
  if (v.groups > 1) {
    BOLIDE_TRY(const auto packed, c.packed(1, "groups", [&]() -> Result<Tensor> {
      BOLIDE_TRY(Tensor to, Tensor::make(w.dtype(), {w.elements()}));
      return is_small ? packed_groups<uint16_t>(w, std::move(to)) : packed_groups<uint32_t>(w, std::move(to));
    }));
    BOLIDE_TRY(const DeviceTensor x, c.last(0));
    BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), v.shape, true));
    GroupedJob job{.x = x.data(), .w = packed.get(), .out = y.data(), .dtype = kept, .at = *at, .M = v.M};
    job.groups = v.groups;
    std::vector<DeviceTensor> held;
    BOLIDE_TRY(job.epilogue, c.epilogue(2, y, held));
    if (has_residual) {
      BOLIDE_TRY(const DeviceTensor added, c.last(3));
      held.push_back(added);
      job.epilogue.residual = added.data();
    }
    if (then->op != ElementOp::kCopy) job.epilogue.then = *then;
    job.epilogue.residual_stride = v.M;
    BOLIDE_TRY(launch_grouped(c.stream(), job));
    return true;
  }
  const int64_t padded = v.C <= 4 ? 4 : is_half ? (v.C + 7) / 8 * 8 : (v.C + 3) / 4 * 4;
  const int64_t depth = is_half ? (taps * padded + 7) / 8 * 8 : taps * padded;
  if (depth > INT32_MAX) return false;
  BOLIDE_TRY(const auto packed, c.packed(1, is_half ? "taps" : "taps of one", [&]() -> Result<Tensor> {
    BOLIDE_TRY(Tensor to, Tensor::make(w.dtype(), {v.M, depth}));
    return is_small ? packed_taps<uint16_t>(w, padded, depth, std::move(to))
                    : packed_taps<uint32_t>(w, padded, depth, std::move(to));
  }));
  BOLIDE_TRY(const auto x, padded_input(c, padded));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), v.shape, true));
  ProductJob job;
  at->C = padded;
  job.at = *at;
  job.a = x.get(), job.b = packed.get(), job.out = y.data(), job.dtype = kept, job.b_is_constant = true;
  job.M = v.N * at->OH * at->OW, job.N = v.M, job.K = depth;
  job.b_stride = depth, job.out_stride = v.M;
  job.is_convolution = !v.window.is_pointwise() || padded == 4;
  job.a_stride = padded;
  if (!job.is_convolution) job.at = {};
  std::vector<DeviceTensor> held;
  BOLIDE_TRY(job.epilogue, c.epilogue(2, y, held));
  if (has_residual) {
    BOLIDE_TRY(const DeviceTensor added, c.last(3));
    held.push_back(added);
    job.epilogue.residual = added.data();
  }
  if (then->op != ElementOp::kCopy) job.epilogue.then = *then;
  job.epilogue.residual_stride = v.M;
  BOLIDE_TRY(c.product(job));
  return true;
}
Result<bool> run_conv(DeviceContext& c) { return run_conv_then(c, Element{}, false); }
Result<bool> run_fused_conv(DeviceContext& c) {
  BOLIDE_TRY(const std::string name, c.attributes().text("activation", ""));
  BOLIDE_TRY(const auto parameters, c.attributes().numbers("activation_params"));
  const auto parameter = [&](size_t i) { return i < parameters.size() ? parameters[i] : 0.f; };
  return run_conv_then(c, named_activation(name, parameter(0), parameter(1)), c.has(3));
}

// W [C, M / groups, taps] as [groups, taps, M / groups, depth]: rows of the C / groups channels, filled up to `depth`.
template <class T>
Tensor packed_transposed(const Tensor& w, int64_t groups, int64_t depth, Tensor to) {
  const int64_t own = w.dim(1), channels = w.dim(0) / groups, taps = w.elements() / (w.dim(0) * own);
  const T* from = reinterpret_cast<const T*>(w.data());
  T* out = reinterpret_cast<T*>(to.mutable_data());
  std::fill_n(out, groups * taps * own * depth, T{});
  for (int64_t c = 0; c < channels * groups; ++c)
    for (int64_t m = 0; m < own; ++m)
      for (int64_t t = 0; t < taps; ++t)
        out[((c / channels * taps + t) * own + m) * depth + c % channels] = from[(c * own + m) * taps + t];
  return to;
}

// A product makes columns: what each input position adds to each output channel and tap. A second kernel adds them up.
Result<bool> run_conv_transpose(DeviceContext& c) {
  if (!c.is_half_or_single(0) || c.dtype(1) != c.dtype(0) || !is_packable(c.known(1))) return false;
  Convolution v;
  BOLIDE_TRY(c.with_shapes([&](RunContext& r) -> Result<> {
    BOLIDE_TRY(v, read_transposed(r));
    return {};
  }));
  BOLIDE_TRY(const auto at, geometry_of(v.window, v.N, v.M));
  if (!at || v.shape.elements() == 0 || v.C == 0) return false;
  if (c.follow_bias() != nullptr || (c.residual() != nullptr && c.residual()->shape != v.shape)) return false;
  const Tensor& w = *c.known(1);
  const DType kept = c.machine().kept(c.dtype(0));
  const int64_t positions = v.N * at->OH * at->OW, taps = at->R * at->S, channels = v.C / v.groups,
                own = v.M / v.groups;
  if (positions == 0 || taps == 0 || positions > (int64_t{1} << 40) / (taps * v.M)) return false;
  const int64_t each = kept == DType::kF32 ? 4 : 8;
  const int64_t depth = v.groups == 1 ? (channels + each - 1) / each * each : channels;
  BOLIDE_TRY(const auto packed, c.packed(1, fmt::format("transposed {}", v.groups), [&]() -> Result<Tensor> {
    BOLIDE_TRY(Tensor to, Tensor::make(w.dtype(), {v.groups * taps * own, depth}));
    return element_bytes(w.dtype()) == 2 ? packed_transposed<uint16_t>(w, v.groups, depth, std::move(to))
                                         : packed_transposed<uint32_t>(w, v.groups, depth, std::move(to));
  }));
  BOLIDE_TRY(const auto x, padded_input(c, v.groups == 1 ? depth : v.C));
  BOLIDE_TRY(const auto columns, c.scratch(static_cast<size_t>(positions * taps * v.M) * element_bytes(kept)));
  ProductJob job{.a = x.get(), .b = packed.get(), .out = columns.get(), .dtype = kept};
  job.M = positions, job.N = taps * own, job.K = depth, job.batch = v.groups, job.b_is_constant = true;
  job.a_stride = v.groups == 1 ? depth : v.C, job.b_stride = depth, job.out_stride = taps * v.M;
  job.a_batch = channels, job.b_batch = taps * own * depth, job.out_batch = taps * own;
  if (v.groups == 1) job.a_batch = job.b_batch = job.out_batch = 0;
  BOLIDE_TRY(c.product(job));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), v.shape, true));
  FoldJob fold{.columns = columns.get(), .out = y.data(), .dtype = kept, .at = *at, .M = v.M, .groups = v.groups};
  std::vector<DeviceTensor> held;
  BOLIDE_TRY(fold.epilogue, c.epilogue(2, y, held));
  BOLIDE_TRY(launch_fold(c.stream(), fold));
  return true;
}

constexpr DeviceOp kRows[] = {
    {"", "MatMul", run_matmul, true},
    {"", "Gemm", run_gemm, true},
    {"", "Conv", run_conv, true},
    {"", "ConvTranspose", run_conv_transpose, true},
    {kMicrosoft, "FusedConv", run_fused_conv, true},
    {kMicrosoft, "FusedGemm", run_fused_gemm},
};

}  // namespace

Result<std::shared_ptr<std::byte>> constant_rows(DeviceContext& c, size_t input, int64_t K, int64_t N) {
  if (!is_packable(c.known(input))) return std::shared_ptr<std::byte>();
  BOLIDE_TRY(Right right, right_of(c, input, false, 1, K, N));
  return std::move(right.memory);
}

std::span<const DeviceOp> device_product_ops() { return kRows; }

}  // namespace bolide
