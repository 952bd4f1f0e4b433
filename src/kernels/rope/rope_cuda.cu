// For a step of a few tokens, bound by launch latency, a block has one token and four of its heads, of queries or of
// keys with their values. For many, bound by memory, it has all of a token's heads, and a thread eight neighbours at a
// time. Either computes the token's angles once, into shared memory, and does the same arithmetic.
#include "kernels/common/cuda_f8.cuh"
#include "kernels/rope/rope_cuda.cuh"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 128, kHeadsPerBlock = 4;
constexpr int kManyTokens = 64, kPack = 8;

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

// The token's angles, by all threads of a block.
template <class T, class Pool>
__device__ __forceinline__ void make_angles(const Arguments<T, Pool>& a, const RopeParameters& rope, int token,
                                            float* cosines, float* sines) {
  if (rope.half == 0) return;
  const auto position = static_cast<float>(a.positions[token]);
  int length = 0;
  if (rope.kind != RopeParameters::Kind::kFixed)
    length = rope.rope_length[sequence_of(rope.cu_tokens, rope.sequences, a.first_token + token)];
  for (int i = static_cast<int>(threadIdx.x); i < rope.half; i += kThreads) {
    float c, s;
    cos_sin(position * frequency(rope, i, length), &c, &s);
    cosines[i] = c * rope.attention_factor, sines[i] = s * rope.attention_factor;
  }
  __syncthreads();
}

__device__ __forceinline__ void store_packs(F8E4M3* p, const float (&x)[kPack]) {
  Pack<uint16_t, kPack / 2> pack;
#pragma unroll
  for (int i = 0; i < kPack; i += 2) pack.value[i / 2] = narrow_f8_pair(x[i], x[i + 1]);
  store(p, pack);
}
template <class T>
__device__ __forceinline__ void store_packs(T* p, const float (&x)[kPack]) {
  Pack<T, kPack> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack.value[i] = narrow<T>(x[i]);
  store(p, pack);
}

__device__ __forceinline__ void rotate(float& low, float& high, float c, float s) {
  const float turned = fmaf(low, c, -(high * s));
  high = fmaf(high, c, low * s);
  low = turned;
}

template <class T, class Pool>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const __grid_constant__ Arguments<T, Pool> a, const __grid_constant__ RopeParameters rope) {
  __shared__ float cosines[kRopeHalfMax], sines[kRopeHalfMax];
  const int thread = static_cast<int>(threadIdx.x), token = static_cast<int>(blockIdx.x);
  const int half = rope.half, dim = a.head_dim;
  wait_for_previous();
  make_angles(a, rope, token, cosines, sines);
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
      two = widen(x[high]);
      rotate(one, two, cosines[i], sines[i]);
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

// Packs are aligned, and a half of the rotated dims is whole packs.
template <class T, class Pool>
__global__ void __launch_bounds__(kThreads)
    rope_rows_kernel(const __grid_constant__ Arguments<T, Pool> a, const __grid_constant__ RopeParameters rope) {
  __shared__ __align__(16) float cosines[kRopeHalfMax], sines[kRopeHalfMax];
  using In = Pack<T, kPack>;
  const int token = static_cast<int>(blockIdx.x), half = rope.half, dim = a.head_dim;
  wait_for_previous();
  make_angles(a, rope, token, cosines, sines);
  let_next_start();
  const int64_t slot = a.slots != nullptr ? a.slots[token] : -1;
  int64_t cached = 0;  // of the first kv head
  if (slot >= 0) cached = (slot / a.block_tokens * a.k.count * a.block_tokens + slot % a.block_tokens) * dim;
  const int64_t head_step = int64_t{a.block_tokens} * dim;
  const int keys = slot >= 0 ? a.k.count : 0;
  // Items of a head: its pairs of packs, then the packs that pass through.
  const int pairs = half / kPack, items = dim / kPack - pairs;
#pragma unroll 2
  for (int item = static_cast<int>(threadIdx.x); item < (a.q.count + keys) * items; item += kThreads) {
    const int head = item / items, i = item - head * items, g = head - a.q.count;
    const bool is_query = g < 0, is_pair = i < pairs;
    const int low = is_pair ? i * kPack : half + i * kPack, high = half + i * kPack;
    const T* x =
        is_query ? a.q.x + token * a.q.stride + int64_t{head} * dim : a.k.x + token * a.k.stride + int64_t{g} * dim;
    const In first = load<In>(x + low);
    In second{};
    float lows[kPack], highs[kPack];
    if (is_pair) second = load<In>(x + high);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      lows[j] = widen(first.value[j]), highs[j] = widen(second.value[j]);
      if (is_pair) rotate(lows[j], highs[j], cosines[low + j], sines[low + j]);
    }
    const auto put = [&](auto* to) {
      store_packs(to + low, lows);
      if (is_pair) store_packs(to + high, highs);
    };
    if (is_query) {
      put(a.out + token * a.out_stride + int64_t{head} * dim);
    } else {
      put(a.k_pool + cached + g * head_step);
    }
  }
  const int packs = dim / kPack;
#pragma unroll 2
  for (int item = static_cast<int>(threadIdx.x); item < keys * packs; item += kThreads) {
    const int g = item / packs, i = (item - g * packs) * kPack;
    const In v = load<In>(a.v.x + token * a.v.stride + int64_t{g} * dim + i);
    float values[kPack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) values[j] = widen(v.value[j]);
    store_packs(a.v_pool + cached + g * head_step + i, values);
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
  const auto fits = [](const CudaMatrix& m) {
    return is_aligned(m.data, m.stride * static_cast<int64_t>(sizeof(T)), kPack * sizeof(T));
  };
  if (work.tokens >= kManyTokens && parameters.half % kPack == 0 && work.head_dim % kPack == 0 && fits(work.q) &&
      fits(work.k) && fits(work.v) && fits(work.out) && is_aligned(pools.k, 0, kPack * sizeof(Pool)) &&
      is_aligned(pools.v, 0, kPack * sizeof(Pool)))
    return launch(target, rope_rows_kernel<T, Pool>, static_cast<unsigned>(work.tokens), kThreads, 0, a, parameters);
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
