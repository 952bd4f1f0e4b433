// The list of Linear kernels: one row for each product method, and the reference.
#include "kernels/linear/linear.h"

#include <array>

#include "kernels/linear/linear_parts.h"
#include "kernels/linear/product.h"

namespace bolide {
namespace {

template <const ProductMethod& M>
bool supports(const Problem& problem) {
  const auto* op = std::get_if<Linear>(problem.op);
  return op != nullptr && op->is_plain() && problem.in[1].is_static() && problem.in[1].dims.size() == 2 &&
         M.supports(problem.in[1], op->compute, *problem.device);
}

template <const ProductMethod& M>
size_t workspace(const Problem& problem) {
  return M.workspace(problem.in[1], problem.in[0].at(problem.sizes)[0], problem.device->threads);
}

template <const ProductMethod& M>
const Packing* packing(const Problem&, int operand) {
  return operand == 1 ? M.packing : nullptr;
}

template <const ProductMethod& M>
Result<> launch(const Launch& launch, Stream& stream) {
  const auto& op = std::get<Linear>(*launch.op);
  const TensorView &x = launch.in[0], &weight = launch.in[1], &out = launch.out[0];
  Product p;
  p.dtype = weight.dtype, p.quant = weight.quant;
  p.n = weight.shape[0], p.k = weight.shape[1];
  p.weights = weight.data;
  p.compute = op.compute, p.rounding = op.rounding;
  p.tokens = x.rows();
  p.x = x.as<const float>(), p.x_stride = x.row_stride;
  p.out = out.as<float>(), p.out_stride = out.row_stride;
  const LinearInputs at = inputs_of(op);
  if (op.has_scale) p.scale = launch.in[static_cast<size_t>(at.scale)].as<const float>();
  if (op.has_bias) p.bias = launch.in[static_cast<size_t>(at.bias)].as<const float>();
  if (op.has_residual) {
    const TensorView& residual = launch.in[static_cast<size_t>(at.residual)];
    p.residual = residual.as<const float>();
    p.residual_stride = residual.row_stride;
  }
  p.workspace = launch.workspace;
  if (p.tokens > 0) M.run(p, stream.workers());
  return {};
}

template <const ProductMethod& M>
constexpr Kernel row() {
  return {.name = M.linear_name,
          .supports = supports<M>,
          .workspace = workspace<M>,
          .launch = launch<M>,
          .packing = packing<M>,
          .batch_invariant = M.batch_invariant};
}

}  // namespace

std::span<const Kernel> linear_kernels() {
  static const std::array kernels = {row<kInt8Amx>(),   row<kInt8Vnni>(),      row<kInt8Avx2>(),    row<kBf16Amx>(),
                                     row<kBf16Dot>(),   row<kCodesAvx512>(),   row<kFloatAvx512>(), row<kCodesAvx2>(),
                                     row<kFloatAvx2>(), row<kDecodedAvx512>(), row<kDecodedAvx2>(), kLinearRef};
  return kernels;
}

}  // namespace bolide
