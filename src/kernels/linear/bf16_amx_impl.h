// bf16 weights times bf16 activations with AMX tiles: included, after amx_tiles.h, in the unnamed namespace of
// bf16_amx.cc and, with emulated tiles, of its test.
//
// Tiling: 2 strips by 2 x 16 tokens in 4 sum tiles; each step of 32 along K loads 2 + 2 tiles for 4 products, so loads
// and products keep pace. Bound: the tiles. All sums of an output are made in its tile, in order of k.

template <int S, int R>
inline void amx_block(const AmxBf16Args& a, int64_t strip, int64_t row_tile) {
  const uint8_t* weights[2] = {a.weights + static_cast<size_t>(strip) * a.strip_bytes,
                               a.weights + static_cast<size_t>(strip + S - 1) * a.strip_bytes};
  const uint8_t* rows[2] = {a.panel + row_tile * 16 * a.row_bytes, a.panel + (row_tile + R - 1) * 16 * a.row_bytes};
  BOLIDE_TILE_ZERO(0);
  BOLIDE_TILE_ZERO(1);
  BOLIDE_TILE_ZERO(2);
  BOLIDE_TILE_ZERO(3);
  alignas(64) uint8_t tail[2][1024];
  const int64_t steps = (a.k + 31) / 32;
  for (int64_t i = 0; i < steps; ++i) {
    const uint8_t* b[2] = {weights[0] + i * 1024, weights[1] + i * 1024};
    if (a.k - i * 32 < 32) {  // the last pairs, then zeros: what follows in memory is not ours
      const auto bytes = static_cast<size_t>(a.k - i * 32) * 32;
      for (int s = 0; s < 2; ++s) {
        __builtin_memset(tail[s] + bytes, 0, sizeof tail[s] - bytes);
        __builtin_memcpy(tail[s], b[s], bytes);
        b[s] = tail[s];
      }
    }
    BOLIDE_TILE_LOAD(4, rows[0] + i * 64, a.row_bytes);
    BOLIDE_TILE_LOAD(6, b[0], 64);
    BOLIDE_TILE_DOT_BF16(0, 4, 6);
    if constexpr (S == 2) {
      BOLIDE_TILE_LOAD(7, b[1], 64);
      BOLIDE_TILE_DOT_BF16(1, 4, 7);
    }
    if constexpr (R == 2) {
      BOLIDE_TILE_LOAD(5, rows[1] + i * 64, a.row_bytes);
      BOLIDE_TILE_DOT_BF16(2, 5, 6);
      if constexpr (S == 2) BOLIDE_TILE_DOT_BF16(3, 5, 7);
    }
  }
  alignas(64) float sums[4][256];
  BOLIDE_TILE_STORE(0, sums[0], 64);
  BOLIDE_TILE_STORE(1, sums[1], 64);
  BOLIDE_TILE_STORE(2, sums[2], 64);
  BOLIDE_TILE_STORE(3, sums[3], 64);
  for (int r = 0; r < R; ++r)
    for (int s = 0; s < S; ++s)
      for (int m = 0; m < 16; ++m) {
        const int64_t token = (row_tile + r) * 16 + m;
        if (token < a.target.tokens) finish_row(a.target, (strip + s) * kStripRows, token, sums[r * 2 + s] + m * 16);
      }
}

inline void amx_bf16_strips(const AmxBf16Args& a) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, 16, 64);
  BOLIDE_TILE_CONFIG(config);
  for (int64_t row_tile = 0; row_tile < a.row_tiles; row_tile += 2) {
    const bool one_row = row_tile + 1 == a.row_tiles;
    for (int64_t strip = 0; strip < a.strips; strip += 2) {
      const bool one_strip = strip + 1 == a.strips;
      if (one_row)
        one_strip ? amx_block<1, 1>(a, strip, row_tile) : amx_block<2, 1>(a, strip, row_tile);
      else
        one_strip ? amx_block<1, 2>(a, strip, row_tile) : amx_block<2, 2>(a, strip, row_tile);
    }
  }
  BOLIDE_TILE_RELEASE();
}
