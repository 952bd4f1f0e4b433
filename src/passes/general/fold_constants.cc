// fold_constants: runs pure nodes whose inputs are all constants, and replaces shapes that are known; a constant that
// would be much larger than what it is made of stays a node, unless it is or becomes the weights of a product.
#include <algorithm>

#include "base/workers.h"
#include "passes/general/general.h"
#include "passes/general/rewriter.h"
#include "tensor/texts.h"

namespace bolide {
namespace {

constexpr int64_t kFreeBytes = 64 << 10;   // a result of so few bytes may always be kept
constexpr int64_t kGrowthMax = 4 << 20;    // of all of a model's results beyond their inputs
constexpr int64_t kScratchMax = 64 << 20;  // memory that one node may take, beside its inputs' size
constexpr int64_t kElementsMax = 1 << 26;  // of inputs: loading must not turn into computing

// Refuses what a node should not take while a model is loaded.
class LimitedPool : public TensorPool {
 public:
  explicit LimitedPool(int64_t bytes) : left_(bytes) {}
  Result<std::shared_ptr<std::byte>> take(size_t bytes) override {
    if (static_cast<int64_t>(bytes) > left_) return error(Code::kOutOfMemory, "larger than a folded constant may be");
    left_ -= static_cast<int64_t>(bytes);
    return heap_pool().take(bytes);
  }

 private:
  int64_t left_;
};

// Integer weights are what quantised kernels read: as floats they would be four times as large.
bool is_foldable(const Rewriter& r, NodeId id) {
  const auto* op = std::get_if<Generic>(&r.node(id).op);
  return op != nullptr && op->def->is_ours() && op->def->pure && r.node(id).bodies.empty() && !r.node(id).out.empty() &&
         op->def->name != "DequantizeLinear";
}

// True if what is made of `value` and constants alone is the second factor of a product, which is packed when the model
// is loaded: better once than at every run.
bool becomes_weights(const Rewriter& r, ValueId value) {
  constexpr int kChainMost = 8;
  for (int i = 0; i < kChainMost; ++i) {
    const NodeId user = r.only_user(value);
    if (user < 0) return false;
    if (r.in(user, 1) == value && (r.is(user, "MatMul") || r.is(user, "Gemm") || r.is(user, "Conv"))) return true;
    if (!is_foldable(r, user) || r.node(user).out.size() != 1) return false;
    for (const ValueId other : r.node(user).in)
      if (other != value && other != kNoValue && r.constant(other) == nullptr) return false;
    value = r.out(user);
  }
  return false;
}

Result<int> fold(Rewriter& r, Workers& workers) {
  int rewrites = 0;
  int64_t growth = 0;
  for (const NodeId id : r.order()) {
    if (!r.alive(id)) continue;
    r.table().learn(r.graph(), id);
    if (!is_foldable(r, id)) continue;
    const Node& node = r.node(id);
    const auto keep = [&](size_t i, Tensor tensor) {
      const ValueId from = node.out[i];
      r.replace(from, r.add_constant(node.name, std::move(tensor)));
    };
    if (const Facts& known = r.facts(node.out[0]); node.out.size() == 1 && known.values && known.dtype == DType::kI64 &&
                                                   known.rank() >= 0 &&
                                                   std::all_of(known.values->begin(), known.values->end(), is_number)) {
      const bool is_scalar = known.rank() == 0 && known.values->size() == 1;
      if (is_scalar || (known.rank() == 1 && (*known.dims)[0] == static_cast<int64_t>(known.values->size()))) {
        Tensor tensor = Tensor::vector(DType::kI64, std::span<const int64_t>(*known.values));
        keep(0, is_scalar ? tensor.reshaped({}) : tensor);
        ++rewrites;
        continue;
      }
    }
    std::vector<AnyValue> held;
    std::vector<const AnyValue*> in;
    held.reserve(node.in.size());
    int64_t bytes = 0, elements = 0;
    bool known = true;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const ValueId value = node.in[i];
      const Tensor* constant = value == kNoValue ? nullptr : r.constant(value);
      known = known && (value == kNoValue || constant != nullptr);
      if (!known) break;
      // One that is there twice counts once: else chains of concatenations with themselves would grow for ever.
      const auto end = node.in.begin() + static_cast<ptrdiff_t>(i);
      if (constant != nullptr && std::find(node.in.begin(), end, value) == end)
        bytes += static_cast<int64_t>(constant->bytes() + text_bytes(*constant)), elements += constant->elements();
      held.emplace_back(constant != nullptr ? AnyValue(*constant) : AnyValue());
      in.push_back(constant != nullptr ? &held.back() : nullptr);
    }
    if (!known || elements > kElementsMax) continue;
    std::vector<AnyValue> out(node.out.size());
    LimitedPool pool(kScratchMax + 2 * bytes);
    const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
      return error(Code::kNotFound, "has no graph");
    };
    const Generic& op = r.op(id);
    RunContext context(*op.attributes, op.version, in, out, workers, pool, no_body);
    if (!op.def->run(context)) continue;  // it says so where it runs
    int64_t made = 0;
    bool tensors = true;
    for (size_t i = 0; i < out.size(); ++i) {
      if (r.uses(node.out[i]) == 0) continue;
      tensors = tensors && out[i].tensor() != nullptr && out[i].tensor()->dtype() != DType::kNone;
      if (tensors) made += static_cast<int64_t>(out[i].tensor()->bytes() + text_bytes(*out[i].tensor()));
    }
    const bool weights = out.size() == 1 && becomes_weights(r, node.out[0]);
    const int64_t more = weights ? 0 : std::max<int64_t>(0, made - bytes);
    if (!tensors || (made > kFreeBytes && growth + more > kGrowthMax)) continue;
    growth += more;
    const std::vector<ValueId> outputs = node.out, inputs = node.in;
    for (size_t i = 0; i < outputs.size(); ++i)
      if (r.uses(outputs[i]) > 0) keep(i, *out[i].tensor());
    held.clear();
    for (const ValueId value : inputs)
      if (value != kNoValue) r.drop_if_unread(value);
    ++rewrites;
  }
  return rewrites;
}

}  // namespace

Result<int> fold_constants(Graph& graph, const PassContext& context) {
  if (context.workers == nullptr) return 0;
  return rewrite_all(graph, context, [&](Rewriter& r) { return fold(r, *context.workers); });
}

}  // namespace bolide
