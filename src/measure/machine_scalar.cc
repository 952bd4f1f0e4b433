// Roofs in plain C++, for processors without kernels of their own: what the compiler's vectoriser makes of them.
#include <cstring>

#include "measure/machine_kernels.h"

namespace bolide::roofs {
namespace {

uint64_t read(const std::byte* data, int64_t bytes) {
  uint64_t sum[8] = {};
  for (int64_t at = 0; at < bytes; at += 64) {
    uint64_t line[8];
    std::memcpy(line, data + at, sizeof line);
    for (int i = 0; i < 8; ++i) sum[i] |= line[i];
  }
  for (int i = 1; i < 8; ++i) sum[0] ^= sum[i];
  return sum[0];
}

constexpr ReadVariant kReads[] = {{"scalar", read}};
constexpr int kSums = 32;

float multiply_add(int64_t iterations) {
  float sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = static_cast<float>(i);
  for (int64_t n = 0; n < iterations; ++n)
    for (int i = 0; i < kSums; ++i) sum[i] = sum[i] * 0.9999f + 1e-4f;
  for (int i = 1; i < kSums; ++i) sum[0] += sum[i];
  return sum[0];
}

}  // namespace

List<ReadVariant> read_scalar() { return {kReads, 1}; }
Arithmetic fp32_scalar() { return {"scalar multiply and add", multiply_add, kSums * 2}; }

}  // namespace bolide::roofs
