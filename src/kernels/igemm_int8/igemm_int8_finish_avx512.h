// What is done to sums, with AVX-512: included in the unnamed namespace of an instruction-set file.

inline __m512 rounded_codes(__m512 v, __m512 low, __m512 high) {
  v = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_min_ps(_mm512_max_ps(v, low), high);
}

inline __m512 bytes_as_floats(__mmask16 mask, const uint8_t* p, bool is_signed) {
  const __m128i bytes = mask == 0xffff ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))  // costs no mask
                                       : _mm_maskz_loadu_epi8(mask, p);
  return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
}

// The second sum, of codes that are not yet rounded.
inline __m512 added(const Int8Finish& f, __m512 code, __m512 residual) {
  const __m512 other = _mm512_fmadd_ps(residual, _mm512_set1_ps(f.residual_ratio), _mm512_set1_ps(f.rest));
  const __m512 y = _mm512_fmadd_ps(code, _mm512_set1_ps(f.ratio), other);
  return _mm512_min_ps(_mm512_max_ps(y, _mm512_set1_ps(f.low2)), _mm512_set1_ps(f.high2));
}

// Four registers of 16 codes, plus `zero` if kZero, as 64 bytes: in each lane of 16 bytes four codes of each register.
// Codes that the type does not have become its nearest.
template <bool kZero>
inline __m512i packed_codes(const __m512i (&codes)[4], __m512i zero, bool is_signed) {
  __m512i first = _mm512_packs_epi32(codes[0], codes[1]), second = _mm512_packs_epi32(codes[2], codes[3]);
  if constexpr (kZero) first = _mm512_adds_epi16(first, zero), second = _mm512_adds_epi16(second, zero);
  return is_signed ? _mm512_packs_epi16(first, second) : _mm512_packus_epi16(first, second);
}

// Rows of more than 32 columns: codes of a row are stored at once. Registers hold columns as `offsets` and `scales`
// have them; kInOrder: 16 after 16, else as packed_codes makes them 64 in order (depthwise). Bounds: the upper one is
// applied before a value becomes an integer, which would lose large ones; the lower one to bytes, if it is not the
// type's. kOffsets: sums do not contain their offsets yet. kCapped: Int8Finish::capped. kResidualSigned: of kAdded.
//
// What `f` says is read before the loop: stores of bytes might change it, as far as the compiler knows.
template <Int8Finish::Kind kKind, bool kInOrder, bool kOffsets, bool kCapped, bool kResidualSigned>
inline void finish_wide_rows(const Int8Finish& f, const int32_t* sums, const int32_t* offsets, const float* scales,
                             int64_t row0, int64_t rows, int64_t columns) {
  constexpr bool kZero = kKind == Int8Finish::kCodes;  // sums of two terms have it in `rest`
  const bool full = columns >= 64, is_signed = f.is_signed, bounded = f.bounded;
  const __mmask64 mask = full ? ~__mmask64{0} : (__mmask64{1} << columns) - 1;
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512 low = _mm512_set1_ps(f.low), high = _mm512_set1_ps(f.high);
  const __m512 residual_ratio = _mm512_set1_ps(f.residual_ratio), rest = _mm512_set1_ps(f.rest);
  const __m512 ratio = _mm512_set1_ps(f.ratio), high2 = _mm512_set1_ps(f.high2);
  const int32_t least = static_cast<int32_t>(kKind == Int8Finish::kCodes ? f.low + static_cast<float>(f.zero) : f.low2);
  const __m512i zero = _mm512_set1_epi16(static_cast<int16_t>(f.zero));
  const __m512i bound = _mm512_set1_epi8(static_cast<char>(least));
  __m512i offset[4];
  __m512 scale[4];
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s)
    offset[s] = _mm512_loadu_si512(offsets + s * 16), scale[s] = _mm512_loadu_ps(scales + s * 16);
  const int64_t out_stride = f.out_stride, residual_stride = kKind == Int8Finish::kAdded ? f.residual_stride : 0;
  auto* out = static_cast<uint8_t*>(f.out) + row0 * out_stride;
  const uint8_t* residual = kKind == Int8Finish::kAdded ? f.residual + row0 * residual_stride : nullptr;
  for (int64_t m = 0; m < rows; ++m, sums += kInt8PanelColumns, out += out_stride, residual += residual_stride) {
    __m512i codes[4];
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      __m512i sum = _mm512_loadu_si512(sums + s * 16);
      if constexpr (kOffsets) sum = _mm512_add_epi32(sum, offset[s]);
      __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale[s]);
      if constexpr (kKind == Int8Finish::kCodes) {
        if constexpr (kCapped) v = _mm512_min_ps(v, high);
      } else {
        v = rounded_codes(v, low, high);
        const auto some = full ? __mmask16{0xffff} : static_cast<__mmask16>(mask >> (s * 16));
        const __m512 other = bytes_as_floats(some, residual + s * 16, kResidualSigned);
        v = _mm512_fmadd_ps(v, ratio, _mm512_fmadd_ps(other, residual_ratio, rest));
        if constexpr (kCapped) v = _mm512_min_ps(v, high2);
      }
      codes[s] = _mm512_cvtps_epi32(v);
    }
    __m512i bytes = packed_codes<kZero>(codes, zero, is_signed);
    if constexpr (kInOrder) bytes = _mm512_permutexvar_epi32(order, bytes);
    if (bounded) bytes = is_signed ? _mm512_max_epi8(bytes, bound) : _mm512_max_epu8(bytes, bound);
    if (full)
      _mm512_storeu_si512(out, bytes);
    else
      _mm512_mask_storeu_epi8(out, mask, bytes);
  }
}

template <Int8Finish::Kind kKind, bool kInOrder, bool kOffsets>
inline void finish_wide(const Int8Finish& f, const int32_t* sums, const int32_t* offsets, const float* scales,
                        int64_t row0, int64_t rows, int64_t columns) {
  const auto go = [&](auto rows_of) { rows_of(f, sums, offsets, scales, row0, rows, columns); };
  if constexpr (kKind == Int8Finish::kCodes) {
    f.capped ? go(finish_wide_rows<kKind, kInOrder, kOffsets, true, false>)
             : go(finish_wide_rows<kKind, kInOrder, kOffsets, false, false>);
  } else if (f.residual_signed) {
    f.capped ? go(finish_wide_rows<kKind, kInOrder, kOffsets, true, true>)
             : go(finish_wide_rows<kKind, kInOrder, kOffsets, false, true>);
  } else {
    f.capped ? go(finish_wide_rows<kKind, kInOrder, kOffsets, true, false>)
             : go(finish_wide_rows<kKind, kInOrder, kOffsets, false, false>);
  }
}

// What finish will read and write of rows that far apart that nothing else fetches it in time.
inline void prefetch_rows(const Int8Finish& f, int64_t row0, int64_t rows) {
  const auto* out = static_cast<const uint8_t*>(f.out) + row0 * f.out_stride;
  for (int64_t m = 0; m < rows; ++m, out += f.out_stride) __builtin_prefetch(out, 1);
  if (f.residual == nullptr) return;
  const uint8_t* residual = f.residual + row0 * f.residual_stride;
  for (int64_t m = 0; m < rows; ++m, residual += f.residual_stride) __builtin_prefetch(residual, 0);
}

// sums [rows][64]; row0: the first of them in the block.
template <Int8Finish::Kind kKind, bool kOffsets>
inline void finish_rows(const Int8Finish& f, const int32_t* sums, int64_t row0, int64_t rows, int64_t columns) {
  const __m512 low = _mm512_set1_ps(f.low), high = _mm512_set1_ps(f.high);
  const __m512i zero = _mm512_set1_epi32(f.zero);
  for (int64_t n = 0; n < columns; n += 16) {
    const __mmask16 mask = columns - n >= 16 ? 0xffff : static_cast<__mmask16>((1u << (columns - n)) - 1);
    const __m512i offset = kOffsets ? _mm512_loadu_si512(f.offsets + n) : _mm512_setzero_si512();
    const __m512 scale = kKind == Int8Finish::kSums ? _mm512_setzero_ps() : _mm512_loadu_ps(f.scales + n);
    const __m512 bias =
        kKind == Int8Finish::kF32 && f.bias != nullptr ? _mm512_loadu_ps(f.bias + n) : _mm512_setzero_ps();
    for (int64_t m = 0; m < rows; ++m) {
      __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(sums + m * kInt8PanelColumns + n), offset);
      if (f.row_sums != nullptr)
        sum = _mm512_sub_epi32(
            sum, _mm512_mullo_epi32(_mm512_set1_epi32(f.row_sums[row0 + m]), _mm512_loadu_si512(f.column_zeros + n)));
      const int64_t at = (row0 + m) * f.out_stride + n;
      if constexpr (kKind == Int8Finish::kSums) {
        _mm512_mask_storeu_epi32(static_cast<int32_t*>(f.out) + at, mask, sum);
        continue;
      }
      if constexpr (kKind == Int8Finish::kF32) {
        const __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, bias);
        _mm512_mask_storeu_ps(static_cast<float*>(f.out) + at, mask, _mm512_min_ps(_mm512_max_ps(y, low), high));
        continue;
      }
      const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
      __m512i code;
      if constexpr (kKind == Int8Finish::kCodes) {
        code = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(v, low), high)), zero);
      } else {
        const __m512 r = bytes_as_floats(mask, f.residual + (row0 + m) * f.residual_stride + n, f.residual_signed);
        code = _mm512_cvtps_epi32(added(f, rounded_codes(v, low, high), r));
      }
      _mm512_mask_cvtepi32_storeu_epi8(static_cast<uint8_t*>(f.out) + at, mask, code);
    }
  }
}

template <bool kOffsets>
inline void finish(const Int8Finish& f, const int32_t* sums, int64_t row0, int64_t rows, int64_t columns) {
  if (columns > 32 && f.row_sums == nullptr && f.kind == Int8Finish::kCodes)
    return finish_wide<Int8Finish::kCodes, true, kOffsets>(f, sums, f.offsets, f.scales, row0, rows, columns);
  if (columns > 32 && f.row_sums == nullptr && f.kind == Int8Finish::kAdded)
    return finish_wide<Int8Finish::kAdded, true, kOffsets>(f, sums, f.offsets, f.scales, row0, rows, columns);
  switch (f.kind) {
    case Int8Finish::kSums: return finish_rows<Int8Finish::kSums, kOffsets>(f, sums, row0, rows, columns);
    case Int8Finish::kF32: return finish_rows<Int8Finish::kF32, kOffsets>(f, sums, row0, rows, columns);
    case Int8Finish::kCodes: return finish_rows<Int8Finish::kCodes, kOffsets>(f, sums, row0, rows, columns);
    default: return finish_rows<Int8Finish::kAdded, kOffsets>(f, sums, row0, rows, columns);
  }
}
