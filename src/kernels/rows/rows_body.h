// Rows, one or two passes over memory; bound by bandwidth beyond L1, save for those with an exponential.
#pragma once

#include "kernels/rows/rows_isa.h"
#include "kernels/simd/math.h"
#include "kernels/simd/row.h"

namespace bolide {
namespace {

using isa::NormRow;

template <class F>
BOLIDE_INLINE void map_row(const float* x, float* y, int64_t count, F&& f) {
  for_row(count, [&](int64_t i, int64_t n) { store_some(y + i, f(load_some(x + i, n)), n); });
}

// NaN stays NaN, as relu's maximum has it.
BOLIDE_INLINE Vec sigmoid(Vec x) { return set(1.f) / (set(1.f) + exp(zero() - x)); }
BOLIDE_INLINE Vec clamped(Vec x, Vec low, Vec high) { return min(high, max(low, x)); }

template <int kOp>
BOLIDE_INLINE Vec unary_of(Vec x, const float* p) {
  using namespace isa;
  if constexpr (kOp == kRowRelu) return relu(x);
  if constexpr (kOp == kRowLeakyRelu) return select(less(x, zero()), x * set(p[0]), x);
  if constexpr (kOp == kRowSigmoid) return sigmoid(x);
  if constexpr (kOp == kRowTanh) return tanh(x);
  if constexpr (kOp == kRowGelu) return gelu(x);
  if constexpr (kOp == kRowGeluTanh) return gelu_tanh(x);
  if constexpr (kOp == kRowSilu) return silu(x);
  if constexpr (kOp == kRowErf) return erf(x);
  if constexpr (kOp == kRowExp) return exp(x);
  if constexpr (kOp == kRowSqrt) return sqrt(x);
  if constexpr (kOp == kRowReciprocal) return set(1.f) / x;
  if constexpr (kOp == kRowNegate) return x * set(-1.f);
  if constexpr (kOp == kRowAbs) return abs(x);
  if constexpr (kOp == kRowHardSigmoid) return clamped(fma(x, set(p[0]), set(p[1])), zero(), set(1.f));
  if constexpr (kOp == kRowHardSwish) return x * clamped(fma(x, set(1.f / 6.f), set(0.5f)), zero(), set(1.f));
  if constexpr (kOp == kRowClip) return clamped(x, set(p[0]), set(p[1]));
  if constexpr (kOp == kRowSquare) return x * x;
}

template <int kOp>
void unary(const float* x, float* y, int64_t count, const float* p) {
  map_row(x, y, count, [p](Vec v) { return unary_of<kOp>(v, p); });
}
template <int kOp>
void finish(float* piece, int64_t count) {
  map_row(piece, piece, count, [](Vec v) { return unary_of<kOp>(v, nullptr); });
}

template <int kOp>
BOLIDE_INLINE Vec binary_of(Vec a, Vec b) {
  using namespace isa;
  if constexpr (kOp == kRowAdd) return a + b;
  if constexpr (kOp == kRowSubtract) return a - b;
  if constexpr (kOp == kRowMultiply) return a * b;
  if constexpr (kOp == kRowDivide) return a / b;
  if constexpr (kOp == kRowMax) return select(is_nan(a), a, max(a, b));
  if constexpr (kOp == kRowMin) return select(is_nan(a), a, min(a, b));
}
template <int kOp>
void binary(const float* a, const float* b, float* y, int64_t count) {
  for_row(count, [&](int64_t i, int64_t n) {
    store_some(y + i, binary_of<kOp>(load_some(a + i, n), load_some(b + i, n)), n);
  });
}
template <int kOp>
void binary_right(const float* a, float b, float* y, int64_t count) {
  map_row(a, y, count, [right = set(b)](Vec v) { return binary_of<kOp>(v, right); });
}
template <int kOp>
void binary_left(float a, const float* b, float* y, int64_t count) {
  map_row(b, y, count, [left = set(a)](Vec v) { return binary_of<kOp>(left, v); });
}

// f(first element, elements, so far) folded over the vectors of a row in four chains, then added.
template <class F>
BOLIDE_INLINE float row_sum(int64_t count, F&& f) {
  Vec part[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) part[u] = f(i + u * kLanes, static_cast<int64_t>(kLanes), part[u]);
  for (int u = 0; i + kLanes <= count; i += kLanes, ++u) part[u] = f(i, static_cast<int64_t>(kLanes), part[u]);
  if (i < count) part[3] = f(i, count - i, part[3]);
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

float sum_row(const float* x, int64_t count) {
  return row_sum(count, [x](int64_t i, int64_t n, Vec part) { return part + load_some(x + i, n); });
}

float max_row(const float* x, int64_t count) {
  const Vec least = set(-__builtin_inff());
  Vec most[4] = {least, least, least, least};
  Vec odd = zero();  // NaN if there is one
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const Vec v = load(x + i + u * kLanes);
      odd = select(is_nan(v), v, odd);
      most[u] = max(most[u], v);
    }
  for_row(count - i, [&](int64_t j, int64_t n) {
    const Vec v = load_some(x + i + j, n);
    odd = select(is_nan(v), v, odd);
    most[0] = max(most[0], n == kLanes ? v : within(v, least, 0, n));
  });
  if (bits(is_nan(odd)) != 0) return __builtin_nanf("");
  return largest(max(max(most[0], most[1]), max(most[2], most[3])));
}

void softmax_row(const float* x, float* y, int64_t count) {
  const Vec most = set(max_row(x, count));
  const float total = row_sum(count, [&](int64_t i, int64_t n, Vec part) {
    Vec e = exp(load_some(x + i, n) - most);
    if (n != kLanes) e = within(e, zero(), 0, n);
    store_some(y + i, e, n);
    return part + e;
  });
  map_row(y, y, count, [scale = set(1.f / total)](Vec v) { return v * scale; });
}

void log_softmax_row(const float* x, float* y, int64_t count) {
  const float most = max_row(x, count);
  const float total = row_sum(count, [&](int64_t i, int64_t n, Vec part) {
    const Vec e = exp(load_some(x + i, n) - set(most));
    return part + (n == kLanes ? e : within(e, zero(), 0, n));
  });
  map_row(x, y, count, [shift = set(most), log = set(__builtin_logf(total))](Vec v) { return v - shift - log; });
}

// Lanes are columns. NaN and infinities come out of exp(x - most) as they do for a row; log: y = x - most - log(total).
template <bool kLog>
void softmax_of_columns(const float* x, float* y, int64_t n, int64_t stride, int64_t columns) {
  for_row(columns, [&](int64_t i, int64_t lanes) {
    Vec most = set(-__builtin_inff());
    for (int64_t r = 0; r < n; ++r) most = max(load_some(x + r * stride + i, lanes), most);
    Vec total = zero();
    for (int64_t r = 0; r < n; ++r) {
      const Vec e = exp(load_some(x + r * stride + i, lanes) - most);
      if constexpr (!kLog) store_some(y + r * stride + i, e, lanes);
      total = total + e;
    }
    if constexpr (kLog) {
      float logs[kLanes];
      store(logs, total);
      for (float& one : logs) one = __builtin_logf(one);
      const Vec log = load(logs);
      for (int64_t r = 0; r < n; ++r)
        store_some(y + r * stride + i, load_some(x + r * stride + i, lanes) - most - log, lanes);
    } else {
      const Vec scale = set(1.f) / total;
      for (int64_t r = 0; r < n; ++r)
        store_some(y + r * stride + i, load_some(y + r * stride + i, lanes) * scale, lanes);
    }
  });
}

BOLIDE_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

void norm_row(const NormRow& row) {
  const float* t = row.x;
  const auto elements = static_cast<float>(row.count);
  float first = 0;  // sum, or sum of squares
  const bool added = row.skip != nullptr || row.skip_bias != nullptr;
  if (added || row.centred)
    first = row_sum(row.count, [&](int64_t i, int64_t n, Vec part) {
      Vec v = load_some(row.x + i, n);
      if (row.skip != nullptr) v = v + load_some(row.skip + i, n);
      if (row.skip_bias != nullptr) v = v + load_some(row.skip_bias + i, n);
      if (added) store_some(row.sum + i, v, n);
      return part + v;
    });
  if (added) t = row.sum;
  const Vec center = row.centred ? set(first / elements) : zero();
  const float squares = row_sum(row.count, [&](int64_t i, int64_t n, Vec part) {
    Vec v = load_some(t + i, n) - center;
    if (n != kLanes) v = within(v, zero(), 0, n);
    return fma(v, v, part);
  });
  const float inverse = 1.f / square_root(squares / elements + row.epsilon);
  if (row.mean != nullptr) *row.mean = row.centred ? first / elements : 0.f;
  if (row.inverse != nullptr) *row.inverse = inverse;
  const Vec scale = set(inverse);
  for_row(row.count, [&](int64_t i, int64_t n) {
    const Vec v = (load_some(t + i, n) - center) * scale * load_some(row.scale + i, n);
    store_some(row.y + i, row.bias != nullptr ? v + load_some(row.bias + i, n) : v, n);
  });
}

void affine_row(const float* x, float scale, float shift, float* y, int64_t count) {
  map_row(x, y, count, [s = set(scale), t = set(shift)](Vec v) { return fma(v, s, t); });
}

void rotate_row(const float* x, const float* cosines, const float* sines, float* y, int64_t half) {
  for_row(half, [&](int64_t i, int64_t n) {
    const Vec a = load_some(x + i, n), b = load_some(x + half + i, n);
    const Vec c = load_some(cosines + i, n), s = load_some(sines + i, n);
    store_some(y + i, c * a - s * b, n);
    store_some(y + half + i, s * a + c * b, n);
  });
}

void transpose_block(const uint32_t* from, int64_t from_stride, int64_t rows, int64_t columns, uint32_t* to,
                     int64_t to_stride) {
  int64_t r = 0;
  for (; r + kLanes <= rows; r += kLanes) {
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) {
      IntVec block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) block[i] = load_words(from + (r + i) * from_stride + c);
      transpose(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store_words(to + (c + i) * to_stride + r, block[i]);
    }
    for (; c < columns; ++c)
      for (int i = 0; i < kLanes; ++i) to[c * to_stride + r + i] = from[(r + i) * from_stride + c];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
}

constexpr isa::RowFunctions kRowFunctions = {
    {unary<0>, unary<1>, unary<2>, unary<3>, unary<4>, unary<5>, unary<6>, unary<7>, unary<8>, unary<9>, unary<10>,
     unary<11>, unary<12>, unary<13>, unary<14>, unary<15>, unary<16>},
    {binary<0>, binary<1>, binary<2>, binary<3>, binary<4>, binary<5>},
    {binary_right<0>, binary_right<1>, binary_right<2>, binary_right<3>, binary_right<4>, binary_right<5>},
    {binary_left<0>, binary_left<1>, binary_left<2>, binary_left<3>, binary_left<4>, binary_left<5>},
    softmax_row,
    log_softmax_row,
    norm_row,
    sum_row,
    max_row,
    affine_row,
    rotate_row,
    transpose_block,
    {finish<isa::kRowRelu>, nullptr, finish<isa::kRowSigmoid>, finish<isa::kRowTanh>, finish<isa::kRowGelu>,
     finish<isa::kRowGeluTanh>, finish<isa::kRowSilu>, finish<isa::kRowErf>, finish<isa::kRowExp>,
     finish<isa::kRowSqrt>, finish<isa::kRowReciprocal>, finish<isa::kRowNegate>, finish<isa::kRowAbs>, nullptr,
     finish<isa::kRowHardSwish>, nullptr, finish<isa::kRowSquare>},
    softmax_of_columns<false>,
    softmax_of_columns<true>,
};

}  // namespace
}  // namespace bolide
