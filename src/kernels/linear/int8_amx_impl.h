// The int8 product with AMX tiles: included, after int8_strips_impl.h and amx_tiles.h, in the unnamed namespace of
// int8_amx.cc and, with emulated tiles, of its test.
//
// Tiling: a strip by 16 tokens. Per part of a group of 32 along K one tile product, 16 tokens x 32 int8 times 32 x 16
// codes, then the vector unit scales its 16 rows into f32 sums that stay in registers; the tile product of the next
// part runs meanwhile. Bound: the vector unit, 4 operations a row, so about a third of the tiles' peak at best. Codes
// of 4 and 6 bits are unpacked once for all panels. Sums have the same values in the same order as VNNI's: equal bits.

constexpr int kTileTokens = 16;

// All codes of a strip as bytes, [K / 4][16 rows][4].
template <StripFormat F>
inline const uint8_t* byte_codes(const Strip& s, int64_t groups, uint8_t* scratch) {
  if constexpr (F.code_bits == 8) return s.codes;
  for (int64_t g = 0; g < groups; ++g)
    for (int p = 0; p < F.parts; ++p)
      each_codes<F>(s.codes + g * strip_group_bytes(F), p,
                    [&](Ints codes, int k) { store_codes(scratch + g * 512 + k * 16, codes); });
  return scratch;
}

// Adds part p of group g, whose integer sums are in `sums`, to the f32 sums.
template <StripFormat F>
inline void scale_part(const Strip& s, int64_t g, int p, const uint8_t* record, const int32_t* sums,
                       Floats (&acc)[kTileTokens]) {
  const uint8_t* scales = record + kTileTokens * 32;
  const uint8_t* corrections = scales + kTileTokens * 4 + p * kTileTokens * 4;
  const Floats scale = scale_of<F>(s, g, p, 0);
  const Floats minimum = F.minimum ? minimum_of<F>(s, g, p, 0) : zero_floats();
#pragma GCC unroll 16
  for (int m = 0; m < kTileTokens; ++m) {
    Ints sum = load_codes(reinterpret_cast<const uint8_t*>(sums + m * kStripRows));
    if constexpr (!F.minimum) sum = add_ints(sum, broadcast_int(corrections + m * 4));
    acc[m] = fma(to_floats(sum), multiply(scale, broadcast_float(scales + m * 4)), acc[m]);
    if constexpr (F.minimum) acc[m] = fma(minimum, broadcast_float(corrections + m * 4), acc[m]);
  }
}

template <StripFormat F>
inline void tile_part(const uint8_t* codes, const uint8_t* record, int p, int32_t* sums) {
  BOLIDE_TILE_ZERO(0);
  BOLIDE_TILE_LOAD(1, record + p * 16, 32);
  BOLIDE_TILE_LOAD(2, codes + p * 256, 64);
  BOLIDE_TILE_DOT_S8U8(0, 1, 2);
  BOLIDE_TILE_STORE(0, sums, 64);
}

template <StripFormat F>
inline void amx_strips(const StripArgs& a) {
  TileConfig config;
  config.set(0, kTileTokens, 64);
  config.set(1, kTileTokens, 32 / F.parts);
  config.set(2, 8 / F.parts, 64);
  BOLIDE_TILE_CONFIG(config);
  constexpr int64_t kRecord = int8_record_bytes(kTileTokens, F.parts);
  alignas(64) int32_t sums[2][kTileTokens * kStripRows];
  for (int64_t i = 0; i < a.strips; ++i) {
    const int64_t column = i * kStripRows;
    if (column >= a.target.columns) break;
    const Strip strip = strip_at(a, i);
    const uint8_t* codes = byte_codes<F>(strip, a.shape.groups, a.scratch);
    for (int64_t t = 0; t < a.panels; ++t) {
      const uint8_t* panel = a.panel + t * a.panel_stride;
      Floats acc[kTileTokens];
#pragma GCC unroll 16
      for (int m = 0; m < kTileTokens; ++m) acc[m] = zero_floats();
      const int64_t parts = a.shape.groups * F.parts;
      tile_part<F>(codes, panel, 0, sums[0]);
      for (int64_t q = 0; q < parts; ++q) {
        const int64_t next = q + 1;
        if (next < parts)
          tile_part<F>(codes + next / F.parts * 512, panel + next / F.parts * kRecord, static_cast<int>(next % F.parts),
                       sums[next % 2]);
        scale_part<F>(strip, q / F.parts, static_cast<int>(q % F.parts), panel + q / F.parts * kRecord, sums[q % 2],
                      acc);
      }
      const int first = static_cast<int>(t) * kTileTokens;
#pragma GCC unroll 16
      for (int m = 0; m < kTileTokens; ++m)
        if (first + m < a.target.tokens) store_row(a.target, column, first + m, acc[m]);
    }
  }
  BOLIDE_TILE_RELEASE();
}
