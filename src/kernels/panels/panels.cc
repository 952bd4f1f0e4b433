#include "kernels/panels/panels.h"

#include <algorithm>

namespace bolide {
namespace {

constexpr int64_t kChunkFlops = 1 << 18;  // multiply-adds worth handing out

int64_t cut(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
size_t panel_bytes(const isa::PanelFunctions& panels, int64_t k) {
  return static_cast<size_t>(k) * static_cast<size_t>(panels.panel) * sizeof(float);
}

}  // namespace

const isa::PanelFunctions* panel_functions(Isa isa) {
  if (isa >= Isa::kAvx512) return &isa::kPanelsAvx512;
  return isa >= Isa::kAvx2 ? &isa::kPanelsAvx2 : nullptr;
}

size_t panel_workspace(const isa::PanelFunctions& panels, const PanelBatch& batch, int threads) {
  return static_cast<size_t>(threads) * panel_bytes(panels, batch.k);
}

void multiply_panels(const isa::PanelFunctions& panels, const PanelBatch& batch,
                     FunctionRef<PanelProduct(int64_t)> product, MutableBytes workspace, Workers& workers) {
  const int64_t width = panels.panel, pieces = cut(batch.n, width);
  if (batch.m < 1 || batch.n < 1) return;
  // A unit is one panel with all rows, or with some where there are few panels.
  int64_t row_chunks = 1;
  if (batch.count * pieces < 2 * workers.threads() && workers.threads() > 1)
    row_chunks = std::clamp<int64_t>(batch.m / 48, 1, cut(int64_t{4} * workers.threads(), batch.count * pieces));
  const int64_t rows_per_chunk = cut(cut(batch.m, row_chunks), 6) * 6;
  row_chunks = cut(batch.m, rows_per_chunk);
  const int64_t units = batch.count * pieces * row_chunks;
  const int64_t unit_work = std::max<int64_t>(1, rows_per_chunk * width * std::max<int64_t>(batch.k, 1));
  const int64_t together = std::max<int64_t>(1, kChunkFlops / unit_work);
  workers.run(cut(units, together), [&](int64_t chunk, int thread) {
    auto* panel =
        reinterpret_cast<float*>(workspace.data() + static_cast<size_t>(thread) * panel_bytes(panels, batch.k));
    for (int64_t unit = chunk * together; unit < std::min(units, (chunk + 1) * together); ++unit) {
      const int64_t first = unit % row_chunks * rows_per_chunk, piece = unit / row_chunks % pieces;
      const int64_t rows = std::min(rows_per_chunk, batch.m - first);
      const int64_t column = piece * width, count = std::min(width, batch.n - column);
      const PanelProduct p = product(unit / row_chunks / pieces);
      panels.pack(p.b + column * batch.b_column, batch.b_row, batch.b_column, batch.k, count, panel);
      panels.multiply(p.a + first * p.a_stride, p.a_stride, rows, panel, batch.k, batch.alpha,
                      p.out + first * p.out_stride + column, p.out_stride, count);
    }
  });
}

size_t attend_workspace(const isa::PanelFunctions& panels, const isa::AttendTask& shape, int threads) {
  return static_cast<size_t>(threads) * round_up(static_cast<size_t>(panels.attend_scratch(shape)) * sizeof(float), 64);
}

void attend_heads(const isa::PanelFunctions& panels, const HeadsShape& shape,
                  FunctionRef<isa::AttendTask(int64_t b, int64_t h)> task, MutableBytes workspace, Workers& workers) {
  const int64_t units = shape.batch * shape.heads;
  if (units < 1) return;
  const isa::AttendTask any = task(0, 0);
  if (any.rows < 1) return;
  const size_t per_thread = workspace.size() / static_cast<size_t>(workers.threads()) / 64 * 64;
  int64_t row_chunks = 1;
  if (workers.threads() > 1 && units < 4 * workers.threads())
    row_chunks = std::clamp<int64_t>(any.rows / 48, 1, cut(int64_t{4} * workers.threads(), units));
  const int64_t rows_per_chunk = cut(cut(any.rows, row_chunks), 6) * 6;
  row_chunks = cut(any.rows, rows_per_chunk);
  const int64_t work = rows_per_chunk * any.keys * (any.dim + any.value_dim);
  const int64_t together = std::max<int64_t>(1, kChunkFlops / std::max<int64_t>(1, work));
  workers.run(cut(units * row_chunks, together), [&](int64_t chunk, int thread) {
    for (int64_t i = chunk * together; i < std::min(units * row_chunks, (chunk + 1) * together); ++i) {
      isa::AttendTask t = task(i / row_chunks / shape.heads, i / row_chunks % shape.heads);
      const int64_t first = i % row_chunks * rows_per_chunk;
      t.rows = std::min(rows_per_chunk, t.rows - first);
      t.q += first * t.q_stride, t.out += first * t.out_stride;
      if (t.bias != nullptr) t.bias += first * t.bias_stride;
      if (t.seen < t.keys || t.window > 0) t.seen += first;
      if (t.sinks != nullptr) t.sinks += first * t.sinks_stride;
      t.scratch = reinterpret_cast<float*>(workspace.data() + static_cast<size_t>(thread) * per_thread);
      panels.attend(t);
    }
  });
}

}  // namespace bolide
