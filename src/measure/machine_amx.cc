// Roofs of the AMX tile unit: 2 x 2 tiles of sums from 2 + 2 tiles of factors, the shape that a matrix kernel uses.
#if defined(__x86_64__)
#include <immintrin.h>

#include "measure/machine_kernels.h"

namespace bolide::roofs {
namespace {

// The 64 bytes that ldtilecfg reads (Intel SDM, "Intel AMX: tile configuration").
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Not _tile_loadconfig: g++ 12 does not know that it reads memory and drops the stores before it.
void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config) : "memory"); }

// Fills tiles 4 to 7 with the 1024 `bytes`, and 0 to 3 with zeros.
void load_tiles(const uint8_t* bytes) {
  asm volatile("" : : : "memory");  // nor does g++ 12 know that _tile_loadd reads memory
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, bytes, 64);
  _tile_loadd(5, bytes, 64);
  _tile_loadd(6, bytes, 64);
  _tile_loadd(7, bytes, 64);
}

float store_and_release() {
  alignas(64) float sums[16 * 16];
  _tile_stored(0, sums, 64);
  float total = sums[0];
  _tile_stored(1, sums, 64);
  total += sums[1];
  _tile_stored(2, sums, 64);
  total += sums[2];
  _tile_stored(3, sums, 64);
  total += sums[3];
  _tile_release();
  return total;
}

constexpr int kTiles = 4;

float dot_int8(int64_t iterations) {
  const TileConfig config;
  configure(config);
  alignas(64) uint8_t bytes[16 * 64];
  for (int i = 0; i < 16 * 64; ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 11);
  load_tiles(bytes);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  return store_and_release();
}

float dot_bf16(int64_t iterations) {
  const TileConfig config;
  configure(config);
  alignas(64) uint8_t bytes[16 * 64];
  for (int i = 0; i < 16 * 32; ++i) {  // small normal numbers: 0x3cXX is about 0.01
    bytes[2 * i] = static_cast<uint8_t>(i * 37 + 11);
    bytes[2 * i + 1] = 0x3c;
  }
  load_tiles(bytes);
  for (int64_t n = 0; n < iterations; ++n) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return store_and_release();
}

}  // namespace

Arithmetic int8_amx() { return {"amx tdpbssd", dot_int8, kTiles * 16.0 * 16 * 64 * 2}; }
Arithmetic bf16_amx() { return {"amx tdpbf16ps", dot_bf16, kTiles * 16.0 * 16 * 32 * 2}; }

}  // namespace bolide::roofs
#endif
