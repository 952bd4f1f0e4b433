// The int8 product over strips, written once for every instruction set: the including file defines registers of
// kRegisterRows rows, their operations and kWideOffset, what its dots subtract from wide codes, in its own unnamed
// namespace, then includes this there.
//
// Tiling: one register of rows by M tokens; their f32 sums and int32 group sums stay in registers, a group's codes are
// unpacked once for all tokens. Per group of 32, token and 16 rows with VNNI: 8 dots, a conversion, a multiplication
// and one or two FMAs, so at most 73-80 % of VNNI's peak. One token: bound by the stream of weights, which is
// prefetched. Integer sums are exact and f32 sums run over groups in order, so an output's bits depend on neither the
// tile nor the instruction set.

// 8 KB ahead: 4 KB left a third of memory's rate unused at one thread, 16 KB gained nothing (linear_bench, Zen 4).
constexpr int64_t kPrefetchBytes = 8192;

struct Strip {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* minima;
  const uint8_t* super;
  int shift;
};
inline Strip strip_at(const StripArgs& a, int64_t i) {
  const uint8_t* base = a.weights + static_cast<size_t>(i) * a.shape.bytes;
  return {base, base + a.shape.scales, base + a.shape.minima, base + a.shape.super, a.shape.shift};
}

// Scale of the rows from `row` on in part p of group g.
template <StripFormat F>
inline Floats scale_of(const Strip& s, int64_t g, int p, int row) {
  if constexpr (F.scale == StripScale::kHalfZero)
    return load_halves(s.scales + ((g >> s.shift) * kStripRows + row) * 2);
  if constexpr (strip_scale_float(F))
    return load_floats(s.scales + (((g * F.parts + p) >> s.shift) * kStripRows + row) * 4);
  const int64_t i = (g * F.parts + p) * kStripRows + row;
  if constexpr (F.scale == StripScale::kHalf) return load_halves(s.scales + i * 2);
  const Floats block = load_halves(s.super + g / 8 * (F.minimum ? 64 : 32) + row * 2);
  return multiply(block, F.scale == StripScale::kSigned ? load_signed(s.scales + i) : load_unsigned(s.scales + i));
}

// What is added for each unit of the part's activation sum; `offset` is what the dots have subtracted from each code.
template <StripFormat F>
inline Floats minimum_of(const Strip& s, int64_t g, int p, int row, int offset = 0) {
  if constexpr (strip_has_zeros(F)) {
    Floats zero = load_unsigned(s.minima + ((g * F.parts + p) >> s.shift) * kStripRows + row);
    if constexpr (strip_codes_wide(F)) zero = subtract(zero, static_cast<float>(offset));
    return negate(multiply(scale_of<F>(s, g, p, row), zero));
  }
  const int64_t i = (g * F.parts + p) * kStripRows + row;
  if constexpr (F.scale == StripScale::kHalf) return load_halves(s.minima + i * 2);
  const Floats block = load_halves(s.super + g / 8 * 64 + 32 + row * 2);
  return negate(multiply(block, load_unsigned(s.minima + i)));
}

// High bits of 6-bit codes: those at bit 2 J of each byte to bits 4 and 5.
template <int J>
inline Ints top_bits(Ints plane) {
  if constexpr (J < 2) return and_bytes(shift_left<4 - 2 * J>(plane), 0x30);
  if constexpr (J > 2) return and_bytes(shift_right<2 * J - 4>(plane), 0x30);
  return and_bytes(plane, 0x30);
}

// The 4 codes of each row at k = 4 J (kHigh: 16 + 4 J) of a group, from the register that holds their nibbles.
template <StripFormat F, int J, bool kHigh>
inline Ints nibble_codes(Ints w, const uint8_t* group) {
  Ints codes = kHigh ? high_nibbles(w) : low_nibbles(w);
  if constexpr (F.table) codes = look_up(codes);
  if constexpr (F.code_bits == 6) codes = or_ints(codes, top_bits<J>(load_codes(group + (kHigh ? 320 : 256))));
  return codes;
}

// visit(codes, k): every 4 codes of each row in a group, or, with parts == 2, in half `part` of it.
template <StripFormat F, class Visit>
inline void each_codes(const uint8_t* group, int part, Visit visit) {
  if constexpr (F.code_bits == 8) {
    static_assert(F.parts == 1);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) visit(load_codes(group + j * 64), j * 4);
  } else {
    const auto step = [&]<int J>() {
      const Ints w = load_codes(group + J * 64);
      if (F.parts == 1 || part == 0) visit(nibble_codes<F, J, false>(w, group), J * 4);
      if (F.parts == 1 || part == 1) visit(nibble_codes<F, J, true>(w, group), 16 + J * 4);
    };
    step.template operator()<0>();
    step.template operator()<1>();
    step.template operator()<2>();
    step.template operator()<3>();
  }
}

template <StripFormat F, int M>
inline void one_strip(const Strip& s, int64_t groups, const uint8_t* panel, int row, Floats (&acc)[M]) {
  constexpr bool kWide = strip_codes_wide(F);
  constexpr int64_t kRecord = int64_t{M} * (32 + 4 + 4 * F.parts);
  constexpr int kGroupBytes = strip_group_bytes(F);
  // All of a strip's bytes for one group: the strip is walked ahead of time as the one stream that it is.
  constexpr bool kPlain = strip_scale_half(F) || strip_scale_float(F);
  constexpr int kScaleBytes = F.parts * (strip_scale_bytes(F) + strip_minimum_bytes(F));
  constexpr int kLongest = kGroupBytes + kScaleBytes + (kPlain ? 0 : F.minimum ? 8 : 4);
  const int stride = strip_has_zeros(F) || strip_scale_float(F) ? kGroupBytes + (kScaleBytes >> s.shift) : kLongest;
  const uint8_t* ahead = s.codes + kPrefetchBytes;
  const auto dots = [&](Ints(&sum)[M], Ints codes, int k) {
    codes = prepare<kWide>(codes);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) sum[m] = dot<kWide>(sum[m], codes, broadcast_int(panel + m * 32 + k));
  };
  for (int64_t g = 0; g < groups; ++g, panel += kRecord) {
    const uint8_t* codes = s.codes + g * kGroupBytes + row * 4;
    const uint8_t* scales = panel + M * 32;
    if (row == 0) {
#pragma GCC unroll 10
      for (int i = 0; i < kLongest; i += 64) prefetch(ahead + g * stride + i);
    }
#pragma GCC unroll 2
    for (int p = 0; p < F.parts; ++p) {
      const uint8_t* corrections = scales + M * 4 + p * M * 4;
      Ints sum[M];
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) sum[m] = F.minimum ? zero_ints() : broadcast_int(corrections + m * 4);
      each_codes<F>(codes, p, [&](Ints w, int k) { dots(sum, w, k); });
      const Floats scale = scale_of<F>(s, g, p, row);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
        acc[m] = fma(to_floats(sum[m]), multiply(scale, broadcast_float(scales + m * 4)), acc[m]);
      if constexpr (F.minimum) {
        const Floats minimum = minimum_of<F>(s, g, p, row, kWideOffset);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) acc[m] = fma(minimum, broadcast_float(corrections + m * 4), acc[m]);
      }
    }
  }
}

template <StripFormat F, int M>
void strips(const StripArgs& a) {
  for (int64_t i = 0; i < a.strips; ++i) {
    const Strip strip = strip_at(a, i);
    for (int row = 0; row < kStripRows; row += kRegisterRows) {
      const int64_t column = i * kStripRows + row;
      if (column >= a.target.columns) return;
      Floats acc[M];
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) acc[m] = zero_floats();
      one_strip<F, M>(strip, a.shape.groups, a.panel, row, acc);
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
        if (m < a.target.tokens) store_row(a.target, column, m, acc[m]);
    }
  }
}

template <StripFormat F>
void decode(const StripArgs& a, float* out) {
  const Strip s = strip_at(a, 0);
  for (int64_t g = 0; g < a.shape.groups; ++g, out += 32 * kStripRows) {
    for (int row = 0; row < kStripRows; row += kRegisterRows) {
      for (int p = 0; p < F.parts; ++p) {
        const Floats scale = scale_of<F>(s, g, p, row);
        const Floats minimum = F.minimum ? minimum_of<F>(s, g, p, row) : zero_floats();
        each_codes<F>(s.codes + g * strip_group_bytes(F) + row * 4, p, [&](Ints codes, int k) {
          for (int b = 0; b < 4; ++b) {
            const Floats code = subtract(to_floats(byte_of(codes, b)), static_cast<float>(a.zero));
            store(out + (k + b) * kStripRows + row, fma(code, scale, minimum));
          }
        });
      }
    }
  }
}

// Lists every kind once.
template <class Visit>
inline void with_format(int kind, Visit visit) {
  switch (kind) {
#define BOLIDE_KIND(K) \
  case K: return visit.template operator()<strip_format(K)>();
    BOLIDE_KIND(kStrip4Half)
    BOLIDE_KIND(kStrip4HalfMin)
    BOLIDE_KIND(kStripTableHalf)
    BOLIDE_KIND(kStrip6Half)
    BOLIDE_KIND(kStrip6HalfMin)
    BOLIDE_KIND(kStrip8Half)
    BOLIDE_KIND(kStrip4Super)
    BOLIDE_KIND(kStrip6Super)
    BOLIDE_KIND(kStripTableSuper)
    BOLIDE_KIND(kStrip6SuperBy16)
    BOLIDE_KIND(kStrip4SuperMinBy16)
    BOLIDE_KIND(kStrip4SuperBy16)
    BOLIDE_KIND(kStrip4HalfZero)
    BOLIDE_KIND(kStrip4Float)
    BOLIDE_KIND(kStrip4FloatZero)
    BOLIDE_KIND(kStrip4FloatZeroBy16)
    BOLIDE_KIND(kStrip8FloatZero)
#undef BOLIDE_KIND
    default: __builtin_trap();
  }
}
