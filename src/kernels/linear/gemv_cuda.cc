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
    constexpr struct {
      const QuantScheme* quant;
      Format format;
    } kFormats[] = {{&kW4_G128, Format::kW4G128}, {&kW4_G64, Format::kW4G32}, {&kW4_G32, Format::kW4G32},
                    {&kQ4_0, Format::kQ4_0},      {&kQ4_1, Format::kQ4_1},    {&kQ4_K, Format::kQ4_K},
                    {&kQ5_K, Format::kQ5_K},      {&kQ6_K, Format::kQ6_K},    {&kQ8_0, Format::kQ8_0}};
    for (const auto& known : kFormats) {
      if (known.quant != quant) continue;
      const PieceRow row = gemv_row(quant, k);
      weight->format = known.format;
      weight->row_bytes = row.row_bytes, weight->groups_from = row.groups_from;
      return true;
    }
    return false;
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
// A norm or rounding whose result does not fit shared memory is a kernel of its own in front, and so is rounding of
// what the product does not take otherwise.
bool has_front(const Linear& op, cuda::GemvFormat format, DType x, int64_t tokens, int64_t k) {
  if (rounds(op) && (!cuda::gemv_rounds(format) || x != (op.has_norm ? DType::kF32 : DType::kBF16))) return true;
  return (rounds(op) || op.has_norm) && 2 * tokens * k > cuda::kGemvSharedXMax;
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
  return operand == 1 ? gemv_packing(problem.in[1].quant) : nullptr;
}

bool is_whole(const CudaMatrix& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride * (x.dtype == DType::kBF16 ? 2 : 4) % 16 == 0;
}

// What is to be done, without a front. `rope` is to live as long as the work.
template <class Op>
cuda::GemvWork work_of(const Launch& launch, cuda::RopeParameters* rope) {
  const Op& op = attributes<Op>(launch);
  const Linear& linear = *linear_of(op);
  const LinearInputs at = inputs_of(linear);
  const auto vector = [&](int input) {
    return input < 0 ? nullptr : launch.in[static_cast<size_t>(input)].as<const float>();
  };
  const TensorView& weight = launch.in[1];
  cuda::GemvWork work;
  BOLIDE_CHECK(format_of(weight.dtype, weight.quant, weight.cols(), &work.weight), "a weight of another type");
  work.weight.codes = weight.data, work.weight.rows = weight.rows();
  work.x = matrix_of(launch.in[0]), work.out = matrix_of(launch.out[0]);
  work.gain = vector(at.gain), work.eps = linear.eps, work.rounds = rounds(linear);
  work.scale = vector(at.scale), work.bias = vector(at.bias);
  if (linear.has_residual) work.residual = matrix_of(launch.in[static_cast<size_t>(at.residual)]);
  if constexpr (std::is_same_v<Op, QkvRope>) {
    work.pairs = cuda::GemvWork::Pairs::kHeads;
    *rope = rope::parameters_of(op.rope.rope, launch.batch);
    work.rope = rope;
    work.positions = launch.in.back().template as<const int32_t>();
    work.heads = static_cast<int>(op.rope.heads), work.head_dim = static_cast<int>(op.rope.head_dim);
    work.pools = rope::pools_of(launch, op.rope.layer, op.rope.kv_heads, op.rope.head_dim);
  } else if (linear.gated) {
    work.pairs = cuda::GemvWork::Pairs::kHalves;
    work.act = static_cast<cuda::Elementwise>(linear.act);  // act_cuda.cc sees to it that they agree
  }
  return work;
}

template <class Op>
Result<> launch(const Launch& launch, Stream& stream) {
  const Linear& linear = *linear_of(attributes<Op>(launch));
  const CudaTarget target = target_of(stream);
  cuda::RopeParameters rope;
  cuda::GemvWork work = work_of<Op>(launch, &rope);
  if (work.x.rows == 0) return {};
  const int64_t k = work.x.cols;
  if (has_front(linear, work.weight.format, work.x.dtype, work.x.rows, k)) {
    const CudaMatrix made{launch.workspace.data(), DType::kBF16, work.x.rows, k, k};
    int status;
    if (work.rounds) {
      auto* scales = reinterpret_cast<float*>(launch.workspace.data() + scales_from(work.x.rows, k));
      status = cuda::quantise_rows(target, work.x, work.gain, work.eps, made, scales);
      work.token_scale = scales, work.rounds = false;
    } else {
      status = cuda::rms_norm(target, work.x, {}, work.gain, work.eps, k, {}, made);
    }
    BOLIDE_TRY(launched(stream, status, "linear_gemv_cuda"));
    work.x = made, work.gain = nullptr;
  } else if (!is_whole(work.x)) {
    const CudaMatrix whole{launch.workspace.data(), work.x.dtype, work.x.rows, k, k};
    BOLIDE_TRY(
        launched(stream, cuda::round_rows(target, work.x, false, cuda::RoundTo::kNothing, whole), "linear_gemv_cuda"));
    work.x = whole;
  }
  return launched(stream, cuda::gemv(target, work), "linear_gemv_cuda");
}

extern const Kernel* const kRows[2];

bool is_qkv(const Kernel* kernel) { return kernel == kRows[1]; }

size_t chainable(std::span<const Launch> launches, std::span<const Kernel* const> kernels, const GpuInfo& gpu) {
  if (gpu.compute_capability != 90) return 0;
  size_t count = 0, heads = 0;
  cuda::GemvFormat format{};
  int64_t tokens = 0;
  for (; count < std::min<size_t>(launches.size(), cuda::kGemvChainMost); ++count) {
    if (kernels[count] != kRows[0] && kernels[count] != kRows[1]) break;
    const Launch& launch = launches[count];
    const Linear& op = is_qkv(kernels[count]) ? attributes<QkvRope>(launch).linear : attributes<Linear>(launch);
    if (is_qkv(kernels[count]) && ++heads > 1) break;
    const TensorView &x = launch.in[0], &weight = launch.in[1];
    cuda::GemvWeight made;
    if (!format_of(weight.dtype, weight.quant, weight.cols(), &made)) break;
    if (count == 0) format = made.format, tokens = x.rows();
    if (!cuda::gemv_chains(format)) return 0;
    if (made.format != format || x.rows() != tokens || tokens < 1 || tokens > cuda::kGemvChainTokensMax) break;
    if (has_front(op, format, x.dtype, tokens, x.cols()) || 2 * tokens * x.cols() > cuda::kGemvChainXMax) break;
  }
  return count;
}

size_t takes(std::span<const Launch> launches, std::span<const Kernel* const> kernels, const DeviceInfo& device) {
  return device.gpu ? chainable(launches, kernels, *device.gpu) : 0;
}

Result<> launch_chain(std::span<const Launch> launches, std::span<const Kernel* const> kernels, Stream& stream) {
  CudaTarget target = target_of(stream);
  target.alone = as_cuda(stream).claim_waiting();
  std::array<cuda::GemvWork, cuda::kGemvChainMost> works;
  cuda::RopeParameters rope;
  const size_t count = chainable(launches, kernels, as_cuda(stream).state().gpu());
  bool chains = count == launches.size() && count > 1 && target.barriers != nullptr;
  for (size_t i = 0; i < count; ++i) {
    works[i] = is_qkv(kernels[i]) ? work_of<QkvRope>(launches[i], &rope) : work_of<Linear>(launches[i], nullptr);
    chains = chains && is_whole(works[i].x);
  }
  if (chains)
    return launched(stream, cuda::gemv_chain(target, works.data(), static_cast<int>(count)), "gemv_chain_cuda");
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
const Kernel* const kRows[2] = {&kKernels[0], &kKernels[1]};

}  // namespace

std::span<const Kernel> gemv_cuda_kernels() { return kKernels; }

namespace cuda {

namespace {
int gemv_any(const CudaTarget& target, const GemvWork* works, int count) {
  switch (works->weight.format) {
    case GemvFormat::kBF16: return gemv_bf16(target, works, count);
    case GemvFormat::kF8E4M3: return gemv_f8(target, works, count);
    case GemvFormat::kInt8: return gemv_int8(target, works, count);
    case GemvFormat::kW4G128:
    case GemvFormat::kW4G32: return gemv_w4(target, works, count);
    case GemvFormat::kQ4_0:
    case GemvFormat::kQ4_1: return gemv_q4(target, works, count);
    case GemvFormat::kQ4_K:
    case GemvFormat::kQ5_K: return gemv_q45_k(target, works, count);
    case GemvFormat::kQ6_K: return gemv_q6_k(target, works, count);
    case GemvFormat::kQ8_0: return gemv_q8(target, works, count);
  }
  return gemv_bf16(target, works, count);
}
}  // namespace

int gemv(const CudaTarget& target, const GemvWork& work) { return gemv_any(target, &work, 1); }
int gemv_chain(const CudaTarget& target, const GemvWork* works, int count) { return gemv_any(target, works, count); }

}  // namespace cuda
}  // namespace bolide
