// The int8 products with AMX tiles: included, after amx_tiles.h and igemm_int8_finish_avx512.h, in the unnamed
// namespace of igemm_int8_amx.cc and, with emulated tiles, of its test.
//
// Tiling: 32 rows by 32 columns, four tiles of sums. The rows' bytes are gathered once for all panels of a chunk, in
// tiles of 16 rows by 64 bytes of K; the weights are read where they lie.

constexpr int64_t kTileRows = 16, kTileBytes = 64;
constexpr int64_t kWeightsThatStay = 128 << 10;

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
  const int64_t row_bytes = int64_t{64} * strips;
  const int64_t second = kTileRows * depth;
  const int8_t* w = a.weights + strip * 16 * depth;
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
    finish<true>(a.finish, sums, row, left < 2 * kTileRows ? left : 2 * kTileRows, a.columns);
  }
  BOLIDE_TILE_RELEASE();
}

// Of a block of 32 positions: where its two tiles' rows begin, and how many of the second's and of both count.
struct LinePair {
  const uint8_t* x[2];
  int64_t skip[2];  // rows of the tile that are positions of an earlier one
};

inline LinePair pair_at(const Int8LinesArgs& a, int64_t position) {
  LinePair pair{};
  for (int t = 0; t < 2; ++t) {
    int64_t first = position + t * kTileRows;
    if (first >= a.positions) first = position;  // nothing of it is used
    int64_t begin = first;
    if (a.line_stride == a.period * a.row_stride) {
      begin = first + kTileRows <= a.positions ? first : a.positions - kTileRows;
      pair.x[t] = a.base + begin * a.row_stride;
    } else {
      pair.x[t] = a.base + begin / a.period * a.line_stride + begin % a.period * a.row_stride;
    }
    pair.skip[t] = first - begin;
  }
  return pair;
}

#define BOLIDE_LINES_DOT(c, a, b)    \
  do {                               \
    if constexpr (kSigned)           \
      BOLIDE_TILE_DOT_S8S8(c, a, b); \
    else                             \
      BOLIDE_TILE_DOT_U8S8(c, a, b); \
  } while (false)

// Two tiles of positions by kStrips strips of one panel, to sums [32][64]. kFetch: the panel's weights are asked for
// ahead, as they are read for the first time.
template <int kStrips, bool kSigned, bool kFetch>
inline void lines_two_by_two(const Int8LinesArgs& a, const LinePair& pair, const int8_t* w, const int32_t* offsets,
                             int32_t* sums) {
  constexpr int64_t kRowBytes = int64_t{64} * kStrips, kRowsAhead = 128;
  BOLIDE_TILE_LOAD(0, offsets, 0);
  BOLIDE_TILE_LOAD(1, offsets, 0);
  if constexpr (kStrips == 2) {
    BOLIDE_TILE_LOAD(2, offsets + 16, 0);
    BOLIDE_TILE_LOAD(3, offsets + 16, 0);
  }
  for (int64_t t = 0; t < a.tap_count; ++t) {
    const uint8_t *x0 = pair.x[0] + a.taps[t], *x1 = pair.x[1] + a.taps[t];
    for (int64_t k = 0; k < a.tap_bytes; k += kTileBytes, w += 16 * kRowBytes) {
      if constexpr (kFetch)
        for (int64_t q = 0; q < 16; ++q) {  // to level 2, which can wait for more lines at a time than level 1
          __builtin_prefetch(w + (kRowsAhead + q) * kRowBytes, 0, 2);
          if constexpr (kStrips == 2) __builtin_prefetch(w + (kRowsAhead + q) * kRowBytes + 64, 0, 2);
        }
      BOLIDE_TILE_LOAD(4, x0 + k, a.row_stride);
      BOLIDE_TILE_LOAD(6, w, kRowBytes);
      BOLIDE_LINES_DOT(0, 4, 6);
      BOLIDE_TILE_LOAD(5, x1 + k, a.row_stride);
      BOLIDE_LINES_DOT(1, 5, 6);
      if constexpr (kStrips == 2) {
        BOLIDE_TILE_LOAD(7, w + 64, kRowBytes);
        BOLIDE_LINES_DOT(2, 4, 7);
        BOLIDE_LINES_DOT(3, 5, 7);
      }
    }
  }
  BOLIDE_TILE_STORE(0, sums, kInt8PanelColumns * 4);
  BOLIDE_TILE_STORE(1, sums + kTileRows * kInt8PanelColumns, kInt8PanelColumns * 4);
  if constexpr (kStrips == 2) {
    BOLIDE_TILE_STORE(2, sums + 16, kInt8PanelColumns * 4);
    BOLIDE_TILE_STORE(3, sums + kTileRows * kInt8PanelColumns + 16, kInt8PanelColumns * 4);
  }
}

// A block's results, run by run of a line: from `sums`, or, without, what will be read and written is asked for.
inline void finish_lines(const Int8LinesArgs& a, const Int8Finish& f, const LinePair& pair, int64_t position,
                         const int32_t* sums, int64_t columns) {
  for (int t = 0; t < 2; ++t) {
    int64_t p = position + t * kTileRows;
    const int64_t end = p + kTileRows < a.end ? p + kTileRows : a.end;
    int64_t line = p / a.period, x = p % a.period;
    int64_t from = (t * kTileRows + pair.skip[t]) * kInt8PanelColumns;
    while (p < end) {
      const int64_t left = a.period - x < end - p ? a.period - x : end - p;
      const int64_t rows = a.valid - x < left ? a.valid - x : left;
      if (rows > 0) {
        if (sums == nullptr && (f.kind == Int8Finish::kCodes || f.kind == Int8Finish::kAdded))
          prefetch_rows(f, line * a.valid + x, rows);
        else if (sums != nullptr)
          finish<false>(f, sums + from, line * a.valid + x, rows, columns);
      }
      p += left, from += left * kInt8PanelColumns, x = 0, ++line;
    }
  }
}

template <bool kSigned, bool kFetch>
inline void lines_block(const Int8LinesArgs& a, const LinePair& pair, const int8_t* w, int strips,
                        const int32_t* offsets, int32_t* sums) {
  for (int s = 0; s < strips; s += 2) {
    if (strips - s >= 2)
      lines_two_by_two<2, kSigned, kFetch>(a, pair, w + s * 16 * a.depth, offsets + s * 16, sums + s * 16);
    else
      lines_two_by_two<1, kSigned, kFetch>(a, pair, w + s * 16 * a.depth, offsets + s * 16, sums + s * 16);
  }
}

inline void amx_lines(const Int8LinesArgs& a) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, kTileRows, kTileBytes);
  BOLIDE_TILE_CONFIG(config);
  // Sums are finished one block late: a load of what a tile store has just written waits until it is in the cache, and
  // nothing of the next block would begin meanwhile.
  struct Block {
    LinePair pair;
    Int8Finish finish;
    int64_t position, columns;
  };
  alignas(64) int32_t sums[2][2 * kTileRows * kInt8PanelColumns];
  Block blocks[2];
  int turn = 0;
  const auto finish_last = [&] {
    const Block& b = blocks[turn ^ 1];
    finish_lines(a, b.finish, b.pair, b.position, sums[turn ^ 1], b.columns);
  };
  const int64_t out_bytes = a.finish.kind == Int8Finish::kSums || a.finish.kind == Int8Finish::kF32 ? 4 : 1;
  const auto block = [&](int64_t panel, int64_t position) {
    const int64_t column = panel * kInt8PanelColumns, left = a.columns - column;
    const int64_t columns = left < kInt8PanelColumns ? left : kInt8PanelColumns;
    const int strips = static_cast<int>((columns + 15) / 16);
    const int8_t* const w = a.weights + column * a.depth;
    Block& b = blocks[turn];
    b = {pair_at(a, position), a.finish, position, columns};
    b.finish.offsets += column;
    if (b.finish.scales != nullptr) b.finish.scales += column;
    if (b.finish.bias != nullptr) b.finish.bias += column;
    if (b.finish.row_sums != nullptr) b.finish.column_zeros += column;
    if (b.finish.residual != nullptr) b.finish.residual += column;
    b.finish.out = static_cast<uint8_t*>(b.finish.out) + column * out_bytes;
    finish_lines(a, b.finish, b.pair, position, nullptr, columns);
    if (position == a.first)
      a.is_signed ? lines_block<true, true>(a, b.pair, w, strips, b.finish.offsets, sums[turn])
                  : lines_block<false, true>(a, b.pair, w, strips, b.finish.offsets, sums[turn]);
    else
      a.is_signed ? lines_block<true, false>(a, b.pair, w, strips, b.finish.offsets, sums[turn])
                  : lines_block<false, false>(a, b.pair, w, strips, b.finish.offsets, sums[turn]);
    if (panel > 0 || position > a.first) finish_last();
    turn ^= 1;
  };
  // Weights that stay in the cache are passed by each block of rows, whose results then lie side by side; others are
  // passed once by all of them.
  if (a.panels * kInt8PanelColumns * a.depth <= kWeightsThatStay) {
    for (int64_t p = a.first; p < a.end; p += 2 * kTileRows)
      for (int64_t panel = 0; panel < a.panels; ++panel) block(panel, p);
  } else {
    for (int64_t panel = 0; panel < a.panels; ++panel)
      for (int64_t p = a.first; p < a.end; p += 2 * kTileRows) block(panel, p);
  }
  if (a.first < a.end && a.panels > 0) finish_last();
  BOLIDE_TILE_RELEASE();
}
