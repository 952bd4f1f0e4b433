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
constexpr int64_t kRunsDepthMax = 1664;           // the same where A is read as it lies: 208 KB
constexpr int64_t kKeptFloatsMax = 112 * 1024;    // of B that stay in L2: 448 KB
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

// How the products are cut: along M into blocks of units, along N into blocks of strips; a chunk is one of each.
class Plan {
 public:
  Plan(const Functions& functions, const Products& products, int threads) : f_(functions), p_(products) {
    const Windows* w = p_.windows;
    if (w != nullptr)
      reads_ = reads_lines(*w) ? Reads::kLines : Reads::kPackedWindows;
    else if (!p_.parts.empty())
      reads_ = Reads::kParts;
    else
      reads_ = collides(p_.a_stride) && p_.N >= 4 * kStrip ? Reads::kPackedRows : Reads::kRows;
    strips_ = ceil_div(p_.N, kStrip);
    int64_t units_max = 0;  // of a block
    if (reads_ == Reads::kLines) {
      run_ = w->kernel[1] * w->channels;
      passes_ = ceil_div(w->kernel[0], std::max<int64_t>(1, kRunsDepthMax / run_));
      row_tiles_ = ceil_div(w->width_out, f_.tile_rows);
      units_ = p_.M / w->width_out;
      units_max = lines_max(*w);
    } else {
      passes_ = reads_ == Reads::kParts ? 1 : std::max<int64_t>(1, ceil_div(p_.K, kDepthMax));
      units_ = ceil_div(p_.M, f_.tile_rows);
      units_max = std::max<int64_t>(1, kPackedFloatsMax / packed_stride(ceil_div(p_.K, passes_)) / f_.tile_rows);
    }
    cut(units_max, threads);
    switch (p_.activation) {
      case Activation::kNone: break;
      case Activation::kRelu: low_ = 0; break;
      case Activation::kClip: low_ = p_.alpha, high_ = p_.beta; break;
      default: activates_ = true;
    }
  }

  int64_t chunks() const { return static_cast<int64_t>(p_.items.size()) * row_blocks_ * column_blocks_; }

  void run(int64_t chunk) const {
    const Item& item = p_.items[static_cast<size_t>(chunk / (row_blocks_ * column_blocks_))];
    const int64_t row_block = chunk / column_blocks_ % row_blocks_, column_block = chunk % column_blocks_;
    const Range units{part(units_, row_blocks_, row_block), part(units_, row_blocks_, row_block + 1)};
    const Range strips{part(strips_, column_blocks_, column_block), part(strips_, column_blocks_, column_block + 1)};
    reads_ == Reads::kLines ? run_lines(item, units, strips) : run_tiles(item, units, strips);
  }

 private:
  enum class Reads : uint8_t {
    kRows,           // A as it lies
    kParts,          // the same of several parts
    kPackedRows,     // copies of its rows
    kPackedWindows,  // copies of windows
    kLines,          // lines of the image with their padding, in which windows of neighbouring outputs overlap
  };
  struct Range {
    int64_t first, last;
  };

  // An odd number of cache lines, so that rows lie in different sets of L1.
  static int64_t packed_stride(int64_t depth) { return (ceil_div(depth, 16) | 1) * 16; }

  static int64_t line_size(const Windows& w) { return ((w.width_out - 1) * w.stride[1] + w.kernel[1]) * w.channels; }
  static int64_t lines_read(const Windows& w, int64_t lines) {
    return (lines - 1) * w.stride[0] + (w.kernel[0] - 1) * w.dilation[0] + 1;
  }
  // Lines of outputs whose inputs fit the scratch memory.
  static int64_t lines_max(const Windows& w) {
    const int64_t rest = kPackedFloatsMax / line_size(w) - lines_read(w, 1);
    return rest < 0 ? 0 : rest / w.stride[0] + 1;
  }
  bool reads_lines(const Windows& w) const {
    return w.channels > 0 && w.dilation[1] == 1 && 2 * w.width_out > f_.tile_rows + 1 &&
           !collides(w.stride[1] * w.channels) && lines_max(w) > 0;
  }

  void cut(int64_t units_max, int threads) {
    const int64_t blocks_min = ceil_div(units_, units_max);
    // Chunks that are worth their start, as many for each thread.
    const auto items = static_cast<int64_t>(p_.items.size());
    const int64_t work = items * p_.M * p_.N * std::max<int64_t>(p_.K, 1);
    const int64_t wanted = threads == 1 ? 1 : std::clamp(work / kChunkWork, int64_t{1}, threads * kChunksPerThread);
    const int64_t each = ceil_div(wanted, items);
    // Rows are cut first while B is small: each chunk reads all columns of its part. What is packed of A is packed for
    // each block of columns again.
    const bool wide = p_.K * p_.N > (int64_t{1} << 18) && p_.N > p_.M;
    const bool packs = reads_ == Reads::kPackedRows || reads_ == Reads::kPackedWindows;
    const int64_t strips_min = packs ? 4 : 2;
    const int64_t columns_max = std::max<int64_t>(1, strips_ / strips_min);
    if (wide) {
      column_blocks_ = std::clamp(each, int64_t{1}, columns_max);
      row_blocks_ = std::min(units_, std::max(blocks_min, ceil_div(each, column_blocks_)));
    } else {
      row_blocks_ = std::min(units_, std::max(blocks_min, each));
      column_blocks_ = std::clamp(ceil_div(each, row_blocks_), int64_t{1}, columns_max);
    }
    if (threads > 1 && row_blocks_ > 1) row_blocks_ = std::min(units_, ceil_div(row_blocks_, threads) * threads);
  }

  // Units are tiles of nearly as many rows each.
  void run_tiles(const Item& item, Range tiles, Range strips) const {
    const int64_t m0 = part(p_.M, units_, tiles.first), m1 = part(p_.M, units_, tiles.last);
    for (int64_t pass = 0; pass < passes_; ++pass) {
      const int64_t k0 = part(p_.K, passes_, pass), k1 = part(p_.K, passes_, pass + 1);
      Tile t;
      t.a_stride = p_.a_stride, t.run = k1 - k0;
      const float* a =
          reads_ == Reads::kRows || reads_ == Reads::kPackedRows ? item.a + k0 + m0 * p_.a_stride : nullptr;
      if (reads_ == Reads::kParts) {
        t.parts = p_.parts.data(), t.runs = static_cast<int64_t>(p_.parts.size());
      } else if (reads_ != Reads::kRows) {
        t.a_stride = packed_stride(k1 - k0);
        float* const to = scratch();
        if (reads_ == Reads::kPackedWindows)
          f_.pack_windows(*p_.windows, item.a, m0, m1 - m0, k0, k1 - k0, to, t.a_stride);
        else
          f_.pack_rows(a, p_.a_stride, m1 - m0, k1 - k0, to, t.a_stride);
        a = to;
      }
      const auto set_rows = [&](int64_t i, bool asks) {
        const int64_t m = part(p_.M, units_, i), next = part(p_.M, units_, i + 1);
        t.row = m;
        if (t.parts == nullptr) t.a = a + (m - m0) * t.a_stride;
        t.next_a = asks && i + 1 < tiles.last ? a + (next - m0) * t.a_stride : nullptr;
        return Range{m, next};
      };
      if (keeps_b()) {
        for (int64_t i = tiles.first; i < tiles.last; ++i)
          for (int64_t s = strips.first; s < strips.last; s += f_.tile_strips) {
            begin_columns(item, s, strips.last, {k0, k1}, t);
            const Range m = set_rows(i, reads_ == Reads::kRows && s == strips.first);
            tile(item, s, m.first, m.last - m.first, t);
          }
        continue;
      }
      for (int64_t s = strips.first; s < strips.last; s += f_.tile_strips) {
        begin_columns(item, s, strips.last, {k0, k1}, t);
        const Ahead ahead = after(item, s, {k0, k1}, tiles.last - tiles.first);
        for (int64_t i = tiles.first; i < tiles.last; ++i) {
          const Range m = set_rows(i, reads_ == Reads::kRows && s == strips.first);
          ahead.of(i - tiles.first, t);
          tile(item, s, m.first, m.last - m.first, t);
        }
      }
    }
  }

  // Units are lines of outputs.
  void run_lines(const Item& item, Range lines, Range strips) const {
    const Windows& w = *p_.windows;
    while (lines.first < lines.last) {  // of one image after the other
      const int64_t image = lines.first / w.height_out, first = lines.first % w.height_out;
      const int64_t count = std::min(lines.last - lines.first, w.height_out - first);
      const float* a = item.a + image * w.image_stride();
      const int64_t y0 = first * w.stride[0] - w.begin[0];
      int64_t line = w.width * w.pixel_stride;
      const int64_t y1 = y0 + lines_read(w, count), x1 = (w.width_out - 1) * w.stride[1] + w.kernel[1];
      if (y0 >= 0 && y1 <= w.height && w.begin[1] == 0 && x1 <= w.width && w.pixel_stride == w.channels) {
        a += y0 * line;
      } else {
        line = line_size(w);
        float* const to = scratch();
        f_.pack_lines(w, a, y0, y1 - y0, line, to);
        a = to;
      }
      run_lines(item, {image, first, count, line, a}, strips);
      lines.first += count;
    }
  }

  struct Lines {
    int64_t image, first, count;  // of outputs
    int64_t stride;               // of the lines read
    const float* a;               // what the first window reads
  };
  void run_lines(const Item& item, const Lines& lines, Range strips) const {
    const Windows& w = *p_.windows;
    for (int64_t pass = 0; pass < passes_; ++pass) {
      const int64_t r0 = part(w.kernel[0], passes_, pass), r1 = part(w.kernel[0], passes_, pass + 1);
      Tile t;
      t.a_stride = w.stride[1] * w.channels;
      t.run = run_, t.runs = r1 - r0, t.a_run_stride = w.dilation[0] * lines.stride;
      const Range k{r0 * run_, r1 * run_};
      const auto set_rows = [&](int64_t i) {
        const int64_t y = i / row_tiles_, x = part(w.width_out, row_tiles_, i % row_tiles_);
        const int64_t m = (lines.image * w.height_out + lines.first + y) * w.width_out;
        t.a = lines.a + y * w.stride[0] * lines.stride + r0 * t.a_run_stride + x * t.a_stride;
        return Range{m + x, m + part(w.width_out, row_tiles_, i % row_tiles_ + 1)};
      };
      const int64_t tiles = lines.count * row_tiles_;
      if (keeps_b()) {
        for (int64_t i = 0; i < tiles; ++i)
          for (int64_t s = strips.first; s < strips.last; s += f_.tile_strips) {
            begin_columns(item, s, strips.last, k, t);
            const Range m = set_rows(i);
            tile(item, s, m.first, m.last - m.first, t);
          }
        continue;
      }
      for (int64_t s = strips.first; s < strips.last; s += f_.tile_strips) {
        begin_columns(item, s, strips.last, k, t);
        const Ahead ahead = after(item, s, k, tiles);
        for (int64_t i = 0; i < tiles; ++i) {
          const Range m = set_rows(i);
          ahead.of(i, t);
          tile(item, s, m.first, m.last - m.first, t);
        }
      }
    }
  }

  // B stays in L2 as a whole: then a tile's rows meet all columns one after the other, and A and C are gone through
  // once. Else columns meet all rows of the block.
  bool keeps_b() const { return passes_ == 1 && p_.K * p_.N <= kKeptFloatsMax; }

  // The next strips' part of K, which the tiles before them ask for, each an equal part of it.
  struct Ahead {
    static constexpr int64_t kPartsMax = 16;
    const float* b = nullptr;  // null: there are none
    int64_t depth = 0, parts = 1;

    void of(int64_t tile, Tile& t) const {
      const bool any = b != nullptr && tile < parts;
      t.next_b = any ? b + tile * (depth * kStrip / parts) : t.b;
      t.next_b_step = any ? kStrip * static_cast<int64_t>(sizeof(float)) / parts : 0;
    }
  };
  Ahead after(const Item& item, int64_t strip, Range k, int64_t tiles) const {
    const int64_t next = strip + f_.tile_strips;
    if (next >= strips_) return {};
    return {item.strips + (next * p_.K + k.first) * kStrip, k.last - k.first, std::min(tiles, Ahead::kPartsMax)};
  }

  // What tiles of the strips from `strip` on share, for a part of K.
  void begin_columns(const Item& item, int64_t strip, int64_t strips_end, Range k, Tile& t) const {
    const int64_t count = std::min<int64_t>(f_.tile_strips, strips_end - strip);
    t.next_b = t.b = item.strips + (strip * p_.K + k.first) * kStrip, t.b_stride = p_.K * kStrip;
    t.c_stride = p_.c_stride, t.columns = std::min(p_.N - strip * kStrip, count * kStrip);
    t.adds = k.first > 0, t.ends = k.last == p_.K;
    t.bias = item.bias == nullptr ? nullptr : item.bias + strip * kStrip;
    t.residual_stride = p_.residual_stride, t.low = low_, t.high = high_;
  }

  // Rows [m, m + rows).
  void tile(const Item& item, int64_t strip, int64_t m, int64_t rows, Tile& t) const {
    const int64_t n = strip * kStrip;
    t.c = item.c + m * p_.c_stride + n;
    t.residual = item.residual == nullptr ? nullptr : item.residual + m * p_.residual_stride + n;
    f_.tiles[t.columns > kStrip ? 1 : 0][rows - 1](t);
    if (t.ends && activates_)
      f_.activate(p_.activation, p_.alpha, p_.beta, {t.c, p_.c_stride, t.c, p_.c_stride, rows, t.columns});
  }

  const Functions& f_;
  const Products& p_;
  Reads reads_ = Reads::kRows;
  int64_t passes_ = 1;  // along K
  int64_t units_ = 0, row_blocks_ = 1;
  int64_t strips_ = 0, column_blocks_ = 1;
  int64_t run_ = 0, row_tiles_ = 0;  // lines: of K, and tiles of a line of outputs
  float low_ = -std::numeric_limits<float>::infinity(), high_ = std::numeric_limits<float>::infinity();
  bool activates_ = false;  // by a pass of its own over each tile
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
  functions_of(isa).activate(activation, alpha, beta, {x, count, y, count, 1, count});
}

}  // namespace bolide::igemm
