// A block has one token and four of its heads, of queries or of keys with their values: it computes the token's angles
// once, into shared memory. Bound by launch latency for a step of a few tokens, by memory for many.
#include "kernels/common/cuda_f8.cuh"
#include "kernels/rope/rope_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 128, kHeadsPerBlock = 4;

// Cosine and sine, absolute error below 1.2e-7, for |x| < 1e9: the angle modulo a quarter turn in f64, which leaves
// nothing of its size, then polynomials (those of kernels/simd/math.h) in f32.
__device__ __forceinline__ void cos_sin(float x, float* cosine, float* sine) {
  const double wide = x, turns = rint(wide * 0.63661977236758134);
  const auto r = static_cast<float>(fma(-turns, 6.123233995736766e-17, fma(-turns, 1.5707963267948966, wide)));
  const float z = r * r;
  float s = fmaf(-1.951723389e-04f, z, 8.332177997e-03f);
  s = fmaf(s, z, -1.666665524e-01f);
  s = fmaf(s * z, r, r);
  float c = fmaf(2.443837730e-05f, z, -1.388736651e-03f);
  c = fmaf(c, z, 4.166664556e-02f);
  c = fmaf(c, z * z, fmaf(-z, 0.5f, 1.f));
  const auto quadrant = static_cast<uint32_t>(__double2ll_rn(turns)) & 3u;
  const bool swap = (quadrant & 1u) != 0;
  const float first = swap ? s : c, second = swap ? c : s;
  *cosine = ((quadrant + 1) & 2u) != 0 ? -first : first;
  *sine = (quadrant & 2u) != 0 ? -second : second;
}

// The sequence that the token belongs to: the last that starts at or before it. Padding behind all of them: the last.
__device__ __forceinline__ int sequence_of(const int32_t* cu_tokens, int sequences, int token) {
  int low = 0, high = sequences;  // cu_tokens[low] <= token
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (cu_tokens[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__device__ __forceinline__ float frequency(const RopeParameters& rope, int i, int length) {
  const bool beyond = length > rope.original_context;
  if (rope.kind == RopeParameters::Kind::kDynamic && beyond && rope.half > 1) {
    const double dims = 2. * rope.half;
    const double stretch =
        static_cast<double>(rope.factor) * length / static_cast<double>(rope.original_context) - (rope.factor - 1.);
    const double base = rope.theta * pow(stretch, dims / (dims - 2));
    return static_cast<float>(1 / pow(base, 2. * i / dims));
  }
  return rope.kind == RopeParameters::Kind::kLong && beyond ? rope.inv_freq_long[i] : rope.inv_freq[i];
}

template <class T>
struct Heads {
  const T* x;
  int64_t stride;
  int count;
};

template <class T, class Pool>
struct Arguments {
  Heads<T> q, k, v;
  T* out;
  int64_t out_stride;
  Pool *k_pool, *v_pool;
  const int64_t* slots;
  const int32_t* positions;
  int block_tokens, head_dim;
};

template <class T, class Pool>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const __grid_constant__ Arguments<T, Pool> a, const __grid_constant__ RopeParameters rope) {
  __shared__ float cosines[kRopeHalfMax], sines[kRopeHalfMax];
  const int thread = static_cast<int>(threadIdx.x), token = static_cast<int>(blockIdx.x);
  const int half = rope.half, dim = a.head_dim;
  wait_for_previous();
  if (half > 0) {
    const auto position = static_cast<float>(a.positions[token]);
    int length = 0;
    if (rope.kind != RopeParameters::Kind::kFixed)
      length = rope.rope_length[sequence_of(rope.cu_tokens, rope.sequences, token)];
    for (int i = thread; i < half; i += kThreads) {
      float c, s;
      cos_sin(position * frequency(rope, i, length), &c, &s);
      cosines[i] = c * rope.attention_factor, sines[i] = s * rope.attention_factor;
    }
    __syncthreads();
  }
  let_next_start();
  // Items of a head: its pairs, then the dims that pass through.
  const int items = dim - half;
  const int first = static_cast<int>(blockIdx.y) * kHeadsPerBlock;
  const int64_t slot = a.slots != nullptr ? a.slots[token] : -1;
  for (int item = thread; item < kHeadsPerBlock * items; item += kThreads) {
    const int head = first + item / items, i = item % items;
    const bool is_query = head < a.q.count;
    const int g = head - a.q.count;
    if (!is_query && (g >= a.k.count || slot < 0)) continue;
    const T* x =
        is_query ? a.q.x + token * a.q.stride + int64_t{head} * dim : a.k.x + token * a.k.stride + int64_t{g} * dim;
    const bool pair = i < half;
    const int low = pair ? i : half + i, high = half + i;
    float one = widen(x[low]), two = 0;
    if (pair) {
      const float other = widen(x[high]), c = cosines[i], s = sines[i];
      two = fmaf(other, c, one * s);
      one = fmaf(one, c, -(other * s));
    }
    if (is_query) {
      T* out = a.out + token * a.out_stride + int64_t{head} * dim;
      out[low] = narrow<T>(one);
      if (pair) out[high] = narrow<T>(two);
      continue;
    }
    const int64_t block = slot / a.block_tokens, offset = slot % a.block_tokens;
    const int64_t element = ((block * a.k.count + g) * a.block_tokens + offset) * dim;
    const T* v = a.v.x + token * a.v.stride + int64_t{g} * dim;
    a.k_pool[element + low] = narrow<Pool>(one);
    a.v_pool[element + low] = narrow<Pool>(widen(v[low]));
    if (pair) {
      a.k_pool[element + high] = narrow<Pool>(two);
      a.v_pool[element + high] = narrow<Pool>(widen(v[high]));
    }
  }
}

template <class T, class Pool>
int rope_as(const CudaTarget& target, const RopeWork& work, const RopeParameters& parameters, const KvPools& pools) {
  const auto heads = [&](const CudaMatrix& matrix) {
    return Heads<T>{static_cast<const T*>(matrix.data), matrix.stride, static_cast<int>(matrix.cols / work.head_dim)};
  };
  const Arguments<T, Pool> a{heads(work.q),
                             heads(work.k),
                             heads(work.v),
                             static_cast<T*>(work.out.data),
                             work.out.stride,
                             static_cast<Pool*>(pools.k),
                             static_cast<Pool*>(pools.v),
                             pools.slots,
                             work.positions,
                             pools.block_tokens,
                             work.head_dim};
  const dim3 grid(static_cast<unsigned>(work.tokens),
                  static_cast<unsigned>(ceil_div(a.q.count + a.k.count, kHeadsPerBlock)));
  return launch(target, rope_kernel<T, Pool>, grid, kThreads, 0, a, parameters);
}

template <class T>
int rope_of(const CudaTarget& target, const RopeWork& work, const RopeParameters& parameters, const KvPools& pools) {
  switch (pools.dtype) {
    case DType::kBF16: return rope_as<T, __nv_bfloat16>(target, work, parameters, pools);
    case DType::kF8E4M3: return rope_as<T, F8E4M3>(target, work, parameters, pools);
    default: return rope_as<T, float>(target, work, parameters, pools);
  }
}

}  // namespace

int rope(const CudaTarget& target, const RopeWork& work, const RopeParameters& parameters, const KvPools& pools) {
  const DType activation = work.q.data != nullptr ? work.q.dtype : work.k.dtype;
  return activation == DType::kBF16 ? rope_of<__nv_bfloat16>(target, work, parameters, pools)
                                    : rope_of<float>(target, work, parameters, pools);
}

}  // namespace bolide::cuda
