#include "zoo/draft.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "synth/random_fill.h"
#include "zoo/weight_fill.h"

namespace bolide {
namespace {

constexpr double kBiasDeviation = 0.02;
constexpr double kGainDeviation = 0.1, kShiftDeviation = 0.1;
constexpr float kBatchNormEpsilon = 1e-5f, kBatchNormMomentum = 0.9f;

// What ReLU makes of a normal distribution.
Signal rectified(Signal x) {
  const double variance = std::max(x.power - x.mean * x.mean, 1e-9), sigma = std::sqrt(variance);
  const double z = x.mean / sigma;
  const double below = 0.5 * std::erfc(-z / std::numbers::sqrt2);
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  const double mean = x.mean * below + sigma * density;
  x.power = x.power * below + x.mean * sigma * density;
  x.mean = mean;
  return x;
}

int64_t ir_version_of(int64_t opset) { return opset >= 23 ? 11 : opset >= 21 ? 10 : opset >= 19 ? 9 : 8; }

template <class T>
OnnxDraftTensor small_tensor(DType dtype, std::vector<int64_t> dims, std::span<const T> values) {
  OnnxDraftTensor tensor{"", dtype, std::move(dims), "", {}};
  tensor.bytes = little_endian(values);
  return tensor;
}

}  // namespace

Draft::Draft(std::string_view name, const ZooOptions& options) : seed_(options.seed), opset_(options.opset) {
  OnnxDraft& file = model_.file;
  file.ir_version = ir_version_of(opset_);
  file.producer = "bolide";
  file.producer_version = "zoo";
  file.name = name;
  file.opsets = {{"", opset_}};
  file.metadata = {{"zoo", std::string(name)}, {"seed", fmt::format("{}", seed_)}};
}

ZooModel Draft::take() && { return std::move(model_); }

std::string Draft::input(const std::string& name, DType dtype, Dims dims) {
  model_.file.inputs.push_back({name, dtype, std::move(dims)});
  return name;
}

// The node that makes the value gives it the output's name.
void Draft::output(const std::string& name, const std::string& value, Dims dims) {
  for (OnnxDraftNode& node : model_.file.nodes) {
    for (std::string& in : node.in)
      if (in == value) in = name;
    for (std::string& out : node.out)
      if (out == value) out = name;
  }
  model_.file.outputs.push_back({name, DType::kF32, std::move(dims)});
}

Draft::Names Draft::node_of(std::string_view scope, std::string_view op, Names in, size_t outputs,
                            Attributes attributes) {
  std::string name = scope.empty() ? fmt::format("/{}", op) : fmt::format("/{}/{}", scope, op);
  const int use = uses_[name]++;
  if (use > 0) name += fmt::format("_{}", use);
  Names out;
  for (size_t i = 0; i < outputs; ++i) out.push_back(fmt::format("{}_output_{}", name, i));
  model_.file.nodes.push_back({name, std::string(op), "", std::move(in), out, std::move(attributes)});
  return out;
}

std::string Draft::node(std::string_view scope, std::string_view op, Names in, Attributes attributes) {
  return node_of(scope, op, std::move(in), 1, std::move(attributes))[0];
}

uint64_t Draft::key_of(const std::string& name) const { return stream_key(seed_, name); }

OnnxDraftTensor& Draft::initializer(const std::string& name, std::vector<int64_t> dims, bool trained) {
  auto& all = model_.file.initializers;
  all.push_back({name, DType::kF32, std::move(dims), "", {}});
  if (trained) model_.parameters += static_cast<int64_t>(all.back().byte_size() / sizeof(float));
  return all.back();
}

std::string Draft::parameter(const std::string& name, std::vector<int64_t> dims, double centre, double deviation) {
  initializer(name, std::move(dims), true).fill = [key = key_of(name), centre, deviation](uint64_t at,
                                                                                          MutableBytes out) {
    fill_normal(key, at, centre, deviation, out);
  };
  return name;
}

std::string Draft::table(const std::string& name, std::vector<int64_t> dims, std::vector<float> values) {
  OnnxDraftTensor& tensor = initializer(name, std::move(dims), false);
  tensor.bytes = little_endian(std::span<const float>(values));
  BOLIDE_CHECK(tensor.bytes.size() == tensor.byte_size(), "{}: {} bytes", name, tensor.bytes.size());
  return name;
}

std::string Draft::trained_table(const std::string& name, std::vector<int64_t> dims, std::vector<float> values) {
  model_.parameters += static_cast<int64_t>(values.size());
  return table(name, std::move(dims), std::move(values));
}

std::string Draft::integers(std::string_view scope, std::vector<int64_t> values) {
  const std::vector<int64_t> dims = {static_cast<int64_t>(values.size())};
  return node(scope, "Constant", {}, {{"value", small_tensor<int64_t>(DType::kI64, dims, values)}});
}
std::string Draft::integer(std::string_view scope, int64_t value) {
  return node(scope, "Constant", {}, {{"value", small_tensor<int64_t>(DType::kI64, {}, std::span(&value, 1))}});
}
std::string Draft::number(std::string_view scope, float value) {
  return node(scope, "Constant", {}, {{"value", small_tensor<float>(DType::kF32, {}, std::span(&value, 1))}});
}

std::string Draft::conv_weight(const std::string& name, int64_t channels, const ConvSize& size, double deviation) {
  return parameter(name, {size.out, channels / size.groups, size.kernel, size.kernel}, 0, deviation);
}

static Draft::Attributes conv_attributes(const ConvSize& size) {
  const std::vector<int64_t> kernel(2, size.kernel), stride(2, size.stride), pads(4, size.padding);
  return {{"dilations", std::vector<int64_t>{1, 1}},
          {"group", size.groups},
          {"kernel_shape", kernel},
          {"pads", pads},
          {"strides", stride}};
}

Signal Draft::conv_norm(const std::string& conv, const std::string& norm, const Signal& x, const ConvSize& size,
                        double gain) {
  const int64_t fan_in = x.channels / size.groups * size.kernel * size.kernel;
  const double deviation = std::sqrt(2.0 / static_cast<double>(fan_in));  // He et al. 2015 (arXiv:1502.01852)
  const std::string weight = conv_weight(conv + ".weight", x.channels, size, deviation);
  const std::string y = node(conv, "Conv", {x.name, weight}, conv_attributes(size));
  const std::string scale = parameter(norm + ".weight", {size.out}, gain, kGainDeviation * gain);
  const std::string shift = parameter(norm + ".bias", {size.out}, 0, kShiftDeviation);
  const RowStatistics rows{.weight_key = key_of(weight),
                           .row = fan_in,
                           .deviation = deviation,
                           .mean = x.mean,
                           .variance = x.power - x.mean * x.mean};
  const std::string mean = norm + ".running_mean", variance = norm + ".running_var";
  initializer(mean, {size.out}, false).fill = [rows, key = key_of(mean)](uint64_t at, MutableBytes out) {
    fill_means(rows, key, at, out);
  };
  initializer(variance, {size.out}, false).fill = [rows, key = key_of(variance)](uint64_t at, MutableBytes out) {
    fill_variances(rows, key, at, out);
  };
  Attributes attributes = {{"epsilon", kBatchNormEpsilon}, {"momentum", kBatchNormMomentum}};
  if (opset_ >= 14) attributes.push_back({"training_mode", int64_t{0}});
  Signal out{"", size.out, 0, gain * gain * (1 + kGainDeviation * kGainDeviation) + kShiftDeviation * kShiftDeviation};
  out.name = node(norm, "BatchNormalization", {y, scale, shift, mean, variance}, std::move(attributes));
  return out;
}

Signal Draft::conv(const std::string& scope, const Signal& x, const ConvSize& size) {
  const int64_t fan_in = x.channels / size.groups * size.kernel * size.kernel;
  const double variance = x.power - x.mean * x.mean;
  const double deviation = 1 / std::sqrt(static_cast<double>(fan_in) * variance);
  const std::string weight = conv_weight(scope + ".weight", x.channels, size, deviation);
  const std::string bias = scope + ".bias";
  const RowStatistics rows{.weight_key = key_of(weight),
                           .row = fan_in,
                           .deviation = deviation,
                           .mean = -x.mean,  // what the rest has is taken away
                           .variance = variance};
  initializer(bias, {size.out}, true).fill = [rows, key = key_of(bias)](uint64_t at, MutableBytes out) {
    fill_means(rows, key, at, out);
  };
  return {node(scope, "Conv", {x.name, weight, bias}, conv_attributes(size)), size.out, 0, 1};
}

Signal Draft::relu(std::string_view scope, const Signal& x) {
  Signal out = rectified(x);
  out.name = node(scope, "Relu", {x.name});
  return out;
}

Signal Draft::relu6(std::string_view scope, const Signal& x) {
  Signal out = rectified(x);
  const std::string low = number(scope, 0), high = number(scope, 6);
  out.name = node(scope, "Clip", {x.name, low, high});
  return out;
}

Signal Draft::silu(std::string_view scope, const Signal& x) {
  constexpr double kMean = 0.2066, kPower = 0.3557;  // of a normal distribution of variance 1
  const std::string gate = node(scope, "Sigmoid", {x.name});
  return {node(scope, "Mul", {x.name, gate}), x.channels, kMean, kPower};
}

Signal Draft::add(std::string_view scope, const Signal& a, const Signal& b) {
  return {node(scope, "Add", {a.name, b.name}), a.channels, a.mean + b.mean, a.power + b.power + 2 * a.mean * b.mean};
}

Signal Draft::concat(std::string_view scope, const std::vector<Signal>& parts) {
  Signal out{"", 0, 0, 0};
  Names names;
  for (const Signal& part : parts) {
    const auto channels = static_cast<double>(part.channels);
    names.push_back(part.name);
    out.channels += part.channels;
    out.mean += part.mean * channels, out.power += part.power * channels;
  }
  out.mean /= static_cast<double>(out.channels), out.power /= static_cast<double>(out.channels);
  out.name = node(scope, "Concat", std::move(names), {{"axis", int64_t{1}}});
  return out;
}

std::string Draft::linear(const std::string& scope, const std::string& x, int64_t in, int64_t out, double power,
                          bool has_bias) {
  const double deviation = 1 / std::sqrt(static_cast<double>(in) * power);
  const std::string y = node(scope, "MatMul", {x, parameter(scope + ".weight", {in, out}, 0, deviation)});
  return has_bias ? node(scope, "Add", {parameter(scope + ".bias", {out}, 0, kBiasDeviation), y}) : y;
}

std::string Draft::dense(const std::string& scope, const std::string& x, int64_t in, int64_t out, double power) {
  const double deviation = 1 / std::sqrt(static_cast<double>(in) * power);
  const std::string weight = parameter(scope + ".weight", {out, in}, 0, deviation);
  const std::string bias = parameter(scope + ".bias", {out}, 0, kBiasDeviation);
  return node(scope, "Gemm", {x, weight, bias}, {{"alpha", 1.0f}, {"beta", 1.0f}, {"transB", int64_t{1}}});
}

std::string Draft::reduce_mean(std::string_view scope, const std::string& x) {
  if (opset_ < 18)
    return node(scope, "ReduceMean", {x}, {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{1}}});
  return node(scope, "ReduceMean", {x, integers(scope, {-1})}, {{"keepdims", int64_t{1}}});
}

std::string Draft::layer_norm(const std::string& scope, const std::string& x, int64_t dim, float epsilon) {
  const std::string centred = node(scope, "Sub", {x, reduce_mean(scope, x)});
  const std::string square = node(scope, "Pow", {centred, number(scope, 2)});
  const std::string variance = node(scope, "Add", {reduce_mean(scope, square), number(scope, epsilon)});
  const std::string normal = node(scope, "Div", {centred, node(scope, "Sqrt", {variance})});
  const std::string scaled = node(scope, "Mul", {normal, parameter(scope + ".weight", {dim}, 1, kGainDeviation)});
  return node(scope, "Add", {scaled, parameter(scope + ".bias", {dim}, 0, kBiasDeviation)});
}

std::string Draft::gelu(std::string_view scope, const std::string& x) {
  const std::string root = number(scope, std::numbers::sqrt2_v<float>);
  const std::string erf = node(scope, "Erf", {node(scope, "Div", {x, root})});
  const std::string gate = node(scope, "Add", {erf, number(scope, 1)});
  return node(scope, "Mul", {node(scope, "Mul", {x, gate}), number(scope, 0.5f)});
}

std::string Draft::dim_of(std::string_view scope, const std::string& x, int64_t axis) {
  const std::string shape = node(scope, "Shape", {x});
  return node(scope, "Gather", {shape, integer(scope, axis)}, {{"axis", int64_t{0}}});
}

std::string Draft::shape(std::string_view scope, const std::vector<int64_t>& dims, const std::string& like) {
  Names parts;
  for (const int64_t dim : dims) {
    if (dim >= -1) {
      parts.push_back(integers(scope, {dim}));
    } else {
      const std::string size = dim_of(scope, like, dim - kDim);
      parts.push_back(node(scope, "Unsqueeze", {size, integers(scope, {0})}));
    }
  }
  return node(scope, "Concat", std::move(parts), {{"axis", int64_t{0}}});
}

std::string Draft::view(std::string_view scope, const std::string& x, const std::vector<int64_t>& dims,
                        const std::string& like) {
  return node(scope, "Reshape", {x, shape(scope, dims, like)});
}

}  // namespace bolide
