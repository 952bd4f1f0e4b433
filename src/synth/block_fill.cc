#include "synth/block_fill.h"

#include "base/check.h"
#include "synth/random_fill.h"
#include "tensor/half.h"

namespace bolide {
namespace {

// Standard deviations of uniform integers: sqrt((count^2 - 1) / 12).
constexpr float kNibble = 4.61f, kSixBits = 18.47f, kByte = 73.9f;
// Inner scales of k-quants are made from the upper half of their range, whose mean this is.
constexpr float kScaleOf6Bits = 47.5f, kScaleOf8Bits = 95.5f;

void put_half(std::byte* at, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(at, &half, sizeof half);
}

// q4_k: eight 6-bit scales and as many minimums in 12 bytes, here the same number for both, so that with
// dmin = 7.5 d the values lie around 0. `random` has 64 bits.
void put_q4_k_scales(std::byte* at, uint64_t random) {
  uint8_t scales[8];
  for (int i = 0; i < 8; ++i) scales[i] = static_cast<uint8_t>(32 | (random >> (8 * i) & 31));
  for (int i = 0; i < 4; ++i) {
    const auto low = static_cast<std::byte>(scales[i] | (scales[i + 4] >> 4) << 6);
    at[i] = low;
    at[i + 4] = low;
    at[i + 8] = static_cast<std::byte>((scales[i + 4] & 15) | (scales[i + 4] & 15) << 4);
  }
}

}  // namespace

void fill_blocks(uint64_t key, uint64_t first, const QuantScheme& scheme, float deviation, MutableBytes out) {
  const auto size = static_cast<uint64_t>(scheme.block_bytes);
  fill_uniform(key, first * size, out);
  const uint64_t scale_key = random_word(key, ~uint64_t{0});
  for (uint64_t i = 0; i < out.size() / size; ++i) {
    std::byte* const block = out.data() + i * size;
    const uint64_t random = random_word(scale_key, first + i);
    const float wanted = deviation * (0.9f + 0.2f * static_cast<float>(random >> 48) / 65536);
    if (&scheme == &kQ4_0) {
      put_half(block, wanted / kNibble);
    } else if (&scheme == &kQ8_0) {
      put_half(block, wanted / kByte);
    } else if (&scheme == &kQ4_K) {
      const float d = wanted / (kNibble * kScaleOf6Bits);
      put_half(block, d);
      put_half(block + 2, 7.5f * d);
      put_q4_k_scales(block + 4, random);
    } else {
      BOLIDE_CHECK(&scheme == &kQ6_K, "{} is not made", scheme.name);
      constexpr size_t kScales = 192, kD = 208;
      for (size_t s = kScales; s < kD; ++s) {  // -128 to -65 and 64 to 127
        const auto byte = std::to_integer<uint32_t>(block[s]);
        block[s] = static_cast<std::byte>((byte & 0x80) != 0 ? 0x80 | (byte & 63) : 0x40 | (byte & 63));
      }
      put_half(block + kD, wanted / (kSixBits * kScaleOf8Bits));
    }
  }
}

}  // namespace bolide
