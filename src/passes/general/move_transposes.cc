// move_transposes: a Transpose of a Transpose becomes one or none; a Transpose before an elementwise op moves behind it
// where all that the op reads is transposed alike or is one number, so that it meets the next one.
#include <algorithm>

#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr std::string_view kUnary[] = {"Relu", "Sigmoid", "Tanh",  "Erf",  "Sqrt",      "Exp",         "Log",
                                       "Neg",  "Abs",     "Floor", "Ceil", "LeakyRelu", "HardSigmoid", "HardSwish",
                                       "Gelu", "Swish",   "Cast",  "Clip", "Elu",       "Softplus"};
constexpr std::string_view kBinary[] = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"};

Numbers perm_of(const Rewriter& r, NodeId id) {
  Numbers perm = r.integers(id, "perm");
  const int rank = r.facts(r.in(id, 0)).rank();
  if (perm.empty())
    for (int i = rank; i > 0; --i) perm.push_back(i - 1);
  std::vector<bool> seen(perm.size());
  for (const int64_t axis : perm) {
    if (axis < 0 || axis >= static_cast<int64_t>(perm.size()) || seen[static_cast<size_t>(axis)]) return {};
    seen[static_cast<size_t>(axis)] = true;
  }
  return perm;
}

bool combine(Rewriter& r, NodeId id) {
  const NodeId before = r.made_by(r.in(id, 0), "Transpose");
  if (before < 0 || r.in(before, 0) == kNoValue) return false;
  const Numbers first = perm_of(r, before), second = perm_of(r, id);
  if (first.empty() || first.size() != second.size()) return false;
  Numbers both;
  for (const int64_t axis : second) both.push_back(first[static_cast<size_t>(axis)]);
  if (std::is_sorted(both.begin(), both.end())) {
    r.replace(r.out(id), r.in(before, 0));
    return true;
  }
  const NodeId made = r.emit(id, "", "Transpose", 13, {r.in(before, 0)}, {{"perm", both}});
  r.replace(r.out(id), r.out(made));
  return true;
}

// True if a Transpose behind the node would go, at least into one that is there.
bool helps(const Rewriter& r, NodeId id, size_t transposed) {
  const auto& users = r.users(r.out(id));
  const bool meets = !users.empty() && r.uses(r.out(id)) == static_cast<int>(users.size()) &&
                     std::all_of(users.begin(), users.end(), [&](NodeId user) { return r.is(user, "Transpose"); });
  return meets || transposed > 1;
}

bool sink(Rewriter& r, NodeId id) {
  const Node& node = r.node(id);
  const auto* op = std::get_if<Generic>(&node.op);
  if (op == nullptr || !op->def->is_ours() || !op->def->domain.empty() || node.out.size() != 1 || node.in.empty())
    return false;
  const auto has = [&](std::span<const std::string_view> list) {
    return std::find(list.begin(), list.end(), op->def->name) != list.end();
  };
  const bool binary = has(kBinary) && node.in.size() == 2 && op->version >= 7;
  if (!binary && !has(kUnary)) return false;
  Numbers perm;
  std::vector<ValueId> in = node.in;
  size_t transposed = 0;
  for (size_t i = 0; i < (binary ? 2u : 1u); ++i) {
    if (binary && r.scalar(in[i]) && r.facts(in[i]).rank() == 0) continue;
    const NodeId before = r.made_by(in[i], "Transpose");
    if (before < 0 || r.only_user(in[i]) != id) return false;
    const Numbers own = perm_of(r, before);
    if (own.empty() || (!perm.empty() && own != perm)) return false;
    perm = own;
    in[i] = r.in(before, 0);
    ++transposed;
  }
  if (perm.empty() || !helps(r, id, transposed)) return false;
  const NodeId moved = r.emit_like(id, *op, std::move(in));
  const NodeId after = r.emit(id, "", "Transpose", 13, {r.out(moved)}, {{"perm", perm}});
  r.replace(r.out(id), r.out(after));
  return true;
}

Result<int> move(Rewriter& r) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    if (!r.alive(id)) continue;
    const bool changed = r.is(id, "Transpose") ? combine(r, id) : sink(r, id);
    rewrites += changed;
  }
  return rewrites;
}

}  // namespace

Result<int> move_transposes(Graph& graph, const PassContext& context) {
  constexpr int kRounds = 4;
  int rewrites = 0;
  for (int i = 0; i < kRounds; ++i) {
    BOLIDE_TRY(const int changed, rewrite_all(graph, context, [](Rewriter& r) { return move(r); }));
    if (changed == 0) break;
    rewrites += changed;
  }
  return rewrites;
}

}  // namespace bolide
