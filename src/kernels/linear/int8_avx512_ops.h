// AVX-512 registers of 16 rows for int8_strips_impl.h; included in the unnamed namespace of an instruction-set file.

constexpr int kRegisterRows = 16;
constexpr int kWideOffset = 0;
using Ints = __m512i;
using Floats = __m512;

inline Ints zero_ints() { return _mm512_setzero_si512(); }
inline Floats zero_floats() { return _mm512_setzero_ps(); }
inline Ints broadcast_int(const void* p) { return _mm512_set1_epi32(*static_cast<const int*>(p)); }
inline Floats broadcast_float(const void* p) { return _mm512_set1_ps(*static_cast<const float*>(p)); }
inline Ints load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Floats load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_floats(const uint8_t* p) { return _mm512_loadu_ps(p); }
inline Floats load_unsigned(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats load_signed(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats negate(Floats a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.f)); }
inline Floats subtract(Floats a, float b) { return _mm512_sub_ps(a, _mm512_set1_ps(b)); }
inline Ints low_nibbles(Ints w) { return _mm512_and_si512(w, _mm512_set1_epi8(15)); }
inline Ints high_nibbles(Ints w) { return low_nibbles(_mm512_srli_epi16(w, 4)); }
template <int kBits>
inline Ints shift_left(Ints w) {
  return _mm512_slli_epi16(w, kBits);
}
template <int kBits>
inline Ints shift_right(Ints w) {
  return _mm512_srli_epi16(w, kBits);
}
inline Ints and_bytes(Ints w, char mask) { return _mm512_and_si512(w, _mm512_set1_epi8(mask)); }
inline Ints or_ints(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints look_up(Ints codes) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_setr_epi8(BOLIDE_IQ4_TABLE)), codes);
}
inline Ints byte_of(Ints w, int b) {
  return _mm512_and_si512(_mm512_srl_epi32(w, _mm_cvtsi32_si128(8 * b)), _mm512_set1_epi32(255));
}
inline Floats add_floats(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats set_floats(float a) { return _mm512_set1_ps(a); }
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline void store_codes(uint8_t* p, Ints v) { _mm512_storeu_si512(p, v); }
inline Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline void prefetch(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

// sum + the four products in each lane.
template <bool kWide>
inline Ints dot(Ints sum, Ints codes, Ints activations) {
  return _mm512_dpbusd_epi32(sum, codes, activations);
}
template <bool kWide>
inline Ints prepare(Ints codes) {
  return codes;
}

inline void store_row(const StripTarget& t, int64_t column, int m, Floats sum) {
  const int64_t left = t.columns - column;
  const __mmask16 mask = left >= kRegisterRows ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
  if (t.scale != nullptr) sum = _mm512_mul_ps(sum, _mm512_maskz_loadu_ps(mask, t.scale + column));
  if (t.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, t.bias + column));
  if (t.residual != nullptr)
    sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, t.residual + m * t.residual_stride + column));
  _mm512_mask_storeu_ps(t.out + m * t.out_stride + column, mask, sum);
}
