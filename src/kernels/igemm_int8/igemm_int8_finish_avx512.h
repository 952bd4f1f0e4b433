// What is done to sums, with AVX-512: included in the unnamed namespace of an instruction-set file.

inline __m512 rounded_codes(__m512 v, __m512 low, __m512 high) {
  v = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_min_ps(_mm512_max_ps(v, low), high);
}

inline __m512 bytes_as_floats(__mmask16 mask, const uint8_t* p, bool is_signed) {
  const __m128i bytes = _mm_maskz_loadu_epi8(mask, p);
  return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
}

// What finish will read and write of rows that far apart that nothing else fetches it in time.
inline void prefetch_rows(const Int8Finish& f, int64_t row0, int64_t rows) {
  if (f.kind != Int8Finish::kAdded) return;
  for (int64_t m = row0; m < row0 + rows; ++m) {
    __builtin_prefetch(f.residual + m * f.residual_stride, 0);
    __builtin_prefetch(static_cast<const uint8_t*>(f.out) + m * f.out_stride, 1);
  }
}

// sums [rows][64]; row0: the first of them in the block.
template <Int8Finish::Kind kKind>
inline void finish_rows(const Int8Finish& f, const int32_t* sums, int64_t row0, int64_t rows, int64_t columns) {
  const __m512 low = _mm512_set1_ps(f.low), high = _mm512_set1_ps(f.high);
  const __m512i zero = _mm512_set1_epi32(f.zero);
  for (int64_t n = 0; n < columns; n += 16) {
    const __mmask16 mask = columns - n >= 16 ? 0xffff : static_cast<__mmask16>((1u << (columns - n)) - 1);
    const __m512i offset = _mm512_loadu_si512(f.offsets + n);
    const __m512 scale = kKind == Int8Finish::kSums ? _mm512_setzero_ps() : _mm512_loadu_ps(f.scales + n);
    const __m512 bias = kKind == Int8Finish::kFloats && f.bias != nullptr ? _mm512_loadu_ps(f.bias + n)
                                                                          : _mm512_setzero_ps();
    for (int64_t m = 0; m < rows; ++m) {
      __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(sums + m * kInt8PanelColumns + n), offset);
      if (f.row_sums != nullptr)
        sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(_mm512_set1_epi32(f.row_sums[row0 + m]),
                                                       _mm512_loadu_si512(f.column_zeros + n)));
      const int64_t at = (row0 + m) * f.out_stride + n;
      if constexpr (kKind == Int8Finish::kSums) {
        _mm512_mask_storeu_epi32(static_cast<int32_t*>(f.out) + at, mask, sum);
        continue;
      }
      if constexpr (kKind == Int8Finish::kFloats) {
        const __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, bias);
        _mm512_mask_storeu_ps(static_cast<float*>(f.out) + at, mask, _mm512_min_ps(_mm512_max_ps(y, low), high));
        continue;
      }
      const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
      __m512i code;
      if constexpr (kKind == Int8Finish::kCodes) {
        code = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(v, low), high)), zero);
      } else {
        const __m512 c = rounded_codes(v, low, high);
        const __m512 r = bytes_as_floats(mask, f.residual + (row0 + m) * f.residual_stride + n, f.residual_signed);
        const __m512 other = _mm512_mul_ps(_mm512_sub_ps(r, _mm512_set1_ps(static_cast<float>(f.residual_zero))),
                                           _mm512_set1_ps(f.residual_step));
        const __m512 y = _mm512_mul_ps(_mm512_fmadd_ps(c, _mm512_set1_ps(f.step), other), _mm512_set1_ps(f.inverse));
        code = _mm512_cvtps_epi32(
            _mm512_min_ps(_mm512_max_ps(y, _mm512_set1_ps(f.low2)), _mm512_set1_ps(f.high2)));
        code = _mm512_add_epi32(code, _mm512_set1_epi32(f.zero2));
      }
      _mm512_mask_cvtepi32_storeu_epi8(static_cast<uint8_t*>(f.out) + at, mask, code);
    }
  }
}

inline void finish(const Int8Finish& f, const int32_t* sums, int64_t row0, int64_t rows, int64_t columns) {
  switch (f.kind) {
    case Int8Finish::kSums: return finish_rows<Int8Finish::kSums>(f, sums, row0, rows, columns);
    case Int8Finish::kFloats: return finish_rows<Int8Finish::kFloats>(f, sums, row0, rows, columns);
    case Int8Finish::kCodes: return finish_rows<Int8Finish::kCodes>(f, sums, row0, rows, columns);
    default: return finish_rows<Int8Finish::kAdded>(f, sums, row0, rows, columns);
  }
}
