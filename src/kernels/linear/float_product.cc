// Products in f32 or bf16: float weights and codes of 8 bits as strips of their own type, block-quantised ones from the
// int8 path's strips, decoded by each thread a few strips at a time for all tokens of its chunk. Codes too are widened
// once where there are more tokens than one tile has.
#include <algorithm>
#include <cstring>

#include "kernels/linear/code_strips.h"
#include "kernels/linear/float_strips.h"
#include "kernels/linear/int8_kernels.h"
#include "kernels/linear/product.h"
#include "kernels/linear/rounding.h"
#include "kernels/linear/strips.h"
#include "tensor/half.h"

namespace bolide {
namespace {

struct FloatEngine {
  std::span<const int> tiles;
  void (*strips)(const FloatArgs&);
  bool bf16_pairs;                                 // the panel holds pairs of bf16
  void (*decode)(const StripArgs&, float* strip);  // for block-quantised weights, else null
  void (*widen)(FloatStorage, const uint8_t* weights, int64_t k, float* strip);  // for codes of 8 bits, else null
  void (*fill)(const PanelRows&);                                                // of plain rows; pairs for bf16_pairs
  bool decodes() const { return decode != nullptr || widen != nullptr; }
};

constexpr int64_t kSerialActivations = 4096;
constexpr int64_t kDecodedStrips = 2;  // strips decoded at once: as many as the widest tile takes

size_t panel_bytes(std::span<const int> tiles, int64_t tokens_max, int64_t k) {
  const auto tokens = round_up(static_cast<uint64_t>(tokens_max), static_cast<uint64_t>(tiles.back()));
  return round_up(static_cast<size_t>(k + 1) * tokens * sizeof(float), 64);
}
size_t decoded_bytes(int64_t k) { return static_cast<size_t>(kDecodedStrips * k) * 64; }
// A row of f32, then one of bf16.
size_t rounded_bytes(int64_t k) { return round_up(static_cast<size_t>(k + 1) * 6, 64); }

// Panels; then for each thread a rounded row and, if weights are decoded, strips.
template <const FloatEngine& E>
size_t workspace(const ValueType& weight, int64_t tokens_max, int threads) {
  const int64_t k = weight_k(weight);
  const size_t per_thread = rounded_bytes(k) + (E.decodes() ? decoded_bytes(k) : 0);
  return panel_bytes(E.tiles, tokens_max, k) + static_cast<size_t>(threads) * per_thread;
}

// Activations of one token into column `token` of a panel.
void fill_column(const Product& p, const float* x, int64_t k, int tile, int64_t token, float* panel) {
  if (p.compute == Compute::kBF16) {
    for (int64_t j = 0; j < p.k; ++j) panel[j * tile + token] = bf16_to_f32(f32_to_bf16(x[j]));
  } else {
    for (int64_t j = 0; j < p.k; ++j) panel[j * tile + token] = x[j];
  }
  if (k > p.k) panel[p.k * tile + token] = 0;
}

// The same as pairs of bf16; `narrow` [k] is scratch. Conversion and transposition apart, so that the first vectorises.
void fill_pairs(const Product& p, const float* x, int64_t k, int tile, int64_t token, uint16_t* narrow, float* panel) {
  for (int64_t j = 0; j < p.k; ++j) narrow[j] = f32_to_bf16(x[j]);
  if (k > p.k) narrow[p.k] = 0;
  for (int64_t j = 0; j < k / 2; ++j) std::memcpy(panel + j * tile + token, narrow + j * 2, 4);
}

template <const FloatEngine& E>
void run(const Product& p, Workers& workers) {
  const int tile = tile_for(E.tiles, p.tokens);
  const int64_t tiles = (p.tokens + tile - 1) / tile;
  FloatShape shape;     // of what is multiplied
  StripShape packed{};  // of blocks
  size_t stored_bytes;  // of a strip as it is packed
  const StripScheme* scheme = strip_scheme(p.quant);
  if (scheme != nullptr) {
    packed = strip_shape(*scheme, p.k);
    stored_bytes = packed.bytes;
  } else {
    BOLIDE_CHECK(E.widen != nullptr ? code_shape(p.dtype, p.k, &shape) : float_shape(p.dtype, p.k, &shape),
                 "no strips of {}", to_string(p.dtype));
    stored_bytes = shape.bytes;
  }
  const FloatStorage stored = shape.storage;
  const bool decoded_first = scheme != nullptr || (E.widen != nullptr && tiles > 1);
  if (decoded_first) shape = {FloatStorage::kF32, p.k, static_cast<size_t>(p.k) * 64};
  const int64_t tile_floats = (E.bf16_pairs ? shape.k / 2 : shape.k) * tile;
  auto* panels = reinterpret_cast<float*>(p.workspace.data());
  const size_t per_thread = rounded_bytes(p.k) + (E.decodes() ? decoded_bytes(p.k) : 0);
  std::byte* scratch = p.workspace.data() + p.workspace.size() - static_cast<size_t>(workers.threads()) * per_thread;

  BOLIDE_CHECK(scratch >= p.workspace.data() + tiles * tile_floats * 4, "workspace of {} for {} threads",
               p.workspace.size(), workers.threads());

  const auto fill_tile = [&](int64_t i, int thread) {
    float* panel = panels + i * tile_floats;
    auto* rounded = reinterpret_cast<float*>(scratch + static_cast<size_t>(thread) * per_thread);
    if (p.x_rows == nullptr && p.rounding == InputRounding::kNone && (E.bf16_pairs || p.compute == Compute::kF32)) {
      const auto tokens = static_cast<int>(std::min<int64_t>(tile, p.tokens - i * tile));
      E.fill({.x = p.row(i * tile), .x_stride = p.x_stride, .k = p.k, .tokens = tokens, .tile = tile, .panel = panel});
      if (!E.bf16_pairs) std::fill(panel + p.k * tile, panel + shape.k * tile, 0.0f);
      return;
    }
    if ((i + 1) * tile > p.tokens) std::memset(panel, 0, static_cast<size_t>(tile_floats) * sizeof(float));
    for (int64_t t = i * tile; t < std::min((i + 1) * tile, p.tokens); ++t) {
      const float* x = p.row(t);
      if (p.rounding == InputRounding::kF8Token) round_token_f8(x, p.k, rounded), x = rounded;
      if (E.bf16_pairs)
        fill_pairs(p, x, shape.k, tile, t - i * tile, reinterpret_cast<uint16_t*>(rounded + p.k), panel);
      else
        fill_column(p, x, shape.k, tile, t - i * tile, panel);
    }
  };
  // One f32 token is its own panel.
  const bool plain =
      tile == 1 && !E.bf16_pairs && p.compute == Compute::kF32 && p.rounding == InputRounding::kNone && shape.k == p.k;
  if (plain)
    panels = const_cast<float*>(p.row(0));  // only read
  else if (p.tokens * p.k <= kSerialActivations)
    for (int64_t i = 0; i < tiles; ++i) fill_tile(i, 0);
  else
    workers.run(tiles, fill_tile);

  const int64_t strips = strips_of(p.n);
  ChunkPlan plan = plan_chunks(strips, tiles, stored_bytes, int64_t{tile} * kStripRows * p.k, workers.threads());
  if (decoded_first) plan.tiles_per_chunk = tiles, plan.tile_chunks = 1;  // each strip is decoded once

  workers.run(plan.chunks(), [&](int64_t chunk, int thread) {
    const int64_t chunk_begin = chunk / plan.tile_chunks * plan.strips_per_chunk;
    const int64_t chunk_end = std::min(chunk_begin + plan.strips_per_chunk, strips);
    const int64_t first_tile = chunk % plan.tile_chunks * plan.tiles_per_chunk;
    const int64_t last_tile = std::min(first_tile + plan.tiles_per_chunk, tiles);
    auto* decoded = reinterpret_cast<float*>(scratch + static_cast<size_t>(thread) * per_thread + rounded_bytes(p.k));
    const int64_t step = decoded_first ? kDecodedStrips : chunk_end - chunk_begin;
    for (int64_t strip = chunk_begin; strip < chunk_end; strip += step) {
      FloatArgs args{.storage = shape.storage, .tile = tile, .k = shape.k};
      args.strips = std::min(step, chunk_end - strip);
      args.strip_bytes = shape.bytes;
      const auto* weights = reinterpret_cast<const uint8_t*>(p.weights) + static_cast<size_t>(strip) * stored_bytes;
      args.weights = weights;
      if (decoded_first) {
        for (int64_t i = 0; i < args.strips; ++i, weights += stored_bytes) {
          float* out = decoded + i * p.k * kStripRows;
          if (scheme != nullptr)
            E.decode({.kind = scheme->kind, .zero = scheme->zero, .shape = packed, .weights = weights}, out);
          else
            E.widen(stored, weights, p.k, out);
        }
        args.weights = reinterpret_cast<const uint8_t*>(decoded);
      }
      const int64_t column = strip * kStripRows;
      for (int64_t i = first_tile; i < last_tile; ++i) {
        const int64_t token = i * tile;
        args.panel = panels + i * tile_floats;
        args.target = {.out = p.out + token * p.out_stride + column,
                       .out_stride = p.out_stride,
                       .scale = p.scale != nullptr ? p.scale + column : nullptr,
                       .bias = p.bias != nullptr ? p.bias + column : nullptr,
                       .residual = p.residual != nullptr ? p.residual + token * p.residual_stride + column : nullptr,
                       .residual_stride = p.residual_stride,
                       .columns = p.n - column,
                       .tokens = static_cast<int>(std::min<int64_t>(tile, p.tokens - token))};
        E.strips(args);
        if (p.finish == nullptr) continue;
        const int64_t columns = std::min(args.strips * kStripRows, args.target.columns);
        for (int m = 0; m < args.target.tokens; ++m) p.finish(args.target.out + m * p.out_stride, columns);
      }
    }
  });
}

size_t float_matrix_bytes(const ValueType& weight) {
  FloatShape shape;
  BOLIDE_CHECK(float_shape(weight.dtype, weight_k(weight), &shape), "no strips of {}", to_string(weight));
  return static_cast<size_t>(strips_of(weight_n(weight))) * shape.bytes;
}
size_t code_matrix_bytes(const ValueType& weight) {
  FloatShape shape;
  BOLIDE_CHECK(code_shape(weight.dtype, weight_k(weight), &shape), "no strips of {}", to_string(weight));
  return static_cast<size_t>(strips_of(weight_n(weight))) * shape.bytes;
}
size_t block_matrix_bytes(const ValueType& weight) {
  return static_cast<size_t>(strips_of(weight_n(weight))) *
         strip_shape(*strip_scheme(weight.quant), weight_k(weight)).bytes;
}

bool holds_floats(const ValueType& weight, Compute compute) {
  return compute != Compute::kInt8 && kFloatPacking.bytes(weight) != 0;
}
bool holds_codes(const ValueType& weight, Compute compute) {
  return compute != Compute::kInt8 && kCodePacking.bytes(weight) != 0;
}
bool holds_blocks(const ValueType& weight, Compute compute) {
  return compute != Compute::kInt8 && kStripPacking.bytes(weight) != 0;
}
bool bf16_storage(const ValueType& weight) {
  FloatShape shape;
  return float_shape(weight.dtype, weight_k(weight), &shape) && shape.storage == FloatStorage::kBF16;
}

constexpr int kWideTiles[] = {1, 2, 4, 6, 8, 12};
constexpr int kNarrowTiles[] = {1, 2, 4, 6};
constexpr FloatEngine kBf16Engine{kWideTiles, avx512bf16::bf16_strips, true, nullptr, nullptr, avx512::fill_pairs};
constexpr FloatEngine kAvx512Engine{kWideTiles, avx512::float_strips, false, nullptr, nullptr, avx512::fill_panel};
constexpr FloatEngine kAvx512Decoding{kWideTiles, avx512::float_strips, false, vnni::decode_strip,
                                      nullptr,    avx512::fill_panel};
constexpr FloatEngine kAvx512Codes{kWideTiles, avx512::float_strips, false,
                                   nullptr,    avx512::widen_codes,  avx512::fill_panel};
constexpr FloatEngine kAvx2Codes{kNarrowTiles, avx2::float_strips, false, nullptr, avx2::widen_codes, avx2::fill_panel};
constexpr FloatEngine kAvx2Engine{kNarrowTiles, avx2::float_strips, false, nullptr, nullptr, avx2::fill_panel};
constexpr FloatEngine kAvx2Decoding{kNarrowTiles, avx2::float_strips, false, avx2::decode_strip,
                                    nullptr,      avx2::fill_panel};

}  // namespace

constexpr ProductMethod kBf16Dot{
    .linear_name = "linear_bf16_avx512bf16",
    .moe_name = "moe_bf16_avx512bf16",
    .packing = &kFloatPacking,
    .supports =
        [](const ValueType& weight, Compute compute, const DeviceInfo& device) {
          // Where FMA is the faster one, kFloatAvx512 does this; see bf16_avx512bf16.cc.
          return device.isa >= Isa::kVnni && device.cpu.features.avx512_bf16 && device.cpu.vendor == "AuthenticAMD" &&
                 compute == Compute::kBF16 && bf16_storage(weight) && holds_floats(weight, compute);
        },
    .workspace = workspace<kBf16Engine>,
    .run = run<kBf16Engine>,
    .matrix_bytes = float_matrix_bytes,
    .exact_floats = &kFloatAvx512,
    .exact_blocks = &kDecodedAvx512,
};

constexpr ProductMethod kFloatAvx512{
    .linear_name = "linear_float_avx512",
    .moe_name = "moe_float_avx512",
    .packing = &kFloatPacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kAvx512 && holds_floats(weight, compute); },
    .workspace = workspace<kAvx512Engine>,
    .run = run<kAvx512Engine>,
    .matrix_bytes = float_matrix_bytes,
    .exact_floats = &kFloatAvx512,
    .exact_blocks = &kDecodedAvx512,
};

constexpr ProductMethod kCodesAvx512{
    .linear_name = "linear_codes_avx512",
    .moe_name = "moe_codes_avx512",
    .packing = &kCodePacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kAvx512 && holds_codes(weight, compute); },
    .workspace = workspace<kAvx512Codes>,
    .run = run<kAvx512Codes>,
    .matrix_bytes = code_matrix_bytes,
    .exact_floats = &kFloatAvx512,
    .exact_blocks = &kDecodedAvx512,
};

constexpr ProductMethod kDecodedAvx512{
    .linear_name = "linear_decoded_avx512",
    .moe_name = "moe_decoded_avx512",
    .packing = &kStripPacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kVnni && holds_blocks(weight, compute); },
    .workspace = workspace<kAvx512Decoding>,
    .run = run<kAvx512Decoding>,
    .matrix_bytes = block_matrix_bytes,
    .exact_floats = &kFloatAvx512,
    .exact_blocks = &kDecodedAvx512,
};

constexpr ProductMethod kFloatAvx2{
    .linear_name = "linear_float_avx2",
    .moe_name = "moe_float_avx2",
    .packing = &kFloatPacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kAvx2 && holds_floats(weight, compute); },
    .workspace = workspace<kAvx2Engine>,
    .run = run<kAvx2Engine>,
    .matrix_bytes = float_matrix_bytes,
    .exact_floats = &kFloatAvx2,
    .exact_blocks = &kDecodedAvx2,
};

constexpr ProductMethod kCodesAvx2{
    .linear_name = "linear_codes_avx2",
    .moe_name = "moe_codes_avx2",
    .packing = &kCodePacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kAvx2 && holds_codes(weight, compute); },
    .workspace = workspace<kAvx2Codes>,
    .run = run<kAvx2Codes>,
    .matrix_bytes = code_matrix_bytes,
    .exact_floats = &kFloatAvx2,
    .exact_blocks = &kDecodedAvx2,
};

constexpr ProductMethod kDecodedAvx2{
    .linear_name = "linear_decoded_avx2",
    .moe_name = "moe_decoded_avx2",
    .packing = &kStripPacking,
    .supports = [](const ValueType& weight, Compute compute,
                   const DeviceInfo& device) { return device.isa >= Isa::kAvx2 && holds_blocks(weight, compute); },
    .workspace = workspace<kAvx2Decoding>,
    .run = run<kAvx2Decoding>,
    .matrix_bytes = block_matrix_bytes,
    .exact_floats = &kFloatAvx2,
    .exact_blocks = &kDecodedAvx2,
};

}  // namespace bolide
