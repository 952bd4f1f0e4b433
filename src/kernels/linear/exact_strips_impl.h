// A few rows of f32 times strips of block-quantised weights in f32, straight from the codes: included after
// int8_strips_impl.h in the unnamed namespace of an instruction-set file, which defines float_codes.
//
// Tiling: one register of rows by up to 4 tokens, whose sums over a part of a group stay in registers, in several
// chains where there are few tokens. Codes become floats by one table look-up (4 bits, AVX-512) or two operations.
// Bound: 3 operations for 16 weights and a token with AVX-512, so about 15 GB/s of 4-bit weights a core.

template <StripFormat F, int M>
inline void exact_strip(const Strip& s, const ExactStripArgs& a, int row, int64_t first, Floats (&acc)[M]) {
  constexpr int kChains = M == 1 ? 4 : 2;
  constexpr int kGroupBytes = strip_group_bytes(F);
  constexpr int kScaleBytes = F.parts * (strip_scale_bytes(F) + strip_minimum_bytes(F));
  const int stride = kGroupBytes + (kScaleBytes >> s.shift);
  const uint8_t* ahead = s.codes + kPrefetchBytes;
  const float* x[M];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) x[m] = a.x + (first + m) * a.x_stride;
  for (int64_t g = 0; g < a.shape.groups; ++g) {
    const uint8_t* group = s.codes + g * kGroupBytes + row * 4;
    if (row == 0) {
#pragma GCC unroll 10
      for (int i = 0; i < kGroupBytes + kScaleBytes; i += 64) prefetch(ahead + g * stride + i);
    }
#pragma GCC unroll 2
    for (int p = 0; p < F.parts; ++p) {
      Floats sum[M][kChains];
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int c = 0; c < kChains; ++c) sum[m][c] = zero_floats();
      const auto step = [&]<int J, int B, bool kHigh>(Ints w) {
        const Floats code = float_codes<F, B, kHigh>(w);
        const int64_t k = g * 32 + (kHigh ? 16 : 0) + J * 4 + B;
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) sum[m][B % kChains] = fma(code, broadcast_float(x[m] + k), sum[m][B % kChains]);
      };
      const auto four = [&]<int J>() {
        const Ints w = load_codes(group + J * 64);
        if (F.parts == 1 || p == 0) {
          step.template operator()<J, 0, false>(w);
          step.template operator()<J, 1, false>(w);
          step.template operator()<J, 2, false>(w);
          step.template operator()<J, 3, false>(w);
        }
        if constexpr (F.code_bits == 4) {
          if (F.parts == 1 || p == 1) {
            step.template operator()<J, 0, true>(w);
            step.template operator()<J, 1, true>(w);
            step.template operator()<J, 2, true>(w);
            step.template operator()<J, 3, true>(w);
          }
        }
      };
      four.template operator()<0>();
      four.template operator()<1>();
      four.template operator()<2>();
      four.template operator()<3>();
      if constexpr (F.code_bits == 8) {
        four.template operator()<4>();
        four.template operator()<5>();
        four.template operator()<6>();
        four.template operator()<7>();
      }
      const Floats scale = scale_of<F>(s, g, p, row);
      const Floats minimum =
          F.minimum ? minimum_of<F>(s, g, p, row) : negate(multiply(scale, set_floats(static_cast<float>(a.zero))));
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
        for (int c = 1; c < kChains; ++c) sum[m][0] = add_floats(sum[m][0], sum[m][c]);
        acc[m] = fma(sum[m][0], scale, acc[m]);
        if (F.minimum || kCodesRaw)
          acc[m] = fma(minimum, broadcast_float(a.sums + (first + m) * a.sums_stride + g * F.parts + p), acc[m]);
      }
    }
  }
}

template <StripFormat F, int M>
inline void exact_tokens(const ExactStripArgs& a, const Strip& strip, int64_t column, int row, int64_t first) {
  Floats acc[M];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) acc[m] = zero_floats();
  exact_strip<F, M>(strip, a, row, first, acc);
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) store_row(a.target, column, static_cast<int>(first) + m, acc[m]);
}

template <StripFormat F>
inline void exact_all(const ExactStripArgs& a) {
  for (int64_t i = 0; i < a.strips; ++i) {
    const uint8_t* base = a.weights + static_cast<size_t>(i) * a.shape.bytes;
    const Strip strip{base, base + a.shape.scales, base + a.shape.minima, base + a.shape.super, a.shape.shift};
    for (int row = 0; row < kStripRows; row += kRegisterRows) {
      const int64_t column = i * kStripRows + row;
      if (column >= a.target.columns) return;
      int64_t first = 0;
      for (; first + 4 <= a.target.tokens; first += 4) exact_tokens<F, 4>(a, strip, column, row, first);
      for (; first + 2 <= a.target.tokens; first += 2) exact_tokens<F, 2>(a, strip, column, row, first);
      if (first < a.target.tokens) exact_tokens<F, 1>(a, strip, column, row, first);
    }
  }
}

inline void exact_of_kind(const ExactStripArgs& a) {
  switch (a.kind) {
    case kStrip4Float: return exact_all<strip_format(kStrip4Float)>(a);
    case kStrip4FloatZero: return exact_all<strip_format(kStrip4FloatZero)>(a);
    case kStrip4FloatZeroBy16: return exact_all<strip_format(kStrip4FloatZeroBy16)>(a);
    case kStrip8FloatZero: return exact_all<strip_format(kStrip8FloatZero)>(a);
    default: __builtin_trap();
  }
}
