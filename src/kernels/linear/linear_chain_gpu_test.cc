// Chains of products give the bits that the products give one by one (whose results linear_fused_gpu_test.cc knows),
// captured and replayed too: steps write over what the ones before them read, as a plan's memory has it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <random>

#include "kernels/registry.h"
#include "kernels/testing/harness.h"

namespace bolide {
namespace {

struct Weights {
  std::string_view name;
  DType dtype;
  const QuantScheme* quant = nullptr;
  bool scale = false, rounding = false;
};
constexpr Weights kWeights[] = {{"bf16", DType::kBF16},
                                {"f8", DType::kF8E4M3, nullptr, true},
                                {"f8 rounded", DType::kF8E4M3, nullptr, true, true},
                                {"w4", DType::kNone, &kW4_G128}};

// What of a layer lies between two attentions: o + residual, norm + gate|up, down + residual, norm + q|k|v + rope. The
// residual stream goes back and forth between two buffers, and the last step writes over the first one's input.
class Layer {
 public:
  Layer(Device& device, const Weights& weights, int64_t tokens, uint64_t seed)
      : device_(device), weights_(weights), tokens_(tokens), random_(seed) {
    const auto pick = [&](int64_t least, int64_t count) {
      return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
    };
    dim_ = 64 * pick(1, 2), kv_heads_ = pick(1, 3), heads_ = kv_heads_ * 2 * pick(1, 2);  // rows of whole blocks of 128
    width_ = 256 * pick(1, 6), inner_ = 128 * pick(1, 12);
    slots_.resize(static_cast<size_t>(tokens));
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i] = i % 5 == 4 ? -1 : static_cast<int64_t>(7 * i + 3);
  }

  std::string name() const {
    return fmt::format("{} T={} width {} inner {} heads {}/{} of {}", weights_.name, tokens_, width_, inner_, heads_,
                       kv_heads_, dim_);
  }

  Result<> make() {
    BOLIDE_TRY(stream_, device_.make_stream());
    q_ = {DType::kBF16, nullptr, {Symbol::kTokens, heads_ * dim_}};
    stream_type_ = {DType::kF32, nullptr, {Symbol::kTokens, width_}};
    h_ = {DType::kBF16, nullptr, {Symbol::kTokens, inner_}};
    BOLIDE_TRY(const TensorView q, memory(q_));
    BOLIDE_TRY(const TensorView a, memory(stream_type_));
    BOLIDE_TRY(const TensorView b, memory(stream_type_));
    BOLIDE_TRY(const TensorView h, memory(h_));
    BOLIDE_TRY(const TensorView k, memory({DType::kBF16, nullptr, {kPages * kPage, kv_heads_ * dim_}}));
    BOLIDE_TRY(const TensorView v, memory({DType::kBF16, nullptr, {kPages * kPage, kv_heads_ * dim_}}));
    state_ = {q, a, b, h, k, v};
    layers_ = {KvLayer{k.data, v.data}};
    batch_.sizes = sizes();
    BOLIDE_TRY(const TensorView slots, copied(slots_.data(), slots_.size() * 8, {DType::kI64, nullptr, {tokens_}}));
    batch_.slots = slots.as<const int64_t>();
    batch_.kv = {DType::kBF16, kPage, static_cast<int32_t>(kv_heads_), static_cast<int32_t>(dim_), layers_};
    BOLIDE_TRY(add(linear(false, true, false), q, q_, width_, a, b, stream_type_));
    BOLIDE_TRY(add(linear(true, false, true), b, stream_type_, 2 * inner_, {}, h, h_));
    BOLIDE_TRY(add(linear(false, true, false), h, h_, width_, b, a, stream_type_));
    QkvRope qkv;
    qkv.linear = linear(true, false, false);
    qkv.rope = {0, heads_, kv_heads_, dim_, {.rotary_dim = dim_}};
    for (int64_t i = 0; i < dim_ / 2; ++i)
      qkv.rope.rope.inv_freq.push_back(
          static_cast<float>(std::pow(10000., -2. * static_cast<double>(i) / static_cast<double>(dim_))));
    return add(qkv, a, stream_type_, (heads_ + 2 * kv_heads_) * dim_, {}, q, q_);
  }

  // All bytes that the steps wrote after so many replays: of steps [first, first + count) chained, or of single ones.
  Result<std::vector<std::byte>> run(size_t first, size_t count, bool chained, int replays) {
    BOLIDE_TRY(set_state());
    std::vector<Launch> launches;
    std::vector<const Kernel*> kernels;
    for (const Step& step : steps_) {
      launches.push_back({&step.op, step.in, step.out, step.workspace.bytes(), nullptr, &batch_});
      kernels.push_back(step.kernel);
    }
    const auto body = [&](Stream& stream) -> Result<> {
      for (size_t i = 0; i < launches.size(); ++i) {
        if (chained && i == first) {
          const auto some = std::span(launches).subspan(first, count);
          const auto theirs = std::span<const Kernel* const>(kernels).subspan(first, count);
          BOLIDE_TRY(kernels[i]->chain->launch(some, theirs, stream));
          i += count - 1;
        } else {
          BOLIDE_TRY(kernels[i]->launch(launches[i], stream));
        }
      }
      return {};
    };
    takes_ = kernels[first]->chain == nullptr
                 ? 0
                 : kernels[first]->chain->takes(std::span(launches).subspan(first),
                                                std::span<const Kernel* const>(kernels).subspan(first), device_.info());
    BOLIDE_TRY(const auto captured, stream_->capture(body));
    for (int i = 0; i < replays; ++i) BOLIDE_TRY(captured->launch(*stream_));
    std::vector<std::byte> all;
    for (const TensorView& view : state_) {
      std::vector<std::byte> piece(bytes_of(view));
      BOLIDE_TRY(copy_bytes(*stream_, piece, {view.data, piece.size()}));
      BOLIDE_TRY(stream_->synchronize());
      all.insert(all.end(), piece.begin(), piece.end());
    }
    return all;
  }
  size_t takes() const { return takes_; }
  int64_t inner() const { return inner_; }

 private:
  static constexpr int32_t kPage = 16, kPages = 8;
  struct Step {
    Op op;
    std::vector<TensorView> in, out;
    const Kernel* kernel = nullptr;
    Buffer workspace;
  };

  SymbolValues sizes() const {
    SymbolValues sizes{};
    sizes[Symbol::kTokens] = tokens_;
    return sizes;
  }
  static size_t bytes_of(const TensorView& view) {
    return static_cast<size_t>(view.rows()) * row_bytes(view.dtype, view.quant, view.cols());
  }
  Linear linear(bool norm, bool residual, bool gated) const {
    Linear op{.compute = Compute::kBF16, .has_bias = true, .has_residual = residual, .has_norm = norm};
    op.has_scale = weights_.scale, op.gated = gated, op.eps = norm ? 1e-5f : 0;
    if (weights_.rounding) op.rounding = InputRounding::kF8Token;
    return op;
  }

  Result<TensorView> copied(const void* from, size_t bytes, const ValueType& type) {
    BOLIDE_TRY(Buffer buffer, device_.allocate(bytes, Memory::kDevice));
    BOLIDE_TRY(copy_bytes(*stream_, buffer.bytes(), {static_cast<const std::byte*>(from), bytes}));
    BOLIDE_TRY(stream_->synchronize());
    TensorView view = make_view(buffer.data(), type.dtype, type.at(sizes()), type.quant);
    view.device = device_.info().id;
    buffers_.push_back(std::move(buffer));
    return view;
  }
  Result<TensorView> memory(const ValueType& type) {
    const testing::Operand values = testing::random_operand(type, sizes(), false, random_);
    initial_.push_back(values.natural);
    return copied(values.natural.data(), values.natural.size(), type);
  }
  Result<> set_state() {
    for (size_t i = 0; i < state_.size(); ++i)
      BOLIDE_TRY(copy_bytes(*stream_, {state_[i].data, initial_[i].size()}, initial_[i]));
    return stream_->synchronize();
  }
  // A vector of a weight's rows, or a gain.
  Result<TensorView> vector(int64_t size, float middle, float spread) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = middle + spread * normal(random_);
    return copied(values.data(), values.size() * 4, f32({size}));
  }

  Result<> add(Op op, const TensorView& x, const ValueType& x_type, int64_t n, const TensorView& residual,
               const TensorView& out, const ValueType& out_type) {
    const auto* qkv = std::get_if<QkvRope>(&op);
    const Linear& linear = qkv != nullptr ? qkv->linear : std::get<Linear>(op);
    const LinearInputs at = inputs_of(linear);
    const int64_t k = x.cols();
    const ValueType weight{weights_.quant != nullptr ? weights_.quant->code : weights_.dtype, weights_.quant, {n, k}};
    std::vector<ValueType> types(static_cast<size_t>(at.count));
    Step step;
    step.in.resize(static_cast<size_t>(at.count));
    types[0] = x_type, step.in[0] = x, types[1] = weight;
    const auto set = [&](int index, const ValueType& type, const TensorView& view) {
      types[static_cast<size_t>(index)] = type, step.in[static_cast<size_t>(index)] = view;
    };
    const float size = 1 / std::sqrt(static_cast<float>(k));
    if (at.scale >= 0) {
      BOLIDE_TRY(const TensorView scale, vector(n, 0.02f * size, 0.002f * size));
      set(at.scale, f32({n}), scale);
    }
    BOLIDE_TRY(const TensorView bias, vector(n, 0, 0.3f));
    set(at.bias, f32({n}), bias);
    if (at.gain >= 0) {
      BOLIDE_TRY(const TensorView gain, vector(k, size, 0.1f * size));
      set(at.gain, f32({k}), gain);
    }
    if (at.residual >= 0) set(at.residual, out_type, residual);
    std::vector<ValueType> out_types{out_type};
    step.out = {out};
    if (qkv != nullptr) {
      std::vector<int32_t> positions(static_cast<size_t>(tokens_));
      for (int32_t& position : positions) position = static_cast<int32_t>(random_() % 1000);
      types.push_back(i32({Symbol::kTokens}));
      BOLIDE_TRY(const TensorView there, copied(positions.data(), positions.size() * 4, types.back()));
      step.in.push_back(there);
      out_types.push_back(order_edge()), step.out.emplace_back();
    }
    const DeviceInfo info = device_.info();
    const Problem problem{&op, types, out_types, sizes(), &info};
    step.kernel = cuda_kernels().find(qkv != nullptr ? "qkv_rope_gemv_cuda" : "linear_gemv_cuda");
    if (step.kernel == nullptr || !step.kernel->supports(problem)) return error(Code::kInternal, "not supported");
    const testing::Operand values = testing::random_operand(weight, sizes(), true, random_);
    const Packing* packing = step.kernel->packing(problem, 1);
    std::vector<std::byte> packed = values.natural;
    if (packing != nullptr) {
      packed.assign(packing->bytes(weight), std::byte{0});
      const WeightRows::Run run{values.natural.data(), n};
      WeightRows source{.dtype = weight.dtype, .quant = weight.quant, .rows = n, .k = k};
      source.runs = {&run, 1}, source.row_bytes = row_bytes(weight.dtype, weight.quant, k);
      Workers workers(1);
      BOLIDE_TRY(packing->pack(weight, source, packed, workers));
    }
    BOLIDE_TRY(step.in[1], copied(packed.data(), packed.size(), weight));
    BOLIDE_TRY(step.workspace, device_.allocate(step.kernel->workspace(problem), Memory::kDevice));
    step.op = std::move(op);
    steps_.push_back(std::move(step));
    return {};
  }

  Device& device_;
  const Weights& weights_;
  const int64_t tokens_;
  std::mt19937_64 random_;
  int64_t dim_ = 0, heads_ = 0, kv_heads_ = 0, width_ = 0, inner_ = 0;
  ValueType q_, stream_type_, h_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<std::byte>> initial_;
  std::vector<TensorView> state_;
  std::vector<KvLayer> layers_;
  std::vector<int64_t> slots_;
  BatchInputs batch_;
  std::vector<Step> steps_;
  size_t takes_ = 0;
};

TEST(LinearChain, GivesTheBitsOfItsSteps) {
  Device& device = *testing::tested_device();
  if (device.info().gpu->compute_capability != 90) GTEST_SKIP() << "chains are for compute capability 9.0";
  uint64_t seed = std::random_device{}();
  for (const Weights& weights : kWeights)
    for (const int64_t tokens : {1, 2, 3, 4})
      for (const size_t first : {0, 1, 2}) {
        if (!testing::takes_case("gemv_chain_cuda")) continue;
        Layer layer(device, weights, tokens, ++seed);
        const auto made = layer.make();
        ASSERT_TRUE(made) << layer.name() << ": " << made.error().text;
        const size_t count = 2 + seed % (3 - first);
        const auto singles = layer.run(first, count, false, 30), chained = layer.run(first, count, true, 30);
        ASSERT_TRUE(singles && chained) << layer.name() << (singles ? chained : singles).error().text;
        EXPECT_EQ(layer.takes(), 4 - first) << layer.name();
        EXPECT_TRUE(*singles == *chained) << layer.name() << " steps from " << first << ", " << count;
      }
}

// Chains of two streams at once need more multiprocessors than there are: neither may wait for the other for ever.
TEST(LinearChain, TwoStreamsAtOnce) {
  Device& device = *testing::tested_device();
  if (device.info().gpu->compute_capability != 90) GTEST_SKIP() << "chains are for compute capability 9.0";
  const uint64_t seed = std::random_device{}();
  constexpr int kReplays = 3000;
  Layer one(device, kWeights[0], 1, seed), two(device, kWeights[1], 2, seed + 1);
  for (Layer* layer : {&one, &two}) {
    const auto made = layer->make();
    ASSERT_TRUE(made) << layer->name() << ": " << made.error().text;
  }
  const auto one_alone = one.run(0, 4, true, kReplays), two_alone = two.run(0, 4, true, kReplays);
  ASSERT_TRUE(one_alone && two_alone);
  auto beside = std::async(std::launch::async, [&] { return two.run(0, 4, true, kReplays); });
  const auto one_again = one.run(0, 4, true, kReplays), two_again = beside.get();
  ASSERT_TRUE(one_again && two_again);
  EXPECT_TRUE(*one_again == *one_alone) << one.name();
  EXPECT_TRUE(*two_again == *two_alone) << two.name();
}

// Blocks that read what others have not written yet would show as bits that differ between two long runs.
TEST(LinearChain, RepeatsItsBits) {
  Device& device = *testing::tested_device();
  if (device.info().gpu->compute_capability != 90) GTEST_SKIP() << "chains are for compute capability 9.0";
  uint64_t seed = std::random_device{}();
  for (const Weights& weights : kWeights) {
    ++seed;
    Layer layer(device, weights, 1 + static_cast<int64_t>(seed % 3), seed);
    const auto made = layer.make();
    ASSERT_TRUE(made) << layer.name() << ": " << made.error().text;
    const auto once = layer.run(0, 4, true, 2000), again = layer.run(0, 4, true, 2000);
    ASSERT_TRUE(once && again);
    EXPECT_TRUE(*once == *again) << layer.name();
  }
}

}  // namespace
}  // namespace bolide
