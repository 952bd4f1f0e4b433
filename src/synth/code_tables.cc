#include "synth/code_tables.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/half.h"

namespace bolide {
namespace {

// The quantiles end here; what is the largest code stands for it.
float largest() { return normal_quantiles().back(); }

// 0 to kQuantiles - 1, shuffled.
std::array<int, kQuantiles> order_of(uint64_t lane) {
  std::array<int, kQuantiles> order;
  for (int i = 0; i < kQuantiles; ++i) order[static_cast<size_t>(i)] = i;
  for (uint64_t i = kQuantiles - 1; i > 0; --i) std::swap(order[i], order[random_word(lane, i) % (i + 1)]);
  return order;
}

// `code` makes `bits` bits of a value in standard deviations.
CodeTable table_of(int bits, uint32_t (*code)(float)) {
  CodeTable table{};
  for (int lane = 0; lane * bits < 16; ++lane) {
    const auto order = order_of(static_cast<uint64_t>(lane));
    for (size_t i = 0; i < table.size(); ++i)
      table[i] |= static_cast<uint16_t>(code(normal_quantiles()[static_cast<size_t>(order[i])]) << (lane * bits));
  }
  return table;
}

uint32_t nibble_of(float value) {
  return static_cast<uint32_t>(std::clamp(std::lround(value / nibble_step()) + 8, 0L, 15L));
}
uint32_t int8_of(float value) { return static_cast<uint32_t>(std::lround(value / int8_step())) & 0xff; }
uint32_t float8_of(float value) { return f32_to_f8e4m3(value / float8_step()); }

}  // namespace

float nibble_step() { return 2.4f / 7.5f; }  // of groups of 32 to 128 values the largest lie around here
float int8_step() { return largest() / 127; }
float float8_step() { return largest() / 448; }

const CodeTable& nibble_codes() {
  static const CodeTable kTable = table_of(4, nibble_of);
  return kTable;
}
const CodeTable& int8_codes() {
  static const CodeTable kTable = table_of(8, int8_of);
  return kTable;
}
const CodeTable& float8_codes() {
  static const CodeTable kTable = table_of(8, float8_of);
  return kTable;
}

}  // namespace bolide
