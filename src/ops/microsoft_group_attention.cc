// com.microsoft: GroupQueryAttention, with keys and values appended to a cache at each sequence's own place.
#include <algorithm>
#include <cmath>

#include "ops/attend.h"
#include "ops/dense.h"
#include "ops/group_attention.h"
#include "ops/microsoft.h"
#include "ops/microsoft_mask.h"

namespace bolide {

std::optional<size_t> group_attention_past(const OpDef& op, size_t i) {
  if (!op.is_ours() || op.domain != "com.microsoft" || op.name != "GroupQueryAttention") return std::nullopt;
  return i == 1 || i == 2 ? std::optional<size_t>(i + 2) : std::nullopt;
}

Result<GroupCase> read_group_case(const RunContext& c) {
  const Attributes& attributes = c.attributes();
  GroupCase g;
  BOLIDE_TRY(const Tensor* query, c.tensor(0));
  BOLIDE_TRY(const Tensor* key, c.tensor_if(1));
  BOLIDE_TRY(const Tensor* value, c.tensor_if(2));
  BOLIDE_TRY(const Tensor* past_key, c.tensor_if(3));
  BOLIDE_TRY(const Tensor* past_value, c.tensor_if(4));
  BOLIDE_TRY(g.H, attributes.integer("num_heads", 0));
  BOLIDE_TRY(g.G, attributes.integer("kv_num_heads", 0));
  BOLIDE_TRY(g.window, attributes.integer("local_window_size", -1));
  BOLIDE_TRY(const int64_t causal, attributes.integer("causal", 1));
  for (const size_t i : {12, 13, 14, 15, 16})
    if (c.has(i)) return error(Code::kUnsupported, fmt::format("input {} (quantised caches, norms, query lengths)", i));
  g.causal = causal != 0, g.packed = key == nullptr;
  if (query->rank() != 3 || g.H < 1 || g.G < 1 || g.H % g.G != 0 || g.H > 1 << 20)
    return error(Code::kInvalid, fmt::format("query is {} for {} heads of {}", to_string(query->shape()), g.H, g.G));
  const int64_t heads = g.packed ? g.H + 2 * g.G : g.H;
  if (query->dim(2) < heads || query->dim(2) % heads != 0)
    return error(Code::kInvalid, fmt::format("query is {} for {} heads", to_string(query->shape()), heads));
  g.B = query->dim(0), g.S = query->dim(1), g.D = query->dim(2) / heads;
  if (!g.packed) {
    BOLIDE_TRY(c.tensor(2));
    BOLIDE_TRY(expect_shape(*key, {g.B, g.S, g.G * g.D}, "key"));
    BOLIDE_TRY(expect_shape(*value, {g.B, g.S, g.G * g.D}, "value"));
  }
  if ((past_key == nullptr) != (past_value == nullptr)) return error(Code::kInvalid, "past_key without past_value");
  if (past_key != nullptr) {
    g.buffer = past_key->rank() == 4 ? past_key->dim(2) : 0;
    BOLIDE_TRY(expect_shape(*past_key, {g.B, g.G, g.buffer, g.D}, "past_key"));
    BOLIDE_TRY(expect_shape(*past_value, {g.B, g.G, g.buffer, g.D}, "past_value"));
  }
  BOLIDE_TRY(const auto last, c.integers(5, {}, g.B));
  BOLIDE_TRY(const auto total, c.integers(6, {}, 1));
  if (static_cast<int64_t>(last.size()) != g.B || total.empty() || total[0] < g.S || total[0] > int64_t{1} << 31)
    return error(Code::kInvalid, "seqlens_k has no value for each sequence, or total_sequence_length is too small");
  g.total = total[0], g.most = std::max(g.buffer, g.total);
  for (const int64_t at : last) {
    const int64_t past = g.S == g.total ? 0 : at + 1 - g.S;  // a first prompt has no past, whatever its padding
    if (past < 0 || past > g.buffer || past + g.S > g.most)
      return error(Code::kInvalid,
                   fmt::format("seqlens_k has {} for {} new tokens and a cache of {}", at, g.S, g.buffer));
    g.past.push_back(past);
  }
  return g;
}

namespace {

// The cache [B, G, most, D] with the new rows after each sequence's past.
template <class T>
Result<Tensor> grow(const RunContext& c, const GroupCase& g, const Tensor& past, const Heads<const T>& now) {
  BOLIDE_TRY(product_of(std::array{g.B, g.G, g.most, g.D}));
  BOLIDE_TRY(Tensor cache, make_wide<T>(c, {g.B, g.G, g.most, g.D}, true));
  for (int64_t b = 0; b < g.B; ++b)
    for (int64_t h = 0; h < g.G; ++h) {
      T* to = cache.mutate<T>().data() + (b * g.G + h) * g.most * g.D;
      const int64_t kept = g.past[static_cast<size_t>(b)];
      if (past) std::copy_n(past.as<T>().data() + (b * g.G + h) * g.buffer * g.D, g.buffer * g.D, to);
      for (int64_t i = 0; i < g.S; ++i) std::copy_n(now.at(b, h, i), g.D, to + (kept + i) * g.D);
    }
  return cache;
}

}  // namespace

Result<Rotary> read_rotary(const RunContext& c, const GroupCase& g) {
  Rotary rotary;
  BOLIDE_TRY(const int64_t rotated, c.attributes().integer("do_rotary", 0));
  if (rotated == 0) return rotary;
  BOLIDE_TRY(rotary.cosines, c.tensor(7));
  BOLIDE_TRY(rotary.sines, c.tensor(8));
  if (rotary.cosines->rank() != 2 || 2 * rotary.cosines->dim(1) > g.D)
    return error(Code::kInvalid,
                 fmt::format("cos_cache is {} for heads of {}", to_string(rotary.cosines->shape()), g.D));
  BOLIDE_TRY(expect_shape(*rotary.sines, rotary.cosines->shape(), "sin_cache"));
  BOLIDE_TRY(const auto given, c.integers(9, {}, int64_t{1} << 40));
  const bool listed = static_cast<int64_t>(given.size()) == g.B * g.S && g.S != g.total;
  for (int64_t b = 0; b < g.B; ++b)
    for (int64_t s = 0; s < g.S; ++s) {
      int64_t position = g.past[static_cast<size_t>(b)] + s;
      if (listed) position = given[static_cast<size_t>(b * g.S + s)];
      if (g.S == g.total && !given.empty()) position = given[0] + s;
      if (position < 0 || position >= rotary.cosines->dim(0))
        return error(Code::kInvalid,
                     fmt::format("position {}, the caches have {} rows", position, rotary.cosines->dim(0)));
      rotary.positions.push_back(position);
    }
  return rotary;
}

Result<> run_group_query_attention(RunContext& c) {
  BOLIDE_TRY(const GroupCase g, read_group_case(c));
  BOLIDE_TRY(const Rotary rotary, read_rotary(c, g));
  BOLIDE_TRY(const Tensor* query, c.tensor(0));
  BOLIDE_TRY(const Tensor* sinks, c.tensor_if(11));
  BOLIDE_TRY(const float scale, c.attributes().number("scale", 0));
  BOLIDE_TRY(const float softcap, c.attributes().number("softcap", 0));
  BOLIDE_TRY(const int64_t smooth, c.attributes().integer("smooth_softmax", 0));
  BOLIDE_TRY(const int64_t interleaved, c.attributes().integer("rotary_interleaved", 0));
  BOLIDE_TRY(const int64_t shown, c.attributes().integer("qk_output", 0));
  if (sinks != nullptr) BOLIDE_TRY(expect_shape(*sinks, {g.H}, "head_sink"));
  const auto& [B, S, H, G, D, buffer, most, total, packed, causal, window, past] = g;
  KeyMask mask;
  BOLIDE_TRY(KeyMask::read_bias(c, 10, {B, H, S, total}, mask));
  BOLIDE_TRY(product_of(std::array{B, H, S, total}));
  return in_float(query->dtype(), "query", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor q, widened<T>(c, *query));
    BOLIDE_TRY(const Tensor k, widened_if<T>(c, 1));
    BOLIDE_TRY(const Tensor v, widened_if<T>(c, 2));
    BOLIDE_TRY(const Tensor past_k, widened_if<T>(c, 3));
    BOLIDE_TRY(const Tensor past_v, widened_if<T>(c, 4));
    BOLIDE_TRY(const Tensor sink_values, widened_if<T>(c, 11));
    const int64_t heads = packed ? H + 2 * G : H;
    Heads<const T> queries = Heads<const T>::row_major(q.as<T>().data(), heads, S, D);
    Heads<const T> keys = queries, values = queries;
    keys.data += H * D, values.data += (H + G) * D;
    if (!packed) {
      keys = Heads<const T>::row_major(k.as<T>().data(), G, S, D);
      values = Heads<const T>::row_major(v.as<T>().data(), G, S, D);
    }
    Tensor turned_q, turned_k;
    if (rotary.cosines != nullptr) {
      BOLIDE_TRY(const Tensor cosines, widened<T>(c, *rotary.cosines));
      BOLIDE_TRY(const Tensor sines, widened<T>(c, *rotary.sines));
      BOLIDE_TRY(turned_q, make_wide<T>(c, {B, H, S, D}));
      BOLIDE_TRY(turned_k, make_wide<T>(c, {B, G, S, D}));
      Rotation<T> rotation{
          B, H, S, D, 2 * cosines.dim(1), interleaved != 0, cosines.as<T>().data(), sines.as<T>().data()};
      const auto angle = [&](int64_t b, int64_t s) { return rotary.positions[static_cast<size_t>(b * S + s)]; };
      rotate<T>(rotation, queries, Heads<T>::head_major(turned_q.mutate<T>().data(), H, S, D), angle);
      rotation.H = G;
      rotate<T>(rotation, keys, Heads<T>::head_major(turned_k.mutate<T>().data(), G, S, D), angle);
      queries = Heads<const T>::head_major(turned_q.as<T>().data(), H, S, D);
      keys = Heads<const T>::head_major(turned_k.as<T>().data(), G, S, D);
    }
    BOLIDE_TRY(Tensor all_k, grow<T>(c, g, past_k, keys));
    BOLIDE_TRY(Tensor all_v, grow<T>(c, g, past_v, values));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, {B, S, H * D}));
    Attend<T> attention{B, H, G, S, total, D, D};
    attention.q = queries;
    attention.k = Heads<const T>::head_major(all_k.as<T>().data(), G, most, D);
    attention.v = Heads<const T>::head_major(all_v.as<T>().data(), G, most, D);
    attention.out = Heads<T>::row_major(y.mutate<T>().data(), H, S, D);
    attention.scale =
        scale != 0 ? static_cast<double>(scale) : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(D, 1)));
    attention.softcap = static_cast<double>(softcap);
    attention.smooth = smooth != 0;
    if (sink_values) attention.sinks = sink_values.as<T>().data();
    Tensor scores;
    if (c.outputs() > 3 && shown != 0) {
      BOLIDE_TRY(scores, make_wide<T>(c, {B, H, S, total}));
      attention.scores = scores.mutate<T>().data(), attention.scores_mode = shown == 1 ? 2 : 3;
    }
    attend<T>(c.workers(), attention, [&](int64_t b, int64_t h, int64_t i, T* row) {
      mask.write<T>(b, h, i, total, row);
      const int64_t at = past[static_cast<size_t>(b)] + i;
      const int64_t end = std::min(total, causal ? at + 1 : past[static_cast<size_t>(b)] + S);
      const int64_t first = window < 0 || window > at ? 0 : std::clamp<int64_t>(at + 1 - window, 0, end);
      std::fill(row, row + first, masked<T>());
      std::fill(row + end, row + total, masked<T>());
    });
    if (c.outputs() > 1) BOLIDE_TRY(emit(c, 1, query->dtype(), std::move(all_k)));
    if (c.outputs() > 2) BOLIDE_TRY(emit(c, 2, query->dtype(), std::move(all_v)));
    if (scores) BOLIDE_TRY(emit(c, 3, query->dtype(), std::move(scores)));
    return emit(c, 0, query->dtype(), std::move(y));
  });
}

}  // namespace bolide
