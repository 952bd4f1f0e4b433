// Around a product: weights to bf16, activations to f8e4m3, sums to results. Each bound by memory.
#include "kernels/common/cuda_decode.cuh"
#include "kernels/common/cuda_f8.cuh"
#include "kernels/linear/composite_cuda_parts.h"
#include "kernels/linear/f8_round.cuh"
#include "kernels/linear/piece_rows.cuh"

namespace bolide::cuda {
namespace {

using B = __nv_bfloat16;

// Rows of a weight, eight elements a thread: 16 bytes stored, neighbours by neighbours.
constexpr int kDequantiseThreads = 256;

template <class W>
struct NaturalRows {
  int64_t groups_from;
  __device__ __forceinline__ void unit(Bytes row, int u, float (&out)[kUnit]) const {
    W::unit(row, u, kUnit, reinterpret_cast<uintptr_t>(row) % 16 == 0, out);
  }
};
template <class Pieces>
struct PieceRows {
  int64_t groups_from;
  __device__ __forceinline__ void unit(Bytes row, int u, float (&out)[kUnit]) const {
    Pieces::unit(row, groups_from, u, out);
  }
};

template <class Rows>
__global__ void __launch_bounds__(kDequantiseThreads)
    dequantise_kernel(Bytes weight, int64_t row_bytes, Rows rows, int64_t first, const float* scale, int units, B* out,
                      int64_t out_stride) {
  const int unit = static_cast<int>(blockIdx.y) * kDequantiseThreads + static_cast<int>(threadIdx.x);
  const int64_t row = first + blockIdx.x;
  float values[kUnit];
  float factor = 1;
  if (unit < units) {  // of what no kernel writes
    rows.unit(weight + row * row_bytes, unit, values);
    if (scale != nullptr) factor = scale[row];
  }
  wait_for_previous();
  let_next_start();
  if (unit >= units) return;
  Pack<B, kUnit> pack;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) pack.value[i] = narrow<B>(values[i] * factor);
  store(out + int64_t{blockIdx.x} * out_stride + int64_t{unit} * kUnit, pack);
}

template <class Rows>
int dequantise_as(const CudaTarget& target, const DecodedWeight& weight, int64_t first, const float* scale,
                  const CudaMatrix& out) {
  const int64_t units = weight.rows.k / kUnit;
  const dim3 grid(static_cast<unsigned>(out.rows), static_cast<unsigned>(ceil_div(units, kDequantiseThreads)));
  const int64_t threads = ceil_div(units, kWarp) * kWarp;
  return launch(target, dequantise_kernel<Rows>, grid,
                static_cast<unsigned>(threads < kDequantiseThreads ? threads : kDequantiseThreads), 0,
                static_cast<Bytes>(weight.rows.data), weight.rows.row_bytes, Rows{weight.groups_from}, first, scale,
                static_cast<int>(units), static_cast<B*>(out.data), out.stride);
}

// A block a token, eight elements a thread and step: the first kHeld steps stay in registers as they are, later ones
// are read again. Registers are few, so that many rows are on their way. How many threads share a row, and so the order
// of a sum, depends on its length and alignment alone.
constexpr int kQuantiseThreads = 512;
constexpr int kStep = 8;

// The larger |x|, or NaN if there is one.
__device__ __forceinline__ float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(fabsf(b)));
  return c;
}

// The largest of the block's, none of which is negative: their bits are in the order of sizes, NaN beyond all.
__device__ __forceinline__ float block_max(float x, uint32_t* scratch) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t largest = __reduce_max_sync(0xffffffffu, __float_as_uint(x));
  if (lane == 0) scratch[warp] = largest;
  __syncthreads();
  return __uint_as_float(
      __reduce_max_sync(0xffffffffu, lane < static_cast<int>(blockDim.x) / kWarp ? scratch[lane] : 0u));
}

// x / scale, rounded once: a product with the inverse, and what it leaves over. scale is at least 2^-23; an infinite
// one makes 0 of finite x and NaN of infinite, as division does.
struct Divisor {
  float scale, inverse;
  __device__ __forceinline__ explicit Divisor(float s) : scale(isinf(s) ? 0.f : s), inverse(1.f / s) {}
  __device__ __forceinline__ float operator()(float x) const {
    const float quotient = x * inverse;
    return fmaf(fmaf(-quotient, scale, x), inverse, quotient);
  }
};

template <int kCount>
__device__ __forceinline__ void store_codes(B* p, const float (&codes)[kCount]) {
  Pack<B, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.value[i] = narrow<B>(through_f8e4m3(codes[i]));
  store(p, pack);
}
template <int kCount>
__device__ __forceinline__ void store_codes(uint8_t* p, const float (&codes)[kCount]) {
  if constexpr (kCount == 1) {
    *p = narrow<F8E4M3>(codes[0]).bits;
  } else {
    Pack<uint16_t, kCount / 2> pack;
#pragma unroll
    for (int i = 0; i < kCount; i += 2) pack.value[i / 2] = narrow_f8_pair(codes[i], codes[i + 1]);
    store(p, pack);
  }
}

// What was computed of these before is computed again, instead of taking registers.
template <class P, int kHeld>
__device__ __forceinline__ void keep_as_it_is(P (&held)[kHeld]) {
  if constexpr (sizeof(P) >= 4) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
#pragma unroll
      for (int j = 0; j < static_cast<int>(sizeof(P) / 4); ++j)
        asm volatile("" : "+r"(reinterpret_cast<uint32_t*>(&held[i])[j]));
  }
}

// Blocks that a multiprocessor takes at least, which is what bounds registers.
template <class X, bool kGain>
constexpr int kBlocks = kGain || sizeof(X) > 2 ? 2 : 3;
static_assert(3 * kQuantiseThreads <= 1536, "threads of a multiprocessor of compute capability 8.9");

template <class X, class Code, int kCount, int kHeld, bool kGain>
__global__ void __launch_bounds__(kQuantiseThreads, kBlocks<X, kGain>)
    quantise_kernel(const X* xs, int64_t x_stride, int k, const float* gain, float eps, Code* codes, float* scales) {
  __shared__ float scratch[kWarp];
  __shared__ uint32_t largest_of_warps[kWarp];
  using P = Pack<X, kCount>;
  // The product behind may fetch its weights meanwhile; it waits for the end of this kernel.
  let_next_start();
  wait_for_previous();
  const X* x = xs + int64_t{blockIdx.x} * x_stride;
  const int first = static_cast<int>(threadIdx.x) * kCount, step = static_cast<int>(blockDim.x) * kCount;
  P held[kHeld];
#pragma unroll
  for (int s = 0; s < kHeld; ++s)
    if (first + s * step < k) held[s] = load<P>(x + first + s * step);
  // Calls each(index, pack) for all that are this thread's.
  const auto for_each = [&](auto each) {
#pragma unroll
    for (int s = 0; s < kHeld; ++s)
      if (first + s * step < k) each(first + s * step, held[s]);
    for (int i = first + kHeld * step; i < k; i += step) each(i, load<P>(x + i));
  };
  float norm = 1;
  if constexpr (kGain) {
    float squares = 0;
    for_each([&](int, const P& pack) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) squares = fmaf(widen(pack.value[j]), widen(pack.value[j]), squares);
    });
    norm = 1.f / sqrtf(block_sum(squares, scratch) / static_cast<float>(k) + eps);
    keep_as_it_is(held);
  }
  const auto values_of = [&](int i, const P& pack, float(&values)[kCount]) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = widen(pack.value[j]);
    if constexpr (kGain) {
      const auto gains = load<Pack<float, kCount>>(gain + i);
#pragma unroll
      for (int j = 0; j < kCount; ++j) values[j] = values[j] * norm * gains.value[j];
    }
  };
  float largest = 0;
  for_each([&](int i, const P& pack) {
    float values[kCount];
    values_of(i, pack, values);
#pragma unroll
    for (int j = 0; j < kCount; ++j) largest = larger(largest, values[j]);
  });
  const float wanted = __fdiv_rn(block_max(largest, largest_of_warps), 448.f);
  const float scale = wanted > 0x1p-23f || isnan(wanted) ? wanted : 0x1p-23f;
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  const Divisor divide(scale);
  keep_as_it_is(held);
  Code* out = codes + int64_t{blockIdx.x} * k;
  for_each([&](int i, const P& pack) {
    float values[kCount];
    values_of(i, pack, values);
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = divide(values[j]);
    store_codes(out + i, values);
  });
}

template <class X, class Code>
int quantise_as(const CudaTarget& target, const CudaMatrix& x, const float* gain, float eps, const CudaMatrix& codes,
                float* scales) {
  constexpr int64_t kSize = sizeof(X);
  const bool packed = x.cols % kStep == 0 && is_aligned(x.data, x.stride * kSize, kStep * kSize) &&
                      is_aligned(codes.data, codes.stride * static_cast<int64_t>(sizeof(Code)), kStep * sizeof(Code)) &&
                      is_aligned(gain, 0, kStep * 4);
  const auto run = [&]<int kCount, int kHeld>() {
    const int64_t threads = ceil_div(ceil_div(x.cols, kCount * kHeld), kWarp) * kWarp;
    const auto kernel = gain != nullptr ? quantise_kernel<X, Code, kCount, kHeld, true>
                                        : quantise_kernel<X, Code, kCount, kHeld, false>;
    return launch(target, kernel, static_cast<unsigned>(x.rows),
                  static_cast<unsigned>(threads < kQuantiseThreads ? threads : kQuantiseThreads), 0,
                  static_cast<const X*>(x.data), x.stride, static_cast<int>(x.cols), gain, eps,
                  static_cast<Code*>(codes.data), scales);
  };
  if (!packed) return run.template operator()<1, 2>();
  return x.cols <= 2 * kStep * kQuantiseThreads ? run.template operator()<kStep, 2>()
                                                : run.template operator()<kStep, 4>();
}

constexpr int kScaleThreads = 256;

template <class Out>
__global__ void __launch_bounds__(kScaleThreads)
    scale_kernel(const float* sums, int64_t sums_stride, const float* x_scale, const float* weight_scale,
                 const float* bias, const Out* residual, int64_t residual_stride, Out* out, int64_t out_stride,
                 int64_t width) {
  wait_for_previous();
  let_next_start();
  const int64_t i = int64_t{blockIdx.y} * kScaleThreads + threadIdx.x, t = blockIdx.x;
  if (i >= width) return;
  float value = sums[t * sums_stride + i];
  if (x_scale != nullptr) value *= x_scale[t];
  if (weight_scale != nullptr) value *= weight_scale[i];
  if (bias != nullptr) value += bias[i];
  if (residual != nullptr) value += widen(residual[t * residual_stride + i]);
  out[t * out_stride + i] = narrow<Out>(value);
}

template <class Out>
int scale_as(const CudaTarget& target, const ScaledSums& work, const CudaMatrix& out) {
  const dim3 grid(static_cast<unsigned>(out.rows), static_cast<unsigned>(ceil_div(out.cols, kScaleThreads)));
  return launch(target, scale_kernel<Out>, grid, kScaleThreads, 0, static_cast<const float*>(work.sums.data),
                work.sums.stride, work.x_scale, work.weight_scale, work.bias,
                static_cast<const Out*>(work.residual.data), work.residual.stride, static_cast<Out*>(out.data),
                out.stride, out.cols);
}

__global__ void __launch_bounds__(kScaleThreads) ones_kernel(float* values, int64_t count) {
  wait_for_previous();
  let_next_start();
  const int64_t i = int64_t{blockIdx.x} * kScaleThreads + threadIdx.x;
  if (i < count) values[i] = 1.f;
}

}  // namespace

int dequantise_rows(const CudaTarget& target, const DecodedWeight& weight, int64_t first, const float* scale,
                    const CudaMatrix& out) {
  const WeightKind kind = weight.rows.kind;
  if (weight.groups_from != 0)
    return dispatch_pieces(kind,
                           [&]<class P>() { return dequantise_as<PieceRows<P>>(target, weight, first, scale, out); });
  const auto run = [&]<class W>() { return dequantise_as<NaturalRows<W>>(target, weight, first, scale, out); };
  if (kind <= WeightKind::kI8) return dispatch_floats(kind, run);
  if (kind <= WeightKind::kBlockIQ4_NL) return dispatch_blocks32(kind, run);
  if (kind <= WeightKind::kBlockIQ4_XS) return dispatch_blocks256(kind, run);
  return dispatch_blocks_w4(kind, run);
}

int quantise_rows(const CudaTarget& target, const CudaMatrix& x, const float* gain, float eps, const CudaMatrix& codes,
                  float* scales) {
  const bool narrow_codes = codes.dtype == DType::kF8E4M3;
  if (x.dtype == DType::kBF16)
    return narrow_codes ? quantise_as<B, uint8_t>(target, x, gain, eps, codes, scales)
                        : quantise_as<B, B>(target, x, gain, eps, codes, scales);
  return narrow_codes ? quantise_as<float, uint8_t>(target, x, gain, eps, codes, scales)
                      : quantise_as<float, B>(target, x, gain, eps, codes, scales);
}

int scale_sums(const CudaTarget& target, const ScaledSums& work, const CudaMatrix& out) {
  return out.dtype == DType::kBF16 ? scale_as<B>(target, work, out) : scale_as<float>(target, work, out);
}

int fill_ones(const CudaTarget& target, float* values, int64_t count) {
  return launch(target, ones_kernel, static_cast<unsigned>(ceil_div(count, kScaleThreads)), kScaleThreads, 0, values,
                count);
}

}  // namespace bolide::cuda
