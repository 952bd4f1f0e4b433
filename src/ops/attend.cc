#include "ops/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bolide {
namespace {

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  constexpr int64_t kSums = 8;
  T sums[kSums] = {}, sum{};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t s = 0; s < kSums; ++s) sums[s] += a[i + s] * b[i + s];
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const T partial : sums) sum += partial;
  return sum;
}

template <class T>
T rounded(T value, bool halves) {
  return halves ? static_cast<T>(f16_to_f32(f32_to_f16(static_cast<float>(value)))) : value;
}

// One query: its scores, probabilities and output. `scaled` [D], `row` and `bias` [L].
template <class T>
void attend_row(const Attend<T>& a, int64_t b, int64_t h, int64_t i, T* scaled, T* row, const T* bias) {
  const int64_t g = h / (a.H / a.G);
  T* const shown = a.scores == nullptr ? nullptr : a.scores + ((b * a.H + h) * a.S + i) * a.L;
  const auto show = [&](int64_t mode) {
    if (shown != nullptr && a.scores_mode == mode) std::copy_n(row, a.L, shown);
  };
  // Half of the scale on either side, as the standard has it: what rounds to f16 rounds the same.
  const T half_scale = rounded(static_cast<T>(std::sqrt(std::abs(a.scale))), a.halves);
  const T sign = a.scale < 0 ? T(-1) : T(1);
  const T* q = a.q.at(b, h, i);
  if (a.halves) {
    T* const key = scaled + a.D;
    for (int64_t d = 0; d < a.D; ++d) scaled[d] = rounded(q[d] * half_scale, true);
    for (int64_t j = 0; j < a.L; ++j) {
      const T* k = a.k.at(b, g, j);
      for (int64_t d = 0; d < a.D; ++d) key[d] = rounded(k[d] * half_scale, true);
      row[j] = rounded(sign * dot(scaled, key, a.D), true);
    }
  } else {
    for (int64_t d = 0; d < a.D; ++d) scaled[d] = q[d] * static_cast<T>(a.scale);
    for (int64_t j = 0; j < a.L; ++j) row[j] = dot(scaled, a.k.at(b, g, j), a.D);
  }
  show(0);
  if (a.softcap > 0) {
    const T cap = static_cast<T>(a.softcap);
    for (int64_t j = 0; j < a.L; ++j) row[j] = rounded(cap * std::tanh(row[j] / cap), a.halves);
  }
  show(1);
  T most = masked<T>();
  bool open = false;
  for (int64_t j = 0; j < a.L; ++j) {
    open = open || bias[j] != masked<T>();
    row[j] = rounded(row[j] + bias[j], a.halves);
  }
  show(2);
  for (int64_t j = 0; j < a.L; ++j) most = std::max(most, row[j]);
  const bool has_sink = a.sinks != nullptr || a.smooth;
  const T sink = a.sinks != nullptr ? a.sinks[h] : T{};
  if (has_sink) most = std::max(most, sink);
  T sum = has_sink ? std::exp(sink - most) : T{};
  for (int64_t j = 0; j < a.L; ++j) {
    row[j] = !open || most == masked<T>() ? T{} : std::exp(row[j] - most);
    sum += row[j];
  }
  if (sum != T{})
    for (int64_t j = 0; j < a.L; ++j) row[j] = rounded(row[j] / sum, a.halves);
  show(3);
  T* out = a.out.at(b, h, i);
  std::fill_n(out, a.Dv, T{});
  for (int64_t j = 0; j < a.L; ++j) {
    if (row[j] == T{}) continue;  // what is masked may be anything
    const T* v = a.v.at(b, g, j);
    for (int64_t d = 0; d < a.Dv; ++d) out[d] += row[j] * v[d];
  }
}

}  // namespace

template <class T>
T masked() {
  return -std::numeric_limits<T>::infinity();
}

template <class T>
void attend(Workers& workers, const Attend<T>& a, FunctionRef<void(int64_t b, int64_t h, int64_t i, T* row)> bias) {
  if (a.Dv == 0 && (a.scores == nullptr || a.L == 0)) return;
  const int64_t rows = a.B * a.H * a.S;
  const int64_t work = std::max<int64_t>(1, a.L * (a.D + a.Dv));
  parallel(workers, rows, std::max<int64_t>(1, 32768 / work), [&](int64_t begin, int64_t end) {
    std::vector<T> scaled(static_cast<size_t>(2 * a.D)), row(static_cast<size_t>(a.L)), added(row.size());
    for (int64_t r = begin; r < end; ++r) {
      const int64_t b = r / (a.H * a.S), h = r / a.S % a.H, i = r % a.S;
      bias(b, h, i, added.data());
      attend_row(a, b, h, i, scaled.data(), row.data(), added.data());
    }
  });
}

template <class T>
void rotate(const Rotation<T>& r, const Heads<const T>& x, const Heads<T>& y,
            FunctionRef<int64_t(int64_t b, int64_t s)> angle) {
  if (r.H == 0 || r.D == 0) return;
  const int64_t half = r.dim / 2;
  for (int64_t b = 0; b < r.B; ++b)
    for (int64_t s = 0; s < r.S; ++s) {
      const int64_t at = angle(b, s);
      const T* cosines = r.cosines + at * half;
      const T* sines = r.sines + at * half;
      for (int64_t h = 0; h < r.H; ++h) {
        const T* from = x.at(b, h, s);
        T* to = y.at(b, h, s);
        for (int64_t i = 0; i < half; ++i) {
          const int64_t first = r.interleaved ? 2 * i : i, second = r.interleaved ? 2 * i + 1 : i + half;
          const T real = from[first], imaginary = from[second];
          to[first] = cosines[i] * real - sines[i] * imaginary;
          to[second] = sines[i] * real + cosines[i] * imaginary;
        }
        if (to != from) std::copy(from + r.dim, from + r.D, to + r.dim);
      }
    }
}

template <class T>
Result<Tensor> append(const RunContext& c, const Tensor& past, const Heads<const T>& now, int64_t B, int64_t G,
                      int64_t L, int64_t D) {
  const int64_t P = past ? past.dim(2) : 0;
  BOLIDE_TRY(product_of(std::array{B, G, P + L, D}));
  BOLIDE_TRY(Tensor all, make_wide<T>(c, {B, G, P + L, D}));
  if (all.elements() == 0) return all;
  T* to = all.mutate<T>().data();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t g = 0; g < G; ++g) {
      if (P > 0) to = std::copy_n(past.as<T>().data() + (b * G + g) * P * D, P * D, to);
      for (int64_t i = 0; i < L; ++i) to = std::copy_n(now.at(b, g, i), D, to);
    }
  return all;
}

#define BOLIDE_ATTEND(T)                                                                                       \
  template T masked<T>();                                                                                      \
  template void attend<T>(Workers&, const Attend<T>&, FunctionRef<void(int64_t, int64_t, int64_t, T*)>);       \
  template void rotate<T>(const Rotation<T>&, const Heads<const T>&, const Heads<T>&,                          \
                          FunctionRef<int64_t(int64_t, int64_t)>);                                             \
  template Result<Tensor> append<T>(const RunContext&, const Tensor&, const Heads<const T>&, int64_t, int64_t, \
                                    int64_t, int64_t);
BOLIDE_ATTEND(float)
BOLIDE_ATTEND(double)
#undef BOLIDE_ATTEND

}  // namespace bolide
