#include "synth/random_fill.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace bolide {
namespace {

constexpr int kTableBits = 12;
constexpr uint64_t kTableMask = (1u << kTableBits) - 1;
static_assert(kQuantiles == 1 << kTableBits);

constexpr int kPerWord = 4, kStep = 16;

template <class T>
void fill(uint64_t key, uint64_t first, std::span<T> out, const T* table) {
  BOLIDE_CHECK(first % kPerWord == 0, "element {} begins no word", first);
  uint64_t word = first / kPerWord;
  T* to = out.data();
  T* const end = to + out.size();
  for (; end - to >= kPerWord; to += kPerWord) {
    const uint64_t bits = random_word(key, word++);
    for (int i = 0; i < kPerWord; ++i) to[i] = table[(bits >> (i * kStep)) & kTableMask];
  }
  const uint64_t bits = random_word(key, word);
  for (int i = 0; to + i < end; ++i) to[i] = table[(bits >> (i * kStep)) & kTableMask];
}

// The x with this share of the standard normal distribution below it, by Newton's method from near it.
double normal_quantile(double share, double near) {
  double x = near;
  for (int i = 0; i < 12; ++i) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    const double step = (below - share) / density;
    x -= step;
    if (std::abs(step) < 1e-12) break;
  }
  return x;
}

std::array<float, kQuantiles> make_quantiles() {
  std::array<float, kQuantiles> table{};
  double x = 0;
  for (int i = kQuantiles / 2 - 1; i >= 0; --i) {  // from the middle outwards, each from its neighbour
    x = normal_quantile((i + 0.5) / kQuantiles, x);
    table[static_cast<size_t>(i)] = static_cast<float>(x);
    table[static_cast<size_t>(kQuantiles - 1 - i)] = static_cast<float>(-x);
  }
  return table;
}

}  // namespace

uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t hash = random_word(seed, 0);
  for (const char c : name) hash = random_word(hash, static_cast<uint8_t>(c));
  return hash;
}

const std::array<float, kQuantiles>& normal_quantiles() {
  static const std::array<float, kQuantiles> kTable = make_quantiles();
  return kTable;
}

void fill_from_table(uint64_t key, uint64_t first, std::span<uint16_t> out, const uint16_t* table) {
  fill(key, first, out, table);
}
void fill_from_table(uint64_t key, uint64_t first, std::span<float> out, const float* table) {
  fill(key, first, out, table);
}

void fill_uniform(uint64_t key, uint64_t first, MutableBytes out) {
  BOLIDE_CHECK(first % 8 == 0, "byte {} begins no word", first);
  const size_t whole = out.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    const uint64_t word = random_word(key, (first + at) / 8);
    std::memcpy(out.data() + at, &word, 8);
  }
  const uint64_t word = random_word(key, (first + whole) / 8);
  std::memcpy(out.data() + whole, &word, out.size() - whole);
}

}  // namespace bolide
