#include "kv/prefix_key.h"

#include <cstddef>

namespace bolide {
namespace {

// Odd numbers without structure: digits of the square roots of 2, 3, 5 and 7.
constexpr uint64_t kMix[] = {0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1};

// Both halves of the product: every bit of the inputs reaches every bit of the result.
uint64_t multiply_fold(uint64_t x, uint64_t y) {
  const auto product = static_cast<unsigned __int128>(x) * y;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

PrefixKey mix(const PrefixKey& key, uint64_t value) {
  return {multiply_fold(key.a ^ value ^ kMix[0], key.b ^ kMix[1]),
          multiply_fold(key.b + value + kMix[2], key.a ^ kMix[3]) + value};
}

}  // namespace

PrefixKey prefix_root(uint64_t secret, uint64_t salt) {
  return mix(mix({secret ^ kMix[3], secret + kMix[2]}, secret), salt);
}

PrefixKey prefix_next(const PrefixKey& parent, std::span<const int32_t> tokens) {
  PrefixKey key = mix(parent, tokens.size());
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t high = i + 1 < tokens.size() ? static_cast<uint32_t>(tokens[i + 1]) : 0;
    key = mix(key, static_cast<uint32_t>(tokens[i]) | high << 32);
  }
  return key;
}

}  // namespace bolide
