// Numbers of any element type, and what is done to them. For .cu files of this folder.
#pragma once

#include "kernels/common/cuda_launch.cuh"
#include "kernels/general/general_parts.h"

namespace bolide::cuda {

// Finite values beyond f16's range become its largest.
__device__ __forceinline__ __half narrow_half(float x) {
  return isfinite(x) ? __float2half_rn(fminf(fmaxf(x, -65504.f), 65504.f)) : __float2half_rn(x);
}
template <class T>
__device__ __forceinline__ T narrow_to(float x) {
  return narrow<T>(x);
}
template <>
__device__ __forceinline__ __half narrow_to<__half>(float x) {
  return narrow_half(x);
}

__device__ __forceinline__ __nv_bfloat16 narrow_bf16(float x) {
  constexpr float kMost = 3.3895314e38f;
  return isfinite(x) ? __float2bfloat16_rn(fminf(fmaxf(x, -kMost), kMost)) : __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow_to<__nv_bfloat16>(float x) {
  return narrow_bf16(x);
}

template <class C>
__device__ __forceinline__ C load_as(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32: return static_cast<C>(static_cast<const float*>(data)[i]);
    case DType::kF16: return static_cast<C>(__half2float(static_cast<const __half*>(data)[i]));
    case DType::kBF16: return static_cast<C>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]));
    case DType::kI64: return static_cast<C>(static_cast<const int64_t*>(data)[i]);
    case DType::kI32: return static_cast<C>(static_cast<const int32_t*>(data)[i]);
    case DType::kI16: return static_cast<C>(static_cast<const int16_t*>(data)[i]);
    case DType::kI8: return static_cast<C>(static_cast<const int8_t*>(data)[i]);
    case DType::kU32: return static_cast<C>(static_cast<const uint32_t*>(data)[i]);
    case DType::kU16: return static_cast<C>(static_cast<const uint16_t*>(data)[i]);
    case DType::kU8: return static_cast<C>(static_cast<const uint8_t*>(data)[i]);
    case DType::kBool: return static_cast<C>(static_cast<const uint8_t*>(data)[i] != 0 ? 1 : 0);
    default: return C(0);
  }
}
template <class C>
__device__ __forceinline__ void store_as(void* data, DType dtype, int64_t i, C x) {
  switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[i] = static_cast<float>(x); break;
    case DType::kF16: static_cast<__half*>(data)[i] = narrow_half(static_cast<float>(x)); break;
    case DType::kBF16: static_cast<__nv_bfloat16*>(data)[i] = narrow_bf16(static_cast<float>(x)); break;
    case DType::kI64: static_cast<int64_t*>(data)[i] = static_cast<int64_t>(x); break;
    case DType::kI32: static_cast<int32_t*>(data)[i] = static_cast<int32_t>(static_cast<int64_t>(x)); break;
    case DType::kI16: static_cast<int16_t*>(data)[i] = static_cast<int16_t>(static_cast<int64_t>(x)); break;
    case DType::kI8: static_cast<int8_t*>(data)[i] = static_cast<int8_t>(static_cast<int64_t>(x)); break;
    case DType::kU32: static_cast<uint32_t*>(data)[i] = static_cast<uint32_t>(static_cast<int64_t>(x)); break;
    case DType::kU16: static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(static_cast<int64_t>(x)); break;
    case DType::kU8: static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(static_cast<int64_t>(x)); break;
    case DType::kBool: static_cast<uint8_t*>(data)[i] = x != C(0); break;
    default: break;
  }
}

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678f)); }
// By a polynomial and an exponential (Abramowitz and Stegun 7.1.26): within 2e-7 of erf.
__device__ __forceinline__ float gelu_quick(float x) {
  const float z = fabsf(x) * 0.70710678f, t = __fdividef(1.f, 1.f + 0.3275911f * z);
  const float tail =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f)))) *
      __expf(-z * z);
  return 0.5f * x * (1.f + copysignf(1.f - tail, x));
}
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

// One operand. NaN stays NaN, as in the CPU's kernels.
__device__ __forceinline__ float apply(const Element& e, float x) {
  switch (e.op) {
    case ElementOp::kCopy: return x;
    case ElementOp::kRelu: return x < 0.f ? 0.f : x;
    case ElementOp::kSigmoid: return sigmoid(x);
    case ElementOp::kTanh: return tanhf(x);
    case ElementOp::kExp: return expf(x);
    case ElementOp::kLog: return logf(x);
    case ElementOp::kSqrt: return sqrtf(x);
    case ElementOp::kReciprocal: return 1.f / x;
    case ElementOp::kNeg: return -x;
    case ElementOp::kAbs: return fabsf(x);
    case ElementOp::kErf: return erff(x);
    case ElementOp::kGelu: return gelu(x);
    case ElementOp::kGeluTanh: return 0.5f * x * (1.f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ElementOp::kSilu: return x * sigmoid(e.p * x);
    case ElementOp::kHardSigmoid: return fminf(fmaxf(e.p * x + e.q, 0.f), 1.f);
    case ElementOp::kHardSwish: return x * fminf(fmaxf(x * (1.f / 6.f) + 0.5f, 0.f), 1.f);
    case ElementOp::kLeakyRelu: return x >= 0.f ? x : e.p * x;
    case ElementOp::kElu: return x >= 0.f ? x : e.p * expm1f(x);
    case ElementOp::kClip: return x < e.p ? e.p : x > e.q ? e.q : x;
    case ElementOp::kSoftplus: return x > 20.f ? x : log1pf(expf(x));
    case ElementOp::kFloor: return floorf(x);
    case ElementOp::kCeil: return ceilf(x);
    case ElementOp::kRound: return rintf(x);
    case ElementOp::kSign: return x > 0.f ? 1.f : x < 0.f ? -1.f : x;
    case ElementOp::kSin: return sinf(x);
    case ElementOp::kCos: return cosf(x);
    case ElementOp::kTan: return tanf(x);
    case ElementOp::kAsin: return asinf(x);
    case ElementOp::kAcos: return acosf(x);
    case ElementOp::kAtan: return atanf(x);
    case ElementOp::kSinh: return sinhf(x);
    case ElementOp::kCosh: return coshf(x);
    case ElementOp::kAsinh: return asinhf(x);
    case ElementOp::kAcosh: return acoshf(x);
    case ElementOp::kAtanh: return atanhf(x);
    case ElementOp::kSelu: return e.q * (x > 0.f ? x : e.p * expm1f(x));
    case ElementOp::kCelu: return x >= 0.f ? x : e.p * expm1f(x / e.p);
    case ElementOp::kThresholdedRelu: return x > e.p || x != x ? x : 0.f;
    case ElementOp::kSoftsign: return x / (1.f + fabsf(x));
    case ElementOp::kMish: return x * tanhf(x > 20.f ? x : log1pf(expf(x)));
    case ElementOp::kShrink: return x < -e.p ? x + e.q : x > e.p ? x - e.q : 0.f;
    case ElementOp::kScale: return fmaf(e.p, x, e.q);
    case ElementOp::kIsNan: return x != x ? 1.f : 0.f;
    case ElementOp::kIsInf: return (x == -INFINITY && e.p != 0.f) || (x == INFINITY && e.q != 0.f) ? 1.f : 0.f;
    case ElementOp::kNot: return x == 0.f ? 1.f : 0.f;
    default: return x;
  }
}

// Not inlined: a dozen functions in every loop that is unrolled take minutes to compile.
static __device__ __noinline__ float apply_called(ElementOp op, float p, float q, float x) {
  return apply({op, p, q}, x);
}
// Frequent ones inline, without a switch in the loop. Results are rounded to 16 bits or sums of products.
template <int kCount>
__device__ __forceinline__ void apply_all(const Element& e, float (&x)[kCount]) {
  if (e.op == ElementOp::kCopy) return;
  if (e.op == ElementOp::kRelu) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = x[i] < 0.f ? 0.f : x[i];
  } else if (e.op == ElementOp::kGelu) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = gelu_quick(x[i]);
  } else if (e.op == ElementOp::kSilu) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] *= sigmoid(e.p * x[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = apply_called(e.op, e.p, e.q, x[i]);
  }
}

// One or two operands, of f32 or i64; what has no meaning for integers is not asked for.
template <class C>
__device__ __forceinline__ C apply(const Element& e, C a, C b) {
  switch (e.op) {
    case ElementOp::kAdd: return a + b;
    case ElementOp::kSub: return a - b;
    case ElementOp::kMul: return a * b;
    case ElementOp::kMax: return a != a || b != b ? a + b : a > b ? a : b;
    case ElementOp::kMin: return a != a || b != b ? a + b : a < b ? a : b;
    case ElementOp::kPrelu: return a >= C(0) ? a : a * b;
    case ElementOp::kEqual: return C(a == b);
    case ElementOp::kLess: return C(a < b);
    case ElementOp::kLessEqual: return C(a <= b);
    case ElementOp::kGreater: return C(a > b);
    case ElementOp::kGreaterEqual: return C(a >= b);
    case ElementOp::kAnd: return C(a != C(0) && b != C(0));
    case ElementOp::kOr: return C(a != C(0) || b != C(0));
    case ElementOp::kXor: return C((a != C(0)) != (b != C(0)));
    default: break;
  }
  if constexpr (sizeof(C) == 4) {
    switch (e.op) {
      case ElementOp::kDiv: return a / b;
      case ElementOp::kPow: return powf(a, b);
      case ElementOp::kBiasGelu: return gelu(a + b);
      case ElementOp::kFmod: return fmodf(a, b);
      default: return apply(e, static_cast<float>(a));
    }
  } else {
    switch (e.op) {
      case ElementOp::kNeg: return -a;
      case ElementOp::kAbs: return a < 0 ? -a : a;
      case ElementOp::kNot: return C(a == 0);
      case ElementOp::kSign: return C(a > 0) - C(a < 0);
      default: return a;
    }
  }
}

static __device__ __noinline__ float apply_two_called(ElementOp op, float p, float q, float a, float b) {
  return apply<float>({op, p, q}, a, b);
}

}  // namespace bolide::cuda
