// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as
// 1, 2, 3": the same key and counter give the same numbers on every machine. constexpr: GPU code calls it too.
#pragma once

#include <array>
#include <cstdint>

namespace bolide::sample {

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;  // golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

// Uniform in [0, 1), 53 bits, for one token of one request.
constexpr double uniform(uint64_t seed, uint64_t request, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  const auto bits = philox4x32({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32),
                                static_cast<uint32_t>(request), static_cast<uint32_t>(request >> 32)},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t wide = (uint64_t{bits[0]} << 32 | bits[1]) >> 11;
  return static_cast<double>(wide) * 0x1p-53;
}

}  // namespace bolide::sample
