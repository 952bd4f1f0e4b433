// Layouts of weights for GPUs, which are packed on any machine.
#include "kernels/linear/gemv_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels/testing/harness.h"

namespace bolide {
namespace {

constexpr const QuantScheme* kSchemes[] = {&kQ4_0, &kQ4_1,   &kQ4_K,   &kQ5_K,   &kQ6_K,
                                           &kQ8_0, &kW4_G32, &kW4_G64, &kW4_G128};

ValueType type_of(const QuantScheme& scheme, int64_t n, int64_t k) { return {scheme.code, &scheme, {n, k}}; }

TEST(GemvLayout, RoundTrips) {
  BOLIDE_CPU_ONLY();
  Workers workers(2);
  std::mt19937_64 random(std::random_device{}());
  for (const QuantScheme* scheme : kSchemes)
    for (const int64_t blocks : {1, 2, 3, 4, 5, 9, 35})
      for (const int64_t n : {1, 16, 37}) {
        const ValueType type = type_of(*scheme, n, blocks * scheme->block_elements);
        EXPECT_EQ(
            testing::check_round_trip(*gemv_packing(scheme), testing::random_operand(type, {}, true, random), workers),
            "")
            << scheme->name << " " << blocks;
      }
}

// Long rows take no more than the file's and their last windows.
TEST(GemvLayout, RowsAreAsLongAsTheFiles) {
  for (const QuantScheme* scheme : {&kQ4_0, &kQ4_1, &kQ8_0}) {
    const PieceRow row = gemv_row(scheme, 4096);
    EXPECT_EQ(row.row_bytes, 4096 / scheme->block_elements * scheme->block_bytes) << scheme->name;
  }
  EXPECT_LE(gemv_row(&kQ6_K, 4096).row_bytes, 4096 / 256 * 210 * 101 / 100);
  EXPECT_LE(gemv_row(&kQ4_K, 4096).row_bytes, 4096 / 256 * 144 * 103 / 100);
  EXPECT_LE(gemv_row(&kQ5_K, 4096).row_bytes, 4096 / 256 * 176 * 103 / 100);
  for (const QuantScheme* scheme : kSchemes)
    for (const int64_t k : {256, 768, 8960}) {
      const PieceRow row = gemv_row(scheme, k);
      EXPECT_EQ(row.row_bytes % 16, 0) << scheme->name;
      EXPECT_EQ(row.groups_from % 16, 0) << scheme->name;
    }
}

TEST(GemvLayout, OtherSchemesHaveNone) {
  for (const QuantScheme* scheme : {&kQ2_K, &kIQ4_NL}) EXPECT_EQ(gemv_packing(scheme), nullptr) << scheme->name;
  EXPECT_EQ(gemv_packing(nullptr), nullptr);
}

TEST(GemvLayout, RefusesNanAndNamesTheRow) {
  BOLIDE_CPU_ONLY();
  Workers workers(2);
  std::mt19937_64 random(11);
  for (const QuantScheme* scheme : kSchemes) {
    const ValueType type = type_of(*scheme, 20, 256);
    testing::Operand operand = testing::random_operand(type, {}, true, random);
    const size_t per_row = row_bytes(type.dtype, type.quant, 256);
    std::memset(operand.natural.data() + 13 * per_row, 0xff, per_row);  // scales of blocks become NaN
    WeightRows source{.dtype = type.dtype, .quant = type.quant, .rows = 20, .k = 256, .row_bytes = per_row};
    const WeightRows::Run runs[] = {{operand.natural.data(), 20}};
    source.runs = runs;
    std::vector<std::byte> packed(gemv_packing(scheme)->bytes(type));
    const auto result = gemv_packing(scheme)->pack(type, source, packed, workers);
    ASSERT_FALSE(result.has_value()) << scheme->name;
    EXPECT_NE(result.error().text.find("row 13"), std::string::npos) << result.error().text;
  }
}

}  // namespace
}  // namespace bolide
