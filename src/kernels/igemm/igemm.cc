#include "kernels/igemm/igemm.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <new>

#include "base/check.h"
#include "kernels/igemm/igemm_isa.h"

namespace bolide::igemm {
namespace {

constexpr int64_t kDepthMax = 768;                // of K a pass: 32 columns of B are 96 KB
constexpr int64_t kPackedFloatsMax = 96 * 1024;   // of A a thread packs at a time: 384 KB, which leave room in L2 for B
constexpr int64_t kChunkWork = int64_t{2} << 20;  // multiplications that are worth a chunk: some 30 us
constexpr int64_t kChunksPerThread = 4;           // so that threads that are held up do not hold up the others

const Functions& functions_of(Isa isa) {
  BOLIDE_CHECK(supports(isa), "{}", to_string(isa));
  return isa >= Isa::kAvx512 ? kAvx512 : kAvx2;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Part i of `parts` nearly equal ones of `count` begins here.
constexpr int64_t part(int64_t count, int64_t parts, int64_t i) {
  return count / parts * i + std::min(i, count % parts);
}

struct Free {
  void operator()(float* p) const { ::operator delete(p, std::align_val_t{64}); }
};
// Memory of this thread for packed rows.
float* scratch() {
  static thread_local std::unique_ptr<float, Free> memory;
  constexpr int64_t kFloats = kPackedFloatsMax;
  if (memory == nullptr)
    memory.reset(static_cast<float*>(::operator new(kFloats * sizeof(float), std::align_val_t{64})));
  return memory.get();
}

// Rows whose distance is near a multiple of a page compete for the same lines of L1.
bool collides(int64_t stride) {
  const int64_t rest = stride % 1024;
  return stride >= 1024 - 16 && (rest < 16 || rest > 1024 - 16);
}

struct Plan {
  const Functions& f;
  const Products& p;
  bool packs = false;
  int64_t depths = 1, depth = 0;      // passes along K, and the longest of them
  int64_t tiles = 0, row_blocks = 1;  // of rows
  int64_t strips = 0, column_blocks = 1;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  bool activates = false;  // by a pass of its own

  Plan(const Functions& functions, const Products& products, int threads) : f(functions), p(products) {
    packs = p.windows != nullptr || (collides(p.a_stride) && p.N >= 4 * kStrip);
    depths = std::max<int64_t>(1, ceil_div(p.K, kDepthMax));
    depth = ceil_div(p.K, depths);
    tiles = ceil_div(p.M, f.tile_rows);
    strips = ceil_div(p.N, kStrip);
    const int64_t rows_max = std::max<int64_t>(f.tile_rows, kPackedFloatsMax / packed_stride(depth));
    const int64_t blocks_min = ceil_div(tiles, rows_max / f.tile_rows);
    // Chunks that are worth their start, as many for each thread.
    const auto items = static_cast<int64_t>(p.items.size());
    const int64_t work = items * p.M * p.N * std::max<int64_t>(p.K, 1);
    const int64_t wanted = threads == 1 ? 1 : std::clamp(work / kChunkWork, int64_t{1}, threads * kChunksPerThread);
    const int64_t each = ceil_div(wanted, items);
    // Rows are cut first while B is small: each chunk reads all columns of its part. A's parts are packed for each part
    // of the columns again.
    const bool wide = p.K * p.N > (int64_t{1} << 18) && p.K * p.N > p.M * p.K;
    const int64_t strips_min = packs ? 4 : 2;
    if (wide) {
      column_blocks = std::clamp(each, int64_t{1}, std::max<int64_t>(1, strips / strips_min));
      row_blocks = std::min(tiles, std::max(blocks_min, ceil_div(each, column_blocks)));
    } else {
      row_blocks = std::min(tiles, std::max(blocks_min, each));
      column_blocks = std::clamp(ceil_div(each, row_blocks), int64_t{1}, std::max<int64_t>(1, strips / strips_min));
    }
    if (threads > 1 && row_blocks > 1 && row_blocks < tiles)
      row_blocks = std::min(tiles, ceil_div(row_blocks, threads) * threads);
    switch (p.activation) {
      case Activation::kNone: break;
      case Activation::kRelu: low = 0; break;
      case Activation::kClip: low = p.alpha, high = p.beta; break;
      default: activates = true;
    }
  }

  int64_t chunks() const { return static_cast<int64_t>(p.items.size()) * row_blocks * column_blocks; }

  void run(int64_t chunk) const {
    const Item& item = p.items[static_cast<size_t>(chunk / (row_blocks * column_blocks))];
    const int64_t row_block = chunk / column_blocks % row_blocks, column_block = chunk % column_blocks;
    // Tiles of nearly as many rows each.
    const int64_t tile0 = part(tiles, row_blocks, row_block), tile1 = part(tiles, row_blocks, row_block + 1);
    const int64_t strip0 = part(strips, column_blocks, column_block);
    const int64_t strip1 = part(strips, column_blocks, column_block + 1);
    const int64_t m0 = part(p.M, tiles, tile0), m1 = part(p.M, tiles, tile1);
    for (int64_t pass = 0; pass < depths; ++pass) {
      const int64_t k0 = part(p.K, depths, pass), k1 = part(p.K, depths, pass + 1);
      const float* a = item.a + k0 + m0 * p.a_stride;
      int64_t a_stride = p.a_stride;
      if (packs) {
        a_stride = packed_stride(k1 - k0);
        float* const to = scratch();
        if (p.windows != nullptr)
          f.pack_windows(*p.windows, item.a, m0, m1 - m0, k0, k1 - k0, to, a_stride);
        else
          f.pack_rows(a, p.a_stride, m1 - m0, k1 - k0, to, a_stride);
        a = to;
      }
      for (int64_t s = strip0; s < strip1; s += f.tile_strips)
        columns(item, s, std::min<int64_t>(f.tile_strips, strip1 - s), {tile0, tile1}, {k0, k1}, a, a_stride);
    }
  }

  // An odd number of lines, so that rows lie in different sets of L1.
  static int64_t packed_stride(int64_t depth) {
    return ceil_div(depth, 16) % 2 == 1 ? ceil_div(depth, 16) * 16 : (ceil_div(depth, 16) + 1) * 16;
  }

  struct Range {
    int64_t first, last;
  };
  void columns(const Item& item, int64_t strip, int64_t count, Range tile, Range k, const float* a,
               int64_t a_stride) const {
    const int64_t n = strip * kStrip, first = part(p.M, tiles, tile.first);
    const bool ends = k.last == p.K;
    Tile t;
    t.a_stride = a_stride, t.run = k.last - k.first;
    t.b = item.strips + (strip * p.K + k.first) * kStrip, t.b_stride = p.K * kStrip;
    t.c_stride = p.c_stride, t.columns = std::min(p.N - n, count * kStrip);
    t.adds = k.first > 0, t.ends = ends;
    t.bias = item.bias == nullptr ? nullptr : item.bias + n;
    t.residual_stride = p.residual_stride, t.low = low, t.high = high;
    const TileFunction* const functions = f.tiles[count - 1];
    for (int64_t i = tile.first; i < tile.last; ++i) {
      const int64_t m = part(p.M, tiles, i), rows = part(p.M, tiles, i + 1) - m;
      t.a = a + (m - first) * a_stride;
      t.c = item.c + m * p.c_stride + n;
      t.residual = item.residual == nullptr ? nullptr : item.residual + m * p.residual_stride + n;
      functions[rows - 1](t);
      if (ends && activates)
        for (int64_t r = 0; r < rows; ++r) {
          float* const row = t.c + r * p.c_stride;
          f.activate(p.activation, p.alpha, p.beta, row, row, t.columns);
        }
    }
  }
};

}  // namespace

void pack_strips(Isa isa, const float* b, int64_t row_stride, int64_t column_stride, int64_t K, int64_t N,
                 int64_t first, int64_t last, float* strips, float scale) {
  const Functions& f = functions_of(isa);
  for (int64_t s = first; s < last; ++s)
    f.pack_strip(b + s * kStrip * column_stride, row_stride, column_stride, K, std::min(kStrip, N - s * kStrip), scale,
                 strips + s * K * kStrip);
}

void multiply(Workers& workers, Isa isa, const Products& products) {
  if (products.M <= 0 || products.N <= 0 || products.items.empty()) return;
  const Plan plan(functions_of(isa), products, workers.threads());
  workers.run(plan.chunks(), [&](int64_t chunk, int) { plan.run(chunk); });
}

void activate(Isa isa, Activation activation, float alpha, float beta, const float* x, float* y, int64_t count) {
  functions_of(isa).activate(activation, alpha, beta, x, y, count);
}

}  // namespace bolide::igemm
