#include "kernels/linear/product.h"

#include <algorithm>
#include <array>

namespace bolide {

std::span<const ProductMethod* const> product_methods() {
  static constexpr std::array methods = {&kInt8Amx,   &kInt8Vnni,      &kInt8Avx2,    &kBf16Amx,
                                         &kBf16Dot,   &kCodesAvx512,   &kFloatAvx512, &kCodesAvx2,
                                         &kFloatAvx2, &kDecodedAvx512, &kDecodedAvx2};
  return methods;
}

int tile_for(std::span<const int> tiles, int64_t tokens) {
  const int64_t largest = tiles.back();
  const int64_t count = std::max<int64_t>(1, (tokens + largest - 1) / largest);
  const int64_t wanted = (tokens + count - 1) / count;
  for (const int tile : tiles)
    if (tile >= wanted) return tile;
  return tiles.back();
}

ChunkPlan plan_chunks(int64_t strips, int64_t token_tiles, size_t strip_bytes, int64_t tile_flops, int threads) {
  const auto cut = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
  ChunkPlan plan{strips, token_tiles, 1, 1};
  if (threads > 1) {
    // A chunk is worth handing out from about 1 us of streaming or 8 us of arithmetic; beyond that eight a thread let
    // a late thread catch up. Few tokens: cut along rows only, weights are then read once.
    constexpr int64_t kChunkBytes = 32 << 10, kChunkFlops = 2 << 20;
    const auto bytes = static_cast<int64_t>(strip_bytes);
    if (token_tiles == 1) {
      const int64_t least = std::max(cut(kChunkBytes, bytes), int64_t{1});
      plan.strips_per_chunk = std::clamp(std::max(least, cut(strips, threads * 8)), int64_t{1}, strips);
      // An even number of equal chunks for each thread where there are only a few.
      const int64_t chunks = cut(cut(strips, plan.strips_per_chunk), threads) * threads;
      plan.strips_per_chunk = std::max<int64_t>(1, cut(strips, chunks));
    } else {
      plan.strips_per_chunk = std::min<int64_t>(strips, 4);
      const int64_t tiles =
          std::max<int64_t>(1, kChunkFlops / std::max<int64_t>(1, plan.strips_per_chunk * tile_flops));
      plan.tiles_per_chunk = std::min(token_tiles, std::max(tiles, cut(token_tiles, 8)));
    }
  } else if (token_tiles > 1) {
    plan.strips_per_chunk = std::min<int64_t>(strips, 4);
  }
  plan.strip_chunks = cut(strips, plan.strips_per_chunk);
  plan.tile_chunks = cut(token_tiles, plan.tiles_per_chunk);
  return plan;
}

}  // namespace bolide
