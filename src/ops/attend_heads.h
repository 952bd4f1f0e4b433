// What prepared attention ops share: masks as a bias of the scores, caches that grow, heads cut into tasks of
// kernels/panels.
#pragma once

#include <vector>

#include "kernels/panels/panels.h"
#include "kernels/rows/rows.h"
#include "ops/attend.h"

namespace bolide {

// What is added to scores [B, H, S, L]: a tensor of the node, or one that was made of its masks.
struct ScoreBias {
  Tensor made;
  const float* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;

  const float* at(int64_t b, int64_t h) const { return data == nullptr ? nullptr : data + b * batch + h * head; }
};
// Inputs `mask` and `bias` of com.microsoft's ops.
Result<ScoreBias> microsoft_bias(const RunContext& c, size_t mask, size_t bias, const Shape& scores);

// Heads over f32, with f32 sums.
struct HeadsCase {
  int64_t B = 0, H = 0, G = 0, S = 0, L = 0, D = 0, Dv = 0;
  Heads<const float> q, k, v;
  Heads<float> out;
  float scale = 1, softcap = 0;           // 0: no cap
  int64_t seen = int64_t{1} << 60;        // keys that the first query sees; each further one sees one more
  int64_t window = 0;                     // and of those the last so many; 0: all
  const float* sinks = nullptr;           // [H]: scores of keys without values; null: none
  std::vector<int64_t> seen_of, keys_of;  // `seen` and `L` of each sequence, where they differ; keys_of is at most L
};
Result<> attend_all(const RunContext& c, const isa::PanelFunctions& panels, const HeadsCase& a, const ScoreBias& bias);

// Which keys the queries see: query i of a sequence is at `at` + i among its keys, and sees `left` before that and
// `right` after it; -1: all. Sets window; the result is `seen`.
int64_t set_window(HeadsCase& a, int64_t at, int64_t left, int64_t right);

// past [B, G, P, D], null if P is 0, and `now` [B, G, L, D], with a bias [G * D] or null, as to [B, G, P + L, D].
void append_rows(Workers& workers, const isa::RowFunctions& rows, const float* past, int64_t P,
                 const Heads<const float>& now, const float* bias, int64_t B, int64_t G, int64_t L, int64_t D,
                 float* to);

Result<float> scale_of(const Attributes& attributes, int64_t D, bool zero_is_none);

}  // namespace bolide
