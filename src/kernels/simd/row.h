// Loops over a row with a tail; include after vec_avx2.h or vec_avx512.h.
#pragma once

namespace bolide {
namespace {

BOLIDE_INLINE Vec load_some(const float* p, int64_t n) { return n == kLanes ? load(p) : load_n(p, n); }
BOLIDE_INLINE void store_some(float* p, Vec a, int64_t n) { n == kLanes ? store(p, a) : store_n(p, a, n); }

// f(first element, elements) for each vector of a row; the last may have fewer than kLanes elements.
template <class F>
BOLIDE_INLINE void for_row(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, static_cast<int64_t>(kLanes));
  if (i < count) f(i, count - i);
}

}  // namespace
}  // namespace bolide
