// Products with bf16 strips on AMX; a few tokens go to the FMA method, which reads the same strips.
#include <algorithm>
#include <cstring>

#include "kernels/linear/engines.h"
#include "kernels/linear/float_strips.h"
#include "kernels/linear/product.h"
#include "kernels/linear/rounding.h"
#include "kernels/linear/strips.h"
#include "tensor/half.h"

namespace bolide {
namespace {

constexpr int64_t kAmxTokens = 8;
constexpr int64_t kTileTokens = 16;

int64_t row_bytes_of(int64_t k) { return (k + 31) / 32 * 64; }

size_t workspace(const ValueType& weight, int64_t tokens_max, int threads) {
  return std::max(bf16_tiles_workspace(weight, tokens_max, threads),
                  kFloatAvx512.workspace(weight, tokens_max, threads));
}

void run(const Product& p, Workers& workers) {
  p.tokens < kAmxTokens ? kFloatAvx512.run(p, workers) : run_bf16_tiles(amx::bf16_strips, p, workers);
}

size_t matrix_bytes(const ValueType& weight) { return kFloatAvx512.matrix_bytes(weight); }

}  // namespace

size_t bf16_tiles_workspace(const ValueType& weight, int64_t tokens_max, int threads) {
  const int64_t k = weight_k(weight);
  const int64_t rows = (tokens_max + kTileTokens - 1) / kTileTokens * kTileTokens;
  return static_cast<size_t>(rows * row_bytes_of(k)) +
         static_cast<size_t>(threads) * round_up(static_cast<size_t>(k) * sizeof(float), 64);
}

void run_bf16_tiles(void (*strips_times_tiles)(const AmxBf16Args&), const Product& p, Workers& workers) {
  FloatShape shape;
  BOLIDE_CHECK(float_shape(p.dtype, p.k, &shape) && shape.storage == FloatStorage::kBF16, "{}", to_string(p.dtype));
  const int64_t row_bytes = row_bytes_of(p.k);
  const int64_t tiles = (p.tokens + kTileTokens - 1) / kTileTokens;
  auto* panel = reinterpret_cast<uint8_t*>(p.workspace.data());
  auto* rounded = reinterpret_cast<float*>(panel + tiles * kTileTokens * row_bytes);
  const auto rounded_floats = static_cast<int64_t>(round_up(static_cast<uint64_t>(p.k), 16));
  workers.run(tiles, [&](int64_t tile, int thread) {
    for (int64_t t = tile * kTileTokens; t < (tile + 1) * kTileTokens; ++t) {
      auto* row = reinterpret_cast<uint16_t*>(panel + t * row_bytes);
      std::memset(row, 0, static_cast<size_t>(row_bytes));
      if (t >= p.tokens) continue;
      const float* x = p.row(t);
      if (p.rounding == InputRounding::kF8Token) {
        round_token_f8(x, p.k, rounded + thread * rounded_floats);
        x = rounded + thread * rounded_floats;
      }
      for (int64_t j = 0; j < p.k; ++j) row[j] = f32_to_bf16(x[j]);
    }
  });

  const int64_t strips = strips_of(p.n);
  const ChunkPlan plan = plan_chunks(strips, tiles, shape.bytes, kTileTokens * kStripRows * p.k / 4, workers.threads());
  workers.run(plan.chunks(), [&](int64_t chunk, int) {
    const int64_t strip = chunk / plan.tile_chunks * plan.strips_per_chunk;
    const int64_t tile = chunk % plan.tile_chunks * plan.tiles_per_chunk;
    const int64_t column = strip * kStripRows, token = tile * kTileTokens;
    AmxBf16Args args{.k = shape.k, .strip_bytes = shape.bytes, .row_bytes = row_bytes};
    args.strips = std::min(plan.strips_per_chunk, strips - strip);
    args.weights = reinterpret_cast<const uint8_t*>(p.weights) + static_cast<size_t>(strip) * shape.bytes;
    args.panel = panel + token * row_bytes;
    args.row_tiles = std::min(plan.tiles_per_chunk, tiles - tile);
    args.target = {.out = p.out + token * p.out_stride + column,
                   .out_stride = p.out_stride,
                   .scale = p.scale != nullptr ? p.scale + column : nullptr,
                   .bias = p.bias != nullptr ? p.bias + column : nullptr,
                   .residual = p.residual != nullptr ? p.residual + token * p.residual_stride + column : nullptr,
                   .residual_stride = p.residual_stride,
                   .columns = p.n - column,
                   .tokens = static_cast<int>(std::min(args.row_tiles * kTileTokens, p.tokens - token))};
    strips_times_tiles(args);
    if (p.finish == nullptr) return;
    const int64_t columns = std::min(args.strips * kStripRows, args.target.columns);
    for (int m = 0; m < args.target.tokens; ++m) p.finish(args.target.out + m * p.out_stride, columns);
  });
}

constexpr ProductMethod kBf16Amx{
    .linear_name = "linear_bf16_amx",
    .moe_name = "moe_bf16_amx",
    .packing = &kFloatPacking,
    .supports =
        [](const ValueType& weight, Compute compute, const DeviceInfo& device) {
          FloatShape shape;
          return device.isa >= Isa::kAmx && device.cpu.features.amx_bf16 && compute == Compute::kBF16 &&
                 kFloatPacking.bytes(weight) != 0 && float_shape(weight.dtype, weight_k(weight), &shape) &&
                 shape.storage == FloatStorage::kBF16;
        },
    .workspace = workspace,
    .run = run,
    .matrix_bytes = matrix_bytes,
    .exact_floats = &kFloatAvx512,
    .exact_blocks = &kDecodedAvx512,
    .batch_invariant = false,  // tiles and FMA add in different orders
};

}  // namespace bolide
