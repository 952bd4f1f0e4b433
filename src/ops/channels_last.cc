#include "ops/channels_last.h"

#include <fmt/format.h>

#include "kernels/channels_last/channels_last.h"
#include "ops/moves.h"
#include "ops/ops.h"

namespace bolide {
namespace {

// Axes of NHWC in the order of NCHW, or back.
std::vector<int> order_of(int rank, bool first) {
  std::vector<int> order = {0};
  if (first) order.push_back(rank - 1);
  for (int i = 1; i + 1 < rank; ++i) order.push_back(first ? i : i + 1);
  if (!first) order.push_back(1);
  return order;
}

// Runs another op on the inputs, those of `images` with their channels first, and turns its output back.
Result<> run_channels_first(RunContext& c, std::string_view domain, std::string_view name, int64_t version,
                            std::initializer_list<size_t> images) {
  const OpDef* def = find_op(domain, name, version);
  if (def == nullptr) return error(Code::kInternal, fmt::format("there is no {}", name));
  std::vector<AnyValue> values(c.inputs());
  std::vector<const AnyValue*> in(c.inputs());
  for (size_t i = 0; i < c.inputs(); ++i) in[i] = c.value(i);
  for (const size_t i : images) {
    BOLIDE_TRY(const Tensor* x, c.tensor_if(i));
    if (x == nullptr) continue;
    if (x->rank() < 3)
      return error(Code::kInvalid, fmt::format("X is {}, expected [N, ..., C]", to_string(x->shape())));
    BOLIDE_TRY(Tensor turned, transposed(*x, order_of(x->rank(), true), c.pool()));
    values[i] = std::move(turned);
    in[i] = &values[i];
  }
  std::vector<AnyValue> out(1);
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kNotFound, "has no body");
  };
  RunContext inner(c.attributes(), version, in, out, c.workers(), c.pool(), no_body);
  BOLIDE_TRY(def->run(inner));
  const Tensor* y = out[0].tensor();
  if (y == nullptr) return error(Code::kInternal, fmt::format("{} made no tensor", name));
  BOLIDE_TRY(Tensor turned, transposed(*y, order_of(y->rank(), false), c.pool()));
  c.set(0, std::move(turned));
  return {};
}

Result<> run_conv(RunContext& c) { return run_channels_first(c, "com.microsoft", "FusedConv", 1, {0, 3}); }
Result<> run_joined_conv(RunContext& c) {
  BOLIDE_TRY(const std::vector<ChannelsPart> parts, joined_parts(c));
  std::vector<Tensor> tensors;
  for (const ChannelsPart& part : parts) {
    BOLIDE_TRY(Tensor tensor, part_of(*part.x, part.x->rank() - 1, part.first, part.count, c.pool()));
    tensors.push_back(std::move(tensor));
  }
  std::vector<const Tensor*> list;
  for (const Tensor& tensor : tensors) list.push_back(&tensor);
  BOLIDE_TRY(Tensor whole, concatenated(list, -1, c.pool()));
  const AnyValue x(std::move(whole));
  std::vector<const AnyValue*> in = {&x};
  for (size_t i = 1; i < std::min<size_t>(4, c.inputs()); ++i) in.push_back(c.value(i));
  std::vector<AnyValue> out(1);
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kNotFound, "has no body");
  };
  RunContext inner(c.attributes(), 1, in, out, c.workers(), c.pool(), no_body);
  BOLIDE_TRY(run_conv(inner));
  const Tensor* y = out[0].tensor();
  if (y == nullptr) return error(Code::kInternal, "the convolution made no tensor");
  c.set(0, *y);
  return {};
}
Result<> run_max_pool(RunContext& c) { return run_channels_first(c, "", "MaxPool", 22, {0}); }
Result<> run_average_pool(RunContext& c) { return run_channels_first(c, "", "AveragePool", 22, {0}); }
Result<> run_global_average_pool(RunContext& c) { return run_channels_first(c, "", "GlobalAveragePool", 22, {0}); }

constexpr OpDef kOps[] = {
    {.domain = kChannelsLastDomain, .name = "ChannelsLastConv", .run = run_conv, .prepare = prepare_channels_last_conv},
    {.domain = kChannelsLastDomain,
     .name = "ChannelsLastJoinedConv",
     .run = run_joined_conv,
     .prepare = prepare_channels_last_joined_conv},
    {.domain = kChannelsLastDomain,
     .name = "ChannelsLastMaxPool",
     .run = run_max_pool,
     .prepare = prepare_channels_last_max_pool},
    {.domain = kChannelsLastDomain,
     .name = "ChannelsLastAveragePool",
     .run = run_average_pool,
     .prepare = prepare_channels_last_average_pool},
    {.domain = kChannelsLastDomain,
     .name = "ChannelsLastGlobalAveragePool",
     .run = run_global_average_pool,
     .prepare = prepare_channels_last_global_average_pool},
};

}  // namespace

std::span<const OpDef> channels_last_ops() { return kOps; }

Result<std::vector<ChannelsPart>> joined_parts(const RunContext& c) {
  std::vector<ChannelsPart> parts;
  for (size_t i = 0; i < c.inputs(); i = i == 0 ? 4 : i + 1) {
    BOLIDE_TRY(const Tensor* x, c.tensor(i));
    const Tensor& first = parts.empty() ? *x : *parts[0].x;
    bool fits = x->rank() >= 3 && x->rank() == first.rank() && x->dtype() == first.dtype();
    for (int d = 0; fits && d + 1 < x->rank(); ++d) fits = x->dim(d) == first.dim(d);
    if (!fits)
      return error(Code::kInvalid,
                   fmt::format("input {} is {} beside {}", i, to_string(x->shape()), to_string(first.shape())));
    parts.push_back({x, 0, x->dim(-1)});
  }
  BOLIDE_TRY(const std::vector<int64_t> given, c.attributes().integers("parts"));
  if (given.empty()) return parts;
  if (given.size() != 2 * parts.size())
    return error(Code::kInvalid, fmt::format("parts has {} numbers for {} inputs", given.size(), parts.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t first = given[2 * i], count = given[2 * i + 1], all = parts[i].count;
    if (first < 0 || count < 0 || first > all || count > all - first)
      return error(Code::kInvalid, fmt::format("channels {} and {} more of {}", first, count, all));
    parts[i].first = first, parts[i].count = count;
  }
  return parts;
}

Tensor as_channels_first(const Tensor& x) {
  Shape shape{x.dim(0), x.dim(-1)};
  for (int i = 1; i + 1 < x.rank(); ++i) shape.dims[static_cast<size_t>(shape.rank++)] = x.dim(i);
  return Tensor::over(nullptr, nullptr, x.dtype(), shape);
}

Result<Tensor> to_channels_last(RunContext& c, Isa isa, const Tensor& x) {
  Shape shape{x.dim(0)};
  for (int i = 2; i < x.rank(); ++i) shape.dims[static_cast<size_t>(shape.rank++)] = x.dim(i);
  shape.dims[static_cast<size_t>(shape.rank++)] = x.dim(1);
  BOLIDE_TRY(Tensor y, c.scratch(DType::kF32, shape));
  if (x.elements() > 0)
    channels_last::transpose(c.workers(), isa, x.dim(0), x.dim(1), x.elements() / x.dim(0) / x.dim(1),
                             x.as<float>().data(), y.mutate<float>().data());
  return y;
}

Result<> to_channels_first(RunContext& c, Isa isa, const Tensor& x, Tensor& y) {
  if (x.elements() > 0)
    channels_last::transpose(c.workers(), isa, x.dim(0), x.elements() / x.dim(0) / x.dim(-1), x.dim(-1),
                             x.as<float>().data(), y.mutate<float>().data());
  return {};
}

igemm::Windows windows_of(const Window& window, int64_t channels) {
  igemm::Windows to;
  to.channels = to.pixel_stride = channels;
  to.height = to.height_out = 1;
  for (size_t i = 0; i < static_cast<size_t>(window.rank); ++i) {
    const size_t at = i + 2 - static_cast<size_t>(window.rank);
    (at == 0 ? to.height : to.width) = window.input[i];
    (at == 0 ? to.height_out : to.width_out) = window.output[i];
    to.kernel[at] = window.kernel[i], to.stride[at] = window.stride[i];
    to.dilation[at] = window.dilation[i], to.begin[at] = window.begin[i];
  }
  return to;
}

std::optional<FusedActivation> fused_activation(const Attributes& attributes) {
  using igemm::Activation;
  constexpr std::pair<std::string_view, Activation> kNames[] = {{"", Activation::kNone},
                                                                {"Relu", Activation::kRelu},
                                                                {"Tanh", Activation::kTanh},
                                                                {"Sigmoid", Activation::kSigmoid},
                                                                {"LeakyRelu", Activation::kLeakyRelu},
                                                                {"Clip", Activation::kClip},
                                                                {"HardSigmoid", Activation::kHardSigmoid},
                                                                {"HardSwish", Activation::kHardSwish},
                                                                {"Silu", Activation::kSilu}};
  const auto name = attributes.text("activation", "");
  const auto parameters = attributes.numbers("activation_params");
  if (!name || !parameters) return std::nullopt;
  const auto parameter = [&](size_t i) { return i < parameters->size() ? (*parameters)[i] : 0.f; };
  for (const auto& [known, kind] : kNames)
    if (known == *name) return FusedActivation{kind, parameter(0), parameter(1)};
  return std::nullopt;
}

}  // namespace bolide
