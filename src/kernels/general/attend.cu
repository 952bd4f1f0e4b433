// Softmax(scale q k^T + bias) v, without the scores in memory. Tensor cores: a block has 64 queries of a head, 16 a
// warp; keys and values pass through shared memory 64 at a time.
#include "kernels/general/product_half.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kQueries = 64, kKeys = 64, kThreads = 128;

__device__ __forceinline__ float bias_of(const AttendJob& job, int64_t row, int64_t key) {
  if (key >= job.bias_keys) return -INFINITY;
  const float x = load_as<float>(job.bias, job.bias_dtype, row + key);
  return job.bias_dtype == DType::kBool ? (x != 0.f ? 0.f : -INFINITY) : x;
}

__device__ __forceinline__ float added(float x) { return x; }
__device__ __forceinline__ float added(__half x) { return __half2float(x); }
__device__ __forceinline__ float added(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float added(bool x) { return x ? 0.f : -INFINITY; }

// The bias of a thread's scores: keys key0 + 8 j + {0, 1} of its two queries. Loads do not wait for each other.
template <class B>
__device__ __forceinline__ void add_bias(float (&scores)[kKeys / 8][4], const AttendJob& job, const int64_t (&rows)[2],
                                         int key0) {
  const auto keys = static_cast<int>(job.bias_keys);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const B* const row = static_cast<const B*>(job.bias) + rows[half];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int key = key0 + j * 8 + c;
        scores[j][half * 2 + c] += key < keys ? added(row[key]) : -INFINITY;
      }
  }
}

__device__ __forceinline__ uint32_t pair_of(float a, float b, __half) {
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t pair_of(float a, float b, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Rows of kDim elements, in panels of 64: [panel][row][64], chunks of 16 bytes swizzled.
template <class T, int kDim>
__device__ __forceinline__ void copy_rows(uint32_t to, const AttendJob::Heads& from, const T* data, int64_t row0,
                                          int64_t rows, int64_t dim) {
  constexpr int kAcross = kDim / 8;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kAcross; i += kThreads) {
    const int row = i / kAcross, chunk = i % kAcross;
    const bool there = row0 + row < rows && chunk * 8 < dim;
    const uint32_t at =
        to + static_cast<uint32_t>(chunk / 8 * kKeys * 128 + row * 128 + ((chunk % 8 ^ (row & 7)) << 4));
    copy16(at, there ? data + (row0 + row) * from.row + chunk * 8 : data, there);
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) attend_half_kernel(const __grid_constant__ AttendJob job) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kPanel = kKeys * 128, kMatrix = kDim / 64 * kPanel;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t q0 = int64_t{blockIdx.x} * kQueries, head = blockIdx.y, batch = blockIdx.z;
  const int64_t kv_head = head / (job.H / job.G);
  wait_for_previous();
  let_next_start();
  const T* q = static_cast<const T*>(job.q.data) + batch * job.q.batch + head * job.q.head;
  const T* k = static_cast<const T*>(job.k.data) + batch * job.k.batch + kv_head * job.k.head;
  const T* v = static_cast<const T*>(job.v.data) + batch * job.v.batch + kv_head * job.v.head;
  const uint32_t base = shared_address(memory);
  const auto at_k = [&](int turn) { return base + static_cast<uint32_t>(kMatrix * (1 + turn * 2)); };
  const auto at_v = [&](int turn) { return base + static_cast<uint32_t>(kMatrix * (2 + turn * 2)); };
  int64_t keys = job.L;
  if (job.causal) keys = min(keys, max(q0 + kQueries + job.offset, int64_t{0}));
  const int tiles = static_cast<int>((keys + kKeys - 1) / kKeys);

  copy_rows<T, kDim>(base, job.q, q, q0, job.S, job.D);
  if (tiles > 0) copy_rows<T, kDim>(at_k(0), job.k, k, 0, job.L, job.D);
  commit();
  if (tiles > 0) copy_rows<T, kDim>(at_v(0), job.v, v, 0, job.L, job.Dv);
  commit();

  float out[kDim / 8][4] = {};
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  uint32_t fq[kDim / 16][4];
  const int64_t own = q0 + warp * 16 + lane / 4;  // this thread's queries: own and own + 8
  int64_t bias_row[2] = {};
  for (int half = 0; half < 2; ++half) {
    const int64_t query = min(own + half * 8, job.S - 1);
    bias_row[half] = batch * job.bias_strides[0] + head * job.bias_strides[1] + query * job.bias_strides[2];
  }
  for (int t = 0; t < tiles; ++t) {
    const int turn = t % 2;
    wait_copies<1>();  // this tile's keys
    __syncthreads();
    if (t == 0) {
#pragma unroll
      for (int part = 0; part < kDim / 16; ++part) {
        const int row = warp * 16 + lane % 16, chunk = part * 2 + lane / 16;
        load_matrices(fq[part],
                      base + static_cast<uint32_t>(chunk / 8 * kPanel + row * 128 + ((chunk % 8 ^ (row & 7)) << 4)));
      }
    }
    float scores[kKeys / 8][4] = {};
#pragma unroll
    for (int part = 0; part < kDim / 16; ++part)
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        uint32_t fk[4];
        const int row = j * 16 + lane % 8 + lane / 16 * 8, chunk = part * 2 + lane / 8 % 2;
        load_matrices(
            fk, at_k(turn) + static_cast<uint32_t>(chunk / 8 * kPanel + row * 128 + ((chunk % 8 ^ (row & 7)) << 4)));
        multiply(scores[j * 2], fq[part], fk[0], fk[1], T{});
        multiply(scores[j * 2 + 1], fq[part], fk[2], fk[3], T{});
      }
    if (t + 1 < tiles) copy_rows<T, kDim>(at_k(turn ^ 1), job.k, k, int64_t{t + 1} * kKeys, job.L, job.D);
    commit();

    float top[2] = {most[0], most[1]};
    if (job.bias == nullptr && !job.causal && job.softcap == 0.f && (t + 1) * kKeys <= job.L) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          scores[j][c] *= job.scale;
          top[c / 2] = fmaxf(top[c / 2], scores[j][c]);
        }
    } else {
      const int key0 = t * kKeys + lane % 4 * 2, end = static_cast<int>(job.L);
      const int reach[2] = {job.causal ? static_cast<int>(min(own + job.offset + 1, job.L)) : end,
                            job.causal ? static_cast<int>(min(own + 8 + job.offset + 1, job.L)) : end};
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) scores[j][c] *= job.scale;
      if (job.softcap > 0.f) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c)
            scores[j][c] = job.softcap * apply_called(ElementOp::kTanh, 0.f, 0.f, scores[j][c] / job.softcap);
      }
      if (job.bias != nullptr) {
        switch (job.bias_dtype) {
          case DType::kF16: add_bias<__half>(scores, job, bias_row, key0); break;
          case DType::kBF16: add_bias<__nv_bfloat16>(scores, job, bias_row, key0); break;
          case DType::kBool: add_bias<bool>(scores, job, bias_row, key0); break;
          default: add_bias<float>(scores, job, bias_row, key0); break;
        }
      }
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (key0 + j * 8 + c % 2 >= reach[c / 2]) scores[j][c] = -INFINITY;
          top[c / 2] = fmaxf(top[c / 2], scores[j][c]);
        }
    }
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = fmaxf(top[half], __shfl_xor_sync(~0u, top[half], 1));
      top[half] = fmaxf(top[half], __shfl_xor_sync(~0u, top[half], 2));
      shrink[half] = top[half] == -INFINITY ? 1.f : __expf(most[half] - top[half]);
      most[half] = top[half];
      sum[half] *= shrink[half];
    }
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) out[j][c] *= shrink[c / 2];
    uint32_t fp[kKeys / 16][4];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      float p[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        p[c] = most[c / 2] == -INFINITY ? 0.f : __expf(scores[j][c] - most[c / 2]);
        sum[c / 2] += p[c];
      }
      fp[j / 2][j % 2 * 2] = pair_of(p[0], p[1], T{});
      fp[j / 2][j % 2 * 2 + 1] = pair_of(p[2], p[3], T{});
    }
    wait_copies<1>();  // this tile's values
    __syncthreads();
#pragma unroll
    for (int part = 0; part < kKeys / 16; ++part)
#pragma unroll
      for (int j = 0; j < kDim / 16; ++j) {
        uint32_t fv[4];
        const int row = part * 16 + lane % 16, chunk = j * 2 + lane / 16;
        load_turned(
            fv, at_v(turn) + static_cast<uint32_t>(chunk / 8 * kPanel + row * 128 + ((chunk % 8 ^ (row & 7)) << 4)));
        multiply(out[j * 2], fp[part], fv[0], fv[1], T{});
        multiply(out[j * 2 + 1], fp[part], fv[2], fv[3], T{});
      }
    if (t + 1 < tiles) copy_rows<T, kDim>(at_v(turn ^ 1), job.v, v, int64_t{t + 1} * kKeys, job.L, job.Dv);
    commit();
  }
  T* const to = static_cast<T*>(job.out.data) + batch * job.out.batch + head * job.out.head;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
    sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
    const float inverse = sum[half] > 0.f ? 1.f / sum[half] : 0.f;
    const int64_t query = own + half * 8;
    if (query >= job.S) continue;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j)
      if (const int d = j * 8 + lane % 4 * 2; d < job.Dv)
        *reinterpret_cast<uint32_t*>(to + query * job.out.row + d) =
            pair_of(out[j][half * 2] * inverse, out[j][half * 2 + 1] * inverse, T{});
  }
}

template <class T, int kDim>
int run_half(const CudaTarget& target, const AttendJob& job) {
  constexpr int kBytes = kDim / 64 * kKeys * 128 * 5;
  static const auto prepared =
      cudaFuncSetAttribute(attend_half_kernel<T, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (prepared != cudaSuccess) return prepared;
  const dim3 grid(static_cast<unsigned>(ceil_div(job.S, kQueries)), static_cast<unsigned>(job.H),
                  static_cast<unsigned>(job.B));
  return launch(target, attend_half_kernel<T, kDim>, grid, dim3(kThreads), kBytes, job);
}

// A warp a query; lanes have the keys of 32 for scores, the dims for values.
template <class T>
__global__ void __launch_bounds__(256) attend_any_kernel(const __grid_constant__ AttendJob job, int64_t rows) {
  constexpr int kOwn = 8;  // of up to 256 dims
  wait_for_previous();
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.x} * 8 + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int64_t query = row % job.S, head = row / job.S % job.H, batch = row / job.S / job.H;
  const int64_t kv_head = head / (job.H / job.G);
  const T* q = static_cast<const T*>(job.q.data) + batch * job.q.batch + head * job.q.head + query * job.q.row;
  const T* k = static_cast<const T*>(job.k.data) + batch * job.k.batch + kv_head * job.k.head;
  const T* v = static_cast<const T*>(job.v.data) + batch * job.v.batch + kv_head * job.v.head;
  const int64_t bias_row = batch * job.bias_strides[0] + head * job.bias_strides[1] + query * job.bias_strides[2];
  float out[kOwn] = {}, most = -INFINITY, sum = 0.f;
  const int64_t keys = job.causal ? min(job.L, query + job.offset + 1) : job.L;
  for (int64_t key0 = 0; key0 < keys; key0 += kWarp) {
    const int64_t key = key0 + lane;
    float x = -INFINITY;
    if (key < keys) {
      x = 0.f;
      for (int64_t d = 0; d < job.D; ++d) x = fmaf(widen(q[d]), widen(k[key * job.k.row + d]), x);
      x *= job.scale;
      if (job.softcap > 0.f) x = job.softcap * tanhf(x / job.softcap);
      if (job.bias != nullptr) x += bias_of(job, bias_row, key);
    }
    float top = x;
    for (int step = kWarp / 2; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    top = fmaxf(top, most);
    if (top == -INFINITY) continue;
    const float shrink = expf(most - top), p = expf(x - top);
    most = top;
    sum = sum * shrink + warp_sum(p);
    for (int i = 0; i < kOwn; ++i) out[i] *= shrink;
    for (int j = 0; j < kWarp && key0 + j < keys; ++j) {
      const float weight = __shfl_sync(~0u, p, j);
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (const int64_t d = lane + i * kWarp; d < job.Dv)
          out[i] = fmaf(weight, widen(v[(key0 + j) * job.v.row + d]), out[i]);
    }
  }
  T* to = static_cast<T*>(job.out.data) + batch * job.out.batch + head * job.out.head + query * job.out.row;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (const int64_t d = lane + i * kWarp; d < job.Dv) to[d] = narrow_to<T>(sum > 0.f ? out[i] / sum : 0.f);
}

template <class T>
int run_any(const CudaTarget& target, const AttendJob& job) {
  const int64_t rows = job.B * job.H * job.S;
  return launch(target, attend_any_kernel<T>, dim3(static_cast<unsigned>(ceil_div(rows, 8))), dim3(256), 0, job, rows);
}

}  // namespace
}  // namespace cuda

int run_attend_half(const CudaTarget& target, const AttendJob& job) {
  if (job.B * job.H * job.S == 0) return cudaSuccess;
  const bool large = job.D > 64 || job.Dv > 64;
  if (job.dtype == DType::kF16)
    return large ? cuda::run_half<__half, 128>(target, job) : cuda::run_half<__half, 64>(target, job);
  return large ? cuda::run_half<__nv_bfloat16, 128>(target, job) : cuda::run_half<__nv_bfloat16, 64>(target, job);
}

int run_attend_any(const CudaTarget& target, const AttendJob& job) {
  if (job.B * job.H * job.S == 0) return cudaSuccess;
  // Few queries leave most of a tile empty.
  if (job.S >= 16)
    if (const int status = run_attend_tiled(target, job); status != kNoSuchChoice) return status;
  if (job.dtype == DType::kF16) return cuda::run_any<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_any<__nv_bfloat16>(target, job);
  return cuda::run_any<float>(target, job);
}

}  // namespace bolide
