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
  check(DType::kF8E5M2, [](float v) { return static_cast<uint8_t>(f32_to_f16(v) >> 8); }, f8e5m2_to_f32);
}

}  // namespace
}  // namespace bolide
