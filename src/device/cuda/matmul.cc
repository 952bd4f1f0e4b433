#include "device/cuda/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "device/cuda/cublaslt.h"

namespace bolide {
namespace {

// Prefill comes with any number of tokens, each a product of its own: beyond so many all are forgotten.
constexpr size_t kReadyMax = 4096;
constexpr int kAlignmentMax = 256;
constexpr size_t kWorkspaceMax = size_t{32} << 20;  // what cuBLAS asks for on Hopper
constexpr MatmulAlgorithm kNone{};

// Hopper, products of so many tokens: power bounds the clock then, and tiles whose sums fit one warpgroup's registers
// are 2 to 16 % faster than the larger ones that cuBLASLt 13.1 ranks first, which two warpgroups share: a block's
// warpgroups take turns, so that one stores its results beside the other's products. Measured on an H200.
constexpr int64_t kTurnsTokensMin = 2048;
constexpr cublasLtMatmulTile_t kTilesOfTurns[] = {CUBLASLT_MATMUL_TILE_176x128, CUBLASLT_MATMUL_TILE_168x128,
                                                  CUBLASLT_MATMUL_TILE_128x128};
constexpr int kRanked = 8;  // as many as cuBLASLt names

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(MatmulAlgorithm));

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return CUDA_R_16F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF8E4M3: return CUDA_R_8F_E4M3;
    default: return CUDA_R_32F;
  }
}

// The largest power of two that divides the address, within reason.
uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return static_cast<uint32_t>(address == 0 ? kAlignmentMax : std::min<uintptr_t>(address & -address, kAlignmentMax));
}

cublasLtMatmulTile_t tile_of(const CublasLt& lt, const MatmulAlgorithm& algorithm) {
  const auto whole = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  uint32_t tile = CUBLASLT_MATMUL_TILE_UNDEFINED;
  size_t written = 0;
  if (lt.MatmulAlgoConfigGetAttribute(&whole, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written) !=
      CUBLAS_STATUS_SUCCESS)
    return CUBLASLT_MATMUL_TILE_UNDEFINED;
  return static_cast<cublasLtMatmulTile_t>(tile);
}

}  // namespace

// What algorithms depend on.
struct Matmuls::Key {
  int64_t tokens, n, k, x_stride, weight_stride, out_stride, residual_stride;
  size_t workspace;
  DType in, out;
  bool has_bias, has_residual, has_scales, relu;
  uint32_t x_alignment, weight_alignment, out_alignment, residual_alignment;
  MatmulAlgorithm chosen;

  static Key of(const Matmul& p, const MatmulAlgorithm& chosen, MutableBytes workspace) {
    return {.tokens = p.tokens,
            .n = p.n,
            .k = p.k,
            .x_stride = p.x.stride,
            .weight_stride = p.weight.stride,
            .out_stride = p.out.stride,
            .residual_stride = p.residual.data != nullptr ? p.residual.stride : p.out.stride,
            .workspace = workspace.size(),
            .in = p.x.dtype,
            .out = p.out.dtype,
            .has_bias = p.bias != nullptr,
            .has_residual = p.residual.data != nullptr,
            .has_scales = p.x_scale != nullptr,
            .relu = p.relu,
            .x_alignment = alignment_of(p.x.data),
            .weight_alignment = alignment_of(p.weight.data),
            .out_alignment = alignment_of(p.out.data),
            .residual_alignment = alignment_of(p.residual.data != nullptr ? p.residual.data : p.out.data),
            .chosen = chosen};
  }
  auto operator<=>(const Key&) const = default;
};

// cuBLASLt sees columns where we have rows: it computes out^T [N, T] = weight [N, K] x^T [K, T].
struct Matmuls::Ready {
  explicit Ready(const CublasLt& functions) : lt(functions) {}
  Ready(const Ready&) = delete;
  ~Ready() {
    if (operation != nullptr) lt.MatmulDescDestroy(operation);
    for (const cublasLtMatrixLayout_t layout : {weight, x, residual, out})
      if (layout != nullptr) lt.MatrixLayoutDestroy(layout);
  }
  const CublasLt& lt;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, residual = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool possible = true;
};

Matmuls::Matmuls(std::shared_ptr<const CublasLt> lt, int compute_capability)
    : lt_(std::move(lt)), prefers_turns_(compute_capability == 90) {}
Matmuls::~Matmuls() = default;

size_t Matmuls::version() const { return lt_->GetVersion(); }

// Parts of sums along K are kept as f32 in it: up to 16 parts.
size_t Matmuls::workspace_bytes(int64_t tokens, int64_t n) {
  const double wanted = 16. * static_cast<double>(tokens) * static_cast<double>(n) * sizeof(float);
  return wanted >= static_cast<double>(kWorkspaceMax) ? kWorkspaceMax : round_up(static_cast<size_t>(wanted), 4096);
}

// Descriptors without an algorithm.
Result<std::unique_ptr<Matmuls::Ready>> Matmuls::describe(const Key& key) const {
  const CublasLt& lt = *lt_;
  auto ready = std::make_unique<Ready>(lt);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return check(lt, lt.MatmulDescSetAttribute(ready->operation, attribute, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  };
  const auto layout = [&](cublasLtMatrixLayout_t& made, DType dtype, int64_t rows, int64_t columns, int64_t stride) {
    return check(lt,
                 lt.MatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(columns), stride),
                 "cublasLtMatrixLayoutCreate");
  };
  BOLIDE_TRY(
      check(lt, lt.MatmulDescCreate(&ready->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate"));
  BOLIDE_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(CUBLAS_OP_T)));
  if (key.relu && !key.has_bias)
    BOLIDE_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_RELU)));
  if (key.has_bias) {
    BOLIDE_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE,
                   static_cast<uint32_t>(key.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)));
    BOLIDE_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                   static_cast<int32_t>(type_of(key.in == DType::kF8E4M3 ? DType::kBF16 : key.out))));
  }
  if (key.in == DType::kF8E4M3) BOLIDE_TRY(set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}));
  if (key.has_scales)
    for (const auto side : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
      BOLIDE_TRY(set(side, static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)));
  BOLIDE_TRY(layout(ready->weight, key.in, key.k, key.n, key.weight_stride));
  BOLIDE_TRY(layout(ready->x, key.in, key.k, key.tokens, key.x_stride));
  BOLIDE_TRY(layout(ready->residual, key.out, key.n, key.tokens, key.residual_stride));
  BOLIDE_TRY(layout(ready->out, key.out, key.n, key.tokens, key.out_stride));
  return ready;
}

Result<> Matmuls::set_pointers(const Ready& ready, const Matmul& product) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* pointer) -> Result<> {
    if (pointer == nullptr) return {};
    return check(
        *lt_,
        lt_->MatmulDescSetAttribute(ready.operation, attribute, static_cast<const void*>(&pointer), sizeof pointer),
        "cublasLtMatmulDescSetAttribute");
  };
  BOLIDE_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias));
  BOLIDE_TRY(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, product.weight_scale));
  return set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, product.x_scale);
}

Result<std::vector<MatmulAlgorithm>> Matmuls::ask(const Key& key, const Ready& ready, int count) const {
  const CublasLt& lt = *lt_;
  cublasLtMatmulPreference_t preference = nullptr;
  BOLIDE_TRY(check(lt, lt.MatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)> owner(
      preference, lt.MatmulPreferenceDestroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return check(lt, lt.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  BOLIDE_TRY(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, key.workspace));
  BOLIDE_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.weight_alignment));
  BOLIDE_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.x_alignment));
  BOLIDE_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.residual_alignment));
  BOLIDE_TRY(prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.out_alignment));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(std::max(count, kRanked)));
  int returned = 0;
  const cublasStatus_t status =
      lt.MatmulAlgoGetHeuristic(lt.handle, ready.operation, ready.weight, ready.x, ready.residual, ready.out,
                                preference, static_cast<int>(found.size()), found.data(), &returned);
  // It says either of these of a product that it has not.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
    return std::vector<MatmulAlgorithm>{};
  BOLIDE_TRY(check(lt, status, "cublasLtMatmulAlgoGetHeuristic"));
  std::vector<MatmulAlgorithm> algorithms;
  for (int i = 0; i < returned; ++i)
    if (const auto& result = found[static_cast<size_t>(i)];
        result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= key.workspace)
      algorithms.push_back(std::bit_cast<MatmulAlgorithm>(result.algo));
  if (prefers_turns_ && key.tokens >= kTurnsTokensMin) {
    const auto rank = [&](const MatmulAlgorithm& algorithm) {
      return std::ranges::find(kTilesOfTurns, tile_of(lt, algorithm)) - std::begin(kTilesOfTurns);
    };
    std::ranges::stable_sort(algorithms, {}, rank);
  }
  if (algorithms.size() > static_cast<size_t>(count)) algorithms.resize(static_cast<size_t>(count));
  return algorithms;
}

bool Matmuls::can_use(const Key& key, const Ready& ready, const MatmulAlgorithm& chosen) const {
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(chosen);
  cublasLtMatmulHeuristicResult_t result{};
  return lt_->MatmulAlgoCheck(lt_->handle, ready.operation, ready.weight, ready.x, ready.residual, ready.out,
                              &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= key.workspace;
}

Result<> Matmuls::run(const Matmul& product, const MatmulAlgorithm& chosen, MutableBytes workspace,
                      CUstream_st* stream) {
  const Key key = Key::of(product, chosen, workspace);
  const std::lock_guard lock(mutex_);
  if (ready_.size() >= kReadyMax && !ready_.contains(key)) ready_.clear();
  std::unique_ptr<Ready>& slot = ready_[key];
  if (slot == nullptr) {
    BOLIDE_TRY(slot, prepare(key, product));
  } else {
    BOLIDE_TRY(set_pointers(*slot, product));
  }
  const auto refuse = [&] {
    return error(Code::kUnsupported, fmt::format("cuBLASLt {} has no product of {} [{}, {}] and [{}, {}] to {}{}",
                                                 version(), to_string(key.in), key.tokens, key.k, key.n, key.k,
                                                 to_string(key.out), key.has_scales ? " with scales of rows" : ""));
  };
  if (!slot->possible) return refuse();
  const float one = 1, beta = key.has_residual ? 1 : 0;
  const void* residual = key.has_residual ? product.residual.data : product.out.data;
  const cublasStatus_t status =
      lt_->Matmul(lt_->handle, slot->operation, &one, product.weight.data, slot->weight, product.x.data, slot->x, &beta,
                  residual, slot->residual, const_cast<void*>(product.out.data), slot->out, &slot->algorithm,
                  workspace.data(), workspace.size(), stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    slot->possible = false;
    return refuse();
  }
  return check(*lt_, status, "cublasLtMatmul");
}

Result<std::unique_ptr<Matmuls::Ready>> Matmuls::prepare(const Key& key, const Matmul& product) const {
  BOLIDE_TRY(std::unique_ptr<Ready> made, describe(key));
  BOLIDE_TRY(set_pointers(*made, product));
  MatmulAlgorithm algorithm = key.chosen;
  if (algorithm == kNone || !can_use(key, *made, algorithm)) {
    BOLIDE_TRY(const auto found, ask(key, *made, 1));
    made->possible = !found.empty();
    if (made->possible) algorithm = found[0];
  }
  made->algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  return made;
}

Result<std::vector<MatmulAlgorithm>> Matmuls::candidates(const Matmul& product, MutableBytes workspace, int count) {
  const Key key = Key::of(product, kNone, workspace);
  const std::lock_guard lock(mutex_);
  BOLIDE_TRY(const std::unique_ptr<Ready> made, describe(key));
  BOLIDE_TRY(set_pointers(*made, product));
  return ask(key, *made, count);
}

}  // namespace bolide
