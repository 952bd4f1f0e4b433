#include "kernels/linear/cublaslt_cuda.h"

#include "device/cuda/matmul.h"
#include "kernels/act/act_cuda_parts.h"
#include "kernels/common/cuda.h"
#include "kernels/common/cuda_weight.h"
#include "kernels/linear/input_rounding_cuda.h"
#include "kernels/norm/norm_cuda_parts.h"
#include "kernels/rope/rope_launch_cuda.h"

namespace bolide {
namespace {

// Bytes of the largest thing between a composite's kernels, beyond which tokens go through in slices.
constexpr int64_t kBetweenMax = int64_t{256} << 20, kBetweenMaxOfTests = int64_t{64} << 10;
constexpr int64_t kSliceStep = 128;  // tokens; slices are multiples of it
constexpr int64_t kAlignment = 256;  // of what lies in the workspace
constexpr int64_t kVector = 8;       // K is a multiple of it: rows of a bf16 weight are aligned to 16 bytes

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What a launch does, for its number of tokens.
struct Work {
  const Linear& op;
  const RopeKvWrite* rope;  // null: the op is a Linear
  int64_t n, k;             // of the weight
  DType out;
  int64_t between_max;

  bool rounds_input() const { return op.rounding != InputRounding::kNone; }
  bool changes_input() const { return op.has_norm || rounds_input(); }
  // The product is not yet the result.
  bool finishes() const { return op.gated || rope != nullptr; }
  DType product_dtype() const { return finishes() ? DType::kBF16 : out; }
  bool narrows_bias() const { return op.has_bias && product_dtype() == DType::kBF16; }

  // Tokens that can go through at once, of `tokens`.
  int64_t slice_max(int64_t tokens) const {
    const int64_t token_bytes = 2 * std::max(changes_input() ? k : 1, finishes() ? n : 1);
    return std::min(tokens, std::max(between_max / token_bytes / kSliceStep, int64_t{1}) * kSliceStep);
  }
  // Tokens that do: all, or slices as equal as may be.
  int64_t slice(int64_t tokens) const {
    const int64_t most = slice_max(tokens), pieces = (tokens + most - 1) / most;
    return pieces == 1 ? tokens : ((tokens + pieces - 1) / pieces + kSliceStep - 1) / kSliceStep * kSliceStep;
  }
};

// Places in the workspace.
struct Layout {
  int64_t library = 0, bias = 0, input = 0, product = 0;  // bytes

  // For slices of `rows` tokens.
  Layout(const Work& work, int64_t rows) {
    library = aligned(static_cast<int64_t>(Matmuls::workspace_bytes(rows, work.n)));
    if (work.narrows_bias()) bias = aligned(2 * work.n);
    if (work.changes_input()) input = aligned(2 * rows * work.k);
    if (work.finishes()) product = aligned(2 * rows * work.n);
  }
  int64_t bytes() const { return library + bias + input + product; }
};

template <class Attributes, int64_t kBetween>
Work work_of(const Attributes& op, int64_t n, int64_t k, DType out) {
  if constexpr (std::is_same_v<Attributes, QkvRope>) {
    return {op.linear, &op.rope, n, k, out, kBetween};
  } else {
    return {op, nullptr, n, k, out, kBetween};
  }
}
template <class Attributes, int64_t kBetween>
Work work_of(const Problem& problem) {
  const ValueType& weight = problem.in[1];
  return work_of<Attributes, kBetween>(*attributes<Attributes>(problem), weight.dims[0].factor, weight.dims[1].factor,
                                       problem.out[0].dtype);
}

bool supports_work(const Problem& problem, const Work& work) {
  const Linear& op = work.op;
  const ValueType &x = problem.in[0], &weight = problem.in[1];
  const GpuInfo& gpu = *problem.device->gpu;
  if (gpu.compute_capability < 80 || gpu.cublaslt_version == 0) return false;
  if (weight.dtype != DType::kBF16 || op.has_scale || op.compute == Compute::kInt8) return false;
  if (work.n > INT32_MAX || work.k > INT32_MAX || work.k % kVector != 0) return false;
  if (!is_activation(work.out) || (work.finishes() && work.out != DType::kBF16)) return false;
  if (op.has_norm) {
    // Where activations are bf16, so is a norm's result.
    if (!is_activation(x.dtype) || (op.compute != Compute::kBF16 && work.out != DType::kBF16)) return false;
  } else if (x.dtype != DType::kBF16) {
    return false;
  }
  if (work.rounds_input() && (op.has_norm || op.compute != Compute::kBF16)) return false;
  const LinearInputs at = inputs_of(op);
  const auto dtype = [&](int input) { return problem.in[static_cast<size_t>(input)].dtype; };
  if (op.has_bias && dtype(at.bias) != DType::kF32) return false;
  if (op.has_norm && dtype(at.gain) != DType::kF32) return false;
  return !op.has_residual || dtype(at.residual) == work.out;
}

template <class Attributes>
bool supports(const Problem& problem) {
  const auto* op = attributes<Attributes>(problem);
  if (op == nullptr || problem.in[1].dims.size() != 2) return false;
  if constexpr (std::is_same_v<Attributes, QkvRope>)
    if (!rope::fits_cuda(op->rope.rope)) return false;
  return supports_work(problem, work_of<Attributes, kBetweenMax>(problem));
}

template <class Attributes, int64_t kBetween>
size_t workspace(const Problem& problem) {
  const Work work = work_of<Attributes, kBetween>(problem);
  // Of fewer tokens than the bucket's, slices may be larger than of all.
  return static_cast<size_t>(Layout(work, work.slice_max(problem.in[0].at(problem.sizes)[0])).bytes());
}

CudaMatrix rows_of(CudaMatrix matrix, int64_t begin, int64_t count) {
  const int64_t size = matrix.dtype == DType::kBF16 ? 2 : 4;
  matrix.data = static_cast<std::byte*>(matrix.data) + begin * matrix.stride * size;
  matrix.rows = count;
  return matrix;
}
CudaMatrix columns_of(CudaMatrix matrix, int64_t begin, int64_t count) {
  const int64_t size = matrix.dtype == DType::kBF16 ? 2 : 4;
  matrix.data = static_cast<std::byte*>(matrix.data) + begin * size;
  matrix.cols = count;
  return matrix;
}
Matmul::Matrix operand(const CudaMatrix& matrix) { return {matrix.data, matrix.dtype, matrix.stride}; }

// One launch, slice by slice.
class Composite {
 public:
  Composite(const Launch& launch, const Work& work, Stream& stream)
      : launch_(launch), work_(work), stream_(stream), target_(target_of(stream)) {}

  Result<> run() {
    const CudaMatrix x = matrix_of(launch_.in[0]), out = matrix_of(launch_.out[0]);
    if (x.rows == 0) return {};
    BOLIDE_TRY(matmuls_, as_cuda(stream_).state().matmuls());
    const int64_t rows = work_.slice(x.rows);
    const Layout layout(work_, rows);
    BOLIDE_CHECK(launch_.workspace.size() >= static_cast<size_t>(layout.bytes()), "workspace of {} bytes, not {}",
                 launch_.workspace.size(), layout.bytes());
    std::byte* at = launch_.workspace.data();
    library_ = {at, static_cast<size_t>(layout.library)};
    bias_ = at + layout.library;
    input_ = bias_ + layout.bias;
    product_ = input_ + layout.input;
    BOLIDE_TRY(prepare_bias());
    for (int64_t begin = 0; begin < x.rows; begin += rows) {
      const int64_t count = std::min(rows, x.rows - begin);
      BOLIDE_TRY(const CudaMatrix input, make_input(rows_of(x, begin, count)));
      const CudaMatrix result = rows_of(out, begin, count);
      const CudaMatrix product =
          work_.finishes() ? CudaMatrix{product_, DType::kBF16, count, work_.n, work_.n} : result;
      BOLIDE_TRY(multiply(input, begin, product));
      BOLIDE_TRY(finish(product, begin, result));
    }
    return {};
  }

 private:
  Result<> launched(int status) { return bolide::launched(stream_, status, "a part of a product of many tokens"); }
  const TensorView& in(int index) const { return launch_.in[static_cast<size_t>(index)]; }

  // cuBLASLt adds biases of the result's type.
  Result<> prepare_bias() {
    if (!work_.op.has_bias) return {};
    const TensorView& bias = in(at_.bias);
    if (!work_.narrows_bias()) {
      bias_ = bias.data;
      return {};
    }
    const CudaMatrix wide{bias.data, DType::kF32, 1, work_.n, work_.n},
        narrow{bias_, DType::kBF16, 1, work_.n, work_.n};
    return launched(cuda::round_rows(target_, wide, false, cuda::RoundTo::kBF16, narrow));
  }

  Result<CudaMatrix> make_input(const CudaMatrix& x) {
    const Linear& op = work_.op;
    const CudaMatrix made{input_, DType::kBF16, x.rows, x.cols, x.cols};
    if (op.has_norm) {
      const auto* gain = in(at_.gain).as<const float>();
      BOLIDE_TRY(launched(cuda::rms_norm(target_, x, {}, gain, op.eps, x.cols, {}, made)));
      return made;
    }
    if (work_.rounds_input()) {
      BOLIDE_TRY(launched(cuda::round_rows(target_, x, true, cuda::RoundTo::kBF16, made)));
      return made;
    }
    return x;
  }

  Result<> multiply(const CudaMatrix& x, int64_t begin, const CudaMatrix& out) {
    Matmul product{.tokens = x.rows, .n = work_.n, .k = work_.k};
    product.x = operand(x);
    product.weight = operand(matrix_of(launch_.in[1]));
    product.out = operand(out);
    if (work_.op.has_residual) product.residual = operand(rows_of(matrix_of(in(at_.residual)), begin, x.rows));
    if (work_.op.has_bias) product.bias = bias_;
    return matmuls_->run(product, launch_.tactic->bytes, library_, target_.stream);
  }

  Result<> finish(const CudaMatrix& product, int64_t begin, const CudaMatrix& out) {
    if (work_.op.gated) {
      const int64_t half = work_.n / 2;
      const auto act = static_cast<cuda::Elementwise>(work_.op.act);  // act_cuda.cc sees to it that they agree
      return launched(
          cuda::elementwise(target_, act, columns_of(product, 0, half), columns_of(product, half, half), out));
    }
    if (work_.rope == nullptr) return {};
    const RopeKvWrite& op = *work_.rope;
    const int64_t q = op.heads * op.head_dim, kv = op.kv_heads * op.head_dim;
    cuda::RopeWork work;
    work.q = columns_of(product, 0, q), work.out = out;
    work.k = columns_of(product, q, kv), work.v = columns_of(product, q + kv, kv);
    work.positions = launch_.in.back().as<const int32_t>() + begin;
    work.tokens = product.rows, work.head_dim = static_cast<int>(op.head_dim), work.first_token = begin;
    cuda::KvPools pools = rope::pools_of(launch_, op.layer, op.kv_heads, op.head_dim);
    pools.slots += begin;
    return launched(cuda::rope(target_, work, rope::parameters_of(op.rope, launch_.batch), pools));
  }

  const Launch& launch_;
  const Work& work_;
  const LinearInputs at_ = inputs_of(work_.op);
  Stream& stream_;
  const CudaTarget target_;
  Matmuls* matmuls_ = nullptr;
  MutableBytes library_;
  std::byte *bias_ = nullptr, *input_ = nullptr, *product_ = nullptr;
};

template <class Attributes, int64_t kBetween>
Result<> launch_composite(const Launch& launch, Stream& stream) {
  const TensorView& weight = launch.in[1];
  const Work work =
      work_of<Attributes, kBetween>(attributes<Attributes>(launch), weight.rows(), weight.cols(), launch.out[0].dtype);
  return Composite(launch, work, stream).run();
}

template <class Attributes, int64_t kBetween>
constexpr Kernel row(std::string_view name) {
  return {.name = name,
          .device = DeviceKind::kCuda,
          .supports = supports<Attributes>,
          .workspace = workspace<Attributes, kBetween>,
          .launch = launch_composite<Attributes, kBetween>,
          .batch_invariant = false};
}

constexpr Kernel kKernels[] = {row<Linear, kBetweenMax>("linear_cublaslt"),
                               row<QkvRope, kBetweenMax>("qkv_rope_cublaslt")};
constexpr Kernel kKernelsOfTests[] = {row<Linear, kBetweenMaxOfTests>("linear_cublaslt_sliced"),
                                      row<QkvRope, kBetweenMaxOfTests>("qkv_rope_cublaslt_sliced")};

}  // namespace

std::span<const Kernel> cublaslt_cuda_kernels() { return kKernels; }
std::span<const Kernel> cublaslt_cuda_kernels_sliced() { return kKernelsOfTests; }

}  // namespace bolide
