// Vector functions on Vec; include after vec_avx2.h or vec_avx512.h. Polynomials are minimax fits of our own.
#pragma once

namespace bolide {
namespace {

// Relative error below 1.2e-7 for results in the normal range; 0 below -104, infinity above 88.8; NaN for NaN.
BOLIDE_INLINE Vec exp(Vec x) {
  const Vec clamped = min(set(90.f), max(set(-150.f), x));
  const Vec n = round(clamped * set(1.44269504f));
  Vec r = fnma(n, set(0.693147182f), clamped);
  r = fnma(n, set(-1.90465421e-9f), r);
  Vec q = fma(set(1.395047642e-03f), r, set(8.368882351e-03f));
  q = fma(q, r, set(4.166620597e-02f));
  q = fma(q, r, set(1.666651815e-01f));
  q = fma(q, r, set(0.5f));
  return scale_by_power(fma(r * r, q, r) + set(1.f), n);
}

BOLIDE_INLINE Vec sigmoid_times(Vec x, Vec s) { return x / (set(1.f) + exp(zero() - s)); }

BOLIDE_INLINE Vec silu(Vec x) { return sigmoid_times(x, x); }

// Phi(-u) = exp(-u^2 / 2) R(1 / (1 + 0.3 u)) for 0 <= u <= 14.5; the rounding of u^2 is carried along, so the relative
// error stays below 6e-7 in the tail.
BOLIDE_INLINE Vec normal_tail(Vec u) {
  const Vec t = set(1.f) / fma(u, set(0.3f), set(1.f));
  Vec r = fma(set(-2.062346973e-02f), t, set(1.124356166e-01f));
  r = fma(r, t, set(-2.282136083e-01f));
  r = fma(r, t, set(1.917845309e-01f));
  r = fma(r, t, set(-7.942349464e-02f));
  r = fma(r, t, set(9.615683556e-02f));
  r = fma(r, t, set(7.838965207e-02f));
  r = fma(r, t, set(1.102354228e-01f));
  r = fma(r, t, set(1.195718125e-01f));
  r = fma(r, t, set(1.196866930e-01f)) * t;
  const Vec square = u * u, rest = fms(u, u, square);
  const Vec density = exp(square * set(-0.5f));
  return fnma(density, rest * set(0.5f), density) * r;
}

BOLIDE_INLINE Vec gelu(Vec x) {
  const Vec tail = normal_tail(min(set(14.5f), abs(x)));
  return select(less(x, zero()), x * tail, fnma(x, tail, x));
}

// Its Taylor series near 0, where 1 - 2 Phi(-sqrt(2) |x|) would cancel. Relative error below 4e-7.
BOLIDE_INLINE Vec erf(Vec x) {
  const Vec z = x * x;
  Vec p = fma(set(1.205533e-04f), z, set(-8.548327e-04f));
  p = fma(p, z, set(5.2239776e-03f));
  p = fma(p, z, set(-2.6866171e-02f));
  p = fma(p, z, set(1.12837917e-01f));
  p = fma(p, z, set(-3.76126389e-01f));
  p = fma(p, z, set(1.12837917f)) * x;
  const Vec a = abs(x);
  const Vec far = copy_sign(fnma(set(2.f), normal_tail(min(set(14.5f), a * set(1.41421356f))), set(1.f)), x);
  return select(less(a, set(0.5f)), p, select(is_nan(x), x, far));
}

// 0.5 x (1 + tanh(y)) = x sigmoid(2 y).
BOLIDE_INLINE Vec gelu_tanh(Vec x) {
  const Vec inner = fma(x * x, set(0.0713548162726f), set(1.5957691216057f));
  return sigmoid_times(x, x * inner);
}

BOLIDE_INLINE Vec relu(Vec x) { return max(zero(), x); }

// Relative error below 3e-7.
BOLIDE_INLINE Vec tanh(Vec x) {
  const Vec z = x * x;
  Vec p = fma(set(-5.717036780e-03f), z, set(2.065057866e-02f));
  p = fma(p, z, set(-5.374349654e-02f));
  p = fma(p, z, set(1.333149076e-01f));
  p = fma(p, z, set(-3.333328366e-01f));
  const Vec small = fma(x * z, p, x);
  const Vec a = abs(x);
  const Vec large = copy_sign(set(1.f) - set(2.f) / (exp(a + a) + set(1.f)), x);
  return select(less(a, set(0.625f)), small, large);
}

// Cosine and sine, absolute error below 1.2e-7, for |x| < 1e9.
BOLIDE_INLINE void cos_sin(Vec x, Vec* cosine, Vec* sine) {
  IntVec quadrant;
  const Vec r = reduce_angle(x, &quadrant);
  const Vec z = r * r;
  Vec s = fma(set(-1.951723389e-04f), z, set(8.332177997e-03f));
  s = fma(s, z, set(-1.666665524e-01f));
  s = fma(s * z, r, r);
  Vec c = fma(set(2.443837730e-05f), z, set(-1.388736651e-03f));
  c = fma(c, z, set(4.166664556e-02f));
  c = fma(c, z * z, fnma(z, set(0.5f), set(1.f)));
  const Mask swap = has_bit(quadrant, 1);
  *sine = negate_if(has_bit(quadrant, 2), select(swap, c, s));
  *cosine = negate_if(has_bit(plus(quadrant, 1), 2), select(swap, s, c));
}

}  // namespace
}  // namespace bolide
