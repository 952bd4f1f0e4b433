// A block has one token and four of its heads, of queries or of keys with their values: it computes the token's angles
// once, into shared memory. Bound by launch latency for a step of a few tokens, by memory for many.
#include "kernels/common/cuda_f8.cuh"
#include "kernels/rope/rope_cuda.cuh"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 128, kHeadsPerBlock = 4;

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
  int block_tokens, head_dim, first_token;
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
      length = rope.rope_length[sequence_of(rope.cu_tokens, rope.sequences, a.first_token + token)];
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
                             work.head_dim,
                             static_cast<int>(work.first_token)};
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
