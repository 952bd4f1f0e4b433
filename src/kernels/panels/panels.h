// Batched products of activations, and attention, in f32: panels_isa.h's functions cut into chunks for the pool.
//
// Thread rules: pure; workspace belongs to one call.
#pragma once

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/function_ref.h"
#include "base/workers.h"
#include "kernels/panels/panels_isa.h"

namespace bolide {

// Null: none for this level.
const isa::PanelFunctions* panel_functions(Isa isa);

// One product of a batch: out [m, n] = alpha a b; element (i, j) of b at b[i * b_row + j * b_column].
struct PanelProduct {
  const float* a = nullptr;
  int64_t a_stride = 0;
  const float* b = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
};
struct PanelBatch {
  int64_t count = 0, m = 0, n = 0, k = 0;
  int64_t b_row = 0, b_column = 0;
  float alpha = 1;
};
size_t panel_workspace(const isa::PanelFunctions& panels, const PanelBatch& batch, int threads);
void multiply_panels(const isa::PanelFunctions& panels, const PanelBatch& batch,
                     FunctionRef<PanelProduct(int64_t)> product, MutableBytes workspace, Workers& workers);

// Heads of a batch, each with queries of its own; out, q, k and v of head h of sequence b come from `task`, whose rows
// are all of the queries. Chunks take a part of them.
struct HeadsShape {
  int64_t batch = 0, heads = 0;
};
size_t attend_workspace(const isa::PanelFunctions& panels, const isa::AttendTask& shape, int threads);
void attend_heads(const isa::PanelFunctions& panels, const HeadsShape& shape,
                  FunctionRef<isa::AttendTask(int64_t b, int64_t h)> task, MutableBytes workspace, Workers& workers);

}  // namespace bolide
