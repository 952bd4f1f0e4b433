#include "server/kserve_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/bytes.h"

namespace bolide::server {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kMany = 1'000'000;

constexpr const char* kNames[] = {"BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
                                  "INT32", "INT64", "FP16",   "BF16",   "FP32",   "FP64", "BYTES"};

uint32_t fresh_seed() {
  const uint32_t seed = std::random_device()();
  ::testing::Test::RecordProperty("seed", static_cast<int>(seed));
  return seed;
}

// A tensor with any contents that its type may have.
Tensor random_tensor(DType dtype, const Shape& shape, std::mt19937& random) {
  if (dtype == DType::kString) {
    std::vector<std::string> texts(static_cast<size_t>(shape.elements()));
    for (std::string& text : texts) {
      text.resize(random() % 9);
      for (char& c : text) c = static_cast<char>(random() % 128);
    }
    return Tensor::strings(shape, std::move(texts));
  }
  Tensor tensor = *Tensor::make(dtype, shape);
  for (size_t i = 0; i < tensor.bytes(); ++i)
    tensor.mutable_data()[i] = static_cast<std::byte>(dtype == DType::kBool ? random() & 1 : random());
  return tensor;
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.is_string()) {
    for (size_t i = 0; i < static_cast<size_t>(a.elements()); ++i)
      if (a.as<std::string>()[i] != b.as<std::string>()[i]) return false;
    return true;
  }
  return a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

TEST(KserveTensors, RawBytesOfEveryTypeComeBack) {
  const uint32_t seed = fresh_seed();
  std::mt19937 random(seed);
  for (const char* name : kNames) {
    const auto dtype = dtype_of_kserve(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(kserve_name(*dtype), name);
    for (int round = 0; round < 20; ++round) {
      const Shape shape{static_cast<int64_t>(random() % 4), static_cast<int64_t>(1 + random() % 5)};
      const Tensor tensor = random_tensor(*dtype, shape, random);
      std::string bytes;
      append_raw(bytes, tensor);
      EXPECT_EQ(bytes.size(), raw_bytes(tensor));
      const auto back = tensor_of_bytes(*dtype, shape, bytes, kMany);
      ASSERT_TRUE(back.has_value()) << name << " seed " << seed << ": " << back.error().text;
      EXPECT_TRUE(same(tensor, *back)) << name << " seed " << seed;
      EXPECT_FALSE(tensor_of_bytes(*dtype, shape, bytes + "x", kMany).has_value());
      if (!bytes.empty()) {
        bytes.pop_back();
        EXPECT_FALSE(tensor_of_bytes(*dtype, shape, bytes, kMany).has_value());
      }
    }
  }
}

TEST(KserveTensors, JsonOfEveryTypeThatHasItComesBack) {
  const uint32_t seed = fresh_seed();
  std::mt19937 random(seed);
  for (const char* name : kNames) {
    const DType dtype = *dtype_of_kserve(name);
    for (int round = 0; round < 20; ++round) {
      const Shape shape{2, static_cast<int64_t>(random() % 5)};
      Tensor tensor = random_tensor(dtype, shape, random);
      if (dtype == DType::kF32)
        for (float& x : tensor.mutate<float>())
          if (!std::isfinite(x)) x = 1;
      if (dtype == DType::kF64)
        for (double& x : tensor.mutate<double>())
          if (!std::isfinite(x)) x = 1;
      std::string text;
      const auto written = append_json_data(text, tensor);
      if (!has_json_form(dtype)) {
        EXPECT_FALSE(written.has_value() && tensor.elements() > 0) << name;
        const auto refused = tensor_of_json(dtype, shape, Json::array({0, 0}), kMany);
        ASSERT_FALSE(refused.has_value());
        EXPECT_NE(refused.error().text.find("binary_data_size"), std::string::npos) << refused.error().text;
        continue;
      }
      ASSERT_TRUE(written.has_value()) << name << ": " << written.error().text;
      const Json json = Json::parse(text, nullptr, false);
      ASSERT_FALSE(json.is_discarded()) << text;
      const auto back = tensor_of_json(dtype, shape, json, kMany);
      ASSERT_TRUE(back.has_value()) << name << " " << text << ": " << back.error().text;
      EXPECT_TRUE(same(tensor, *back)) << name << " seed " << seed << " " << text;
    }
  }
}

TEST(KserveTensors, DataIsFlatOrAsTheShapeHasIt) {
  const Shape shape{2, 1, 3};
  const auto read = [&](const char* text) { return tensor_of_json(DType::kI32, shape, Json::parse(text), kMany); };
  for (const char* text : {"[1,2,3,4,5,6]", "[[[1,2,3]],[[4,5,6]]]", "[1.0,2,3e0,4,5,6]"}) {
    const auto tensor = read(text);
    ASSERT_TRUE(tensor.has_value()) << text << ": " << tensor.error().text;
    for (int i = 0; i < 6; ++i) EXPECT_EQ(tensor->as<int32_t>()[static_cast<size_t>(i)], i + 1);
  }
  for (const char* text : {"[1,2,3,4,5]", "[1,2,3,4,5,6,7]", "[[1,2,3],[4,5,6]]", "[[[1,2]],[[4,5,6]]]",
                           "[[[1,2,3]],[[4,5,[6]]]]", "[[[1,2,3]]]", "[1,2,3,4,5,[6]]", "6", "{}", "[]", "[[],[]]"})
    EXPECT_FALSE(read(text).has_value()) << text;
  EXPECT_TRUE(tensor_of_json(DType::kF32, {}, Json::parse("[1.5]"), kMany).has_value()) << "a scalar";
  EXPECT_TRUE(tensor_of_json(DType::kF32, {0, 4}, Json::parse("[]"), kMany).has_value());
  EXPECT_TRUE(tensor_of_json(DType::kF32, {2, 0}, Json::parse("[[],[]]"), kMany).has_value());
}

TEST(KserveTensors, WhatATypeDoesNotHaveIsRefused) {
  const struct {
    const char *type, *element;
  } kCases[] = {{"BOOL", "2"},       {"BOOL", "\"true\""}, {"UINT8", "256"},   {"UINT8", "-1"},
                {"INT8", "128"},     {"INT8", "-129"},     {"INT32", "1.5"},   {"INT32", "2147483648"},
                {"INT64", "9.3e18"}, {"UINT64", "-1"},     {"UINT64", "1e20"}, {"INT64", "18446744073709551615"},
                {"FP32", "1e39"},    {"FP32", "\"1\""},    {"FP32", "null"},   {"FP64", "true"},
                {"BYTES", "1"},      {"BYTES", "[\"a\"]"}};
  for (const auto& c : kCases) {
    const auto read = tensor_of_json(*dtype_of_kserve(c.type), {1}, Json::array({Json::parse(c.element)}), kMany);
    ASSERT_FALSE(read.has_value()) << c.type << " " << c.element;
    EXPECT_NE(read.error().text.find(c.type), std::string::npos) << read.error().text;
  }
  EXPECT_TRUE(tensor_of_json(DType::kU64, {1}, Json::parse("[18446744073709551615]"), kMany).has_value());
  EXPECT_TRUE(tensor_of_json(DType::kI64, {1}, Json::parse("[-9223372036854775808]"), kMany).has_value());
  EXPECT_TRUE(tensor_of_json(DType::kBool, {2}, Json::parse("[1,false]"), kMany).has_value());
}

TEST(KserveTensors, ShapesAreCheckedBeforeMemoryIsTaken) {
  const auto check = [](std::vector<int64_t> dims) { return checked_shape(dims).has_value(); };
  EXPECT_TRUE(check({}));
  EXPECT_TRUE(check({0, 3}));
  EXPECT_FALSE(check({-1}));
  EXPECT_FALSE(check({INT64_MAX, INT64_MAX}));
  EXPECT_FALSE(check({int64_t{1} << 32, int64_t{1} << 32}));
  EXPECT_FALSE(check({0, INT64_MAX, INT64_MAX}));
  EXPECT_FALSE(check({1, 1, 1, 1, 1, 1, 1, 1, 1}));
  // Nothing of this size is asked of the system.
  const Shape huge{int64_t{1} << 39};
  EXPECT_FALSE(tensor_of_json(DType::kU8, huge, Json::array({1}), kMany).has_value());
  EXPECT_FALSE(tensor_of_bytes(DType::kU8, huge, "x", kMany).has_value());
  EXPECT_FALSE(tensor_of_bytes(DType::kString, huge, "x", kMany).has_value());
  EXPECT_FALSE(tensor_of_bytes(DType::kString, {5}, std::string(20, '\0'), 4).has_value()) << "more than may be";
}

TEST(KserveTensors, TextsThatEndTooSoonAreRefused) {
  const auto bytes = [](std::initializer_list<std::string_view> parts) {
    std::string all;
    for (const std::string_view part : parts) all += part;
    return all;
  };
  using namespace std::string_view_literals;
  EXPECT_TRUE(tensor_of_bytes(DType::kString, {2}, bytes({"\1\0\0\0a"sv, "\0\0\0\0"sv}), kMany).has_value());
  EXPECT_FALSE(tensor_of_bytes(DType::kString, {2}, bytes({"\1\0\0\0a"sv}), kMany).has_value());
  EXPECT_FALSE(tensor_of_bytes(DType::kString, {1}, bytes({"\2\0\0\0a"sv}), kMany).has_value());
  EXPECT_FALSE(tensor_of_bytes(DType::kString, {1}, bytes({"\xff\xff\xff\xff"sv, "a"sv}), kMany).has_value());
  EXPECT_FALSE(tensor_of_bytes(DType::kString, {1}, bytes({"\1\0\0"sv}), kMany).has_value());
}

TEST(KserveTensors, BytesOfBoolBecomeZeroAndOne) {
  const auto tensor = tensor_of_bytes(DType::kBool, {3}, std::string_view("\0\1\xff", 3), kMany);
  ASSERT_TRUE(tensor.has_value());
  EXPECT_EQ(as_text({tensor->data(), 3}), std::string_view("\0\1\1", 3));
}

TEST(KserveTensors, NumbersThatJsonDoesNotHaveAreNotWritten) {
  for (const float x : {NAN, INFINITY, -INFINITY}) {
    std::string out;
    const auto written = append_json_data(out, Tensor::vector(DType::kF32, std::span<const float>(&x, 1)));
    ASSERT_FALSE(written.has_value());
    EXPECT_NE(written.error().text.find("binary_data"), std::string::npos) << written.error().text;
  }
}

}  // namespace
}  // namespace bolide::server
