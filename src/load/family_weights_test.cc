#include "load/family_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "load/gguf_names.h"

namespace bolide {
namespace {

constexpr WeightRule kRules[] = {
    {Slot::kEmbed, "table"},    {Slot::kQ, "h.{l}.qkv", Rows::kQ, Layout::kInOut},
    {Slot::kOut, "h.{l}.out"},  {Slot::kUp, "h.{l}.up", Rows::kAll, Layout::kInOut},
    {Slot::kFinalNorm, "last"},
};
constexpr std::string_view kLeftovers[] = {".qkv.mask"};
constexpr Family kFamily{
    .name = "test", .parse = nullptr, .weights = kRules, .prefix = "model.", .leftovers = kLeftovers};

class Tensors final : public WeightSource {
 public:
  void add(const std::string& name, DType dtype, const Shape& shape) {
    WeightInfo info{name, dtype, nullptr, shape};
    std::vector<std::byte> bytes(info.byte_size());
    for (std::byte& b : bytes) b = std::byte{static_cast<uint8_t>(random_())};
    tensors_[name] = {info, bytes};
  }
  const WeightInfo* find(std::string_view name) const override {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? nullptr : &it->second.info;
  }
  Result<WeightData> open(std::string_view name) const override {
    const Tensor& tensor = tensors_.find(name)->second;
    return WeightData{tensor.info, tensor.bytes, nullptr};
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(name);
    return list;
  }
  const std::string& label() const override { return label_; }

 private:
  struct Tensor {
    WeightInfo info;
    std::vector<std::byte> bytes;
  };
  std::mt19937 random_{std::random_device{}()};
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::string label_ = "file";
};

TEST(FamilyWeights, TransposesWhatTheRulesSay) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
    for (const Shape& shape : {Shape{1, 7}, Shape{7, 1}, Shape{33, 65}, Shape{64, 32}}) {
      const auto source = std::make_shared<Tensors>();
      source->add("h.12.qkv.weight", dtype, shape);
      source->add("h.12.qkv.bias", dtype, {shape[1]});
      source->add("h.12.out.weight", dtype, shape);
      const auto shown = family_weights(source, kFamily);
      ASSERT_TRUE(shown.has_value()) << shown.error().text;
      EXPECT_EQ((*shown)->find("h.12.qkv.weight")->shape, (Shape{shape[1], shape[0]}));
      EXPECT_EQ((*shown)->find("h.12.qkv.bias")->shape, (Shape{shape[1]}));
      EXPECT_EQ((*shown)->find("h.12.out.weight")->shape, shape);
      const auto before = source->open("h.12.qkv.weight"), after = (*shown)->open("h.12.qkv.weight");
      ASSERT_TRUE(after.has_value()) << after.error().text;
      EXPECT_EQ(after->info.shape, (Shape{shape[1], shape[0]}));
      const size_t size = row_bytes(dtype, nullptr, 1);
      for (int64_t r = 0; r < shape[0]; ++r)
        for (int64_t c = 0; c < shape[1]; ++c)
          ASSERT_EQ(std::memcmp(before->row(r) + static_cast<size_t>(c) * size,
                                after->row(c) + static_cast<size_t>(r) * size, size),
                    0);
    }
}

TEST(FamilyWeights, ThePrefixMayBeThereOrNot) {
  for (const std::string prefix : {"", "model."}) {
    const auto source = std::make_shared<Tensors>();
    source->add(prefix + "h.0.up.weight", DType::kF32, {3, 5});
    source->add(prefix + "h.0.qkv.mask", DType::kF32, {1, 1});
    source->add("head.weight", DType::kF32, {3, 5});
    const auto shown = family_weights(source, kFamily);
    ASSERT_TRUE(shown.has_value()) << shown.error().text;
    EXPECT_EQ((*shown)->names(), (std::vector<std::string>{"h.0.up.weight", "head.weight"}));
    EXPECT_EQ((*shown)->open("h.0.up.weight")->info.name, "h.0.up.weight");
    EXPECT_FALSE((*shown)->has(prefix + "h.0.qkv.mask"));
    EXPECT_FALSE((*shown)->open("h.1.up.weight").has_value());
  }
}

TEST(FamilyWeights, RefusesWhatIsNoMatrixAndWhatIsThereTwice) {
  const auto vector = std::make_shared<Tensors>();
  vector->add("h.0.up.weight", DType::kF32, {15});
  const auto refused = family_weights(vector, kFamily);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text.find("h.0.up.weight"), std::string::npos);
  const auto twice = std::make_shared<Tensors>();
  twice->add("table.weight", DType::kF32, {2, 2});
  twice->add("model.table.weight", DType::kF32, {2, 2});
  const auto both = family_weights(twice, kFamily);
  ASSERT_FALSE(both.has_value());
  EXPECT_NE(both.error().text.find("table.weight"), std::string::npos);
}

// A family that asks for nothing of this gets the source itself.
TEST(FamilyWeights, LeavesOthersAlone) {
  static constexpr WeightRule kPlain[] = {{Slot::kEmbed, "table"}};
  static constexpr Family kOther{.name = "other", .parse = nullptr, .weights = kPlain};
  const std::shared_ptr<const WeightSource> source = std::make_shared<Tensors>();
  EXPECT_EQ(*family_weights(source, kOther), source);
}

TEST(GgufNames, FollowTheFamilysRules) {
  EXPECT_EQ(hf_name("token_embd.weight", kFamily), "table.weight");
  EXPECT_EQ(hf_name("output_norm.bias", kFamily), "last.bias");
  EXPECT_EQ(hf_name("blk.3.attn_qkv.bias", kFamily), "h.3.qkv.bias");
  EXPECT_EQ(hf_name("blk.13.ffn_up.weight", kFamily), "h.13.up.weight");
  EXPECT_EQ(hf_name("blk.0.attn_output.weight", kFamily), "h.0.out.weight");
  // q alone is not the fused tensor, and there is no rule for the others.
  for (const char* name : {"blk.0.attn_q.weight", "position_embd.weight", "blk.0.ffn_down.weight", "rope_freqs.weight"})
    EXPECT_EQ(hf_name(name, kFamily), name);
}

}  // namespace
}  // namespace bolide
