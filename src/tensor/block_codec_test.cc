#include "tensor/block_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/file.h"
#include "tensor/half.h"

namespace bolide {
namespace {

// Random blocks, decoded by the `gguf` package (tools/golden/block_codec.py): equal to the last bit.
TEST(BlockCodec, MatchesTheGgufPackage) {
  for (const QuantScheme* scheme : block_schemes()) {
    if (scheme->name.starts_with("w4_")) continue;  // not the package's
    const auto path =
        std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests/golden/block_codec" / (std::string(scheme->name) + ".bin");
    const auto file = read_file(path);
    ASSERT_TRUE(file.has_value()) << file.error().text;
    const Bytes bytes = as_bytes(*file);
    const auto block_bytes = load_unaligned<uint32_t>(bytes.data());
    const auto count = load_unaligned<uint32_t>(bytes.data() + 4);
    ASSERT_EQ(bytes.size(), 8 + block_bytes + count * 4);
    ASSERT_EQ(block_bytes / static_cast<uint32_t>(scheme->block_bytes),
              count / static_cast<uint32_t>(scheme->block_elements));
    std::vector<float> got(count);
    decode_block_row(*scheme, bytes.data() + 8, count, got.data());
    for (uint32_t i = 0; i < count; ++i)
      ASSERT_EQ(got[i], load_unaligned<float>(bytes.data() + 8 + block_bytes + i * 4))
          << scheme->name << " value " << i;
  }
}

TEST(BlockCodec, W4IsScaleTimesCodeLessZero) {
  std::mt19937 random(std::random_device{}());
  for (const QuantScheme* scheme : {&kW4_G32, &kW4_G64, &kW4_G128}) {
    const int size = scheme->block_elements;
    ASSERT_EQ(scheme->block_bytes, 4 + size / 2);
    std::vector<uint8_t> row;
    std::vector<float> want;
    for (int block = 0; block < 3; ++block) {
      const auto scale = static_cast<uint16_t>(random() % 0x7c00u | (random() % 2) << 15);
      const int zero = static_cast<int>(random() % 16);
      std::vector<uint8_t> bytes(static_cast<size_t>(scheme->block_bytes));
      bytes[0] = static_cast<uint8_t>(scale), bytes[1] = static_cast<uint8_t>(scale >> 8);
      bytes[2] = static_cast<uint8_t>(zero);
      for (int i = 0; i < size; ++i) {
        const int code = static_cast<int>(random() % 16);
        bytes[static_cast<size_t>(4 + i / 32 * 16 + i % 16)] |= static_cast<uint8_t>(code << (i % 32 / 16 * 4));
        // Exact: 11 bits times 5.
        want.push_back(static_cast<float>(static_cast<double>(f16_to_f32(scale)) * (code - zero)));
      }
      row.insert(row.end(), bytes.begin(), bytes.end());
    }
    std::vector<float> got(want.size());
    decode_block_row(*scheme, reinterpret_cast<const std::byte*>(row.data()), static_cast<int64_t>(want.size()),
                     got.data());
    EXPECT_EQ(got, want) << scheme->name;
  }
}

TEST(BlockCodec, WidensEveryFloatType) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(77);
  for (float& value : values) value = normal(random);
  const auto check = [&](DType dtype, auto encode, auto decode) {
    using Stored = decltype(encode(0.0f));
    std::vector<Stored> stored;
    for (const float value : values) stored.push_back(encode(value));
    std::vector<float> got(values.size());
    decode_row(dtype, nullptr, reinterpret_cast<const std::byte*>(stored.data()), 77, got.data());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], decode(stored[i])) << to_string(dtype);
  };
  check(
      DType::kF64, [](float v) { return static_cast<double>(v) * 1.0000000001; },
      [](double v) { return static_cast<float>(v); });
  check(DType::kF32, [](float v) { return v; }, [](float v) { return v; });
  check(DType::kF16, f32_to_f16, f16_to_f32);
  check(DType::kBF16, f32_to_bf16, bf16_to_f32);
  check(DType::kF8E4M3, f32_to_f8e4m3, f8e4m3_to_f32);
  check(
      DType::kI8, [](float v) { return static_cast<int8_t>(v * 30); }, [](int8_t v) { return static_cast<float>(v); });
  check(DType::kF8E5M2, [](float v) { return static_cast<uint8_t>(f32_to_f16(v) >> 8); }, f8e5m2_to_f32);
}

}  // namespace
}  // namespace bolide
