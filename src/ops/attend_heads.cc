#include "ops/attend_heads.h"

#include <algorithm>
#include <cmath>

#include "ops/dense.h"
#include "ops/microsoft_mask.h"
#include "ops/prepared_rows.h"

namespace bolide {

Result<ScoreBias> microsoft_bias(const RunContext& c, size_t mask, size_t bias, const Shape& scores) {
  ScoreBias to;
  if (!c.has(mask) && !c.has(bias)) return to;
  const int64_t B = scores[0], H = scores[1], S = scores[2], L = scores[3];
  const Tensor* plain = f32_at(c, bias);
  const auto fits = [&](int axis) { return plain->dim(axis) == 1 || plain->dim(axis) == scores[axis]; };
  if (!c.has(mask) && plain != nullptr && plain->rank() == 4 && fits(0) && fits(1) && fits(2) && plain->dim(3) >= L) {
    const Shape& shape = plain->shape();
    to.made = *plain, to.data = plain->as<float>().data();
    to.row = shape[2] == 1 ? 0 : shape[3];
    to.head = shape[1] == 1 ? 0 : shape[2] * shape[3];
    to.batch = shape[0] == 1 ? 0 : shape[1] * shape[2] * shape[3];
    return to;
  }
  BOLIDE_TRY(const KeyMask masks, KeyMask::read(c, mask, bias, scores));
  const int64_t heads = masks.bias_head != 0 ? H : 1, rows = masks.bias_row != 0 || masks.rows > 1 ? S : 1;
  BOLIDE_TRY(product_of(std::array{B, heads, rows, L}));
  BOLIDE_TRY(to.made, make_wide<float>(c, {B, heads, rows, L}));
  float* row = to.made.mutate<float>().data();
  to.data = row;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < rows; ++i, row += L) masks.write<float>(b, h, i, L, row);
  to.row = rows == 1 ? 0 : L, to.head = heads == 1 ? 0 : rows * L, to.batch = heads * rows * L;
  return to;
}

Result<> attend_all(const RunContext& c, const isa::PanelFunctions& panels, const HeadsCase& a, const ScoreBias& bias) {
  const int64_t each = a.H / std::max<int64_t>(1, a.G);
  const auto keys_of = [&](int64_t b) { return a.keys_of.empty() ? a.L : a.keys_of[static_cast<size_t>(b)]; };
  const auto seen_of = [&](int64_t b) { return a.seen_of.empty() ? a.seen : a.seen_of[static_cast<size_t>(b)]; };
  const auto of_head = [&](int64_t b, int64_t h) {
    const int64_t g = h / each;
    return isa::AttendTask{.q = a.q.at(b, h, 0),
                           .q_stride = a.q.row,
                           .k = a.k.at(b, g, 0),
                           .k_stride = a.k.row,
                           .v = a.v.at(b, g, 0),
                           .v_stride = a.v.row,
                           .out = a.out.at(b, h, 0),
                           .out_stride = a.out.row,
                           .rows = a.S,
                           .keys = keys_of(b),
                           .dim = a.D,
                           .value_dim = a.Dv,
                           .scale = a.scale,
                           .bias = bias.at(b, h),
                           .bias_stride = bias.row,
                           .seen = a.window > 0 ? seen_of(b) : std::min(seen_of(b), keys_of(b)),
                           .window = a.window,
                           .softcap = a.softcap,
                           .sinks = a.sinks == nullptr ? nullptr : a.sinks + h,
                           .sinks_stride = 0,
                           .scratch = nullptr};
  };
  // One query each: the heads that share keys are the rows of one task, and what they do not see is left out.
  const auto of_group = [&](int64_t b, int64_t g) {
    isa::AttendTask t = of_head(b, g * each);
    t.rows = each;
    t.q_stride = a.q.head, t.out_stride = a.out.head, t.bias_stride = bias.head, t.sinks_stride = 1;
    const int64_t first = t.window > 0 ? std::clamp<int64_t>(t.seen - t.window, 0, t.keys) : 0;
    const int64_t last = std::clamp<int64_t>(t.seen, first, t.keys);
    t.k += first * t.k_stride, t.v += first * t.v_stride;
    if (t.bias != nullptr) t.bias += first;
    t.keys = t.seen = last - first, t.window = 0;
    return t;
  };
  if (a.B * a.H * a.S * a.Dv == 0) return {};
  const bool grouped = a.S == 1;
  isa::AttendTask largest = grouped ? of_group(0, 0) : of_head(0, 0);
  largest.keys = a.L;
  const size_t bytes = attend_workspace(panels, largest, c.workers().threads());
  BOLIDE_TRY(Tensor workspace, c.scratch(DType::kU8, {static_cast<int64_t>(bytes)}));
  const MutableBytes memory{workspace.mutable_data(), workspace.bytes()};
  if (grouped)
    attend_heads(panels, {a.B, a.G}, of_group, memory, c.workers());
  else
    attend_heads(panels, {a.B, a.H}, of_head, memory, c.workers());
  return {};
}

int64_t set_window(HeadsCase& a, int64_t at, int64_t left, int64_t right) {
  const int64_t far = a.L + a.S + 1;  // beyond every key, wherever a query is
  right = right < 0 ? far : std::min(right, far);
  a.window = left < 0 ? 0 : std::min(left, far) + right + 1;
  return at + right + 1;
}

void append_rows(Workers& workers, const isa::RowFunctions& rows, const float* past, int64_t P,
                 const Heads<const float>& now, const float* bias, int64_t B, int64_t G, int64_t L, int64_t D,
                 float* to) {
  constexpr int64_t kGrain = 16384;
  parallel(workers, B * G, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, (P + L) * D)),
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) {
               const int64_t g = i % G;
               float* out = to + i * (P + L) * D;
               if (P > 0) out = std::copy_n(past + i * P * D, P * D, out);
               for (int64_t r = 0; r < L; ++r, out += D) {
                 const float* from = now.at(i / G, g, r);
                 if (bias != nullptr)
                   rows.binary[isa::kRowAdd](from, bias + g * D, out, D);
                 else
                   std::copy_n(from, D, out);
               }
             }
           });
}

Result<float> scale_of(const Attributes& attributes, int64_t D, bool zero_is_none) {
  BOLIDE_TRY(const float scale, attributes.number("scale", 0));
  if (attributes.has("scale") && (scale != 0 || !zero_is_none)) return scale;
  return static_cast<float>(1 / std::sqrt(static_cast<double>(std::max<int64_t>(D, 1))));
}

}  // namespace bolide
