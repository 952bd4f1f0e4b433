// fold_affine: BatchNormalization, and sums and products with a constant of each channel, go into the weights and bias
// of the Conv, ConvTranspose, Gemm or MatMul before them, whose result nothing else may read. f32 alone.
#include <algorithm>
#include <cmath>

#include "base/workers.h"
#include "passes/general/general.h"
#include "passes/general/rewriter.h"

namespace bolide {
namespace {

constexpr size_t kElementsOfChunk = 1 << 16;  // of weights that one thread scales

// y = scale x + shift, for each channel.
struct Affine {
  std::vector<double> scale, shift;
};

std::optional<std::vector<double>> floats_of(const Tensor* tensor, int64_t count) {
  if (tensor == nullptr || tensor->dtype() != DType::kF32 || tensor->elements() != count) return std::nullopt;
  return std::vector<double>(tensor->as<float>().begin(), tensor->as<float>().end());
}

// The constant as one number a channel of a value of this rank (axis 1), if it broadcasts so and changes no dims.
std::optional<std::vector<double>> by_channel(const Tensor* tensor, int rank, int64_t channels) {
  if (tensor == nullptr || tensor->dtype() != DType::kF32 || tensor->rank() > rank) return std::nullopt;
  if (tensor->elements() == 1) return std::vector<double>(static_cast<size_t>(channels), tensor->as<float>()[0]);
  const int axis = tensor->rank() - (rank - 1);  // of the channels in it
  if (axis < 0 || tensor->dim(axis) != channels) return std::nullopt;
  return floats_of(tensor, channels);
}

// What `id` does to input 0 (or, of sums and products, to the one that is no constant).
std::optional<Affine> affine_of(const Rewriter& r, NodeId id, ValueId x, int rank, int64_t channels) {
  const auto size = static_cast<size_t>(channels);
  if (r.is(id, "BatchNormalization")) {
    if (r.node(id).out.size() != 1 || r.node(id).in.size() != 5 || r.in(id, 0) != x) return std::nullopt;
    if (r.integer(id, "training_mode", 0) != 0 || r.integer(id, "spatial", 1) != 1) return std::nullopt;
    const auto epsilon = r.attributes(id).number("epsilon", 1e-5f);
    const auto scale = floats_of(r.constant(r.in(id, 1)), channels),
               bias = floats_of(r.constant(r.in(id, 2)), channels), mean = floats_of(r.constant(r.in(id, 3)), channels),
               variance = floats_of(r.constant(r.in(id, 4)), channels);
    if (!epsilon || !scale || !bias || !mean || !variance) return std::nullopt;
    Affine to;
    for (size_t i = 0; i < size; ++i) {
      const double factor = (*scale)[i] / std::sqrt((*variance)[i] + static_cast<double>(*epsilon));
      if (!std::isfinite(factor)) return std::nullopt;
      to.scale.push_back(factor);
      to.shift.push_back((*bias)[i] - (*mean)[i] * factor);
    }
    return to;
  }
  const bool sum = r.is(id, "Add"), product = r.is(id, "Mul");
  if ((!sum && !product) || r.op(id).version < 7 || r.node(id).in.size() != 2) return std::nullopt;
  const ValueId other = r.in(id, 0) == x ? r.in(id, 1) : r.in(id, 0);
  const auto values = by_channel(r.constant(other), rank, channels);
  if (other == x || !values) return std::nullopt;
  if (sum) return Affine{std::vector<double>(size, 1), *values};
  return Affine{*values, std::vector<double>(size, 0)};
}

bool all_ones(const std::vector<double>& list) {
  for (const double one : list)
    if (one != 1) return false;
  return true;
}

// Where the channels of weights are: runs of `length` elements belong to one channel. In each `group` of runs they take
// turns: the `channels` of the group, from the first to the last and again.
struct Runs {
  size_t length = 1, channels = 1, group = 1;
};

// Weights with the elements of channel c times scale[c].
Result<Tensor> scaled(Workers& workers, const Tensor& from, const std::vector<double>& scale, Runs runs) {
  BOLIDE_TRY(Tensor to, Tensor::make(DType::kF32, from.shape()));
  const float* const in = from.as<float>().data();
  float* const out = to.mutate<float>().data();
  const size_t count = static_cast<size_t>(from.elements()) / runs.length;
  const size_t in_chunk = std::max<size_t>(kElementsOfChunk / runs.length, 1);
  workers.run(static_cast<int64_t>((count + in_chunk - 1) / in_chunk), [&](int64_t chunk, int /*thread*/) {
    const size_t first = static_cast<size_t>(chunk) * in_chunk;
    for (size_t run = first; run < std::min(first + in_chunk, count); ++run) {
      const double factor = scale[run / runs.group * runs.channels + run % runs.channels];
      for (size_t i = run * runs.length; i < (run + 1) * runs.length; ++i)
        out[i] = static_cast<float>(static_cast<double>(in[i]) * factor);
    }
  });
  return to;
}

// The node that does both; -1: they stay.
Result<NodeId> fold_into_conv(Rewriter& r, Workers& workers, NodeId conv, NodeId after) {
  const bool inverse = r.is(conv, "ConvTranspose");
  const Tensor* w = r.constant(r.in(conv, 1));
  const ValueId bias = r.in(conv, 2);
  if (w == nullptr || w->dtype() != DType::kF32 || w->rank() < 3 || w->elements() == 0) return -1;
  const int64_t groups = r.integer(conv, "group", 1);
  if (groups < 1 || w->dim(0) % groups != 0) return -1;
  const int64_t M = inverse ? w->dim(1) * groups : w->dim(0);
  const auto affine = affine_of(r, after, r.out(conv), w->rank(), M);
  const auto before = bias == kNoValue ? std::vector<double>(static_cast<size_t>(M), 0)
                                       : floats_of(r.constant(bias), M).value_or(std::vector<double>{});
  if (!affine || before.empty()) return -1;
  ValueId weights = r.in(conv, 1);
  if (!all_ones(affine->scale)) {
    const auto taps = static_cast<size_t>(w->elements() / (w->dim(0) * w->dim(1)));
    const auto own = static_cast<size_t>(w->dim(1)), row = taps * own;
    const auto rows = static_cast<size_t>(w->dim(0));
    const Runs runs = inverse ? Runs{taps, own, rows / static_cast<size_t>(groups) * own} : Runs{row, rows, rows};
    BOLIDE_TRY(Tensor folded, scaled(workers, *w, affine->scale, runs));
    weights = r.add_constant(r.node(conv).name + ".weights", std::move(folded));
  }
  BOLIDE_TRY(Tensor shifted, Tensor::make(DType::kF32, {M}));
  for (size_t i = 0; i < before.size(); ++i)
    shifted.mutate<float>()[i] = static_cast<float>(before[i] * affine->scale[i] + affine->shift[i]);
  const ValueId added = r.add_constant(r.node(conv).name + ".bias", std::move(shifted));
  const ValueId folded_from = r.in(conv, 1);
  const NodeId made = r.emit_like(conv, r.op(conv), {r.in(conv, 0), weights, added});
  r.replace(r.out(after), r.out(made));
  r.drop_if_unread(folded_from);
  return made;
}

// Gemm, and MatMul of matrices, whose second factor is constant: channels are columns.
Result<NodeId> fold_into_product(Rewriter& r, Workers& workers, NodeId product, NodeId after) {
  const bool gemm = r.is(product, "Gemm");
  const Tensor* b = r.constant(r.in(product, 1));
  if (b == nullptr || b->dtype() != DType::kF32 || b->rank() != 2 || b->elements() == 0) return -1;
  if (r.facts(r.in(product, 0)).rank() != 2) return -1;
  if (!gemm && !r.is(after, "BatchNormalization")) return -1;  // fuse_gemm has those
  if (gemm && r.op(product).version < 7) return -1;
  const bool turned = gemm && r.integer(product, "transB", 0) != 0;
  const int64_t N = b->dim(turned ? 0 : 1);
  const ValueId c = gemm ? r.in(product, 2) : kNoValue;
  const auto affine = affine_of(r, after, r.out(product), 2, N);
  const auto beta = gemm ? r.attributes(product).number("beta", 1) : Result<float>(1.0f);
  if (!affine || !beta) return -1;
  std::vector<double> before(static_cast<size_t>(N), 0);
  if (c != kNoValue) {
    const auto given = by_channel(r.constant(c), 2, N);
    if (!given || (r.constant(c)->rank() == 2 && r.constant(c)->dim(0) != 1)) return -1;
    before = *given;
  }
  const auto rows = static_cast<size_t>(b->dim(0)), columns = static_cast<size_t>(b->dim(1));
  const Runs runs = turned ? Runs{columns, rows, rows} : Runs{1, columns, rows * columns};
  BOLIDE_TRY(Tensor folded, scaled(workers, *b, affine->scale, runs));
  BOLIDE_TRY(Tensor shifted, Tensor::make(DType::kF32, {N}));
  for (size_t i = 0; i < before.size(); ++i)
    shifted.mutate<float>()[i] =
        static_cast<float>(before[i] * static_cast<double>(*beta) * affine->scale[i] + affine->shift[i]);
  NamedAttributes attributes;
  if (gemm)
    for (const auto& [name, value] : r.attributes(product).all())
      if (name != "beta") attributes.emplace_back(name, value);
  const ValueId weights = r.add_constant(r.node(product).name + ".weights", std::move(folded));
  const ValueId added = r.add_constant(r.node(product).name + ".bias", std::move(shifted));
  const ValueId folded_from = r.in(product, 1);
  const NodeId made = r.emit(product, "", "Gemm", 13, {r.in(product, 0), weights, added}, std::move(attributes));
  r.replace(r.out(after), r.out(made));
  r.drop_if_unread(folded_from);
  return made;
}

Result<int> fold(Rewriter& r, Workers& workers) {
  int rewrites = 0;
  for (const NodeId id : r.order()) {
    NodeId at = id;
    // Each fold makes a new node, which the next one may go into.
    while (r.alive(at)) {
      const bool conv = r.is(at, "Conv") || r.is(at, "ConvTranspose");
      if (!conv && !r.is(at, "Gemm") && !r.is(at, "MatMul")) break;
      const NodeId after = r.only_user(r.out(at));
      if (after < 0) break;
      BOLIDE_TRY(at, conv ? fold_into_conv(r, workers, at, after) : fold_into_product(r, workers, at, after));
      if (at < 0) break;
      ++rewrites;
    }
  }
  return rewrites;
}

}  // namespace

Result<int> fold_affine(Graph& graph, const PassContext& context) {
  return rewrite_all(graph, context, [&](Rewriter& r) { return fold(r, *context.workers); });
}

}  // namespace bolide
