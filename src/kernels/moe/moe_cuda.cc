// Up to kTokens tokens at a time: their scores, their experts, then gate and up, activation, down for each pair of a
// token and one of its experts, and the weighted sum.
#include "kernels/moe/moe_cuda.h"

#include "kernels/act/act_cuda_parts.h"
#include "kernels/common/cuda.h"
#include "kernels/common/cuda_weight.h"
#include "kernels/linear/input_rounding_cuda.h"
#include "kernels/moe/moe_cuda_parts.h"

namespace bolide {
namespace {

constexpr int64_t kTokens = 64;

bool supports(const Problem& problem) {
  const auto* op = attributes<MoeFfn>(problem);
  if (op == nullptr || !is_activation(problem.in[0].dtype) || !is_activation(problem.out[0].dtype)) return false;
  const auto weights = problem.in.subspan(1, 3);
  return op->top_k <= 65535 / kTokens && std::all_of(weights.begin(), weights.end(), [](const ValueType& type) {
           return weight_kind(type.dtype, type.quant) != WeightKind::kNone &&
                  type.dims[type.dims.size() - 2].factor <= INT32_MAX && type.last().factor <= INT32_MAX;
         });
}

// What lies between the steps, for so many tokens. Laid out over `memory`, which may be null to learn the size.
struct Scratch {
  CudaInputRounding x_rounding, hidden_rounding;
  CudaMatrix scores, x, both, hidden, hidden_rounded, parts;
  int32_t* experts = nullptr;
  float* weights = nullptr;
  size_t bytes = 0;

  Scratch(const MoeFfn& op, DType input, int64_t tokens, int64_t e, int64_t f, std::byte* memory)
      : x_rounding(op.compute, InputRounding::kNone, input),
        hidden_rounding(op.compute, InputRounding::kNone, DType::kF32) {
    const int64_t pairs = tokens * op.top_k;
    const auto take = [&](size_t count) {
      std::byte* at = memory != nullptr ? memory + bytes : nullptr;
      bytes += round_up(count, 256);
      return at;
    };
    const auto matrix = [&](int64_t rows, int64_t cols) {
      return CudaMatrix{take(static_cast<size_t>(rows * cols) * 4), DType::kF32, rows, cols, cols};
    };
    scores = matrix(tokens, op.experts);
    experts = reinterpret_cast<int32_t*>(take(static_cast<size_t>(pairs) * 4));
    weights = reinterpret_cast<float*>(take(static_cast<size_t>(pairs) * 4));
    x = x_rounding.matrix(take(x_rounding.bytes(tokens, e)), tokens, e);
    both = matrix(pairs, 2 * f);
    hidden = matrix(pairs, f);
    hidden_rounded = hidden_rounding.matrix(take(hidden_rounding.bytes(pairs, f)), pairs, f);
    parts = matrix(pairs, e);
  }
};

size_t workspace(const Problem& problem) {
  const int64_t tokens = std::min(kTokens, problem.in[0].at(problem.sizes)[0]);
  return Scratch(*attributes<MoeFfn>(problem), problem.in[0].dtype, tokens, problem.in[0].last().factor,
                 problem.in[3].last().factor, nullptr)
      .bytes;
}

CudaMatrix columns(const CudaMatrix& matrix, int64_t begin, int64_t count) {
  return {static_cast<float*>(matrix.data) + begin, matrix.dtype, matrix.rows, count, matrix.stride};
}

// One matrix of a weight of experts.
CudaWeight expert_of(const TensorView& weight) {
  CudaWeight w = weight_of(weight);
  w.rows = weight.shape[1];
  return w;
}

// Errors: the status of the first call that failed.
int run(const CudaTarget& target, const MoeFfn& op, const CudaMatrix& x, const Launch& launch, const Scratch& s,
        const CudaMatrix& out) {
  const auto multiply = [&](const CudaWeight& weight, const CudaMatrix& in, const CudaMatrix& to, bool experts,
                            int64_t share) {
    return cuda::product_rows(target, {.weight = weight,
                                       .x = in,
                                       .out = to,
                                       .experts = experts ? s.experts : nullptr,
                                       .share = static_cast<int>(share)});
  };
  const auto round = [&](const CudaInputRounding& rounding, const CudaMatrix& in, const CudaMatrix& to) {
    return rounding.needed() ? cuda::round_rows(target, in, rounding.f8_token, rounding.round_to, to) : 0;
  };
  const int top_k = static_cast<int>(op.top_k);
  const CudaMatrix& expert_in = s.x_rounding.needed() ? s.x : x;
  const CudaMatrix& down_in = s.hidden_rounding.needed() ? s.hidden_rounded : s.hidden;
  const int64_t f = s.hidden.cols;
  int status = multiply(weight_of(launch.in[1]), x, s.scores, false, 1);
  if (status == 0) status = cuda::choose_experts(target, s.scores, top_k, op.renormalise, s.experts, s.weights);
  if (status == 0) status = round(s.x_rounding, x, s.x);
  if (status == 0) status = multiply(expert_of(launch.in[2]), expert_in, s.both, true, op.top_k);
  if (status == 0)
    status = cuda::elementwise(target, static_cast<cuda::Elementwise>(op.act), columns(s.both, 0, f),
                               columns(s.both, f, f), s.hidden);
  if (status == 0) status = round(s.hidden_rounding, s.hidden, s.hidden_rounded);
  if (status == 0) status = multiply(expert_of(launch.in[3]), down_in, s.parts, true, 1);
  return status != 0 ? status : cuda::combine_experts(target, s.parts, s.weights, top_k, out);
}

CudaMatrix rows(const CudaMatrix& matrix, int64_t begin, int64_t count) {
  const int64_t size = matrix.dtype == DType::kBF16 ? 2 : 4;
  return {static_cast<std::byte*>(matrix.data) + begin * matrix.stride * size, matrix.dtype, count, matrix.cols,
          matrix.stride};
}

// (x [T, E], router [X, E], gate|up [X, 2F, E], down [X, E, F]) -> [T, E].
Result<> launch(const Launch& launch, Stream& stream) {
  const auto& op = attributes<MoeFfn>(launch);
  const CudaTarget target = target_of(stream);
  const CudaMatrix x = matrix_of(launch.in[0]), out = matrix_of(launch.out[0]);
  for (int64_t begin = 0; begin < x.rows; begin += kTokens) {
    const int64_t tokens = std::min(kTokens, x.rows - begin);
    const Scratch scratch(op, x.dtype, tokens, x.cols, launch.in[3].cols(), launch.workspace.data());
    const int status = run(target, op, rows(x, begin, tokens), launch, scratch, rows(out, begin, tokens));
    BOLIDE_TRY(launched(stream, status, "moe_cuda"));
  }
  return {};
}

constexpr Kernel kKernels[] = {
    {.name = "moe_cuda",
     .device = DeviceKind::kCuda,
     .supports = supports,
     .workspace = workspace,
     .launch = launch,
     .reference = true},
};

}  // namespace

std::span<const Kernel> moe_cuda_kernels() { return kKernels; }

}  // namespace bolide
