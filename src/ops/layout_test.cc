// Hostile inputs of ops that only move elements: each is an error that says what is wrong, and nothing is read or made.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "ops/run_op_for_test.h"

namespace bolide {
namespace {

constexpr int64_t kLow = std::numeric_limits<int64_t>::min(), kHigh = std::numeric_limits<int64_t>::max();

Tensor ramp(const Shape& shape) {
  auto made = Tensor::make(DType::kF32, shape);
  EXPECT_TRUE(made.has_value());
  for (int64_t i = 0; i < made->elements(); ++i) made->mutate<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  return *std::move(made);
}
Tensor ints(std::vector<int64_t> values) { return Tensor::vector<int64_t>(DType::kI64, values); }

struct Call {
  std::string_view name;
  std::vector<Tensor> in;
  std::vector<NamedAttribute> attributes = {};
  size_t outputs = 1;

  Result<Tensor> run() const {
    BOLIDE_TRY(const std::vector<AnyValue> made, run_op(name, 21, in, attributes, outputs));
    return *made[0].tensor();
  }
};

TEST(Layout, HostileInputsAreErrors) {
  const Tensor x = ramp({2, 3, 4});
  const std::vector<Call> calls = {
      {"Reshape", {x, ints({-1, -1})}},
      {"Reshape", {x, ints({5, -1})}},
      {"Reshape", {x, ints({kHigh, kHigh, 4})}},
      {"Reshape", {x, ints({-2, 12})}},
      {"Reshape", {x, ints({1, 1, 1, 1, 1, 1, 1, 1, 24})}},
      {"Squeeze", {x, ints({0})}},
      {"Unsqueeze", {x, ints({0, 0})}},
      {"Unsqueeze", {x, ints({kLow})}},
      {"Transpose", {x}, {{"perm", std::vector<int64_t>{0, 0, 1}}}},
      {"Concat", {x, ramp({2, 2, 4})}, {{"axis", int64_t{0}}}},
      {"Split", {x, ints({1, kHigh, kLow, 2})}, {{"axis", int64_t{1}}}, 4},
      {"Slice", {x, ints({0}), ints({1}), ints({3})}},
      {"Slice", {x, ints({0}), ints({1}), ints({0}), ints({0})}},
      {"Pad", {x, ints({kHigh, 0, 0, kHigh, 0, 0})}},
      {"Pad", {x, ints({-3, 0, 0, 4, 0, 0})}},
      {"Pad", {ramp({0}), ints({1, 1})}, {{"mode", std::string("reflect")}}},
      {"Tile", {x, ints({kHigh, kHigh, 2})}},
      {"Tile", {x, ints({-1, 1, 1})}},
      {"Expand", {x, ints({2, 2, 4})}},
      {"Expand", {x, ints({kHigh, 1, 1, 1})}},
      {"ConstantOfShape", {ints({kHigh, kHigh})}},
      {"ConstantOfShape", {ints({-1})}},
      {"Range", {ints({0}), ints({5}), ints({0})}},
      {"Range", {ints({kLow}), ints({kHigh}), ints({1})}},
      {"DepthToSpace", {ramp({1, 4, 2, 2})}, {{"blocksize", int64_t{3}}}},
      {"SpaceToDepth", {ramp({1, 4, 2, 2})}, {{"blocksize", int64_t{0}}}},
      {"ReverseSequence", {ramp({2, 2}), ints({3, 0})}},
      {"CenterCropPad", {x, ints({-1, 1, 1})}},
      {"Gather", {x, ints({2})}},
      {"GatherElements", {x, ints({0})}},
      {"GatherND", {x, ints({0, 0, 0, 0})}},
      {"GatherND", {x, ints({0, 0})}, {{"batch_dims", int64_t{1}}}},
      {"ScatterND", {x, ints({0, 3}), ramp({4})}},
      {"ScatterND", {x, ints({0, 0}), ramp({3})}},
      {"TopK", {x, ints({5})}},
      {"OneHot", {ints({0}), ints({kHigh}), ramp({2})}},
      {"Resize", {ramp({0, 2}), {}, {}, ints({2, 2})}},
      {"Resize", {ramp({1, 2}), {}, ramp({2})}},
      {"GridSample", {ramp({1, 1, 2, 2}), ramp({1, 2, 2, 3})}},
      {"StringSplit", {x}},
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto got = calls[i].run();
    ASSERT_FALSE(got.has_value()) << "call " << i << " of " << calls[i].name;
    EXPECT_NE(got.error().code, Code::kNotFound) << calls[i].name << ": " << got.error().text;
  }
}

// Each element of a slice, by the specification: as Python's, but that a start before everything is 0 backwards, too.
TEST(Layout, SlicesFollowTheSpecification) {
  for (int64_t dim = 0; dim <= 4; ++dim)
    for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{-1}, int64_t{-3}, kHigh, kLow})
      for (const int64_t start : {kLow, int64_t{-5}, int64_t{-2}, int64_t{0}, int64_t{3}, int64_t{6}, kHigh})
        for (const int64_t end : {kLow, int64_t{-6}, int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{5}, kHigh}) {
          const auto got = Call{"Slice", {ramp({dim}), ints({start}), ints({end}), ints({0}), ints({step})}}.run();
          ASSERT_TRUE(got.has_value()) << got.error().text;
          const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;
          const auto bound = [&](int64_t at) { return std::max(low, std::min(high, at < 0 ? at + dim : at)); };
          std::vector<float> want;
          const int64_t first = dim == 0 ? bound(start) : std::max<int64_t>(bound(start), 0);
          for (__int128 at = first; step > 0 ? at < bound(end) : at > bound(end); at += step)
            want.push_back(static_cast<float>(at));
          ASSERT_EQ(std::vector<float>(got->as<float>().begin(), got->as<float>().end()), want)
              << dim << ' ' << start << ' ' << end << ' ' << step;
        }
}

TEST(Layout, NothingIsLeftOfEmptyTensors) {
  const auto padded = Call{"Pad", {ramp({0, 2}), ints({1, 0, 1, 0})}}.run();
  ASSERT_TRUE(padded.has_value());
  EXPECT_EQ(padded->shape(), (Shape{2, 2}));
  const auto gathered = Call{"Gather", {ramp({3, 0}), ints({-1})}}.run();
  ASSERT_TRUE(gathered.has_value());
  EXPECT_EQ(gathered->shape(), (Shape{1, 0}));
  const auto reshaped = Call{"Reshape", {ramp({0, 2}), ints({0, -1})}, {{"allowzero", int64_t{0}}}}.run();
  ASSERT_TRUE(reshaped.has_value());
  EXPECT_EQ(reshaped->elements(), 0);
}

}  // namespace
}  // namespace bolide
