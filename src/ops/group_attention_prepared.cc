// com.microsoft.GroupQueryAttention made ready: new keys are rotated straight into the cache that comes out, one task
// of kernels/panels for the heads that share keys where each sequence has one query.
//
// A caller may give the same memory as past and as present, if their shapes are equal: then new rows alone are written.
#include <algorithm>

#include "ops/attend_heads.h"
#include "ops/dense.h"
#include "ops/group_attention.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

// Angles of rows [positions][half].
struct Angles {
  const float* cosines = nullptr;  // null: nothing is rotated
  const float* sines = nullptr;
  int64_t half = 0;
  bool interleaved = false;

  void rotate(const isa::RowFunctions& rows, const float* x, int64_t position, int64_t D, float* y) const {
    const float *c = cosines + position * half, *s = sines + position * half;
    if (!interleaved) {
      rows.rotate(x, c, s, y, half);
    } else {
      for (int64_t i = 0; i < half; ++i) {
        const float real = x[2 * i], imaginary = x[2 * i + 1];
        y[2 * i] = c[i] * real - s[i] * imaginary;
        y[2 * i + 1] = s[i] * real + c[i] * imaginary;
      }
    }
    if (y != x) std::copy(x + 2 * half, x + D, y + 2 * half);
  }
};

class PreparedGroupQuery final : public PreparedOp {
 public:
  PreparedGroupQuery(const isa::PanelFunctions& panels, const isa::RowFunctions& rows) : panels_(panels), rows_(rows) {}
  std::string_view kernel() const override { return "group_attention_panels"; }

  Result<bool> run(RunContext& c) const override {
    for (const size_t i : {0, 1, 2, 3, 4, 7, 8, 10, 11})
      if (c.has(i) && f32_at(c, i) == nullptr) return false;
    BOLIDE_TRY(const GroupCase g, read_group_case(c));
    BOLIDE_TRY(const Rotary rotary, read_rotary(c, g));
    const Tensor *query = f32_at(c, 0), *sinks = f32_at(c, 11);
    if (sinks != nullptr) BOLIDE_TRY(expect_shape(*sinks, {g.H}, "head_sink"));
    BOLIDE_TRY(product_of(std::array{g.B, g.H, g.S, g.total}));
    BOLIDE_TRY(product_of(std::array{g.B, g.G, g.most, g.D}));
    BOLIDE_TRY(const ScoreBias bias, microsoft_bias(c, SIZE_MAX, 10, {g.B, g.H, g.S, g.total}));
    HeadsCase a{.B = g.B, .H = g.H, .G = g.G, .S = g.S, .L = g.total, .D = g.D, .Dv = g.D};
    BOLIDE_TRY(a.scale, scale_of(c.attributes(), g.D, true));
    BOLIDE_TRY(a.softcap, c.attributes().number("softcap", 0));
    BOLIDE_TRY(const int64_t smooth, c.attributes().integer("smooth_softmax", 0));
    const std::vector<float> no_sinks(sinks == nullptr && smooth != 0 ? static_cast<size_t>(g.H) : 0);
    a.sinks = sinks != nullptr ? sinks->as<float>().data() : no_sinks.empty() ? nullptr : no_sinks.data();
    for (const int64_t past : g.past) {
      a.seen_of.push_back(set_window(a, past, g.window < 0 ? -1 : g.window - 1, g.causal ? 0 : -1));
      a.keys_of.push_back(std::min(g.total, past + g.S));
    }
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, {g.B, g.S, g.H * g.D}));
    a.out = Heads<float>::row_major(y->mutate<float>().data(), g.H, g.S, g.D);
    Cache keys, values;
    BOLIDE_TRY(keys, Cache::make(c, g, 3, 1));
    BOLIDE_TRY(values, Cache::make(c, g, 4, 2));
    const int64_t heads = g.packed ? g.H + 2 * g.G : g.H;
    a.q = Heads<const float>::row_major(query->as<float>().data(), heads, g.S, g.D);
    Heads<const float> k = a.q, v = a.q;
    k.data += g.H * g.D, v.data += (g.H + g.G) * g.D;
    if (!g.packed) {
      k = Heads<const float>::row_major(f32_at(c, 1)->as<float>().data(), g.G, g.S, g.D);
      v = Heads<const float>::row_major(f32_at(c, 2)->as<float>().data(), g.G, g.S, g.D);
    }
    Angles angles;
    Tensor turned;
    Heads<float> to;
    if (rotary.cosines != nullptr) {
      BOLIDE_TRY(const int64_t interleaved, c.attributes().integer("rotary_interleaved", 0));
      angles = {rotary.cosines->as<float>().data(), rotary.sines->as<float>().data(), rotary.cosines->dim(1),
                interleaved != 0};
      BOLIDE_TRY(turned, make_wide<float>(c, {g.B, g.S, g.H * g.D}));
      to = Heads<float>::row_major(turned.mutate<float>().data(), g.H, g.S, g.D);
    }
    const int64_t each = g.H / g.G;
    const int64_t work = std::max<int64_t>(1, (g.buffer + g.S * (2 + each)) * g.D);
    parallel(c.workers(), g.B * g.G, std::max<int64_t>(1, 16384 / work), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / g.G, head = i % g.G, past = g.past[static_cast<size_t>(b)];
        float *new_keys = keys.keep(g, i) + past * g.D, *new_values = values.keep(g, i) + past * g.D;
        for (int64_t s = 0; s < g.S; ++s, new_keys += g.D, new_values += g.D) {
          std::copy_n(v.at(b, head, s), g.D, new_values);
          if (angles.cosines == nullptr) {
            std::copy_n(k.at(b, head, s), g.D, new_keys);
            continue;
          }
          const int64_t position = rotary.positions[static_cast<size_t>(b * g.S + s)];
          angles.rotate(rows_, k.at(b, head, s), position, g.D, new_keys);
          for (int64_t h = head * each; h < (head + 1) * each; ++h)
            angles.rotate(rows_, a.q.at(b, h, s), position, g.D, to.at(b, h, s));
        }
      }
    });
    if (angles.cosines != nullptr) a.q = Heads<const float>::row_major(to.data, g.H, g.S, g.D);
    a.k = Heads<const float>::head_major(keys.data, g.G, g.most, g.D);
    a.v = Heads<const float>::head_major(values.data, g.G, g.most, g.D);
    BOLIDE_TRY(attend_all(c, panels_, a, bias));
    return true;
  }

 private:
  // The cache that comes out, [B, G, most, D], and the one given, [B, G, buffer, D].
  struct Cache {
    const float* past = nullptr;  // null: empty, or the same memory
    float* data = nullptr;
    bool in_place = false;

    static Result<Cache> make(RunContext& c, const GroupCase& g, size_t input, size_t output) {
      Cache cache;
      BOLIDE_TRY(Tensor * made, c.make(output, DType::kF32, {g.B, g.G, g.most, g.D}));
      cache.data = made->mutate<float>().data();
      if (const Tensor* given = f32_at(c, input); given != nullptr) {
        cache.past = given->as<float>().data();
        cache.in_place = cache.past == cache.data && g.buffer == g.most;
      }
      return cache;
    }
    // Head i of all sequences, with what it had.
    float* keep(const GroupCase& g, int64_t i) const {
      float* const to = data + i * g.most * g.D;
      if (in_place) return to;
      if (past != nullptr) std::copy_n(past + i * g.buffer * g.D, g.buffer * g.D, to);
      std::fill(to + (past != nullptr ? g.buffer * g.D : 0), to + g.most * g.D, 0.0f);
      return to;
    }
  };

  const isa::PanelFunctions& panels_;
  const isa::RowFunctions& rows_;
};

}  // namespace

Prepared prepare_group_query_attention(const PrepareContext& c) {
  const isa::PanelFunctions* panels = panel_functions(c.device.isa);
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  BOLIDE_TRY(const int64_t shown, c.attributes.integer("qk_output", 0));
  BOLIDE_TRY(const int64_t window, c.attributes.integer("local_window_size", -1));
  if (panels == nullptr || rows == nullptr || window == 0 || (shown != 0 && c.outputs > 3)) return nullptr;
  return std::make_unique<PreparedGroupQuery>(*panels, *rows);
}

}  // namespace bolide
