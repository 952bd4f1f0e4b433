#include "synth/block_fill.h"

#include "base/check.h"
#include "synth/code_tables.h"
#include "synth/random_fill.h"
#include "tensor/half.h"

namespace bolide {
namespace {

// A code's step in standard deviations of the values, for uniform codes: those have the standard deviation
// sqrt((count^2 - 1) / 12).
constexpr float kStepOf5Bits = 1 / 9.233f, kStepOf6Bits = 1 / 18.47f;
// Scales within a block of 256 are made from the upper half of their range, which has this mean.
constexpr float kMeanOf6BitScales = 47.5f, kMeanOf8BitScales = 95.5f;

void put_half(std::byte* at, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(at, &half, sizeof half);
}

// d, and the minimum for which code `zero` is 0.
void put_scale(std::byte* block, float d) { put_half(block, d); }
void put_scale_and_minimum(std::byte* block, float d, float zero) {
  put_half(block, d);
  put_half(block + 2, -zero * d);
}

// w4_*: the scale, zero point 8 and a zero byte.
void put_scale_and_8(std::byte* block, float d) {
  put_half(block, d);
  block[2] = std::byte{8};
  block[3] = std::byte{0};
}

// q4_k and q5_k: eight 6-bit scales and as many minimums in 12 bytes, here the same number for both, so that with
// dmin = zero * d code `zero` is 0. `random` has 64 bits.
void put_inner_scales(std::byte* block, float step, float zero, uint64_t random) {
  const float d = step / kMeanOf6BitScales;
  put_half(block, d);
  put_half(block + 2, zero * d);
  uint8_t scales[8];
  for (int i = 0; i < 8; ++i) scales[i] = static_cast<uint8_t>(32 | (random >> (8 * i) & 31));
  std::byte* const at = block + 4;
  for (int i = 0; i < 4; ++i) {
    const auto low = static_cast<std::byte>(scales[i] | (scales[i + 4] >> 4) << 6);
    at[i] = low;
    at[i + 4] = low;
    at[i + 8] = static_cast<std::byte>((scales[i + 4] & 15) | (scales[i + 4] & 15) << 4);
  }
}

// q6_k: sixteen signed 8-bit scales: -128 to -65 and 64 to 127.
void put_q6_k_scales(std::byte* block, float step) {
  constexpr size_t kScales = 192, kD = 208;
  for (size_t i = kScales; i < kD; ++i) {
    const auto byte = std::to_integer<uint32_t>(block[i]);
    block[i] = static_cast<std::byte>((byte & 0x80) != 0 ? 0x80 | (byte & 63) : 0x40 | (byte & 63));
  }
  put_half(block + kD, step / kMeanOf8BitScales);
}

// `put(block, deviation, random)` for each block, with deviations that differ by up to 10 %.
template <class Put>
void put_scales(uint64_t key, uint64_t first, const QuantScheme& scheme, float deviation, MutableBytes out, Put put) {
  const auto size = static_cast<uint64_t>(scheme.block_bytes);
  for (uint64_t i = 0; i < out.size() / size; ++i) {
    const uint64_t random = random_word(key, first + i);
    put(out.data() + i * size, deviation * (0.9f + 0.2f * static_cast<float>(random >> 48) / 65536), random);
  }
}

}  // namespace

void fill_blocks(uint64_t key, uint64_t first, const QuantScheme& scheme, float deviation, MutableBytes out) {
  // The codes, wherever they lie in a block; then the rest over them.
  static_assert(sizeof(uint16_t) == 2);
  const uint64_t words = static_cast<uint64_t>(scheme.block_bytes) / sizeof(uint16_t);
  const std::span<uint16_t> as_words(reinterpret_cast<uint16_t*>(out.data()), out.size() / sizeof(uint16_t));
  if (&scheme == &kQ8_0)
    fill_from_table(key, first * words, as_words, int8_codes().data());
  else if (scheme.code == DType::kU4)
    fill_from_table(key, first * words, as_words, nibble_codes().data());
  else
    fill_uniform(key, first * words * sizeof(uint16_t), out);

  const uint64_t scale_key = random_word(key, ~uint64_t{0});
  const auto scales = [&](auto put) { put_scales(scale_key, first, scheme, deviation, out, put); };
  using B = std::byte;
  if (&scheme == &kQ4_0) {
    scales([](B* block, float dev, uint64_t) { put_scale(block, dev * nibble_step()); });
  } else if (&scheme == &kQ4_1) {
    scales([](B* block, float dev, uint64_t) { put_scale_and_minimum(block, dev * nibble_step(), 8); });
  } else if (&scheme == &kW4_G32 || &scheme == &kW4_G64 || &scheme == &kW4_G128) {
    scales([](B* block, float dev, uint64_t) { put_scale_and_8(block, dev * nibble_step()); });
  } else if (&scheme == &kQ5_0) {
    scales([](B* block, float dev, uint64_t) { put_scale(block, dev * kStepOf5Bits); });
  } else if (&scheme == &kQ5_1) {
    scales([](B* block, float dev, uint64_t) { put_scale_and_minimum(block, dev * kStepOf5Bits, 15.5f); });
  } else if (&scheme == &kQ8_0) {
    scales([](B* block, float dev, uint64_t) { put_scale(block, dev * int8_step()); });
  } else if (&scheme == &kQ4_K) {
    scales([](B* block, float dev, uint64_t random) { put_inner_scales(block, dev * nibble_step(), 8, random); });
  } else if (&scheme == &kQ5_K) {
    scales([](B* block, float dev, uint64_t random) { put_inner_scales(block, dev * kStepOf5Bits, 15.5f, random); });
  } else {
    BOLIDE_CHECK(&scheme == &kQ6_K, "{} is not made", scheme.name);
    scales([](B* block, float dev, uint64_t) { put_q6_k_scales(block, dev * kStepOf6Bits); });
  }
}

}  // namespace bolide
