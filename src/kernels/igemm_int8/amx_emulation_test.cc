// See amx_emulation.h. The vector parts need AVX-512, which cmake/BolideFolder.cmake
// gives files of this name; no header of the standard library but integers.
#include "kernels/igemm_int8/amx_emulation.h"

#include <immintrin.h>

#define BOLIDE_TILES_EMULATED
#include "kernels/linear/amx_tiles.h"

namespace bolide::amx_emulated {
namespace {

struct Tile {
  uint8_t data[16][64];
  int rows, bytes;
};
thread_local Tile g_tiles[8];
int g_faults = 0;

void expect(bool condition) {
  if (!condition) __atomic_add_fetch(&g_faults, 1, __ATOMIC_RELAXED);
}
void zero(Tile& t) { __builtin_memset(t.data, 0, sizeof t.data); }
void configure(const TileConfig& config) {
  expect(config.palette == 1);
  for (int i = 0; i < 8; ++i) {
    g_tiles[i].rows = config.rows[i], g_tiles[i].bytes = config.row_bytes[i];
    expect(config.rows[i] <= 16 && config.row_bytes[i] <= 64);
    zero(g_tiles[i]);
  }
}
void release() {
  for (Tile& t : g_tiles) t.rows = 0, t.bytes = 0;
}
void load(Tile& t, const void* p, int64_t stride) {
  expect(t.rows > 0);
  for (int r = 0; r < t.rows; ++r)
    __builtin_memcpy(t.data[r], static_cast<const uint8_t*>(p) + r * stride, static_cast<size_t>(t.bytes));
}
void store(const Tile& t, void* p, int64_t stride) {
  expect(t.rows > 0);
  for (int r = 0; r < t.rows; ++r)
    __builtin_memcpy(static_cast<uint8_t*>(p) + r * stride, t.data[r], static_cast<size_t>(t.bytes));
}
void dot(Tile& c, const Tile& a, const Tile& b, bool is_signed) {
  expect(c.rows == a.rows && a.bytes == 4 * b.rows && c.bytes == b.bytes && c.rows > 0);
  for (int m = 0; m < c.rows; ++m)
    for (int n = 0; n < c.bytes / 4; ++n) {
      int32_t sum;
      __builtin_memcpy(&sum, c.data[m] + n * 4, 4);
      for (int k = 0; k < b.rows; ++k)
        for (int i = 0; i < 4; ++i) {
          const uint8_t x = a.data[m][k * 4 + i];
          sum += (is_signed ? static_cast<int8_t>(x) : x) * static_cast<int8_t>(b.data[k][n * 4 + i]);
        }
      __builtin_memcpy(c.data[m] + n * 4, &sum, 4);
    }
}

#define BOLIDE_TILE_CONFIG(config) configure(config)
#define BOLIDE_TILE_RELEASE() release()
#define BOLIDE_TILE_ZERO(t) zero(g_tiles[t])
#define BOLIDE_TILE_LOAD(t, p, stride) load(g_tiles[t], p, stride)
#define BOLIDE_TILE_STORE(t, p, stride) store(g_tiles[t], p, stride)
#define BOLIDE_TILE_DOT_U8S8(c, a, b) dot(g_tiles[c], g_tiles[a], g_tiles[b], false)
#define BOLIDE_TILE_DOT_S8S8(c, a, b) dot(g_tiles[c], g_tiles[a], g_tiles[b], true)

#include "kernels/igemm_int8/igemm_int8_finish_avx512.h"

#include "kernels/igemm_int8/igemm_int8_amx_impl.h"

}  // namespace

void int8_block(const Int8BlockArgs& args) { amx_block(args); }
void int8_lines(const Int8LinesArgs& args) { amx_lines(args); }
int int8_block_faults() { return g_faults; }

}  // namespace bolide::amx_emulated
