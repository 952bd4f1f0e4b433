// gather_first: rows are taken from a constant before what decodes it, elements one by one, instead of afterwards: of
// an embedding of codes, those rows alone become floats. Gather(Mul(Cast(W), c), ids) is Mul(Cast(Gather(W, ids)), c).
#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr int kChainMost = 8;

// The place of the input that the node maps, element by element, with a constant or nothing; -1: it is no such node.
int mapped_input(const Rewriter& r, NodeId id) {
  if (id < 0 || r.node(id).out.size() != 1) return -1;
  if (r.is(id, "Cast")) return 0;
  bool is_arithmetic = false;
  for (const std::string_view name : {"Add", "Sub", "Mul", "Div"}) is_arithmetic = is_arithmetic || r.is(id, name);
  if (!is_arithmetic || r.op(id).version < 7) return -1;
  for (const int i : {0, 1})
    if (r.constant(r.in(id, static_cast<size_t>(1 - i))) != nullptr) return i;
  return -1;
}

bool is_one(const Tensor& t) { return t.elements() == 1 && t.rank() <= 1; }

bool turn(Rewriter& r, NodeId gather) {
  if (!r.is(gather, "Gather") || r.integer(gather, "axis", 0) != 0) return false;
  std::vector<NodeId> chain;  // from the Gather up
  ValueId from = r.in(gather, 0);
  while (r.constant(from) == nullptr) {
    if (chain.size() == kChainMost || r.only_user(from) < 0) return false;
    const NodeId id = r.graph().value(from).producer;
    const int input = mapped_input(r, id);
    if (input < 0) return false;
    chain.push_back(id);
    from = r.in(id, static_cast<size_t>(input));
  }
  const Tensor& whole = *r.constant(from);
  if (chain.empty() || whole.rank() < 2) return false;
  for (const NodeId id : chain)
    for (const ValueId value : r.node(id).in)
      if (const Tensor* t = r.constant(value); t != nullptr && value != from && !is_one(*t))
        if (t->rank() != whole.rank() || t->dim(0) != whole.dim(0)) return false;
  const auto rows_of = [&](ValueId value) {
    return r.out(r.emit_like(gather, r.op(gather), {value, r.in(gather, 1)}));
  };
  ValueId rows = rows_of(from);
  for (size_t i = chain.size(); i-- > 0;) {
    std::vector<ValueId> in = r.node(chain[i]).in;
    const auto mapped = static_cast<size_t>(mapped_input(r, chain[i]));
    in[mapped] = rows;
    if (in.size() == 2 && !is_one(*r.constant(in[1 - mapped]))) in[1 - mapped] = rows_of(in[1 - mapped]);
    rows = r.out(r.emit_like(gather, r.op(chain[i]), std::move(in)));
  }
  r.replace(r.out(gather), rows);
  return true;
}

}  // namespace

Result<int> gather_first(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [](Rewriter& r) -> Result<int> {
    int rewrites = 0;
    for (const NodeId id : r.order()) rewrites += r.alive(id) && turn(r, id) ? 1 : 0;
    return rewrites;
  });
}

}  // namespace bolide
