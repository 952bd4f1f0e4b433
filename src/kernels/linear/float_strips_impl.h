// The float product over strips, written once for every instruction set: the including file defines Row16 (16 f32 sums
// of one token) and its operations in its own unnamed namespace, then includes this there.
//
// Tiling: S strips by M tokens of sums in registers; each step along K loads S weight vectors and broadcasts M
// activations. Few tokens take more strips, so that enough independent sums hide the latency of FMA. Each output is one
// chain of FMAs in order of k whatever S and M are: its bits do not depend on the number of tokens.

template <FloatStorage W, int S, int M>
inline void float_block(const FloatArgs& a, const uint8_t* weights, int64_t column) {
  constexpr bool kCodes = W == FloatStorage::kF8E4M3 || W == FloatStorage::kI8;
  constexpr int64_t kStep = W == FloatStorage::kBF16 ? 2 : 1;                      // of k
  constexpr int64_t kStepBytes = kCodes ? 16 : W == FloatStorage::kF16 ? 32 : 64;  // of one strip
  constexpr int64_t kPrefetch = 8192;
  Row16 acc[S][M];
#pragma GCC unroll 16
  for (int s = 0; s < S; ++s)
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[s][m] = zero16();
  const float* x = a.panel;
  for (int64_t k = 0; k < a.k; k += kStep, x += kStep * M, weights += kStepBytes) {
    Row16 first[S], second[S];
#pragma GCC unroll 16
    for (int s = 0; s < S; ++s) {
      const uint8_t* w = weights + static_cast<size_t>(s) * a.strip_bytes;
      if (!kCodes || k % 4 == 0) prefetch(w + kPrefetch);
      if constexpr (W == FloatStorage::kF32) first[s] = load_f32(w);
      if constexpr (W == FloatStorage::kF16) first[s] = load_f16(w);
      if constexpr (W == FloatStorage::kF8E4M3) first[s] = load_f8e4m3(w);
      if constexpr (W == FloatStorage::kI8) first[s] = load_i8(w);
      if constexpr (W == FloatStorage::kBF16) first[s] = load_bf16_even(w), second[s] = load_bf16_odd(w);
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int s = 0; s < S; ++s) acc[s][m] = fma16(first[s], x + m, acc[s][m]);
    if constexpr (W == FloatStorage::kBF16) {
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
        for (int s = 0; s < S; ++s) acc[s][m] = fma16(second[s], x + M + m, acc[s][m]);
    }
  }
#pragma GCC unroll 16
  for (int s = 0; s < S; ++s) {
    if (column + s * kStripRows >= a.target.columns) return;
    const Store16 store(a.target, column + s * kStripRows);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
      if (m < a.target.tokens) store(acc[s][m], m);
  }
}

// All strips: as many as kMost at once, then the rest in halves.
template <FloatStorage W, int kMost, int M>
inline void float_blocks(const FloatArgs& a) {
  int64_t i = 0;
  const auto weights = [&] { return a.weights + static_cast<size_t>(i) * a.strip_bytes; };
  for (; i + kMost <= a.strips; i += kMost) float_block<W, kMost, M>(a, weights(), i * kStripRows);
  if constexpr (kMost > 4)
    for (; i + 4 <= a.strips; i += 4) float_block<W, 4, M>(a, weights(), i * kStripRows);
  if constexpr (kMost > 2)
    for (; i + 2 <= a.strips; i += 2) float_block<W, 2, M>(a, weights(), i * kStripRows);
  if constexpr (kMost > 1)
    for (; i < a.strips; ++i) float_block<W, 1, M>(a, weights(), i * kStripRows);
}

template <FloatStorage W>
inline void widen_strip(const uint8_t* strip, int64_t k, float* out) {
  for (int64_t j = 0; j < k; ++j) {
    if constexpr (W == FloatStorage::kF8E4M3) store16(out + j * kStripRows, load_f8e4m3(strip + j * kStripRows));
    if constexpr (W == FloatStorage::kI8) store16(out + j * kStripRows, load_i8(strip + j * kStripRows));
  }
}
