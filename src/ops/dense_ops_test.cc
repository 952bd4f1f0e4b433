// Products, convolutions, pools, recurrent networks and attention: sizes that the blocks do not divide, and inputs that
// no exporter would write.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/convolution.h"
#include "ops/dense.h"
#include "ops/ops.h"

namespace bolide {
namespace {

// Refuses what a test cannot need: a kernel that asks for it has not looked at its input.
class SmallPool : public TensorPool {
 public:
  Result<std::shared_ptr<std::byte>> take(size_t bytes) override {
    if (bytes > size_t{1} << 24) return error(Code::kOutOfMemory, "more than 16 MB");
    return heap_pool().take(bytes);
  }
};

struct Node {
  Attributes attributes;
  std::vector<AnyValue> inputs;
  size_t outputs = 1;

  Result<std::vector<AnyValue>> run(const OpDef& op, int64_t version) {
    static Workers workers(2);
    SmallPool pool;
    std::vector<const AnyValue*> in;
    for (const AnyValue& input : inputs) in.push_back(input.has_value() ? &input : nullptr);
    std::vector<AnyValue> out(outputs);
    const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
      return error(Code::kNotFound, "has no graph");
    };
    RunContext context(attributes, version, in, out, workers, pool, no_body);
    BOLIDE_TRY(op.run(context));
    return out;
  }
};

Tensor random_tensor(std::mt19937_64& random, DType dtype, const Shape& shape) {
  Tensor tensor = *Tensor::make(dtype, shape);
  if (dtype == DType::kF32) {
    std::normal_distribution<float> normal;
    for (float& value : tensor.mutate<float>()) value = normal(random);
  } else {
    for (size_t i = 0; i < tensor.bytes(); ++i) tensor.mutable_data()[i] = static_cast<std::byte>(random() % 4);
    if (dtype == DType::kI64)
      for (int64_t& value : tensor.mutate<int64_t>()) value = static_cast<int64_t>(random() % 5) - 1;
  }
  return tensor;
}

TEST(Dense, MultiplyAgreesWithSums) {
  std::mt19937_64 random(std::random_device{}());
  Workers workers(3);
  for (int round = 0; round < 60; ++round) {
    const auto size = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
    const int64_t M = size(90), N = size(600), K = size(560), batch = 1 + size(3);
    const bool turn_a = random() % 2 != 0, turn_b = random() % 2 != 0;
    const Tensor a = random_tensor(random, DType::kF32, {batch, M, K}),
                 b = random_tensor(random, DType::kF32, {batch, K, N});
    const MatrixView<float> left{a.as<float>().data(), turn_a ? 1 : K, turn_a ? M : 1};
    const MatrixView<float> right{b.as<float>().data(), turn_b ? 1 : N, turn_b ? K : 1};
    std::vector<float> out(static_cast<size_t>(batch * M * N), NAN);
    multiply<float>(workers, M, N, K, batch, [&](int64_t i) {
      return Product<float>{{left.data + i * M * K, left.row, left.column},
                            {right.data + i * K * N, right.row, right.column},
                            out.data() + i * M * N,
                            N};
    });
    for (int64_t i = 0; i < batch * M * N; i += 1 + size(97)) {
      const int64_t p = i / (M * N), row = i / N % M, column = i % N;
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < K; ++k) {
        const double term = static_cast<double>(left.data[p * M * K + row * left.row + k * left.column]) *
                            static_cast<double>(right.data[p * K * N + k * right.row + column * right.column]);
        sum += term, magnitude += std::abs(term);
      }
      ASSERT_NEAR(static_cast<double>(out[static_cast<size_t>(i)]), sum, 1e-5 * magnitude + 1e-12)
          << M << " x " << N << " x " << K << " at " << i;
    }
  }
}

TEST(Dense, ConvolutionAgreesWithSums) {
  std::mt19937_64 random(std::random_device{}());
  const auto pick = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    const int64_t groups = pick(1, 3), C = groups * pick(1, 5), M = groups * pick(1, 7), N = pick(1, 2);
    const int64_t H = pick(1, 20), W = pick(1, 40), kh = pick(1, 4), kw = pick(1, 4);
    const std::vector<int64_t> strides{pick(1, 3), pick(1, 3)}, dilations{pick(1, 2), pick(1, 2)};
    const std::vector<int64_t> pads{pick(0, 5), pick(0, 5), pick(0, 5), pick(0, 5)};
    Node node;
    node.attributes.set("group", groups);
    node.attributes.set("strides", strides);
    node.attributes.set("dilations", dilations);
    node.attributes.set("pads", pads);
    const Tensor x = random_tensor(random, DType::kF32, {N, C, H, W});
    const Tensor w = random_tensor(random, DType::kF32, {M, C / groups, kh, kw});
    const Tensor b = random_tensor(random, DType::kF32, {M});
    node.inputs = {x, w, b};
    const auto made = node.run(*find_op("", "Conv", 17), 17);
    const int64_t oh = (H + pads[0] + pads[2] - (kh - 1) * dilations[0] - 1) / strides[0] + 1;
    const int64_t ow = (W + pads[1] + pads[3] - (kw - 1) * dilations[1] - 1) / strides[1] + 1;
    if (H + pads[0] + pads[2] < (kh - 1) * dilations[0] + 1 || W + pads[1] + pads[3] < (kw - 1) * dilations[1] + 1) {
      EXPECT_FALSE(made);
      continue;
    }
    ASSERT_TRUE(made) << made.error().text;
    const Tensor& y = *(*made)[0].tensor();
    ASSERT_EQ(y.shape(), (Shape{N, M, oh, ow}));
    for (int64_t i = 0; i < y.elements(); ++i) {
      const int64_t n = i / (M * oh * ow), m = i / (oh * ow) % M, p = i / ow % oh, q = i % ow;
      double sum = static_cast<double>(b.as<float>()[static_cast<size_t>(m)]), magnitude = 1;
      for (int64_t c = 0; c < C / groups; ++c)
        for (int64_t r = 0; r < kh; ++r)
          for (int64_t s = 0; s < kw; ++s) {
            const int64_t yy = p * strides[0] + r * dilations[0] - pads[0];
            const int64_t xx = q * strides[1] + s * dilations[1] - pads[1];
            if (yy < 0 || yy >= H || xx < 0 || xx >= W) continue;
            const int64_t channel = m / (M / groups) * (C / groups) + c;
            const double term =
                static_cast<double>(x.as<float>()[static_cast<size_t>(((n * C + channel) * H + yy) * W + xx)]) *
                static_cast<double>(w.as<float>()[static_cast<size_t>(((m * (C / groups) + c) * kh + r) * kw + s)]);
            sum += term, magnitude += std::abs(term);
          }
      ASSERT_NEAR(static_cast<double>(y.as<float>()[static_cast<size_t>(i)]), sum, 1e-5 * magnitude);
    }
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

// Every op of these groups with inputs and attributes at random: an error or a result, and no more than the pool has.
TEST(DenseOps, SurviveAnything) {
  const auto seed = std::random_device{}();
  std::mt19937_64 random(seed);
  const std::span<const OpDef> groups[] = {matrix_ops(),    convolution_ops(), pool_ops(),   normalisation_ops(),
                                           recurrent_ops(), attention_ops(),   signal_ops(), microsoft_ops()};
  constexpr std::string_view kLists[] = {"kernel_shape", "strides",      "dilations",
                                         "pads",         "output_shape", "output_padding",
                                         "pooled_shape", "axes",         "qkv_hidden_sizes"};
  constexpr std::string_view kIntegers[] = {"group",
                                            "offset_group",
                                            "axis",
                                            "ceil_mode",
                                            "storage_order",
                                            "count_include_pad",
                                            "p",
                                            "num_groups",
                                            "size",
                                            "hidden_size",
                                            "layout",
                                            "input_forget",
                                            "linear_before_reset",
                                            "q_num_heads",
                                            "kv_num_heads",
                                            "num_heads",
                                            "is_causal",
                                            "qk_matmul_output_mode",
                                            "left_window_size",
                                            "right_window_size",
                                            "rotary_embedding_dim",
                                            "interleaved",
                                            "inverse",
                                            "onesided",
                                            "periodic",
                                            "output_datatype",
                                            "transA",
                                            "transB",
                                            "transBatchA",
                                            "unidirectional",
                                            "do_rotary",
                                            "local_window_size",
                                            "K",
                                            "N",
                                            "bits",
                                            "block_size",
                                            "output_height",
                                            "output_width",
                                            "sampling_ratio",
                                            "training_mode",
                                            "channels_last",
                                            "smooth_softmax"};
  constexpr int64_t kExtremes[] = {INT64_MIN, INT64_MAX, -1, 1 << 30, int64_t{1} << 40, 0};
  constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF16, DType::kI64,
                              DType::kI32, DType::kU8,  DType::kF64, DType::kBool};
  const auto number = [&]() -> int64_t {
    return random() % 12 == 0 ? kExtremes[random() % std::size(kExtremes)] : static_cast<int64_t>(random() % 5);
  };
  int succeeded = 0;
  for (const auto& group : groups)
    for (const OpDef& op : group)
      for (int round = 0; round < 400; ++round) {
        Node node;
        node.outputs = 1 + random() % 4;
        const int likely = static_cast<int>(1 + random() % 5);  // the rank most inputs have
        for (size_t i = 0, count = random() % 12; i < count; ++i) {
          if (random() % 6 == 0) {
            node.inputs.emplace_back();
            continue;
          }
          Shape shape;
          shape.rank = random() % 3 != 0 ? likely : static_cast<int>(random() % 6);
          for (int d = 0; d < shape.rank; ++d) shape[d] = static_cast<int64_t>(random() % 5);
          node.inputs.emplace_back(random_tensor(random, kTypes[random() % std::size(kTypes)], shape));
        }
        for (const std::string_view name : kLists) {
          if (random() % 3 != 0) continue;
          std::vector<int64_t> values(random() % 5);
          for (int64_t& value : values) value = number();
          node.attributes.set(std::string(name), values);
        }
        for (const std::string_view name : kIntegers)
          if (random() % 3 == 0) node.attributes.set(std::string(name), number());
        if (random() % 3 == 0) node.attributes.set("auto_pad", std::string("SAME_LOWER"));
        if (random() % 3 == 0) node.attributes.set("direction", std::string("bidirectional"));
        if (random() % 3 == 0) node.attributes.set("equation", std::string("...ij,...jk->...ik"));
        if (random() % 3 == 0) node.attributes.set("update_rule", std::string("linear"));
        succeeded += node.run(op, 1 + static_cast<int64_t>(random() % 27)).has_value() ? 1 : 0;
      }
  EXPECT_GT(succeeded, 100) << "seed " << seed;
}

TEST(DenseOps, NameWhatIsWrong) {
  std::mt19937_64 random(7);
  const auto why = [&](std::string_view op, Attributes attributes, std::vector<AnyValue> inputs) {
    Node node{std::move(attributes), std::move(inputs), 1};
    const auto done = node.run(*find_op("", op, 24), 24);
    return done ? std::string("no error") : done.error().text;
  };
  const auto f = [&](const Shape& shape) { return AnyValue(random_tensor(random, DType::kF32, shape)); };
  const auto i = [](std::vector<int64_t> values) { return AnyValue(Tensor::vector<int64_t>(DType::kI64, values)); };
  EXPECT_EQ(why("MatMul", {}, {f({2, 3}), f({4, 5})}), "A [2, 3] and B [4, 5] have no product");
  Attributes stride;
  stride.set("strides", std::vector<int64_t>{0, 1});
  EXPECT_EQ(why("Conv", stride, {f({1, 2, 5, 5}), f({2, 2, 3, 3})}), "strides has 0, expected 1 to 1073741824");
  Attributes kernel;
  kernel.set("kernel_shape", std::vector<int64_t>{2, 2});
  EXPECT_EQ(why("MaxUnpool", kernel, {f({1, 1, 1, 1}), i({9})}), "the indices' tensor is [1], expected [1, 1, 1, 1]");
  EXPECT_NE(why("RoiAlign", {}, {f({1, 1, 4, 4}), f({1, 4}), i({1})}).find("a region of batch 1 of 1"),
            std::string::npos);
  EXPECT_NE(why("LSTM", {}, {f({3, 2, 4}), f({1, 20, 4}), f({1, 20, 5}), AnyValue(), i({3, 4})})
                .find("sequence_lens has 4 for sequences of 3"),
            std::string::npos);
  EXPECT_NE(why("TensorScatter", {}, {f({1, 4, 2}), f({1, 2, 2}), i({3})}).find("write_indices has 3"),
            std::string::npos);
  EXPECT_NE(why("DFT", {}, {f({4, 2}), i({int64_t{1} << 40})}).find("a transform of length"), std::string::npos);
}

}  // namespace
}  // namespace bolide
