// AMX tile instructions as macros, since tile numbers are part of the instruction. Inline assembly throughout: GCC 12's
// intrinsics do not tell the compiler that tile loads and the configuration read memory, and code that writes the
// memory first is then moved behind them (GCC PR 114098).
#pragma once

#include <cstdint>

namespace bolide {

// Palette 1: up to 16 rows of up to 64 bytes in each of 8 tiles.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  constexpr void set(int tile, int row_count, int bytes) {
    rows[tile] = static_cast<uint8_t>(row_count);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

}  // namespace bolide

#ifndef BOLIDE_TILES_EMULATED
#define BOLIDE_TILE_CONFIG(config) asm volatile("ldtilecfg %0" ::"m"(config) : "memory")
#define BOLIDE_TILE_RELEASE() asm volatile("tilerelease" ::: "memory")
#define BOLIDE_TILE_ZERO(t) asm volatile("tilezero %%tmm" #t ::: "memory")
#define BOLIDE_TILE_LOAD(t, p, stride) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"(static_cast<int64_t>(stride)) : "memory")
#define BOLIDE_TILE_STORE(t, p, stride) \
  asm volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"(static_cast<int64_t>(stride)) : "memory")
// c += a (rows of int8) times b (quads along K of uint8).
#define BOLIDE_TILE_DOT_S8U8(c, a, b) asm volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
// c += a (rows of uint8) times b (quads along K of int8).
#define BOLIDE_TILE_DOT_U8S8(c, a, b) asm volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
// c += a (rows of int8) times b (quads along K of int8).
#define BOLIDE_TILE_DOT_S8S8(c, a, b) asm volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
// c += a (rows of bf16) times b (pairs along K of bf16).
#define BOLIDE_TILE_DOT_BF16(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#endif
