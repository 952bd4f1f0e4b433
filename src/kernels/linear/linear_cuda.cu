// Which family of weights a product is of, and the rounding of its input.
#include "kernels/common/cuda_launch.cuh"
#include "kernels/linear/f8_round.cuh"
#include "kernels/linear/linear_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kRoundThreads = 512;

__device__ __forceinline__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// This lane's activation of a group of 32: code times scale.
__device__ __forceinline__ float through_int8(float x) {
  const float largest = __uint_as_float(__reduce_max_sync(0xffffffffu, magnitude(x)));
  if (largest < 0x1p-120f) return 0.f;
  if (!(largest <= 3.4028235e38f)) return largest;  // the whole group shows that it is not finite
  const float code = rintf(__fmul_rn(x, __fdiv_rn(127.f, largest)));
  return __fmul_rn(__fdiv_rn(largest, 127.f), code);
}

template <class In, class Out>
__global__ void __launch_bounds__(kRoundThreads) round_kernel(const In* xs, int64_t x_stride, int k, bool f8_token,
                                                              RoundTo round_to, Out* outs, int64_t out_stride) {
  __shared__ uint32_t scratch[kWarp];
  wait_for_previous();
  const In* x = xs + int64_t{blockIdx.x} * x_stride;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  float scale = 1;
  if (f8_token) {
    uint32_t largest = 0;
    for (int i = thread; i < k; i += static_cast<int>(blockDim.x)) largest = max(largest, magnitude(widen(x[i])));
    largest = __reduce_max_sync(0xffffffffu, largest);
    if (lane == 0) scratch[thread / kWarp] = largest;
    __syncthreads();
    largest = lane < static_cast<int>(blockDim.x) / kWarp ? scratch[lane] : 0u;
    const float wanted = __fdiv_rn(__uint_as_float(__reduce_max_sync(0xffffffffu, largest)), 448.f);
    scale = wanted > 0x1p-23f || isnan(wanted) ? wanted : 0x1p-23f;
  }
  let_next_start();
  Out* out = outs + int64_t{blockIdx.x} * out_stride;
  // Whole warps: a group of 32 is a warp's.
  for (int begin = thread - lane; begin < k; begin += static_cast<int>(blockDim.x)) {
    const int i = begin + lane;
    float value = i < k ? widen(x[i]) : 0.f;
    if (f8_token) value = __fmul_rn(scale, through_f8e4m3(__fdiv_rn(value, scale)));
    if (round_to == RoundTo::kInt8) value = through_int8(value);
    if (round_to == RoundTo::kBF16) value = widen(narrow<__nv_bfloat16>(value));
    if (i < k) out[i] = narrow<Out>(value);
  }
}

template <class In, class Out>
int round_as(const CudaTarget& target, const CudaMatrix& x, bool f8_token, RoundTo round_to, const CudaMatrix& out) {
  const int64_t threads = ceil_div(x.cols, kWarp) * kWarp;
  return launch(target, round_kernel<In, Out>, static_cast<unsigned>(x.rows),
                static_cast<unsigned>(threads < kRoundThreads ? threads : kRoundThreads), 0,
                static_cast<const In*>(x.data), x.stride, static_cast<int>(x.cols), f8_token, round_to,
                static_cast<Out*>(out.data), out.stride);
}

int product(const CudaTarget& target, const CudaProduct& p, bool tiles) {
  if (p.out.rows == 0 || p.weight.rows == 0) return cudaSuccess;
  if (p.weight.kind <= WeightKind::kI8) return product_floats(target, p, tiles);
  if (p.weight.kind <= WeightKind::kBlockIQ4_NL) return product_blocks32(target, p, tiles);
  if (p.weight.kind <= WeightKind::kBlockIQ4_XS) return product_blocks256(target, p, tiles);
  return product_blocks_w4(target, p, tiles);
}

}  // namespace

int product_rows(const CudaTarget& target, const CudaProduct& p) { return product(target, p, false); }
int product_tiles(const CudaTarget& target, const CudaProduct& p) { return product(target, p, true); }

int round_rows(const CudaTarget& target, const CudaMatrix& x, bool f8_token, RoundTo round_to, const CudaMatrix& out) {
  const bool narrow_in = x.dtype == DType::kBF16, narrow_out = out.dtype == DType::kBF16;
  if (narrow_in) {
    return narrow_out ? round_as<__nv_bfloat16, __nv_bfloat16>(target, x, f8_token, round_to, out)
                      : round_as<__nv_bfloat16, float>(target, x, f8_token, round_to, out);
  }
  return narrow_out ? round_as<float, __nv_bfloat16>(target, x, f8_token, round_to, out)
                    : round_as<float, float>(target, x, f8_token, round_to, out);
}

}  // namespace bolide::cuda
