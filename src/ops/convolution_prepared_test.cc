// Convolutions and pools that are made ready beside their rows.
#include <gtest/gtest.h>

#include <random>

#include "ops/prepared_op.h"
#include "ops/run_op_for_test.h"

namespace bolide {
namespace {

struct Drawing {
  std::mt19937 random{std::random_device{}()};
  int64_t number(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  }
  Tensor tensor(const Shape& shape) {
    auto made = Tensor::make(DType::kF32, shape);
    std::normal_distribution<float> normal;
    for (float& value : made->mutate<float>()) value = normal(random);
    return *made;
  }
};

// Runs the row and what it prepares, on the level given; false: it prepared nothing, or refused.
bool compare(std::string_view domain, std::string_view name, int64_t version, const std::vector<Tensor>& inputs,
             const std::vector<NamedAttribute>& attributes, const std::vector<size_t>& constants, Isa isa) {
  const OpDef* def = find_op(domain, name, version);
  if (def == nullptr || def->prepare == nullptr) return false;
  Attributes given;
  for (const auto& [key, value] : attributes) given.set(key, value);
  const std::vector<AnyValue> values(inputs.begin(), inputs.end());
  std::vector<const AnyValue*> in, constant(inputs.size());
  for (size_t i = 0; i < values.size(); ++i) in.push_back(inputs[i] ? &values[i] : nullptr);
  for (const size_t i : constants) constant[i] = in[i];
  Workers workers(2);
  DeviceInfo device;
  device.cpu = detect_cpu();
  device.isa = isa;
  auto prepared = def->prepare(
      {.attributes = given, .version = version, .constants = constant, .device = device, .workers = workers});
  EXPECT_TRUE(prepared) << (prepared ? "" : prepared.error().text);
  if (!prepared || *prepared == nullptr) return false;
  std::vector<AnyValue> out(1);
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kInvalid, "no body");
  };
  RunContext context(given, version, in, out, workers, heap_pool(), no_body);
  const auto ran = (*prepared)->run(context);
  const auto expected = run_op(name, version, inputs, attributes, 1, domain);
  if (ran && !*ran) return false;
  EXPECT_EQ(ran.has_value(), expected.has_value());
  if (!ran || !expected) return true;
  const Tensor &got = *out[0].tensor(), &want = *(*expected)[0].tensor();
  EXPECT_EQ(got.shape(), want.shape());
  if (got.shape() != want.shape()) return true;
  // Both sum in f32, the prepared one in another order: for sums of K products of normal values the difference grows
  // with K, whatever cancels.
  const bool sums = name.find("Conv") != std::string_view::npos && inputs[1].dim(0) > 0;
  const int64_t terms = sums ? inputs[1].elements() / inputs[1].dim(0) : 0;
  const double summed = 2e-7 * static_cast<double>(terms);
  double most = 0.1;  // what is averaged is about 1, and may cancel
  for (const float value : want.as<float>()) most = std::max(most, std::abs(static_cast<double>(value)));
  for (size_t i = 0; i < want.as<float>().size(); ++i) {
    const float a = got.as<float>()[i], b = want.as<float>()[i];
    if (a == b) continue;  // infinities too
    EXPECT_NEAR(a, b, 2e-5 * most + summed) << name << " at " << i << " of " << to_string(want.shape());
    if (::testing::Test::HasFailure()) return true;
  }
  return true;
}

std::vector<Isa> levels() {
  std::vector<Isa> list;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512})
    if (supports(detect_cpu(), isa)) list.push_back(isa);
  return list;
}

// Random attributes of a window over `rank` axes of `sizes`, which grow if the kernel does not fit.
std::vector<NamedAttribute> window(Drawing& draw, size_t rank, std::vector<int64_t>& sizes,
                                   std::vector<int64_t>& kernel) {
  std::vector<int64_t> strides, dilations, begin, end;
  kernel.clear();
  for (size_t i = 0; i < rank; ++i) {
    kernel.push_back(draw.number(1, 4)), strides.push_back(draw.number(1, 3)), dilations.push_back(draw.number(1, 2));
    const int64_t most = std::max<int64_t>(kernel[i] / 2, 0);
    begin.push_back(draw.number(0, most)), end.push_back(draw.number(0, most));
    sizes[i] = std::max(sizes[i], (kernel[i] - 1) * dilations[i] + 1 - begin[i] - end[i]);
  }
  begin.insert(begin.end(), end.begin(), end.end());
  std::vector<NamedAttribute> attributes = {{"strides", strides}, {"dilations", dilations}};
  if (draw.number(0, 4) == 0)
    attributes.emplace_back("auto_pad", std::string("SAME_UPPER"));
  else
    attributes.emplace_back("pads", begin);
  return attributes;
}

TEST(PreparedConv, EqualsItsRow) {
  Drawing draw;
  for (int round = 0; round < 120; ++round) {
    const bool last = round % 3 == 0, fused = last || round % 3 == 1;
    const auto rank = static_cast<size_t>(draw.number(1, 2));
    std::vector<int64_t> sizes = {draw.number(1, 12), draw.number(1, 20)}, kernel;
    auto attributes = window(draw, rank, sizes, kernel);
    const int64_t kind = draw.number(0, 3);
    const int64_t groups = kind == 0 ? draw.number(2, 20) : kind == 1 ? 2 : 1;
    const int64_t C = groups * (kind == 0 ? 1 : draw.number(1, 40)),
                  M = groups * (kind == 0 ? draw.number(1, 2) : draw.number(1, 40));
    Shape x{draw.number(1, 2), C}, w{M, C / groups};
    for (size_t i = 0; i < rank; ++i) {
      x.dims[static_cast<size_t>(x.rank++)] = sizes[i];
      w.dims[static_cast<size_t>(w.rank++)] = kernel[i];
    }
    attributes.emplace_back("group", groups);
    if (fused) {
      constexpr std::string_view kNames[] = {"Relu", "Tanh",        "Sigmoid",   "LeakyRelu",
                                             "Clip", "HardSigmoid", "HardSwish", "Silu"};
      attributes.emplace_back("activation", std::string(kNames[draw.number(0, 7)]));
      attributes.emplace_back("activation_params", std::vector<float>{0.1f, 0.6f});
    }
    std::vector<Tensor> inputs = {draw.tensor(x), draw.tensor(w), draw.number(0, 1) == 0 ? Tensor() : draw.tensor({M})};
    if (last) {
      Shape turned{x[0]};
      for (size_t i = 0; i < rank; ++i) turned.dims[static_cast<size_t>(turned.rank++)] = sizes[i];
      turned.dims[static_cast<size_t>(turned.rank++)] = C;
      inputs[0] = inputs[0].reshaped(turned);
    }
    const std::string_view domain = last ? "bolide" : fused ? "com.microsoft" : "";
    const std::string_view name = last ? "ChannelsLastConv" : fused ? "FusedConv" : "Conv";
    const int64_t version = domain.empty() ? 22 : 1;
    if (fused && draw.number(0, 1) == 0) {  // a residual of the output's shape
      const auto y = run_op(name, version, inputs, attributes, 1, domain);
      ASSERT_TRUE(y) << y.error().text;
      inputs.push_back(draw.tensor((*y)[0].tensor()->shape()));
    }
    const std::vector<size_t> constants = draw.number(0, 1) == 0 ? std::vector<size_t>{1, 2} : std::vector<size_t>{1};
    for (const Isa isa : levels()) ASSERT_TRUE(compare(domain, name, version, inputs, attributes, constants, isa));
    ASSERT_FALSE(HasFailure());
  }
}

TEST(PreparedConv, PartsAreReadWhereTheyLie) {
  Drawing draw;
  for (int round = 0; round < 60; ++round) {
    const auto rank = static_cast<size_t>(draw.number(1, 2));
    const bool pointwise = round % 3 != 0;
    std::vector<int64_t> sizes = {draw.number(1, 12), draw.number(1, 20)}, kernel;
    auto attributes = window(draw, rank, sizes, kernel);
    if (pointwise) attributes.clear(), kernel.assign(rank, 1);
    Shape image{draw.number(1, 2)};
    for (size_t i = 0; i < rank; ++i) image.dims[static_cast<size_t>(image.rank++)] = sizes[i];
    ++image.rank;
    std::vector<Tensor> parts;
    std::vector<int64_t> numbers;
    int64_t C = 0;
    for (int64_t k = pointwise ? draw.number(1, 4) : 1; k > 0; --k) {
      image[image.rank - 1] = draw.number(1, 60);
      parts.push_back(draw.tensor(image));
      const int64_t first = draw.number(0, image[image.rank - 1] - 1);
      const int64_t count = round % 2 == 0 ? draw.number(1, image[image.rank - 1] - first) : image[image.rank - 1];
      numbers.push_back(round % 2 == 0 ? first : 0), numbers.push_back(count);
      C += count;
    }
    if (round % 2 == 0) attributes.emplace_back("parts", numbers);
    attributes.emplace_back("activation", std::string("Silu"));
    Shape w{draw.number(1, 40), C};
    for (size_t i = 0; i < rank; ++i) w.dims[static_cast<size_t>(w.rank++)] = kernel[i];
    std::vector<Tensor> inputs = {parts[0], draw.tensor(w), draw.number(0, 1) == 0 ? Tensor() : draw.tensor({w[0]}),
                                  Tensor()};
    inputs.insert(inputs.end(), parts.begin() + 1, parts.end());
    for (const Isa isa : levels())
      ASSERT_TRUE(compare("bolide", "ChannelsLastJoinedConv", 1, inputs, attributes, {1}, isa));
    ASSERT_FALSE(HasFailure());
    const int64_t past = parts[0].dim(-1) + 1;  // one channel more than there are
    EXPECT_FALSE(run_op("ChannelsLastJoinedConv", 1, inputs, {{"parts", std::vector<int64_t>{0, past}}}, 1, "bolide"));
  }
}

TEST(PreparedConv, WhatIsWrongIsStillAnError) {
  Drawing draw;
  const Isa isa = levels().empty() ? Isa::kScalar : levels().back();
  if (isa == Isa::kScalar) GTEST_SKIP() << "no AVX2";
  const Tensor w = draw.tensor({4, 3, 3, 3});
  EXPECT_TRUE(compare("", "Conv", 22, {draw.tensor({1, 5, 8, 8}), w}, {}, {1}, isa));                    // channels
  EXPECT_TRUE(compare("", "Conv", 22, {draw.tensor({1, 3, 2, 2}), w}, {}, {1}, isa));                    // too small
  EXPECT_TRUE(compare("", "Conv", 22, {draw.tensor({1, 3, 8, 8}), w, draw.tensor({5})}, {}, {1}, isa));  // bias
  EXPECT_TRUE(compare("", "Conv", 22, {draw.tensor({1, 3, 8}), w}, {}, {1}, isa));                       // rank
  EXPECT_FALSE(compare("", "Conv", 22, {draw.tensor({1, 3, 8, 8}), w}, {{"group", int64_t{3}}}, {1}, isa));
  EXPECT_TRUE(compare("", "Conv", 22, {draw.tensor({0, 3, 8, 8}), w}, {}, {1}, isa));  // nothing
}

TEST(PreparedPools, EqualTheirRows) {
  Drawing draw;
  for (int round = 0; round < 90; ++round) {
    const auto rank = static_cast<size_t>(draw.number(1, 2));
    std::vector<int64_t> sizes = {draw.number(1, 12), draw.number(1, 30)}, kernel;
    auto attributes = window(draw, rank, sizes, kernel);
    attributes.emplace_back("kernel_shape", kernel);
    if (draw.number(0, 1) == 0) attributes.emplace_back("ceil_mode", int64_t{1});
    if (round % 3 == 1 && draw.number(0, 1) == 0) attributes.emplace_back("count_include_pad", int64_t{1});
    if (round % 3 == 2) attributes.clear();
    Shape x{draw.number(1, 2)};
    for (size_t i = 0; i < rank; ++i) x.dims[static_cast<size_t>(x.rank++)] = sizes[i];
    x.dims[static_cast<size_t>(x.rank++)] = draw.number(1, 40);
    constexpr std::string_view kNames[] = {"ChannelsLastMaxPool", "ChannelsLastAveragePool",
                                           "ChannelsLastGlobalAveragePool"};
    for (const Isa isa : levels())
      ASSERT_TRUE(compare("bolide", kNames[round % 3], 1, {draw.tensor(x)}, attributes, {}, isa));
    ASSERT_FALSE(HasFailure());
  }
}

TEST(PreparedMoves, EqualTheirRows) {
  Drawing draw;
  const std::vector<std::vector<int64_t>> perms = {{0, 2, 3, 1}, {0, 3, 1, 2}, {1, 0},
                                                   {2, 3, 0, 1}, {0, 2, 1},    {0, 1, 3, 2}};
  for (int round = 0; round < 60; ++round) {
    const std::vector<int64_t>& perm = perms[static_cast<size_t>(round) % perms.size()];
    Shape shape;
    for (size_t i = 0; i < perm.size(); ++i) shape.dims[static_cast<size_t>(shape.rank++)] = draw.number(1, 40);
    for (const Isa isa : levels())
      ASSERT_TRUE(compare("", "Transpose", 13, {draw.tensor(shape)}, {{"perm", perm}}, {}, isa));
    const int axis = static_cast<int>(draw.number(0, shape.rank - 1));
    std::vector<Tensor> parts;
    for (int64_t k = draw.number(2, 4); k > 0; --k) {
      shape[axis] = draw.number(0, 30);
      parts.push_back(draw.tensor(shape));
    }
    const int64_t given = draw.number(0, 1) == 0 ? axis : axis - shape.rank;
    for (const Isa isa : levels()) ASSERT_TRUE(compare("", "Concat", 13, parts, {{"axis", given}}, {}, isa));
    ASSERT_FALSE(HasFailure());
  }
  // No two runs of axes, and none at all.
  for (const Isa isa : levels()) {
    const auto turned = [&](std::vector<int64_t> perm) {
      return compare("", "Transpose", 13, {draw.tensor({2, 3, 4})}, {{"perm", std::move(perm)}}, {}, isa);
    };
    EXPECT_TRUE(turned({2, 1, 0}));
    EXPECT_FALSE(turned({7, 8, 9}));
    EXPECT_FALSE(turned({-1, 0, 1}));
  }
}

}  // namespace
}  // namespace bolide
