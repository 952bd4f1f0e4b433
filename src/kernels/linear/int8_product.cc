// Products of int8 activations with strips of block-quantised weights: two passes over the pool, activations into
// panels and panels times strips. A few tokens are rounded by the caller alone: that takes less than a barrier.
#include <algorithm>
#include <cstring>

#include "kernels/linear/engines.h"
#include "kernels/linear/int8_kernels.h"
#include "kernels/linear/product.h"
#include "kernels/linear/rounding.h"
#include "kernels/linear/strips.h"

namespace bolide {
namespace {

constexpr int kPartsMax = 2;
constexpr int64_t kSerialActivations = 8192;

size_t panel_bytes(std::span<const int> tiles, int64_t tokens_max, int64_t k) {
  const auto tokens =
      static_cast<int64_t>(round_up(static_cast<uint64_t>(tokens_max), static_cast<uint64_t>(tiles.back())));
  return static_cast<size_t>(k / 32 * int8_record_bytes(1, kPartsMax) * tokens);
}

size_t scratch_bytes(const Int8Engine& engine, int64_t k) {
  return engine.many ? static_cast<size_t>(k) * kStripRows : 0;
}

size_t matrix_bytes(const ValueType& weight) {
  return static_cast<size_t>(strips_of(weight_n(weight))) *
         strip_shape(*strip_scheme(weight.quant), weight_k(weight)).bytes;
}

bool fits(const ValueType& weight, Compute compute) {
  return compute == Compute::kInt8 && kStripPacking.bytes(weight) != 0;
}

constexpr int kVnniTiles[] = {1, 2, 3, 4, 6, 8, 12};
constexpr Int8Engine kVnniEngine{kVnniTiles, vnni::int8_strips, vnni::int8_panel, 0, false};
constexpr int kAvx2Tiles[] = {1, 2, 4};
constexpr Int8Engine kAvx2Engine{kAvx2Tiles, avx2::int8_strips, avx2::int8_panel, 128, false};
constexpr int kAmxTiles[] = {16};
constexpr Int8Engine kAmxEngine{kAmxTiles, amx::int8_strips, vnni::int8_panel, 0, true};

// Below half a tile of tokens VNNI does less work, and gives the same bits.
constexpr int64_t kAmxTokens = 8;

template <const Int8Engine& E>
size_t workspace(const ValueType& weight, int64_t tokens_max, int threads) {
  return int8_workspace(E, weight, tokens_max, threads);
}
template <const Int8Engine& E>
void run(const Product& p, Workers& workers) {
  run_int8(E, p, workers);
}

}  // namespace

// Panels, scratch for each thread, rows rounded as InputRounding asks.
size_t int8_workspace(const Int8Engine& engine, const ValueType& weight, int64_t tokens_max, int threads) {
  return round_up(panel_bytes(engine.tiles, tokens_max, weight_k(weight)), 64) +
         static_cast<size_t>(threads) * scratch_bytes(engine, weight_k(weight)) +
         static_cast<size_t>(tokens_max * weight_k(weight)) * sizeof(float);
}

void run_int8(const Int8Engine& engine, const Product& p, Workers& workers) {
  const StripScheme& scheme = *strip_scheme(p.quant);
  const StripFormat format = strip_format(scheme.kind);
  const StripShape shape = strip_shape(scheme, p.k);
  const int zero = scheme.zero - (strip_codes_wide(format) ? engine.wide_offset : 0);
  const int tile = tile_for(engine.tiles, p.tokens);
  const int64_t tiles = (p.tokens + tile - 1) / tile;
  const int64_t tile_bytes = shape.groups * int8_record_bytes(tile, format.parts);
  auto* panels = reinterpret_cast<uint8_t*>(p.workspace.data());
  const size_t tokens_max = static_cast<size_t>(p.tokens);
  auto* rounded =
      reinterpret_cast<float*>(p.workspace.data() + p.workspace.size()) - tokens_max * static_cast<size_t>(p.k);

  const auto fill_tile = [&](int64_t i, int) {
    uint8_t* panel = panels + i * tile_bytes;
    const int64_t first = i * tile;
    if (first + tile > p.tokens) std::memset(panel, 0, static_cast<size_t>(tile_bytes));
    for (int64_t t = first; t < std::min(first + tile, p.tokens); ++t) {
      const float* x = p.row(t);
      if (p.rounding == InputRounding::kF8Token) {
        round_token_f8(x, p.k, rounded + t * p.k);
        x = rounded + t * p.k;
      }
      engine.panel({x, shape.groups, panel, tile, static_cast<int>(t - first), format.parts, format.minimum, zero});
    }
  };
  if (p.tokens * p.k <= kSerialActivations)
    for (int64_t i = 0; i < tiles; ++i) fill_tile(i, 0);
  else
    workers.run(tiles, fill_tile);

  const int64_t strips = strips_of(p.n);
  const ChunkPlan plan = plan_chunks(strips, tiles, shape.bytes, int64_t{tile} * kStripRows * p.k, workers.threads());
  uint8_t* scratch = panels + round_up(static_cast<size_t>(tiles * tile_bytes), 64);
  BOLIDE_CHECK(scratch + static_cast<size_t>(workers.threads()) * scratch_bytes(engine, p.k) <=
                   reinterpret_cast<uint8_t*>(p.workspace.data() + p.workspace.size()),
               "workspace of {} for {} threads", p.workspace.size(), workers.threads());

  workers.run(plan.chunks(), [&](int64_t chunk, int thread) {
    const int64_t first_strip = chunk / plan.tile_chunks * plan.strips_per_chunk;
    const int64_t first_tile = chunk % plan.tile_chunks * plan.tiles_per_chunk;
    const int64_t last_tile = std::min(first_tile + plan.tiles_per_chunk, tiles);
    const int64_t column = first_strip * kStripRows;
    StripArgs args{.kind = scheme.kind, .tile = tile, .zero = scheme.zero};
    args.strips = std::min(plan.strips_per_chunk, strips - first_strip);
    args.shape = shape;
    args.weights = reinterpret_cast<const uint8_t*>(p.weights) + static_cast<size_t>(first_strip) * shape.bytes;
    args.panel_stride = tile_bytes;
    args.scratch = scratch + static_cast<size_t>(thread) * scratch_bytes(engine, p.k);
    const int64_t step = engine.many ? last_tile - first_tile : 1;
    for (int64_t i = first_tile; i < last_tile; i += step) {
      const int64_t token = i * tile;
      args.panels = step;
      args.panel = panels + i * tile_bytes;
      args.target = {.out = p.out + token * p.out_stride + column,
                     .out_stride = p.out_stride,
                     .scale = p.scale != nullptr ? p.scale + column : nullptr,
                     .bias = p.bias != nullptr ? p.bias + column : nullptr,
                     .residual = p.residual != nullptr ? p.residual + token * p.residual_stride + column : nullptr,
                     .residual_stride = p.residual_stride,
                     .columns = p.n - column,
                     .tokens = static_cast<int>(std::min<int64_t>(step * tile, p.tokens - token))};
      engine.strips(args);
    }
  });
}

constexpr ProductMethod kInt8Amx{
    .linear_name = "linear_int8_amx",
    .moe_name = "moe_int8_amx",
    .packing = &kStripPacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kAmx && fits(weight, compute); },
    .workspace =
        [](const ValueType& weight, int64_t tokens_max, int threads) {
          return std::max(workspace<kVnniEngine>(weight, tokens_max, threads),
                          workspace<kAmxEngine>(weight, tokens_max, threads));
        },
    .run = [](const Product& p,
              Workers& workers) { p.tokens < kAmxTokens ? run<kVnniEngine>(p, workers) : run<kAmxEngine>(p, workers); },
    .matrix_bytes = matrix_bytes,
    .exact_floats = &kFloatAvx512,
    .exact_blocks = &kDecodedAvx512,
};

constexpr ProductMethod kInt8Vnni{
    .linear_name = "linear_int8_vnni",
    .moe_name = "moe_int8_vnni",
    .packing = &kStripPacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kVnni && fits(weight, compute); },
    .workspace = workspace<kVnniEngine>,
    .run = run<kVnniEngine>,
    .matrix_bytes = matrix_bytes,
    .exact_floats = &kFloatAvx512,
    .exact_blocks = &kDecodedAvx512,
};

constexpr ProductMethod kInt8Avx2{
    .linear_name = "linear_int8_avx2",
    .moe_name = "moe_int8_avx2",
    .packing = &kStripPacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kAvx2 && fits(weight, compute); },
    .workspace = workspace<kAvx2Engine>,
    .run = run<kAvx2Engine>,
    .matrix_bytes = matrix_bytes,
    .exact_floats = &kFloatAvx2,
    .exact_blocks = &kDecodedAvx2,
};

}  // namespace bolide
