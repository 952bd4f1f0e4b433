#include "formats/round_to_bf16.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "tensor/half.h"

namespace bolide {
namespace {

// Matrices and vectors of random floats, each type in turn.
class Tensors final : public WeightSource {
 public:
  void add(WeightInfo info, std::mt19937& random) {
    std::vector<std::byte> bytes(info.byte_size());
    const bool half = info.dtype == DType::kF16;
    for (size_t at = 0; at + (half ? 2 : 4) <= bytes.size(); at += half ? 2 : 4) {
      const float value = std::normal_distribution<float>()(random);
      const uint16_t narrow = f32_to_f16(value);
      half ? std::memcpy(&bytes[at], &narrow, 2) : std::memcpy(&bytes[at], &value, 4);
    }
    bytes_[info.name] = std::move(bytes);
    infos_[info.name] = std::move(info);
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

TEST(RoundToBF16, MatricesOfFloatsAndNothingElse) {
  std::mt19937 random(std::random_device{}());
  auto tensors = std::make_shared<Tensors>();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::string type(to_string(dtype));
    tensors->add({.name = type + ".matrix", .dtype = dtype, .shape = {13, 37}}, random);
    tensors->add({.name = type + ".vector", .dtype = dtype, .shape = {37}}, random);
    tensors->add({.name = type + ".gate", .dtype = dtype, .shape = {5, 6}}, random);
  }
  tensors->add({.name = "blocks", .dtype = DType::kU4, .quant = &kQ4_1, .shape = {2, 64}}, random);
  const auto rounded = round_to_bf16(tensors, [](const std::string& name) { return name.ends_with(".gate"); });
  EXPECT_EQ(rounded->names(), tensors->names());
  Workers workers(3);
  for (const std::string& name : tensors->names()) {
    const WeightInfo &from = *tensors->find(name), &to = *rounded->find(name);
    const bool rounds = name == "f32.matrix" || name == "f16.matrix";
    EXPECT_EQ(to.dtype, rounds ? DType::kBF16 : from.dtype) << name;
    EXPECT_EQ(to.quant, from.quant);
    EXPECT_EQ(to.shape, from.shape);
    const WeightData got = *rounded->open_with(name, workers), stored = *tensors->open(name);
    EXPECT_EQ(got.info.dtype, to.dtype);
    ASSERT_EQ(got.bytes.size(), to.byte_size());
    if (!rounds) {
      EXPECT_TRUE(std::equal(got.bytes.begin(), got.bytes.end(), stored.bytes.begin()));
      continue;
    }
    const std::vector<float> want = *read_floats(*tensors, name), values = *read_floats(*rounded, name);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(values[i], bf16_to_f32(f32_to_bf16(want[i]))) << name;
  }
}

TEST(RoundToBF16, LeavesASourceWithoutSuchMatricesAlone) {
  std::mt19937 random(1);
  auto tensors = std::make_shared<Tensors>();
  tensors->add({.name = "norm", .dtype = DType::kF32, .shape = {8}}, random);
  EXPECT_EQ(round_to_bf16(tensors, [](const std::string&) { return false; }), tensors);
}

}  // namespace
}  // namespace bolide
