#include "kernels/igemm_int8/pack.h"

#include <algorithm>

namespace bolide {
namespace {

constexpr int64_t kGroupBytes = 384 << 10;  // of weights that stay in a core's cache while rows pass by

constexpr Int8Engine kAvx2 = {.isa = "avx2",
                              .block = avx2::int8_block,
                              .lines = nullptr,
                              .depthwise = avx2::int8_depthwise,
                              .round = avx2::int8_round,
                              .range = avx2::int8_range,
                              .add = avx2::int8_add,
                              .open = avx2::int8_open,
                              .look_up = avx2::int8_look_up,
                              .depth = 4,
                              .columns = 64,
                              .block_rows = 48,
                              .scratch_per_byte = 0};
constexpr Int8Engine kVnni = {.isa = "vnni",
                              .block = vnni::int8_block,
                              .lines = nullptr,
                              .depthwise = vnni::int8_depthwise,
                              .round = vnni::int8_round,
                              .range = vnni::int8_range,
                              .add = vnni::int8_add,
                              .open = vnni::int8_open,
                              .look_up = vnni::int8_look_up,
                              .depth = 4,
                              .columns = 64,
                              .block_rows = 48,
                              .scratch_per_byte = 0};
constexpr Int8Engine kAmx = {.isa = "amx",
                             .block = amx::int8_block,
                             .lines = amx::int8_lines,
                             .depthwise = vnni::int8_depthwise,
                             .round = vnni::int8_round,
                             .range = vnni::int8_range,
                             .add = vnni::int8_add,
                             .open = vnni::int8_open,
                             .look_up = vnni::int8_look_up,
                             .depth = 64,
                             .columns = 32,
                             .block_rows = 64,
                             .scratch_per_byte = 96};

}  // namespace

const Int8Engine* int8_engine(const DeviceInfo& device) {
  if (device.isa >= Isa::kAmx) return &kAmx;
  if (device.isa >= Isa::kVnni) return &kVnni;
  return device.isa >= Isa::kAvx2 ? &kAvx2 : nullptr;
}

Result<PackedInt8> pack_int8(const Int8Engine& engine, int64_t n, int64_t k, const int8_t* weights, int64_t row,
                             int64_t column, uint8_t flip, TensorPool& pool) {
  PackedInt8 p;
  p.n = n, p.k = k, p.depth = padded(k, engine.depth);
  BOLIDE_TRY(p.data, Tensor::make(DType::kI8, {padded(n, 16) * p.depth}, pool));
  BOLIDE_TRY(p.sums, Tensor::make(DType::kI32, {padded(n, kInt8PanelColumns)}, pool));
  int8_t* to = p.data.mutate<int8_t>().data();
  const auto sums = p.sums.mutate<int32_t>();
  std::fill(sums.begin(), sums.end(), 0);
  for (int64_t panel = 0; panel < p.panels(); ++panel) {
    const int64_t first = panel * kInt8PanelColumns, width = int64_t{16} * p.strips(panel);
    const int64_t count = std::min(width, n - first);
    int8_t* const at = to + first * p.depth;
    for (int64_t part = 0; part < width; part += engine.columns) {  // columns that lie side by side
      const int64_t wide = std::min(engine.columns, width - part), some = std::clamp<int64_t>(count - part, 0, wide);
      for (int64_t quad = 0; quad < p.depth / 4; ++quad) {
        int8_t* const block = at + part * p.depth + quad * wide * 4;
        const int64_t depth = std::clamp<int64_t>(k - quad * 4, 0, 4);
        std::fill_n(block, wide * 4, int8_t{0});
        for (int64_t j = 0; j < depth; ++j) {
          const int8_t* const from = weights + (first + part) * row + (quad * 4 + j) * column;
          for (int64_t i = 0; i < some; ++i) {
            const auto w = static_cast<int8_t>(static_cast<uint8_t>(from[i * row]) ^ flip);
            block[i * 4 + j] = w;
            sums[static_cast<size_t>(first + part + i)] += w;
          }
        }
      }
    }
  }
  return p;
}

Result<PackedInt8> pack_int8_depthwise(int64_t channels, int64_t taps, const int8_t* weights) {
  PackedInt8 p;
  p.n = channels, p.k = taps, p.depth = padded(taps, 4);
  BOLIDE_TRY(p.data, Tensor::make(DType::kI8, {padded(channels, kInt8PanelColumns) * p.depth}));
  BOLIDE_TRY(p.sums, Tensor::make(DType::kI32, {padded(channels, kInt8PanelColumns)}));
  const auto to = p.data.mutate<int8_t>();
  const auto sums = p.sums.mutate<int32_t>();
  std::fill(to.begin(), to.end(), int8_t{0});
  std::fill(sums.begin(), sums.end(), 0);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t t = 0; t < taps; ++t) {
      // Registers of 16 channels hold, of each lane of 16 bytes of pixels, the bytes 4j to 4j + 3.
      const int64_t lane = c % 64 / 16, j = c % 16 / 4, within = c % 4;
      const int64_t at = c / 64 * 64 * p.depth + t / 4 * 256 + j * 64 + lane * 16 + within * 4 + t % 4;
      to[static_cast<size_t>(at)] = weights[c * taps + t];
      sums[static_cast<size_t>(c)] += weights[c * taps + t];
    }
  return p;
}

Int8Finish advanced(const Int8Finish& finish, int64_t row, int64_t column) {
  Int8Finish f = finish;
  const int64_t size = f.kind == Int8Finish::kSums || f.kind == Int8Finish::kF32 ? 4 : 1;
  f.offsets += column;
  if (f.scales != nullptr) f.scales += column;
  if (f.bias != nullptr) f.bias += column;
  if (f.row_sums != nullptr) f.row_sums += row, f.column_zeros += column;
  if (f.residual != nullptr) f.residual += row * f.residual_stride + column;
  f.out = static_cast<uint8_t*>(f.out) + (row * f.out_stride + column) * size;
  return f;
}

namespace {

// Rows in blocks of about `most`, and what one thread needs for the pointers of one.
struct Blocks {
  int64_t count, rows, pointers;
};
Blocks blocks_of(const Int8Job& job) {
  const int64_t most = job.engine->block_rows;
  const int64_t rows = job.rows <= most + most / 4 ? std::max<int64_t>(job.rows, 1) : most;
  return {(job.rows + rows - 1) / rows, rows, padded(rows * job.taps * 8, 64)};
}

}  // namespace

size_t Int8Job::scratch_bytes(int threads) const {
  return static_cast<size_t>(threads * (blocks_of(*this).pointers + engine->scratch_per_byte * weights->depth));
}

void run_int8(const Int8Job& job, PointAt point, uint8_t* scratch, Workers& workers) {
  const PackedInt8& w = *job.weights;
  const Blocks blocks = blocks_of(job);
  const int64_t each = blocks.pointers + job.engine->scratch_per_byte * w.depth;
  int64_t group = std::clamp<int64_t>(kGroupBytes / (kInt8PanelColumns * w.depth), 1, w.panels());
  const int64_t wanted = workers.threads() > 1 ? 4 * workers.threads() : 1;
  while (group > 1 && (w.panels() + group - 1) / group * blocks.count < wanted) group = (group + 1) / 2;
  const int64_t groups = (w.panels() + group - 1) / group;
  workers.run(groups * blocks.count, [&](int64_t chunk, int thread) {
    const int64_t row0 = chunk % blocks.count * blocks.rows, rows = std::min(blocks.rows, job.rows - row0);
    const int64_t panel0 = chunk / blocks.count * group, end = std::min(panel0 + group, w.panels());
    uint8_t* const mine = scratch + thread * each;
    auto** const pixels = reinterpret_cast<const uint8_t**>(mine);
    point(row0, rows, pixels, blocks.rows);
    Int8BlockArgs args;
    args.pixels = pixels, args.pixel_stride = blocks.rows;
    args.rows = rows, args.taps = job.taps, args.quads = job.quads, args.flip = job.flip;
    args.scratch = mine + blocks.pointers;
    args.scratch_ready = false;
    for (int64_t panel = panel0; panel < end; ++panel) {
      const int64_t column = panel * kInt8PanelColumns;
      args.weights = w.panel(panel), args.strips = w.strips(panel);
      args.columns = std::min<int64_t>(kInt8PanelColumns, w.n - column);
      args.finish = advanced(job.finish, row0, column);
      job.engine->block(args);
      args.scratch_ready = true;
    }
  });
}

void run_int8_lines(const Int8LinesJob& job, Workers& workers) {
  constexpr int64_t kBlock = 32, kBlocksMost = 8;
  const PackedInt8& w = *job.weights;
  const int64_t blocks = (job.image.positions + kBlock - 1) / kBlock;
  int64_t parts = (blocks + kBlocksMost - 1) / kBlocksMost;  // of an image
  int64_t group = std::clamp<int64_t>(kGroupBytes / (kInt8PanelColumns * w.depth), 1, w.panels());
  const auto chunks = [&] { return job.images * parts * ((w.panels() + group - 1) / group); };
  const int64_t wanted = workers.threads() > 1 ? 4 * workers.threads() : 1;
  while (group > 1 && chunks() < wanted) group = (group + 1) / 2;
  while (parts < blocks && chunks() < wanted) parts = std::min(blocks, parts * 2);
  const int64_t each = (blocks + parts - 1) / parts * kBlock;
  parts = (job.image.positions + each - 1) / each;
  workers.run(chunks(), [&](int64_t chunk, int) {
    const int64_t part = chunk % parts, image = chunk / parts % job.images, panel = chunk / parts / job.images * group;
    Int8LinesArgs args = job.image;
    args.base += image * job.image_stride;
    args.first = part * each, args.end = std::min(args.first + each, args.positions);
    args.weights = w.panel(panel), args.depth = w.depth, args.panels = std::min(group, w.panels() - panel);
    args.columns = std::min(w.n - panel * kInt8PanelColumns, args.panels * kInt8PanelColumns);
    args.finish = advanced(job.finish, image * job.results, panel * kInt8PanelColumns);
    job.engine->lines(args);
  });
}

void run_int8_depthwise(const Int8Job& job, PointAt point, uint8_t* scratch, Workers& workers) {
  const PackedInt8& w = *job.weights;
  const Blocks blocks = blocks_of(job);
  const int64_t each = blocks.pointers + job.engine->scratch_per_byte * w.depth;
  workers.run(blocks.count, [&](int64_t chunk, int thread) {
    const int64_t row0 = chunk * blocks.rows, rows = std::min(blocks.rows, job.rows - row0);
    auto** const pixels = reinterpret_cast<const uint8_t**>(scratch + thread * each);
    point(row0, rows, pixels, blocks.rows);
    Int8DepthwiseArgs args;
    args.pixels = pixels, args.pixel_stride = blocks.rows;
    args.rows = rows, args.taps = job.taps, args.flip = job.flip;
    for (int64_t panel = 0; panel < w.panels(); ++panel) {
      args.channel = panel * kInt8PanelColumns;
      args.weights = w.panel(panel);
      args.columns = std::min<int64_t>(kInt8PanelColumns, w.n - args.channel);
      args.finish = advanced(job.finish, row0, args.channel);
      job.engine->depthwise(args);
    }
  });
}

}  // namespace bolide
