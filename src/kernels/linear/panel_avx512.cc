#include "kernels/simd/vec_avx512.h"
//
#include "kernels/linear/panel_fill_impl.h"

namespace bolide::avx512 {

void fill_panel(const PanelRows& rows) { fill_floats(rows); }

void fill_pairs(const PanelRows& rows) {
  fill_words(rows, (rows.k + 1) / 2, [&](const float* row, int64_t word, int64_t) {
    const int64_t left = rows.k - 2 * word;
    const auto part = [&](int64_t from) {
      const int64_t n = left - from;
      return narrow_bf16(n >= kLanes ? load(row + 2 * word + from) : n > 0 ? load_n(row + 2 * word + from, n) : zero());
    };
    const __m256i low = part(0), high = part(kLanes);
    return IntVec{_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)};
  });
}

}  // namespace bolide::avx512
