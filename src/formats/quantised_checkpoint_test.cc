// Random modules, packed here bit by bit from the formats' definitions, must be read as scale * (code - zero).
#include "formats/quantised_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tensor/half.h"

namespace bolide {
namespace {

// Tensors in memory.
class MemorySource final : public WeightSource {
 public:
  template <class T>
  void add(const std::string& name, DType dtype, const Shape& shape, const std::vector<T>& values) {
    infos_[name] = WeightInfo{.name = name, .dtype = dtype, .shape = shape};
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    bytes_[name].assign(begin, begin + values.size() * sizeof(T));
    EXPECT_EQ(bytes_[name].size(), infos_[name].byte_size()) << name;
  }
  const WeightInfo* find(std::string_view name) const override {
    const auto it = infos_.find(name);
    return it == infos_.end() ? nullptr : &it->second;
  }
  Result<WeightData> open(std::string_view name) const override {
    WeightData data;
    data.info = *find(name);
    data.bytes = bytes_.find(name)->second;
    return data;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& [name, info] : infos_) list.push_back(name);
    return list;
  }
  const std::string& label() const override { return label_; }

 private:
  std::map<std::string, WeightInfo, std::less<>> infos_;
  std::map<std::string, std::vector<std::byte>, std::less<>> bytes_;
  std::string label_ = "model";
};

struct Random {
  std::mt19937 engine;
  int below(int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); }
  float normal() { return std::normal_distribution<float>()(engine); }
};

// A module of codes and what it stands for.
struct Module {
  int n, k, groups;
  std::vector<int> codes, zeros, group_of;  // [n, k], [groups, n], [k]
  std::vector<uint16_t> scales;             // f16 [groups, n]

  std::vector<float> expected() const {
    std::vector<float> out;
    for (int r = 0; r < n; ++r)
      for (int c = 0; c < k; ++c) {
        const auto at = static_cast<size_t>(group_of[static_cast<size_t>(c)] * n + r);
        out.push_back(f16_to_f32(scales[at]) * static_cast<float>(codes[static_cast<size_t>(r * k + c)] - zeros[at]));
      }
    return out;
  }
};

Module random_module(Random& random, int n, int k, int group_size, int bits, bool act_order) {
  const int size = group_size == -1 ? k : group_size;
  Module m{.n = n, .k = k, .groups = (k + size - 1) / size};
  for (int i = 0; i < n * k; ++i) m.codes.push_back(random.below(1 << bits));
  for (int i = 0; i < m.groups * n; ++i) {
    m.zeros.push_back(random.below(1 << bits));
    m.scales.push_back(f32_to_f16(random.normal() * 0.01f));
  }
  for (int c = 0; c < k; ++c) m.group_of.push_back(c / size);
  if (act_order) std::shuffle(m.group_of.begin(), m.group_of.end(), random.engine);
  return m;
}

// The weight as floats; computed by several threads, the same bytes.
std::vector<float> weight_of(const WeightSource& source) {
  Workers workers(3);
  const auto alone = source.open("m.weight"), shared = source.open_with("m.weight", workers);
  EXPECT_TRUE(alone.has_value() &&
              std::equal(alone->bytes.begin(), alone->bytes.end(), shared->bytes.begin(), shared->bytes.end()));
  return read_floats(source, "m.weight").value();
}

// The form that modules of such codes are read in.
const QuantScheme* expected_scheme(int bits, int group_size, bool act_order, DType scales = DType::kF16) {
  if (bits != 4 || act_order || scales != DType::kF16) return nullptr;
  return group_size == 32 ? &kW4_G32 : group_size == 64 ? &kW4_G64 : group_size == 128 ? &kW4_G128 : nullptr;
}

TEST(Gptq, ReadsRandomModules) {
  Random random{std::mt19937(std::random_device{}())};
  for (const int bits : {2, 4, 8})
    for (const bool act_order : {false, true})
      for (const int group_size : {-1, 16, 32, 64, 128}) {
        for (const bool offset : {false, true}) {
          const int per_word = 32 / bits;
          const Module m = random_module(random, 32 + per_word, 256, group_size, bits, act_order);
          std::vector<uint32_t> qweight(static_cast<size_t>(m.k / per_word * m.n));
          for (int r = 0; r < m.n; ++r)
            for (int c = 0; c < m.k; ++c)
              qweight[static_cast<size_t>(c / per_word * m.n + r)] |=
                  static_cast<uint32_t>(m.codes[static_cast<size_t>(r * m.k + c)]) << (c % per_word * bits);
          std::vector<uint32_t> qzeros(static_cast<size_t>(m.groups * m.n / per_word));
          for (int g = 0; g < m.groups; ++g)
            for (int r = 0; r < m.n; ++r) {
              const auto stored = static_cast<uint32_t>(m.zeros[static_cast<size_t>(g * m.n + r)] - (offset ? 1 : 0));
              qzeros[static_cast<size_t>(g * (m.n / per_word) + r / per_word)] |= (stored & ((1u << bits) - 1))
                                                                                  << (r % per_word * bits);
            }
          auto source = std::make_shared<MemorySource>();
          source->add("m.qweight", DType::kI32, {m.k / per_word, m.n}, qweight);
          source->add("m.qzeros", DType::kI32, {m.groups, m.n / per_word}, qzeros);
          source->add("m.scales", DType::kF16, {m.groups, m.n}, m.scales);
          if (act_order || offset) source->add("m.g_idx", DType::kI32, {m.k}, m.group_of);
          source->add("m.bias", DType::kF32, {1}, std::vector<float>{1});
          const QuantizationConfig config{
              .bits = bits, .group_size = group_size, .desc_act = act_order, .zero_offset = offset};
          const auto expanded = read_gptq(source, config);
          ASSERT_TRUE(expanded.has_value()) << expanded.error().text;
          EXPECT_EQ((*expanded)->names(), (std::vector<std::string>{"m.bias", "m.weight"}));
          EXPECT_EQ((*expanded)->find("m.weight")->shape, (Shape{m.n, m.k}));
          const bool shuffled = act_order && m.groups > 1;
          EXPECT_EQ((*expanded)->find("m.weight")->quant, expected_scheme(bits, group_size, shuffled));
          EXPECT_EQ(weight_of(**expanded), m.expected()) << bits << " " << group_size;
        }
      }
}

// Groups that do not divide K, and scales of another type than blocks have: float32.
TEST(Gptq, ExpandsWhatBlocksDoNotHold) {
  Random random{std::mt19937(std::random_device{}())};
  for (const bool wide : {false, true}) {
    const Module m = random_module(random, 8, wide ? 64 : 48, 32, 4, false);
    std::vector<uint32_t> qweight(static_cast<size_t>(m.k / 8 * m.n)), qzeros(static_cast<size_t>(m.groups));
    for (int r = 0; r < m.n; ++r) {
      for (int c = 0; c < m.k; ++c)
        qweight[static_cast<size_t>(c / 8 * m.n + r)] |=
            static_cast<uint32_t>(m.codes[static_cast<size_t>(r * m.k + c)]) << (c % 8 * 4);
      for (int g = 0; g < m.groups; ++g)
        qzeros[static_cast<size_t>(g)] |= (static_cast<uint32_t>(m.zeros[static_cast<size_t>(g * m.n + r)] - 1) & 15)
                                          << (r % 8 * 4);
    }
    auto source = std::make_shared<MemorySource>();
    source->add("m.qweight", DType::kI32, {m.k / 8, m.n}, qweight);
    source->add("m.qzeros", DType::kI32, {m.groups, 1}, qzeros);
    std::vector<float> scales;
    for (const uint16_t scale : m.scales) scales.push_back(f16_to_f32(scale));
    if (wide)
      source->add("m.scales", DType::kF32, {m.groups, m.n}, scales);
    else
      source->add("m.scales", DType::kF16, {m.groups, m.n}, m.scales);
    const auto read = read_gptq(source, {.bits = 4, .group_size = 32});
    ASSERT_TRUE(read.has_value()) << read.error().text;
    EXPECT_EQ((*read)->find("m.weight")->dtype, DType::kF32);
    EXPECT_EQ(weight_of(**read), m.expected());
  }
}

TEST(Gptq, RefusesWhatDoesNotFit) {
  const auto problem = [](Shape zeros, Shape scales, const std::vector<int32_t>& index, bool desc_act) {
    auto source = std::make_shared<MemorySource>();
    source->add("m.qweight", DType::kI32, {2, 8}, std::vector<uint32_t>(16));
    source->add("m.qzeros", DType::kI32, zeros, std::vector<uint32_t>(static_cast<size_t>(zeros.elements())));
    source->add("m.scales", DType::kF16, scales, std::vector<uint16_t>(static_cast<size_t>(scales.elements())));
    if (!index.empty()) source->add("m.g_idx", DType::kI32, {static_cast<int64_t>(index.size())}, index);
    const auto expanded = read_gptq(source, {.bits = 4, .group_size = 8, .desc_act = desc_act});
    if (!expanded) return expanded.error().text;
    const auto weight = (*expanded)->open("m.weight");
    return weight ? std::string() : weight.error().text;
  };
  std::vector<int32_t> index(16, 1);
  EXPECT_EQ(problem({2, 1}, {2, 8}, index, true), "");
  EXPECT_NE(problem({3, 1}, {2, 8}, index, true).find("m.qzeros: is i32 [3, 1], expected i32 [2, 1]"),
            std::string::npos);
  EXPECT_NE(problem({2, 1}, {2, 9}, index, true).find("m.scales"), std::string::npos);
  EXPECT_NE(problem({2, 1}, {2, 8}, {1, 2}, true).find("m.g_idx"), std::string::npos);
  EXPECT_NE(problem({2, 1}, {2, 8}, {}, true).find("has no g_idx"), std::string::npos);
  index[3] = 2;
  EXPECT_NE(problem({2, 1}, {2, 8}, index, true).find("g_idx[3] is 2, expected 0 to 1"), std::string::npos);
  index[3] = -1;
  EXPECT_NE(problem({2, 1}, {2, 8}, index, true).find("g_idx[3] is -1"), std::string::npos);
}

TEST(Awq, ReadsRandomModules) {
  // Where AutoAWQ puts each of eight successive n in a word.
  const int nibble_of[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  Random random{std::mt19937(std::random_device{}())};
  for (const int group_size : {-1, 16, 32, 64, 128}) {
    const Module m =
        random_module(random, 8 * (1 + random.below(40)), group_size == -1 ? 64 : 256, group_size, 4, false);
    std::vector<uint32_t> qweight(static_cast<size_t>(m.k * m.n / 8));
    std::vector<uint32_t> qzeros(static_cast<size_t>(m.groups * m.n / 8));
    for (int r = 0; r < m.n; ++r) {
      for (int c = 0; c < m.k; ++c)
        qweight[static_cast<size_t>(c * (m.n / 8) + r / 8)] |=
            static_cast<uint32_t>(m.codes[static_cast<size_t>(r * m.k + c)]) << (4 * nibble_of[r % 8]);
      for (int g = 0; g < m.groups; ++g)
        qzeros[static_cast<size_t>(g * (m.n / 8) + r / 8)] |=
            static_cast<uint32_t>(m.zeros[static_cast<size_t>(g * m.n + r)]) << (4 * nibble_of[r % 8]);
    }
    auto source = std::make_shared<MemorySource>();
    source->add("m.qweight", DType::kI32, {m.k, m.n / 8}, qweight);
    source->add("m.qzeros", DType::kI32, {m.groups, m.n / 8}, qzeros);
    source->add("m.scales", DType::kF16, {m.groups, m.n}, m.scales);
    const auto expanded = read_awq(source, {.method = QuantMethod::kAwq, .bits = 4, .group_size = group_size});
    ASSERT_TRUE(expanded.has_value()) << expanded.error().text;
    EXPECT_EQ((*expanded)->find("m.weight")->quant, expected_scheme(4, group_size == -1 ? 64 : group_size, false));
    EXPECT_EQ(weight_of(**expanded), m.expected());
  }
}

TEST(Fp8, ReadsEveryKindOfScale) {
  Random random{std::mt19937(std::random_device{}())};
  constexpr int64_t kN = 6, kK = 10;
  std::vector<uint8_t> codes;
  for (int i = 0; i < kN * kK; ++i) codes.push_back(f32_to_f8e4m3(random.normal() * 20));
  struct Case {
    Shape scales;
    std::vector<int64_t> block;
    int64_t rows, columns, per_row;  // elements that share a scale; scales in a row of the scales
    const char* name;
  };
  const Case cases[] = {{{}, {}, kN, kK, 1, "m.weight_scale"},
                        {{1}, {}, kN, kK, 1, "m.weight_scale"},
                        {{kN}, {}, 1, kK, 1, "m.weight_scale"},
                        {{kN, 1}, {}, 1, kK, 1, "m.weight_scale"},
                        {{2, 3}, {4, 4}, 4, 4, 3, "m.weight_scale_inv"}};
  for (const Case& c : cases) {
    std::vector<float> scales;
    for (int64_t i = 0; i < c.scales.elements(); ++i) scales.push_back(random.normal());
    auto source = std::make_shared<MemorySource>();
    source->add("m.weight", DType::kF8E4M3, {kN, kK}, codes);
    source->add(c.name, DType::kF32, c.scales, scales);
    source->add("norm.weight", DType::kF32, {2}, std::vector<float>{1, 2});
    const auto expanded = read_fp8(source, {.bits = 8, .dynamic_inputs = c.block.empty(), .block_size = c.block});
    ASSERT_TRUE(expanded.has_value()) << expanded.error().text;
    // Scales of rows stay beside the codes; those of blocks are multiplied in.
    const bool blocks = !c.block.empty();
    const WeightInfo& info = *(*expanded)->find("m.weight");
    std::vector<std::string> names = {"m.weight", "norm.weight"};
    if (!blocks) names.insert(names.begin() + 1, c.name);
    EXPECT_EQ((*expanded)->names(), names);
    EXPECT_EQ(info.dtype, blocks ? DType::kF32 : DType::kF8E4M3);
    EXPECT_EQ(info.scale, blocks ? "" : c.name);
    EXPECT_EQ(info.rounds_input_to_fp8, !blocks);
    EXPECT_FALSE((*expanded)->find("norm.weight")->rounds_input_to_fp8);
    if (!blocks) {
      EXPECT_EQ((*expanded)->find(c.name)->shape, (Shape{kN}));
      EXPECT_TRUE(std::equal(codes.begin(), codes.end(),
                             reinterpret_cast<const uint8_t*>((*expanded)->open("m.weight")->bytes.data())));
    }
    std::vector<float> want;
    for (int64_t r = 0; r < kN; ++r)
      for (int64_t k = 0; k < kK; ++k)
        want.push_back(f8e4m3_to_f32(codes[static_cast<size_t>(r * kK + k)]) *
                       scales[static_cast<size_t>(r / c.rows * c.per_row + k / c.columns)]);
    EXPECT_EQ(weight_of(**expanded), want) << to_string(c.scales);
  }
  // What goes into MoeFfn has no scales beside it.
  for (const char* module : {"mlp.experts.0.down_proj", "mlp.gate"}) {
    auto source = std::make_shared<MemorySource>();
    const std::string name(module);
    source->add(name + ".weight", DType::kF8E4M3, {kN, kK}, codes);
    source->add(name + ".weight_scale", DType::kF32, {1}, std::vector<float>{0.5f});
    const auto read = read_fp8(source, {.bits = 8});
    ASSERT_TRUE(read.has_value()) << read.error().text;
    EXPECT_EQ((*read)->names(), (std::vector<std::string>{name + ".weight"}));
    EXPECT_EQ((*read)->find(name + ".weight")->dtype, DType::kF32);
    EXPECT_EQ(read_floats(**read, name + ".weight").value()[3], f8e4m3_to_f32(codes[3]) * 0.5f);
  }
  auto bare = std::make_shared<MemorySource>();
  bare->add("m.weight", DType::kF8E4M3, {kN, kK}, codes);
  const auto refused = read_fp8(bare, {.bits = 8});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text.find("no weight_scale"), std::string::npos);
}

}  // namespace
}  // namespace bolide
