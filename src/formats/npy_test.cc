#include "formats/npy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "formats/zip.h"

namespace bolide {
namespace {

Tensor random_tensor(DType dtype, const Shape& shape, std::mt19937& random) {
  auto tensor = Tensor::make(dtype, shape);
  for (size_t i = 0; i < tensor->bytes(); ++i) tensor->mutable_data()[i] = static_cast<std::byte>(random() & 1);
  return *tensor;
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.is_string()) return std::ranges::equal(a.as<std::string>(), b.as<std::string>());
  return std::equal(a.data(), a.data() + a.bytes(), b.data());
}

TEST(Npy, WhatIsWrittenIsRead) {
  std::mt19937 random(std::random_device{}());
  std::vector<std::pair<std::string, Tensor>> arrays;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kI64, DType::kI32, DType::kI16, DType::kI8,
                            DType::kU64, DType::kU32, DType::kU16, DType::kU8, DType::kBool})
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0, 4}, Shape{2, 3, 5}}) {
      const Tensor tensor = random_tensor(dtype, shape, random);
      const auto file = write_npy(tensor);
      ASSERT_TRUE(file.has_value());
      EXPECT_EQ(file->size() % (shape.elements() == 0 ? 64 : 1), 0u);
      const auto read = parse_npy(*file, "a");
      ASSERT_TRUE(read.has_value()) << read.error().text;
      EXPECT_TRUE(same(tensor, *read)) << to_string(dtype) << to_string(shape);
      arrays.emplace_back(fmt::format("{}{}", to_string(dtype), arrays.size()), tensor);
    }
  arrays.emplace_back("texts", Tensor::strings({2}, {"one", "größer"}));
  const auto archive = write_npz(arrays);
  ASSERT_TRUE(archive.has_value());
  const auto read = parse_npz(*archive, "a");
  ASSERT_TRUE(read.has_value()) << read.error().text;
  ASSERT_EQ(read->size(), arrays.size());
  for (const auto& [name, tensor] : arrays) EXPECT_TRUE(same(read->at(name), tensor)) << name;

  // No prefix and no changed byte is more than an error.
  for (size_t size = 0; size < archive->size(); size += 1 + random() % 40)
    EXPECT_FALSE(parse_npz(Bytes(*archive).first(size), "a").has_value()) << size;
  for (int i = 0; i < 3000; ++i) {
    auto changed = *archive;
    changed[random() % changed.size()] ^= static_cast<std::byte>(1 + random() % 255);
    (void)parse_npz(changed, "a");
  }
}

// Bytes as numpy 1.26 wrote them: a Fortran-ordered array, and one of texts.
TEST(Npy, ReadsNumpysOwnFiles) {
  const auto file = [](std::string_view header, Bytes data) {
    std::string text = "\x93NUMPY\x01";
    text += '\0';
    std::string padded(header);
    padded.append(64 - (10 + padded.size() + 1) % 64, ' ');
    padded += '\n';
    text += static_cast<char>(padded.size() & 0xff);
    text += static_cast<char>(padded.size() >> 8);
    text += padded;
    text += as_text(data);
    return text;
  };
  const int32_t columns[] = {0, 3, 1, 4, 2, 5};
  const std::string fortran =
      file("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }", std::as_bytes(std::span(columns)));
  const auto turned = parse_npy(as_bytes(fortran), "f");
  ASSERT_TRUE(turned.has_value()) << turned.error().text;
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(turned->as<int32_t>()[static_cast<size_t>(i)], i);

  const char32_t letters[] = {U'a', U'é', 0, U'b', 0, 0};
  const std::string texts =
      file("{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }", std::as_bytes(std::span(letters)));
  const auto read = parse_npy(as_bytes(texts), "t");
  ASSERT_TRUE(read.has_value()) << read.error().text;
  EXPECT_EQ(read->as<std::string>()[0], "aé");
  EXPECT_EQ(read->as<std::string>()[1], "b");

  const auto object =
      parse_npy(as_bytes(file("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", {})), "o.npy");
  ASSERT_FALSE(object.has_value());
  EXPECT_NE(object.error().text.find("o.npy"), std::string::npos);
  EXPECT_NE(object.error().text.find("|O"), std::string::npos);
  const auto huge =
      parse_npy(as_bytes(file("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999, 99999999), }", {})), "h");
  ASSERT_FALSE(huge.has_value());
  EXPECT_NE(huge.error().text.find("too large"), std::string::npos);
}

}  // namespace
}  // namespace bolide
