#include "kernels/linear/gemv_cuda.h"

#include "kernels/common/cuda.h"
#include "kernels/linear/composite_cuda_parts.h"
#include "kernels/linear/gemv_cuda_parts.h"
#include "kernels/linear/gemv_layout.h"
#include "kernels/linear/linear_cuda_parts.h"
#include "kernels/norm/norm_cuda_parts.h"
#include "kernels/rope/rope_launch_cuda.h"

namespace bolide {
namespace {

const Linear* linear_of(const Linear& op) { return &op; }
const Linear* linear_of(const QkvRope& op) { return &op.linear; }

// False if there is no format for the type.
bool format_of(DType dtype, const QuantScheme* quant, int64_t k, cuda::GemvWeight* weight) {
  using Format = cuda::GemvFormat;
  weight->k = k;
  if (quant != nullptr) {
    if (w4_pieces(quant) == nullptr) return false;
    const int64_t group = w4_pieces_group(quant);
    const W4PieceRow row = w4_piece_row(k, group);
    weight->format = group == 128 ? Format::kW4G128 : Format::kW4G32;
    weight->row_bytes = row.row_bytes, weight->groups_from = row.groups_from;
    return true;
  }
  switch (dtype) {
    case DType::kBF16: weight->format = Format::kBF16; break;
    case DType::kF8E4M3: weight->format = Format::kF8E4M3; break;
    case DType::kI8: weight->format = Format::kInt8; break;
    default: return false;
  }
  weight->row_bytes = k * bits_of(dtype) / 8;
  return weight->row_bytes % 16 == 0 && k % 8 == 0;
}

bool rounds(const Linear& op) { return op.rounding == InputRounding::kF8Token; }
// Rounding is a kernel of its own in front, and so is a norm whose result does not fit shared memory.
bool has_front(const Linear& op, int64_t tokens, int64_t k) {
  return rounds(op) || (op.has_norm && 2 * tokens * k > cuda::kGemvSharedXMax);
}
// Behind what the front makes of x there are the scales of tokens.
int64_t scales_from(int64_t tokens, int64_t k) { return (2 * tokens * k + 15) / 16 * 16; }

bool supports_product(const Problem& problem, const Linear& op) {
  const ValueType &x = problem.in[0], &weight = problem.in[1];
  const GpuInfo& gpu = *problem.device->gpu;
  if (gpu.compute_capability < 80 || gpu.shared_bytes_block < 200 << 10) return false;
  if (weight.dims.size() != 2 || op.compute != Compute::kBF16) return false;
  const int64_t n = weight.dims[0].factor, k = weight.dims[1].factor;
  cuda::GemvWeight made;
  if (!format_of(weight.dtype, weight.quant, k, &made) || n > INT32_MAX || k > INT32_MAX) return false;
  if (n * (made.row_bytes / 16) > UINT32_MAX) return false;  // a place in the weight is a number of 16 bytes
  if (problem.in[0].dims[0].at(problem.sizes) > cuda::kGemvTokensMax) return false;
  if (rounds(op) ? !is_activation(x.dtype) : x.dtype != (op.has_norm ? DType::kF32 : DType::kBF16)) return false;
  const LinearInputs at = inputs_of(op);
  const auto dtype = [&](int input) { return input < 0 ? DType::kF32 : problem.in[static_cast<size_t>(input)].dtype; };
  return dtype(at.scale) == DType::kF32 && dtype(at.bias) == DType::kF32 && dtype(at.gain) == DType::kF32 &&
         is_activation(dtype(at.residual)) && is_activation(problem.out[0].dtype);
}

template <class Op>
bool supports(const Problem& problem) {
  const auto* op = attributes<Op>(problem);
  if (op == nullptr) return false;
  if constexpr (std::is_same_v<Op, QkvRope>)
    if (!rope::fits_cuda(op->rope.rope) || op->rope.head_dim % 2 != 0) return false;
  return supports_product(problem, *linear_of(*op));
}

// For a front and scales of tokens, or for rows of x that do not lie at multiples of 16 bytes.
size_t workspace(const Problem& problem) {
  const int64_t tokens = problem.in[0].dims[0].at(problem.sizes), k = problem.in[1].dims[1].factor;
  return static_cast<size_t>(4 * tokens * k + 4 * tokens);
}

const Packing* packing(const Problem& problem, int operand) {
  return operand == 1 ? w4_pieces(problem.in[1].quant) : nullptr;
}

template <class Op>
Result<> launch(const Launch& launch, Stream& stream) {
  const Op& op = attributes<Op>(launch);
  const Linear& linear = *linear_of(op);
  const CudaTarget target = target_of(stream);
  const LinearInputs at = inputs_of(linear);
  const auto vector = [&](int input) {
    return input < 0 ? nullptr : launch.in[static_cast<size_t>(input)].as<const float>();
  };
  const TensorView& weight = launch.in[1];
  cuda::GemvWork work;
  BOLIDE_CHECK(format_of(weight.dtype, weight.quant, weight.cols(), &work.weight), "a weight of another type");
  work.weight.codes = weight.data, work.weight.rows = weight.rows();
  work.x = matrix_of(launch.in[0]), work.out = matrix_of(launch.out[0]);
  if (work.x.rows == 0) return {};
  const int64_t k = work.x.cols;
  if (has_front(linear, work.x.rows, k)) {
    const CudaMatrix made{launch.workspace.data(), DType::kBF16, work.x.rows, k, k};
    int status;
    if (rounds(linear)) {
      auto* scales = reinterpret_cast<float*>(launch.workspace.data() + scales_from(work.x.rows, k));
      status = cuda::quantise_rows(target, work.x, vector(at.gain), linear.eps, made, scales);
      work.token_scale = scales;
    } else {
      status = cuda::rms_norm(target, work.x, {}, vector(at.gain), linear.eps, k, {}, made);
    }
    BOLIDE_TRY(launched(stream, status, "linear_gemv_cuda"));
    work.x = made;
  } else {
    work.gain = vector(at.gain), work.eps = linear.eps;
    const int64_t size = work.x.dtype == DType::kBF16 ? 2 : 4;
    if (reinterpret_cast<uintptr_t>(work.x.data) % 16 != 0 || work.x.stride * size % 16 != 0) {
      const CudaMatrix whole{launch.workspace.data(), work.x.dtype, work.x.rows, k, k};
      BOLIDE_TRY(launched(stream, cuda::round_rows(target, work.x, false, cuda::RoundTo::kNothing, whole),
                          "linear_gemv_cuda"));
      work.x = whole;
    }
  }
  work.scale = vector(at.scale), work.bias = vector(at.bias);
  if (linear.has_residual) work.residual = matrix_of(launch.in[static_cast<size_t>(at.residual)]);
  cuda::RopeParameters rope;
  if constexpr (std::is_same_v<Op, QkvRope>) {
    work.pairs = cuda::GemvWork::Pairs::kHeads;
    rope = rope::parameters_of(op.rope.rope, launch.batch);
    work.rope = &rope;
    work.positions = launch.in.back().template as<const int32_t>();
    work.heads = static_cast<int>(op.rope.heads), work.head_dim = static_cast<int>(op.rope.head_dim);
    work.pools = rope::pools_of(launch, op.rope.layer, op.rope.kv_heads, op.rope.head_dim);
  } else if (linear.gated) {
    work.pairs = cuda::GemvWork::Pairs::kHalves;
    work.act = static_cast<cuda::Elementwise>(linear.act);  // act_cuda.cc sees to it that they agree
  }
  return launched(stream, cuda::gemv(target, work), "linear_gemv_cuda");
}

size_t takes(std::span<const Launch>, std::span<const Kernel* const>, const DeviceInfo&) { return 0; }

Result<> launch_chain(std::span<const Launch> launches, std::span<const Kernel* const> kernels, Stream& stream) {
  for (size_t i = 0; i < launches.size(); ++i) BOLIDE_TRY(kernels[i]->launch(launches[i], stream));
  return {};
}

constexpr ChainKernel kChain{"gemv_chain_cuda", takes, launch_chain};

template <class Op>
constexpr Kernel row(std::string_view name) {
  return {.name = name,
          .device = DeviceKind::kCuda,
          .supports = supports<Op>,
          .workspace = workspace,
          .launch = launch<Op>,
          .packing = packing,
          .batch_invariant = false,  // more tokens than it takes are another kernel's
          .chain = &kChain};
}

constexpr Kernel kKernels[] = {row<Linear>("linear_gemv_cuda"), row<QkvRope>("qkv_rope_gemv_cuda")};

}  // namespace

std::span<const Kernel> gemv_cuda_kernels() { return kKernels; }

namespace cuda {

namespace {
int gemv_any(const CudaTarget& target, const GemvWork* works, int count) {
  switch (works->weight.format) {
    case GemvFormat::kBF16: return gemv_bf16(target, works, count);
    case GemvFormat::kF8E4M3: return gemv_f8(target, works, count);
    case GemvFormat::kInt8: return gemv_int8(target, works, count);
    default: return gemv_w4(target, works, count);
  }
}
}  // namespace

int gemv(const CudaTarget& target, const GemvWork& work) { return gemv_any(target, &work, 1); }
int gemv_chain(const CudaTarget& target, const GemvWork* works, int count) { return gemv_any(target, works, count); }

}  // namespace cuda
}  // namespace bolide
