// MoeFfn from the products of Linear: route, group tokens by expert, gate|up and down for each expert with its tokens,
// combine. An expert's weights are read once for all its tokens. A token's experts are summed in the order of its
// routing, so its result does not depend on what else runs.
#include <algorithm>
#include <cstring>

#include "kernels/linear/product.h"
#include "kernels/moe/moe_parts.h"
#include "kernels/moe/routing.h"

namespace bolide {
namespace {

template <const ProductMethod& M>
const ProductMethod& router_method(const QuantScheme* quant) {
  return quant == nullptr ? *M.exact_floats : *M.exact_blocks;
}

// Parts of the workspace, each at a multiple of 64 bytes.
struct Layout {
  size_t scores, experts, weights, begins, tokens, places, both, hidden, down, product, bytes;
};

Layout layout(int64_t tokens_max, int64_t experts, int64_t top_k, int64_t e, int64_t f, size_t product_bytes) {
  Layout l{};
  const auto take = [&](size_t* at, int64_t elements) {
    *at = l.bytes;
    l.bytes += round_up(static_cast<size_t>(elements) * 4, 64);
  };
  const int64_t pairs = tokens_max * top_k;
  take(&l.scores, tokens_max * experts);
  take(&l.experts, pairs);       // [T, top_k]
  take(&l.weights, pairs);       // [T, top_k]
  take(&l.begins, experts + 1);  // an expert's rows of what follows
  take(&l.tokens, pairs);        // the token of each row
  take(&l.places, pairs);        // [T, top_k]: the row of each token's expert
  take(&l.both, pairs * 2 * f);
  take(&l.hidden, pairs * f);
  take(&l.down, pairs * e);
  l.product = l.bytes;
  l.bytes += product_bytes;
  return l;
}

// A type with the dims and scheme of a packed operand.
ValueType type_of(const TensorView& view) {
  ValueType type{view.dtype, view.quant, {}};
  for (const int64_t dim : view.shape.span()) type.dims.emplace_back(dim);
  return type;
}

template <const ProductMethod& M>
size_t product_bytes(const ValueType& router, const ValueType& gate_up, const ValueType& down, int64_t tokens,
                     int threads) {
  return std::max({router_method<M>(router.quant).workspace(router, tokens, threads),
                   M.workspace(gate_up, tokens, threads), M.workspace(down, tokens, threads)});
}

template <const ProductMethod& M>
bool supports(const Problem& problem) {
  const auto* op = std::get_if<MoeFfn>(problem.op);
  if (op == nullptr) return false;
  for (const size_t i : {1, 2, 3})
    if (!problem.in[i].is_static()) return false;
  return router_method<M>(problem.in[1].quant).supports(problem.in[1], Compute::kF32, *problem.device) &&
         M.supports(problem.in[2], op->compute, *problem.device) &&
         M.supports(problem.in[3], op->compute, *problem.device);
}

template <const ProductMethod& M>
size_t workspace(const Problem& problem) {
  const auto& op = std::get<MoeFfn>(*problem.op);
  const int64_t tokens = problem.in[0].at(problem.sizes)[0];
  const size_t product = product_bytes<M>(problem.in[1], problem.in[2], problem.in[3], tokens, problem.device->threads);
  return layout(tokens, op.experts, op.top_k, weight_k(problem.in[2]), weight_k(problem.in[3]), product).bytes;
}

template <const ProductMethod& M>
const Packing* packing(const Problem& problem, int operand) {
  if (operand == 1) return router_method<M>(problem.in[1].quant).packing;
  return operand > 1 ? M.packing : nullptr;
}

// Rows by expert: begins [X + 1], tokens and places as in Layout.
void group(const MoeFfn& op, int64_t tokens, const int32_t* experts, int32_t* begins, int32_t* rows, int32_t* places) {
  std::fill(begins, begins + op.experts + 1, 0);
  for (int64_t i = 0; i < tokens * op.top_k; ++i) ++begins[experts[i] + 1];
  for (int64_t x = 0; x < op.experts; ++x) begins[x + 1] += begins[x];
  for (int64_t i = 0; i < tokens * op.top_k; ++i) {
    const int32_t row = begins[experts[i]]++;
    rows[row] = static_cast<int32_t>(i / op.top_k);
    places[i] = row;
  }
  for (int64_t x = op.experts; x > 0; --x) begins[x] = begins[x - 1];
  begins[0] = 0;
}

template <const ProductMethod& M>
Result<> launch(const Launch& launch, Stream& stream) {
  const auto& op = std::get<MoeFfn>(*launch.op);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  const ValueType router = type_of(launch.in[1]), gate_up = type_of(launch.in[2]), down = type_of(launch.in[3]);
  const int64_t tokens = x.rows(), e = x.cols(), f = weight_k(down), k = op.top_k;
  if (tokens == 0) return {};
  Workers& workers = stream.workers();
  const Layout l =
      layout(tokens, op.experts, k, e, f, product_bytes<M>(router, gate_up, down, tokens, workers.threads()));
  BOLIDE_CHECK(l.bytes <= launch.workspace.size(), "workspace of {}, {} needed", launch.workspace.size(), l.bytes);
  const auto part = [&]<class T>(size_t at, T) { return reinterpret_cast<T*>(launch.workspace.data() + at); };
  float* scores = part(l.scores, 0.f);
  auto* experts = part(l.experts, int32_t{});
  float* weights = part(l.weights, 0.f);
  auto* begins = part(l.begins, int32_t{});
  auto* rows = part(l.tokens, int32_t{});
  auto* places = part(l.places, int32_t{});
  float *both = part(l.both, 0.f), *hidden = part(l.hidden, 0.f), *downs = part(l.down, 0.f);

  const auto multiply = [&](const ProductMethod& method, const TensorView& weight, const ValueType& type,
                            Compute compute, int64_t expert, const float* in, int64_t stride, const int32_t* in_rows,
                            int64_t count, float* to) {
    Product p;
    p.dtype = type.dtype, p.quant = type.quant, p.n = weight_n(type), p.k = weight_k(type);
    p.weights = weight.data + (expert > 0 ? static_cast<size_t>(expert) * method.matrix_bytes(type) : 0);
    p.compute = compute;
    p.tokens = count, p.x = in, p.x_stride = stride, p.x_rows = in_rows;
    p.out = to, p.out_stride = p.n;
    p.workspace = launch.workspace.subspan(l.product);
    method.run(p, workers);
  };

  multiply(router_method<M>(router.quant), launch.in[1], router, Compute::kF32, 0, x.as<const float>(), x.row_stride,
           nullptr, tokens, scores);
  for (int64_t t = 0; t < tokens; ++t) choose_experts(op, scores + t * op.experts, experts + t * k, weights + t * k);
  group(op, tokens, experts, begins, rows, places);

  for (int64_t expert = 0; expert < op.experts; ++expert) {
    const int64_t begin = begins[expert], count = begins[expert + 1] - begin;
    if (count == 0) continue;
    multiply(M, launch.in[2], gate_up, op.compute, expert, x.as<const float>(), x.row_stride, rows + begin, count,
             both + begin * 2 * f);
    workers.run(count, [&](int64_t i, int) {
      const float* row = both + (begin + i) * 2 * f;
      activate_row(op.act, row, row + f, f, hidden + (begin + i) * f);
    });
    multiply(M, launch.in[3], down, op.compute, expert, hidden + begin * f, f, nullptr, count, downs + begin * e);
  }

  workers.run(tokens, [&](int64_t t, int) {
    float* sum = out.row<float>(t);
    for (int64_t j = 0; j < k; ++j) {
      const float weight = weights[t * k + j];
      const float* row = downs + places[t * k + j] * e;
      for (int64_t i = 0; i < e; ++i) sum[i] = j == 0 ? weight * row[i] : sum[i] + weight * row[i];
    }
  });
  return {};
}

template <const ProductMethod& M>
constexpr Kernel row() {
  return {.name = M.moe_name,
          .supports = supports<M>,
          .workspace = workspace<M>,
          .launch = launch<M>,
          .packing = packing<M>,
          .batch_invariant = M.batch_invariant};
}

}  // namespace

std::span<const Kernel> moe_product_kernels() {
  static const Kernel kernels[] = {row<kInt8Amx>(),   row<kInt8Vnni>(),      row<kInt8Avx2>(),    row<kBf16Amx>(),
                                   row<kBf16Dot>(),   row<kCodesAvx512>(),   row<kFloatAvx512>(), row<kCodesAvx2>(),
                                   row<kFloatAvx2>(), row<kDecodedAvx512>(), row<kDecodedAvx2>()};
  return kernels;
}

}  // namespace bolide
