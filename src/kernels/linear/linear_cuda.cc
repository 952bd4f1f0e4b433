#include "kernels/linear/linear_cuda.h"

#include "kernels/common/cuda.h"
#include "kernels/common/cuda_weight.h"
#include "kernels/linear/input_rounding_cuda.h"

namespace bolide {
namespace {

// From here on a tile of 64 tokens, mostly empty, is faster than passes of four.
constexpr int64_t kTokensForTiles = 17;

bool supports(const Problem& problem) {
  const auto* op = attributes<Linear>(problem);
  if (op == nullptr || !op->is_plain() || !is_activation(problem.in[0].dtype) || !is_activation(problem.out[0].dtype))
    return false;
  const LinearInputs at = inputs_of(*op);
  if (op->has_scale && problem.in[static_cast<size_t>(at.scale)].dtype != DType::kF32) return false;
  if (op->has_bias && problem.in[static_cast<size_t>(at.bias)].dtype != DType::kF32) return false;
  if (op->has_residual && !is_activation(problem.in[static_cast<size_t>(at.residual)].dtype)) return false;
  const ValueType& weight = problem.in[1];
  return weight_kind(weight.dtype, weight.quant) != WeightKind::kNone && weight.dims[0].factor <= INT32_MAX &&
         weight.dims[1].factor <= INT32_MAX;
}

CudaInputRounding rounding_of(const Linear& op, DType input) { return {op.compute, op.rounding, input}; }

size_t workspace(const Problem& problem) {
  return rounding_of(*attributes<Linear>(problem), problem.in[0].dtype)
      .bytes(problem.in[0].at(problem.sizes)[0], problem.in[0].last().factor);
}

template <bool kTiles>
Result<> launch(const Launch& launch, Stream& stream) {
  const auto& op = attributes<Linear>(launch);
  const CudaTarget target = target_of(stream);
  constexpr std::string_view kName = kTiles ? "linear_cuda" : "linear_rows_cuda";
  cuda::CudaProduct product;
  product.weight = weight_of(launch.in[1]);
  product.x = matrix_of(launch.in[0]);
  product.out = matrix_of(launch.out[0]);
  const LinearInputs at = inputs_of(op);
  if (op.has_scale) product.scale = launch.in[static_cast<size_t>(at.scale)].as<const float>();
  if (op.has_bias) product.bias = launch.in[static_cast<size_t>(at.bias)].as<const float>();
  if (op.has_residual) product.residual = matrix_of(launch.in[static_cast<size_t>(at.residual)]);
  if (const CudaInputRounding rounding = rounding_of(op, product.x.dtype); rounding.needed()) {
    const CudaMatrix rounded = rounding.matrix(launch.workspace.data(), product.x.rows, product.x.cols);
    BOLIDE_TRY(
        launched(stream, cuda::round_rows(target, product.x, rounding.f8_token, rounding.round_to, rounded), kName));
    product.x = rounded;
  }
  const bool tiles = kTiles && product.x.rows >= kTokensForTiles;
  return launched(stream, tiles ? cuda::product_tiles(target, product) : cuda::product_rows(target, product), kName);
}

constexpr Kernel kKernels[] = {
    {.name = "linear_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports,
     .workspace = workspace,
     .launch = launch<true>,
     .batch_invariant = false,
     .reference = true},
    {.name = "linear_rows_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports,
     .workspace = workspace,
     .launch = launch<false>,
     .reference = true},
};

}  // namespace

std::span<const Kernel> linear_cuda_kernels() { return kKernels; }

}  // namespace bolide
