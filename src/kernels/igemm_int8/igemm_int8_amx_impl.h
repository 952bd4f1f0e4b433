// The int8 products with AMX tiles: included, after amx_tiles.h and igemm_int8_finish_avx512.h, in the unnamed
// namespace of igemm_int8_amx.cc and, with emulated tiles, of its test.
//
// Tiling: 32 rows by 32 columns, four tiles of sums. The rows' bytes are gathered once for all panels of a chunk, in
// tiles of 16 rows by 64 bytes of K; the weights are read where they lie.

constexpr int64_t kTileRows = 16, kTileBytes = 64;

// Gathers rows [row0, row0 + 16) to [depth / 64][16][64]; missing rows and bytes are whatever the last were, or 0.
inline void gather_rows(const Int8BlockArgs& a, int64_t row0, int64_t depth, uint8_t* to) {
  const __m512i flip = a.flip ? _mm512_set1_epi8(-128) : _mm512_setzero_si512();
  const int64_t bytes = a.quads * 4;
  for (int64_t m = 0; m < kTileRows; ++m) {
    const int64_t row = row0 + m < a.rows ? row0 + m : a.rows - 1;
    int64_t k = 0;  // of the row's bytes
    for (int64_t t = 0; t < a.taps; ++t) {
      const uint8_t* from = a.pixels[t * a.pixel_stride + row];
      for (int64_t i = 0; i < bytes;) {
        const int64_t room = kTileBytes - k % kTileBytes, n = bytes - i < room ? bytes - i : room;
        const __mmask64 mask = n == 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
        const __m512i v = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, from + i), flip);
        _mm512_mask_storeu_epi8(to + k / kTileBytes * (kTileRows * kTileBytes) + m * kTileBytes + k % kTileBytes, mask,
                                v);
        i += n, k += n;
      }
    }
    if (k < depth) {
      const __mmask64 mask = (__mmask64{1} << (depth - k)) - 1;
      _mm512_mask_storeu_epi8(to + k / kTileBytes * (kTileRows * kTileBytes) + m * kTileBytes + k % kTileBytes, mask,
                              _mm512_setzero_si512());
    }
  }
}

// Two tiles of rows at `x` by `strips` (1 or 2) strips from `strip` on, to sums [32][64].
inline void two_by_two(const Int8BlockArgs& a, const uint8_t* x, int64_t depth, int strip, int strips, int32_t* sums) {
  const int64_t row_bytes = int64_t{64} * a.strips;
  const int64_t second = kTileRows * depth;
  const int8_t* w = a.weights + strip * 64;
  BOLIDE_TILE_ZERO(0);
  BOLIDE_TILE_ZERO(1);
  if (strips == 2) {
    BOLIDE_TILE_ZERO(2);
    BOLIDE_TILE_ZERO(3);
    for (int64_t k = 0; k < depth; k += kTileBytes, w += 16 * row_bytes, x += kTileRows * kTileBytes) {
      BOLIDE_TILE_LOAD(4, x, 64);
      BOLIDE_TILE_LOAD(6, w, row_bytes);
      BOLIDE_TILE_DOT_U8S8(0, 4, 6);
      BOLIDE_TILE_LOAD(5, x + second, 64);
      BOLIDE_TILE_DOT_U8S8(1, 5, 6);
      BOLIDE_TILE_LOAD(7, w + 64, row_bytes);
      BOLIDE_TILE_DOT_U8S8(2, 4, 7);
      BOLIDE_TILE_DOT_U8S8(3, 5, 7);
    }
    BOLIDE_TILE_STORE(2, sums + strip * 16 + 16, kInt8PanelColumns * 4);
    BOLIDE_TILE_STORE(3, sums + kTileRows * kInt8PanelColumns + strip * 16 + 16, kInt8PanelColumns * 4);
  } else {
    for (int64_t k = 0; k < depth; k += kTileBytes, w += 16 * row_bytes, x += kTileRows * kTileBytes) {
      BOLIDE_TILE_LOAD(4, x, 64);
      BOLIDE_TILE_LOAD(6, w, row_bytes);
      BOLIDE_TILE_DOT_U8S8(0, 4, 6);
      BOLIDE_TILE_LOAD(5, x + second, 64);
      BOLIDE_TILE_DOT_U8S8(1, 5, 6);
    }
  }
  BOLIDE_TILE_STORE(0, sums + strip * 16, kInt8PanelColumns * 4);
  BOLIDE_TILE_STORE(1, sums + kTileRows * kInt8PanelColumns + strip * 16, kInt8PanelColumns * 4);
}

inline void amx_block(const Int8BlockArgs& a) {
  const int64_t depth = (a.taps * a.quads * 4 + kTileBytes - 1) / kTileBytes * kTileBytes;
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, kTileRows, kTileBytes);
  BOLIDE_TILE_CONFIG(config);
  alignas(64) int32_t sums[2 * kTileRows * kInt8PanelColumns];
  for (int64_t row = 0; row < a.rows; row += 2 * kTileRows) {
    uint8_t* const x = a.scratch + row * depth;
    if (!a.scratch_ready) {
      gather_rows(a, row, depth, x);
      gather_rows(a, row + kTileRows < a.rows ? row + kTileRows : row, depth, x + kTileRows * depth);
    }
    for (int s = 0; s < a.strips; s += 2) two_by_two(a, x, depth, s, a.strips - s >= 2 ? 2 : 1, sums);
    const int64_t left = a.rows - row;
    finish(a.finish, sums, row, left < 2 * kTileRows ? left : 2 * kTileRows, a.columns);
  }
  BOLIDE_TILE_RELEASE();
}
