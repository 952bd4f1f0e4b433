// Passes over the vocabulary: bound by level-2 or level-3 bandwidth, sum_weights by the exponential.
#pragma once

#include "kernels/sample/sample_isa.h"
#include "kernels/simd/math.h"
#include "kernels/simd/row.h"

namespace bolide {
namespace {

constexpr float kLowest = -__builtin_inff();

// Lanes beyond n become -infinity.
BOLIDE_INLINE Vec load_scores(const float* p, int64_t n) {
  return n == kLanes ? load(p) : within(load_n(p, n), set(kLowest), 0, n);
}

float row_largest(const float* scores, int64_t count, int64_t* id) {
  Vec most[4] = {set(kLowest), set(kLowest), set(kLowest), set(kLowest)};
  Mask nan = is_nan(most[0]);
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const Vec x = load(scores + i + u * kLanes);
      nan = either(nan, is_nan(x));
      most[u] = max(most[u], x);
    }
  for (; i < count; i += kLanes) {
    const Vec x = load_scores(scores + i, count - i < kLanes ? count - i : static_cast<int64_t>(kLanes));
    nan = either(nan, is_nan(x));
    most[0] = max(most[0], x);
  }
  *id = 0;
  if (bits(nan) != 0) return __builtin_nanf("");
  const float found = largest(max(max(most[0], most[1]), max(most[2], most[3])));
  for (i = 0; i < count; i += kLanes) {
    const int64_t n = count - i < kLanes ? count - i : static_cast<int64_t>(kLanes);
    const uint32_t hit = bits(equal(load_scores(scores + i, n), set(found)));
    if (hit != 0) {
      *id = i + __builtin_ctz(hit);
      break;
    }
  }
  return found;
}

BOLIDE_INLINE Vec weights_of(Vec scores, float most, float inverse_temperature) {
  return exp((scores - set(most)) * set(inverse_temperature));
}

double row_sum_weights(const float* scores, int64_t count, float most, float inverse_temperature) {
  constexpr int64_t kBlock = 16 * kLanes;  // f32 within a block, f64 over blocks
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = count - begin < kBlock ? count - begin : kBlock;
    Vec part = zero();
    for_row(size, [&](int64_t i, int64_t n) {
      part = part + weights_of(load_scores(scores + begin + i, n), most, inverse_temperature);
    });
    total += sum_f64(part);
  }
  return total;
}

void row_group_largest(const float* scores, int64_t count, int64_t group, float* out) {
  for (int64_t g = 0; g < count / group; ++g) {
    Vec most = set(kLowest);
    for_row(group, [&](int64_t i, int64_t n) { most = max(most, load_scores(scores + g * group + i, n)); });
    out[g] = largest(most);
  }
}

int64_t row_collect(const float* scores, int64_t count, float least, float most, float inverse_temperature,
                    isa::Candidate* out) {
  int64_t found = 0;
  for_row(count, [&](int64_t i, int64_t n) {
    const Vec x = load_scores(scores + i, n);
    uint32_t hit = bits(greater_equal(x, set(least)));
    if (n != kLanes) hit &= (1u << n) - 1u;
    if (hit == 0) return;
    float weight[kLanes];
    store(weight, weights_of(x, most, inverse_temperature));
    for (; hit != 0; hit &= hit - 1) {
      const int lane = __builtin_ctz(hit);
      out[found++] = {scores[i + lane], weight[lane], static_cast<int32_t>(i + lane)};
    }
  });
  return found;
}

constexpr isa::SampleFunctions kSampleFunctions = {row_largest, row_sum_weights, row_group_largest, row_collect};

}  // namespace
}  // namespace bolide
