// What crosses from general_cuda.cc to the .cu files of this folder: plain data. All pointers are of the device; the
// functions enqueue and return a cudaError_t. Sizes are checked by the caller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/cuda_target.h"

namespace bolide {

inline constexpr int kGeneralRankMax = 8;

// What is done to an element. Unary ones read operand 0, binary ones 0 and 1, kWhere all three. p and q: the numbers
// that an op has (LeakyRelu's slope; Clip's bounds; HardSigmoid's alpha and beta).
enum class ElementOp : uint8_t {
  kCopy,
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kLog,
  kSqrt,
  kReciprocal,
  kNeg,
  kAbs,
  kErf,
  kGelu,      // by erf
  kGeluTanh,  // by tanh
  kSilu,      // x * sigmoid(p x)
  kHardSigmoid,
  kHardSwish,
  kLeakyRelu,
  kElu,
  kClip,
  kSoftplus,
  kFloor,
  kCeil,
  kRound,
  kSign,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
  kSelu,  // p: alpha, q: gamma
  kCelu,
  kThresholdedRelu,
  kSoftsign,
  kMish,
  kShrink,  // p: lambd, q: bias
  kScale,   // p x + q
  kIsNan,   // results are bools
  kIsInf,   // p, q: 1 where a negative, a positive one counts
  kNot,
  kAdd,  // the first of two operands
  kSub,
  kMul,
  kDiv,
  kPow,
  kMax,
  kMin,
  kPrelu,
  kBiasGelu,  // gelu(a + b)
  kFmod,
  kEqual,  // the first whose result is a bool
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kAnd,
  kOr,
  kXor,
  kWhere,
};

struct Element {
  ElementOp op = ElementOp::kCopy;
  float p = 0, q = 0;
};

// A tensor whose elements lie anywhere: element (i, j, ...) at data[i * strides[0] + j * strides[1] + ...].
struct GeneralView {
  void* data = nullptr;
  DType dtype = DType::kNone;
  int64_t strides[kGeneralRankMax] = {};  // elements
};

// out = op(in...), all over the same dims. Numbers are computed as f32 if `floats`, else as i64. Results beyond f16's
// largest number become it.
struct ElementsJob {
  Element element;
  int rank = 0;
  int64_t dims[kGeneralRankMax] = {};
  int inputs = 1;
  GeneralView in[3], out;
  bool floats = true;
};
int run_elements(const CudaTarget& target, const ElementsJob& job);

// out [batch, columns, padded rows] = in [batch, rows, columns], converted; rows beyond `rows` are zero.
struct TurnJob {
  const void* in = nullptr;
  void* out = nullptr;
  DType in_dtype = DType::kNone, out_dtype = DType::kNone;
  int64_t batch = 0, rows = 0, columns = 0, padded = 0;
};
int run_turn(const CudaTarget& target, const TurnJob& job);

// out [outer, indices, inner] = data [outer, axis, inner]; elements of `bytes` bytes. An index outside its axis sets
// *fault to `mark` and gives zeros.
struct GatherJob {
  const void *data = nullptr, *indices = nullptr;
  void* out = nullptr;
  bool wide = true;  // indices of i64, else i32
  int64_t outer = 0, axis = 0, inner = 0, count = 0;
  int bytes = 0;
  uint32_t* fault = nullptr;
  uint32_t mark = 0;
};
int run_gather(const CudaTarget& target, const GatherJob& job);

// out[i, j, ...] = in[maps[0][i], maps[1][j], ...]; a null map is the identity, -1 means the element `fill`.
struct MappedJob {
  const void* in = nullptr;
  void* out = nullptr;
  int rank = 0, bytes = 0;                   // of an element: 1, 2, 4, 8 or 16
  alignas(16) uint32_t fill[4] = {};         // its bytes, repeated
  int64_t dims[kGeneralRankMax] = {};        // of out
  int64_t in_strides[kGeneralRankMax] = {};  // elements
  int64_t out_strides[kGeneralRankMax] = {};
  const int32_t* maps[kGeneralRankMax] = {};
};
int run_mapped(const CudaTarget& target, const MappedJob& job);

// out = data at [..., index, ...] along `axis`, where dims and out_strides are of out and indices; else as GatherJob.
struct GatherElementsJob {
  const void *data = nullptr, *indices = nullptr;
  void* out = nullptr;
  bool wide = true;  // indices of i64, else i32
  int rank = 0, axis = 0, bytes = 0;
  int64_t dims[kGeneralRankMax] = {};          // of out and indices, both row-major
  int64_t data_strides[kGeneralRankMax] = {};  // elements
  int64_t limit = 0;                           // of the axis
  uint32_t* fault = nullptr;
  uint32_t mark = 0;
};
int run_gather_elements(const CudaTarget& target, const GatherElementsJob& job);

// out[i, j, ...] = sum over the taps of up to three axes of weights * in[indices..., ...].
struct ResampleJob {
  struct Axis {
    int axis = 0, count = 1;           // taps of an output position
    const int32_t* indices = nullptr;  // [dims[axis], count]
    const float* weights = nullptr;
  };
  const void* in = nullptr;
  void* out = nullptr;
  DType dtype = DType::kNone;
  int rank = 0, axes = 0;
  int64_t dims[kGeneralRankMax] = {};  // of out
  int64_t in_strides[kGeneralRankMax] = {}, out_strides[kGeneralRankMax] = {};
  Axis tapped[3];
};
int run_resample(const CudaTarget& target, const ResampleJob& job);

// out [outer, inner] (i64) = where in [outer, count, inner] is greatest or least; of equal ones the first or last.
struct ArgJob {
  const void* in = nullptr;
  int64_t* out = nullptr;
  DType dtype = DType::kNone;
  int64_t outer = 0, count = 0, inner = 0;
  bool least = false, last = false;
};
int run_arg(const CudaTarget& target, const ArgJob& job);

// values and indices [outer, k, inner] of the k greatest or least of in [outer, count, inner], in order; of equal ones
// the first. count up to kTopKMax.
inline constexpr int64_t kTopKMax = 16384;
struct TopKJob {
  const void* in = nullptr;
  void* values = nullptr;
  int64_t* indices = nullptr;
  DType dtype = DType::kNone;
  int64_t outer = 0, count = 0, inner = 0, k = 0;
  bool least = false;
};
int run_top_k(const CudaTarget& target, const TopKJob& job);

enum class Reduction : uint8_t { kSum, kMean, kMax, kMin, kProduct, kL1, kL2, kSquares };

// out [outer, inner] over in [outer, count, inner]. `partial`, [outer, chunks, inner] floats: where few columns are
// long, each is reduced by so many blocks first.
struct ReduceJob {
  Reduction kind = Reduction::kSum;
  const void* in = nullptr;
  void* out = nullptr;
  DType in_dtype = DType::kNone, out_dtype = DType::kNone;
  int64_t outer = 0, count = 0, inner = 0;
  float* partial = nullptr;
  int64_t chunks = 1;
};
int run_reduce(const CudaTarget& target, const ReduceJob& job);

// Softmax along `count` of [outer, count, inner]; `logarithm`: LogSoftmax.
struct SoftmaxJob {
  const void* in = nullptr;
  void* out = nullptr;
  DType dtype = DType::kNone;
  int64_t outer = 0, count = 0, inner = 0;
  bool logarithm = false;
};
int run_softmax(const CudaTarget& target, const SoftmaxJob& job);

// Rows of x (+ skip + skip_bias), normalised: y = (x - mean) * inverse * scale + bias, or RMS where not `centred`.
// scale, bias and skip_bias [columns] are f32. sum: null or where the sum goes.
struct NormJob {
  const void *x = nullptr, *skip = nullptr;
  const float *skip_bias = nullptr, *scale = nullptr, *bias = nullptr;
  void *y = nullptr, *sum = nullptr;
  DType dtype = DType::kNone;                    // of x, skip, y and sum
  int64_t rows = 0, columns = 0, skip_rows = 0;  // skip's rows repeat
  float epsilon = 0;
  bool centred = true;
};
int run_norm(const CudaTarget& target, const NormJob& job);

// y = then(x * scale + shift) by channel: x [N, C, plane], or [N, plane, C] where `last`; scale and shift [C], or [N,
// C] where `by_image`.
struct ChannelsJob {
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kNone;
  int64_t N = 0, C = 0, plane = 0;
  bool last = false, by_image = false;
  const float *scale = nullptr, *shift = nullptr;
  Element then;
};
int run_channels(const CudaTarget& target, const ChannelsJob& job);

// scales and shifts [N, C] that normalise groups of channels, each by itself: run_channels does it. `by_group`: scale
// and bias are [groups], else [C]. partial: room for moments_chunks(plane) * N * C * 2 floats.
struct MomentsJob {
  const void* x = nullptr;
  DType dtype = DType::kNone;
  int64_t N = 0, C = 0, plane = 0, groups = 1;
  bool last = false, by_group = false;
  const float *scale = nullptr, *bias = nullptr;
  float epsilon = 0;
  float *partial = nullptr, *scales = nullptr, *shifts = nullptr;
};
constexpr int64_t moments_chunks(int64_t plane) { return plane < 512 ? 1 : plane < 16384 ? plane / 256 : 64; }
int run_moments(const CudaTarget& target, const MomentsJob& job);

// y = x / (bias + alpha * squares of the channels [c - before, c + after])^beta, layouts as ChannelsJob has them.
struct LocalNormJob {
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kNone;
  int64_t N = 0, C = 0, plane = 0, before = 0, after = 0;
  bool last = false;
  float alpha = 0, beta = 0, bias = 0;
};
int run_local_norm(const CudaTarget& target, const LocalNormJob& job);

// x is [N, H, W, C] in memory (C the channels in memory, of which the first `channels` are used).
struct Geometry {
  int64_t N = 0, H = 0, W = 0, C = 0;
  int64_t OH = 0, OW = 0, R = 1, S = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
};

enum class Pool : uint8_t { kMax, kMean, kMeanWithPadding };
struct PoolJob {
  Pool kind = Pool::kMax;
  Geometry at;
  const void* in = nullptr;  // [N, H, W, C]
  void* out = nullptr;       // [N, OH, OW, C]
  DType dtype = DType::kNone;
  int64_t limit_h = 0, limit_w = 0;  // kMeanWithPadding: rows and columns with both paddings
};
int run_pool(const CudaTarget& target, const PoolJob& job);

// What follows a product, in this order: * alpha, + bias [N], + residual, the activation.
struct Epilogue {
  float alpha = 1;
  const float* bias = nullptr;
  const void* bias_narrow = nullptr;  // the same in out's type, for libraries; null: they cannot do it
  const void* residual = nullptr;     // of out's type, rows `residual_stride` apart
  int64_t residual_stride = 0, residual_batch = 0;
  Element then;
};

// out [M, N] = a [M, K] b, b [K, N] as rows [N, K]; or a convolution of a = x [N, H, W, C] whose M = N OH OW rows are
// the taps [R, S, C] of an output position.
struct ProductJob {
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  DType dtype = DType::kNone;  // f16, bf16 or f32
  int64_t M = 0, N = 0, K = 0, batch = 1;
  int64_t a_stride = 0, b_stride = 0, out_stride = 0;  // between rows
  int64_t a_batch = 0, b_batch = 0, out_batch = 0;
  bool tf32 = false;                                   // f32 may be rounded to tf32 before it is multiplied
  bool is_convolution = false, b_is_constant = false;  // constant: may be read before the kernel before has ended
  Geometry at;
  Epilogue epilogue;
};

// Tensor cores. K a multiple of 8 (f32: 4), rows and pointers aligned to 16 bytes; a convolution's C 4 or a multiple of
// 8 (f32: of 4). Any other N or M. `choice`: 0 .. product_tiled_choices() - 1; kNoSuchChoice: not for this product.
inline constexpr int kNoSuchChoice = -1;
int product_tiled_choices();
int run_product_tiled(const CudaTarget& target, const ProductJob& job, int choice);
int run_product_f16(const CudaTarget& target, const ProductJob& job, int choice);
int run_product_bf16(const CudaTarget& target, const ProductJob& job, int choice);
int run_product_f32(const CudaTarget& target, const ProductJob& job, int choice);
// Any sizes and strides, without tensor cores.
int run_product_any(const CudaTarget& target, const ProductJob& job);

// Channels of groups: w [M, R, S, C / groups], x [N, H, W, C], out [N, OH, OW, M].
struct GroupedJob {
  const void *x = nullptr, *w = nullptr;
  void* out = nullptr;
  DType dtype = DType::kNone;
  Geometry at;
  int64_t M = 0, groups = 1;
  Epilogue epilogue;
};
int run_grouped(const CudaTarget& target, const GroupedJob& job);

// What a transposed convolution ends with: out [N, H, W, M] = sums of columns [N, OH, OW, groups, R S, M / groups] at
// the positions that a forward convolution of `at` (whose input is out) would have read.
struct FoldJob {
  const void* columns = nullptr;
  void* out = nullptr;
  DType dtype = DType::kNone;
  Geometry at;
  int64_t M = 0, groups = 1;
  Epilogue epilogue;
};
int run_fold(const CudaTarget& target, const FoldJob& job);

// Attention over heads: rows of D (q, k) and Dv (v, out) neighbours, strides in elements. bias: null, or added to the
// scores (f32, f16, bf16) or a bool that lets a key be seen; keys from `bias_keys` on are not seen.
struct AttendJob {
  struct Heads {
    void* data = nullptr;
    int64_t batch = 0, head = 0, row = 0;
  };
  Heads q, k, v, out;
  DType dtype = DType::kNone;
  int64_t B = 0, H = 0, G = 0, S = 0, L = 0, D = 0, Dv = 0;
  float scale = 1, softcap = 0;
  bool causal = false;
  int64_t offset = 0;  // causal: query i sees keys up to i + offset
  const void* bias = nullptr;
  DType bias_dtype = DType::kNone;
  int64_t bias_strides[3] = {}, bias_keys = 0;  // of batch, head, query
};
// Tensor cores: f16 or bf16, D and Dv multiples of 8 up to 128, aligned to 16 bytes.
int run_attend_half(const CudaTarget& target, const AttendJob& job);
// f32 arithmetic; kNoSuchChoice: a tile does not fit into shared memory.
int run_attend_tiled(const CudaTarget& target, const AttendJob& job);
// D and Dv up to 256.
int run_attend_any(const CudaTarget& target, const AttendJob& job);

}  // namespace bolide
