#include "kernels/linear/cublaslt_cuda.h"

#include <utility>

#include "device/cuda/matmul.h"
#include "kernels/act/act_cuda_parts.h"
#include "kernels/common/cuda.h"
#include "kernels/common/cuda_weight.h"
#include "kernels/linear/composite_cuda_parts.h"
#include "kernels/linear/cublaslt_tune_cuda.h"
#include "kernels/linear/gemv_layout.h"
#include "kernels/linear/input_rounding_cuda.h"
#include "kernels/linear/linear_cuda_parts.h"
#include "kernels/norm/norm_cuda_parts.h"
#include "kernels/rope/rope_launch_cuda.h"

namespace bolide {
namespace {

// Bytes of the largest thing between a composite's kernels, beyond which tokens go through in slices.
constexpr int64_t kBetweenMax = int64_t{256} << 20, kBetweenMaxOfTests = int64_t{64} << 10;
constexpr int64_t kDecodedShare = 4;  // of that: bytes of a weight's rows that are decoded at once, a quarter
constexpr int64_t kSliceStep = 128;   // tokens, or rows of a weight; slices are multiples of it
constexpr int64_t kAlignment = 256;   // of what lies in the workspace
constexpr int64_t kVector = 8;        // K is a multiple of it: rows of a bf16 weight are aligned to 16 bytes

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// How the weight enters the product.
enum class Path : uint8_t {
  kBF16,     // as it is
  kF8,       // as it is; x as codes too, with a scale for each token
  kDecoded,  // slices of rows as bf16
  kRows,     // as it is, by the kernels of last resort: for a few tokens less work than decoding
};
constexpr int64_t kRowsTokensMax = 16;

// What a launch does, for its number of tokens.
struct Work {
  const Linear& op;
  const RopeKvWrite* rope;  // null: the op is a Linear
  Path path;
  int64_t n, k;  // of the weight
  DType out;
  int64_t between_max;
  int compute_capability;

  bool rounds_input() const { return op.rounding != InputRounding::kNone; }
  bool changes_input() const { return op.has_norm || rounds_input(); }
  // The product is not yet the result.
  bool finishes() const { return op.gated || rope != nullptr; }
  DType product_dtype() const { return finishes() ? DType::kBF16 : out; }
  // cuBLASLt adds biases of the result's type, and of bf16 to products of f8.
  bool narrows_bias() const {
    return op.has_bias && path != Path::kRows && (path == Path::kF8 || product_dtype() == DType::kBF16);
  }

  // Bytes a token between the kernels, of input and product.
  int64_t input_bytes() const { return path == Path::kF8 ? k : changes_input() ? 2 * k : 0; }
  int64_t product_bytes() const { return finishes() ? 2 * n : 0; }
  // Sums that are not scaled yet: cuBLASLt scales rows of products of f8 on Hopper alone.
  int64_t sums_bytes() const { return path == Path::kF8 && compute_capability != 90 ? 4 * n : 0; }

  // Tokens that can go through at once, of `tokens`.
  int64_t slice_max(int64_t tokens) const {
    const int64_t token_bytes = std::max({input_bytes(), product_bytes() + sums_bytes(), int64_t{1}});
    return std::min(tokens, std::max(between_max / token_bytes / kSliceStep, int64_t{1}) * kSliceStep);
  }
  // Tokens that do: all, or slices as equal as may be.
  int64_t slice(int64_t tokens) const {
    const int64_t most = slice_max(tokens), pieces = (tokens + most - 1) / most;
    return pieces == 1 ? tokens : ((tokens + pieces - 1) / pieces + kSliceStep - 1) / kSliceStep * kSliceStep;
  }
  // Rows of the weight that are decoded at once.
  int64_t weight_slice() const {
    if (path != Path::kDecoded) return n;
    return std::min(n, std::max(between_max / kDecodedShare / (2 * k) / kSliceStep, int64_t{1}) * kSliceStep);
  }
};

// Places in the workspace.
struct Layout {
  int64_t library = 0, bias = 0, scales = 0, ones = 0, input = 0, product = 0, sums = 0, decoded = 0;  // bytes

  // For slices of `rows` tokens.
  Layout(const Work& work, int64_t rows) {
    library = aligned(static_cast<int64_t>(Matmuls::workspace_bytes(rows, work.weight_slice())));
    if (work.narrows_bias()) bias = aligned(2 * work.n);
    if (work.path == Path::kF8) scales = aligned(4 * rows);
    if (work.path == Path::kF8 && !work.op.has_scale) ones = aligned(4 * work.n);
    input = aligned(rows * work.input_bytes());
    product = aligned(rows * work.product_bytes());
    sums = aligned(rows * work.sums_bytes());
    if (work.path == Path::kDecoded) decoded = aligned(2 * work.weight_slice() * work.k);
  }
  int64_t bytes() const { return library + bias + scales + ones + input + product + sums + decoded; }
};

// Units of tensor cores of f8: of GPUs from sm_89 on, 16 elements.
Path path_of(const Linear& op, WeightKind kind, int64_t n, int64_t k, int compute_capability) {
  if (kind == WeightKind::kF8E4M3 && op.rounding == InputRounding::kF8Token && n % 16 == 0 && k % 16 == 0 &&
      compute_capability >= 89)
    return Path::kF8;
  return kind == WeightKind::kBF16 && !op.has_scale ? Path::kBF16 : Path::kDecoded;
}

// What tells the rows of the list apart.
struct Variant {
  int64_t between_max = kBetweenMax;
  bool few = false;  // Path::kRows where others have kDecoded
};

template <class Attributes, Variant kVariant>
Work work_of(const Attributes& op, WeightKind kind, int64_t n, int64_t k, DType out, int compute_capability) {
  const auto make = [&](const Linear& linear, const RopeKvWrite* rope) {
    Path path = path_of(linear, kind, n, k, compute_capability);
    if (kVariant.few && path == Path::kDecoded) path = Path::kRows;
    return Work{linear, rope, path, n, k, out, kVariant.between_max, compute_capability};
  };
  if constexpr (std::is_same_v<Attributes, QkvRope>) {
    return make(op.linear, &op.rope);
  } else {
    return make(op, nullptr);
  }
}
template <class Attributes, Variant kVariant>
Work work_of(const Problem& problem) {
  const ValueType& weight = problem.in[1];
  return work_of<Attributes, kVariant>(*attributes<Attributes>(problem), weight_kind(weight.dtype, weight.quant),
                                       weight.dims[0].factor, weight.dims[1].factor, problem.out[0].dtype,
                                       problem.device->gpu->compute_capability);
}

bool supports_work(const Problem& problem, const Work& work) {
  const Linear& op = work.op;
  const ValueType &x = problem.in[0], &weight = problem.in[1];
  const GpuInfo& gpu = *problem.device->gpu;
  if (gpu.compute_capability < 80 || gpu.cublaslt_version == 0) return false;
  const WeightKind kind = weight_kind(weight.dtype, weight.quant);
  if (kind == WeightKind::kNone || op.compute == Compute::kInt8) return false;
  if (work.n > INT32_MAX || work.k > INT32_MAX || work.k % kVector != 0) return false;
  if (!is_activation(work.out) || (work.finishes() && work.out != DType::kBF16)) return false;
  if (op.has_norm) {
    // Where activations are bf16, so is a norm's result.
    if (!is_activation(x.dtype) || (op.compute != Compute::kBF16 && work.out != DType::kBF16)) return false;
  } else if (x.dtype != DType::kBF16) {
    return false;
  }
  // Elsewhere codes and their scales are rounded to bf16.
  if (op.compute == Compute::kF32 && (work.path != Path::kBF16 || work.rounds_input())) return false;
  const LinearInputs at = inputs_of(op);
  const auto dtype = [&](int input) { return problem.in[static_cast<size_t>(input)].dtype; };
  for (const int vector : {at.scale, at.bias, at.gain})
    if (vector >= 0 && dtype(vector) != DType::kF32) return false;
  return !op.has_residual || dtype(at.residual) == work.out;
}

template <class Attributes, Variant kVariant>
bool supports(const Problem& problem) {
  const auto* op = attributes<Attributes>(problem);
  if (op == nullptr || problem.in[1].dims.size() != 2) return false;
  if constexpr (std::is_same_v<Attributes, QkvRope>)
    if (!rope::fits_cuda(op->rope.rope)) return false;
  const Work work = work_of<Attributes, kVariant>(problem);
  const bool few = problem.in[0].at(problem.sizes)[0] <= kRowsTokensMax && gemv_packing(problem.in[1].quant) == nullptr;
  if (kVariant.few ? !few || work.path != Path::kRows : few && work.path == Path::kDecoded) return false;
  return supports_work(problem, work);
}

template <class Attributes, Variant kVariant>
size_t workspace(const Problem& problem) {
  const Work work = work_of<Attributes, kVariant>(problem);
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
    if (work_.path != Path::kRows) {
      BOLIDE_TRY(matmuls_, as_cuda(stream_).state().matmuls());
    }
    const int64_t rows = work_.slice(x.rows);
    place(Layout(work_, rows));
    BOLIDE_TRY(prepare_vectors());
    for (int64_t begin = 0; begin < x.rows; begin += rows) {
      const int64_t count = std::min(rows, x.rows - begin);
      BOLIDE_TRY(const CudaMatrix input, make_input(rows_of(x, begin, count)));
      const CudaMatrix result = rows_of(out, begin, count);
      const CudaMatrix product =
          work_.finishes() ? CudaMatrix{product_, DType::kBF16, count, work_.n, work_.n} : result;
      CudaMatrix residual;
      if (work_.op.has_residual) residual = rows_of(matrix_of(in(at_.residual)), begin, count);
      BOLIDE_TRY(multiply(input, residual, product));
      BOLIDE_TRY(finish(product, begin, result));
    }
    return {};
  }

 private:
  Result<> launched(int status) { return bolide::launched(stream_, status, "a part of a product of many tokens"); }
  const TensorView& in(int index) const { return launch_.in[static_cast<size_t>(index)]; }
  const float* vector(int index) const { return index >= 0 ? in(index).as<const float>() : nullptr; }

  void place(const Layout& layout) {
    BOLIDE_CHECK(launch_.workspace.size() >= static_cast<size_t>(layout.bytes()), "workspace of {} bytes, not {}",
                 launch_.workspace.size(), layout.bytes());
    std::byte* at = launch_.workspace.data();
    const auto next = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
    library_ = {next(layout.library), static_cast<size_t>(layout.library)};
    bias_ = next(layout.bias);
    scales_ = reinterpret_cast<float*>(next(layout.scales));
    ones_ = reinterpret_cast<float*>(next(layout.ones));
    input_ = next(layout.input);
    product_ = next(layout.product);
    sums_ = next(layout.sums);
    decoded_ = next(layout.decoded);
  }

  Result<> prepare_vectors() {
    if (work_.path == Path::kF8 && !work_.op.has_scale) BOLIDE_TRY(launched(cuda::fill_ones(target_, ones_, work_.n)));
    if (!work_.narrows_bias()) return {};
    const CudaMatrix wide{in(at_.bias).data, DType::kF32, 1, work_.n, work_.n},
        narrow{bias_, DType::kBF16, 1, work_.n, work_.n};
    return launched(cuda::round_rows(target_, wide, false, cuda::RoundTo::kBF16, narrow));
  }

  Result<CudaMatrix> make_input(const CudaMatrix& x) {
    const Linear& op = work_.op;
    if (work_.path == Path::kF8) {
      const CudaMatrix codes{input_, DType::kF8E4M3, x.rows, x.cols, x.cols};
      BOLIDE_TRY(launched(cuda::quantise_rows(target_, x, vector(at_.gain), op.eps, codes, scales_)));
      return codes;
    }
    const CudaMatrix made{input_, DType::kBF16, x.rows, x.cols, x.cols};
    if (op.has_norm) BOLIDE_TRY(launched(cuda::rms_norm(target_, x, {}, vector(at_.gain), op.eps, x.cols, {}, made)));
    if (work_.rounds_input())  // a row is read before it is written
      BOLIDE_TRY(launched(cuda::round_rows(target_, op.has_norm ? made : x, true, cuda::RoundTo::kBF16, made)));
    return work_.changes_input() ? made : x;
  }

  Result<> multiply(const CudaMatrix& x, const CudaMatrix& residual, const CudaMatrix& out) {
    const TensorView& weight = launch_.in[1];
    Matmul product{.tokens = x.rows, .n = work_.n, .k = work_.k};
    product.x = operand(x), product.weight = operand(matrix_of(weight));
    product.residual = operand(residual), product.out = operand(out);
    product.bias = work_.narrows_bias() ? bias_ : reinterpret_cast<const std::byte*>(vector(at_.bias));
    if (work_.path == Path::kF8) return multiply_f8(product, residual, out);
    if (work_.path == Path::kBF16) return run(product);
    if (work_.path == Path::kRows)
      return launched(cuda::product_rows(
          target_, {weight_of(weight), x, out, vector(at_.scale), vector(at_.bias), residual, nullptr, 1}));
    cuda::DecodedWeight codes{weight_of(weight)};
    if (gemv_packing(weight.quant) != nullptr) {
      const PieceRow row = gemv_row(weight.quant, work_.k);
      codes.rows.row_bytes = row.row_bytes, codes.groups_from = row.groups_from;
    }
    const int64_t rows = work_.weight_slice(), bias_size = work_.narrows_bias() ? 2 : 4;
    for (int64_t first = 0; first < work_.n; first += rows) {
      const int64_t count = std::min(rows, work_.n - first);
      const CudaMatrix decoded{decoded_, DType::kBF16, count, work_.k, work_.k};
      BOLIDE_TRY(launched(cuda::dequantise_rows(target_, codes, first, vector(at_.scale), decoded)));
      Matmul part = product;
      part.n = count;
      part.weight = operand(decoded);
      part.out = operand(columns_of(out, first, count));
      if (residual.data != nullptr) part.residual = operand(columns_of(residual, first, count));
      if (part.bias != nullptr) part.bias = static_cast<const std::byte*>(part.bias) + first * bias_size;
      BOLIDE_TRY(run(part));
    }
    return {};
  }

  Result<> run(const Matmul& product) {
    return matmuls_->run(product, launch_.tactic->bytes, library_, target_.stream);
  }

  // Scaled by cuBLASLt where it does that, else by a kernel behind.
  Result<> multiply_f8(Matmul product, const CudaMatrix& residual, const CudaMatrix& out) {
    if (work_.sums_bytes() == 0) {
      product.x_scale = scales_;
      product.weight_scale = work_.op.has_scale ? vector(at_.scale) : ones_;
      return run(product);
    }
    const CudaMatrix sums{sums_, DType::kF32, product.tokens, work_.n, work_.n};
    product.bias = nullptr, product.residual = {}, product.out = operand(sums);
    BOLIDE_TRY(run(product));
    return launched(cuda::scale_sums(target_, {sums, scales_, vector(at_.scale), vector(at_.bias), residual}, out));
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
  std::byte *bias_ = nullptr, *input_ = nullptr, *product_ = nullptr, *sums_ = nullptr, *decoded_ = nullptr;
  float *scales_ = nullptr, *ones_ = nullptr;
};

// As products of few tokens have them, since a weight is packed once.
const Packing* packing(const Problem& problem, int operand) {
  return operand == 1 ? gemv_packing(problem.in[1].quant) : nullptr;
}

// Products that differ in no more than this have the same fastest algorithm. Slices are of the same size but the last.
template <class Attributes, Variant kVariant>
MatmulShape shape_of(const Problem& problem) {
  const Work work = work_of<Attributes, kVariant>(problem);
  const int64_t tokens = problem.in[0].at(problem.sizes)[0];
  const bool scaled = work.path == Path::kF8 && work.sums_bytes() == 0;
  MatmulShape shape{.tokens = work.slice(tokens), .n = work.weight_slice(), .k = work.k};
  shape.in = work.path == Path::kF8 ? DType::kF8E4M3 : DType::kBF16;
  shape.out = work.path == Path::kF8 && !scaled ? DType::kF32 : work.product_dtype();
  shape.has_bias = work.op.has_bias && (work.path != Path::kF8 || scaled);
  shape.has_residual = work.op.has_residual && (work.path != Path::kF8 || scaled);
  shape.has_scales = scaled;
  return shape;
}
template <class Attributes, Variant kVariant>
std::string tuning_key(const Problem& problem) {
  return problem.in[0].at(problem.sizes)[0] > 0 ? key_of(shape_of<Attributes, kVariant>(problem)) : std::string();
}
template <class Attributes, Variant kVariant>
Result<std::unique_ptr<Tunable>> tunable(const Problem& problem, Device& device) {
  return tunable_matmul(shape_of<Attributes, kVariant>(problem), device);
}

template <class Attributes, Variant kVariant>
Result<> launch_composite(const Launch& launch, Stream& stream) {
  const TensorView& weight = launch.in[1];
  const Work work = work_of<Attributes, kVariant>(attributes<Attributes>(launch),
                                                  weight_kind(weight.dtype, weight.quant), weight.rows(), weight.cols(),
                                                  launch.out[0].dtype, target_of(stream).compute_capability);
  return Composite(launch, work, stream).run();
}

template <class Attributes, Variant kVariant>
constexpr Kernel row(std::string_view name) {
  return {.name = name,
          .device = DeviceKind::kCuda,
          .supports = supports<Attributes, kVariant>,
          .workspace = workspace<Attributes, kVariant>,
          .launch = launch_composite<Attributes, kVariant>,
          .packing = packing,
          .batch_invariant = false,
          .reference = kVariant.few,
          .tuning_key = kVariant.few ? nullptr : tuning_key<Attributes, kVariant>,
          .tunable = kVariant.few ? nullptr : tunable<Attributes, kVariant>};
}

constexpr Variant kMany{}, kFew{.few = true}, kSliced{.between_max = kBetweenMaxOfTests};
constexpr Kernel kKernels[] = {row<Linear, kMany>("linear_cublaslt"), row<QkvRope, kMany>("qkv_rope_cublaslt"),
                               row<Linear, kFew>("linear_parts_cuda"), row<QkvRope, kFew>("qkv_rope_parts_cuda")};
constexpr Kernel kKernelsOfTests[] = {row<Linear, kSliced>("linear_cublaslt_sliced"),
                                      row<QkvRope, kSliced>("qkv_rope_cublaslt_sliced")};

}  // namespace

std::span<const Kernel> cublaslt_cuda_kernels() { return kKernels; }
std::span<const Kernel> cublaslt_cuda_kernels_sliced() { return kKernelsOfTests; }

}  // namespace bolide
