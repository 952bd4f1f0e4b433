// remove_requantised: QuantizeLinear(DequantizeLinear(q)) with the same scale and zero point of the same type is q.
// DequantizeLinear(QuantizeLinear(x)) stays: it rounds.
#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr double kScaleMin = 1e-30;  // below, q * scale may have lost bits

bool is_plain(const Rewriter& r, NodeId id) {
  for (const auto& [name, value] : r.attributes(id).all())
    if (name != "axis") return false;  // blocks, other types of output, saturation
  return true;
}

Result<int> requantised(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.is(id, "QuantizeLinear") || !is_plain(r, id)) continue;
    const NodeId before = r.made_by(r.in(id, 0), "DequantizeLinear");
    if (before < 0 || !is_plain(r, before)) continue;
    const ValueId scale = r.in(id, 1), zero = r.in(id, 2), q = r.in(before, 0);
    // merge_common has made equal constants one.
    if (scale != r.in(before, 1) || zero != r.in(before, 2)) continue;
    const auto number = r.scalar(scale);
    if (!number || !(*number > kScaleMin) || r.constant(scale)->dtype() != DType::kF32) continue;
    const DType type = r.facts(q).dtype;
    if ((type != DType::kI8 && type != DType::kU8) || r.facts(r.out(id)).dtype != type) continue;
    r.replace(r.out(id), q);
    ++rewrites;
  }
  return rewrites;
}

}  // namespace

Result<int> remove_requantised(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) { return requantised(r); });
}

}  // namespace bolide
