// Rows of activations into panels [k][tile], by transposes in registers; include after vec_avx2.h or vec_avx512.h.
#pragma once

#include "kernels/linear/float_kernels.h"

namespace bolide {
namespace {

// Words [words][tile] from rows of `words` words; get(row, word, count) loads up to kLanes of them.
template <class Get>
BOLIDE_INLINE void fill_words(const PanelRows& a, int64_t words, Get&& get) {
  auto* panel = reinterpret_cast<uint32_t*>(a.panel);
  for (int first = 0; first < a.tile; first += kLanes) {
    const int lanes = a.tile - first < kLanes ? a.tile - first : kLanes;
    for (int64_t word = 0; word < words; word += kLanes) {
      const int64_t count = words - word < kLanes ? words - word : static_cast<int64_t>(kLanes);
      IntVec block[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        block[r] = IntVec{};
        if (first + r < a.tokens) block[r] = get(a.x + (first + r) * a.x_stride, word, count);
      }
      transpose(block);
      for (int64_t i = 0; i < count; ++i) {
        auto* to = reinterpret_cast<float*>(panel + (word + i) * a.tile + first);
        Vec v;
        __builtin_memcpy(&v, &block[i], sizeof v);
        lanes == kLanes ? store(to, v) : store_n(to, v, lanes);
      }
    }
  }
}

BOLIDE_INLINE void fill_floats(const PanelRows& a) {
  fill_words(a, a.k, [](const float* row, int64_t word, int64_t count) {
    const auto* from = reinterpret_cast<const uint32_t*>(row) + word;
    return count == kLanes ? load_words(from) : load_words_n(from, count);
  });
}

}  // namespace
}  // namespace bolide
