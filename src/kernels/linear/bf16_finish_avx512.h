// 16 sums of one token to their place; included in the unnamed namespace of an AVX-512 file.
inline void finish_row(const StripTarget& t, int64_t column, int64_t token, const float* sums) {
  const int64_t left = t.columns - column;
  const __mmask16 mask = left >= kStripRows ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
  __m512 sum = _mm512_loadu_ps(sums);
  if (t.scale != nullptr) sum = _mm512_mul_ps(sum, _mm512_maskz_loadu_ps(mask, t.scale + column));
  if (t.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, t.bias + column));
  if (t.residual != nullptr)
    sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, t.residual + token * t.residual_stride + column));
  _mm512_mask_storeu_ps(t.out + token * t.out_stride + column, mask, sum);
}
