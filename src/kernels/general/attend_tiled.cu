// Softmax(scale q k^T + bias) v without tensor cores, for f32 and heads of any size up to 256: a block has 64 queries
// of a head, keys and values pass through shared memory 64 at a time, and a thread has 4 queries by 4 keys, then 4
// queries by 4 (8, 16) columns of the result. Bound by f32 arithmetic: two loads of 16 bytes from shared memory for 16
// products.
#include "kernels/general/elements.cuh"

namespace bolide {
namespace cuda {
namespace {

constexpr int kTile = 64, kThreads = 256, kOwn = 4;
constexpr int kStride = kTile + 4;  // floats between rows of turned tiles: 16-byte aligned

__device__ __forceinline__ float bias_of(const AttendJob& job, int64_t row, int64_t key) {
  if (key >= job.bias_keys) return -INFINITY;
  const float x = load_as<float>(job.bias, job.bias_dtype, row + key);
  return job.bias_dtype == DType::kBool ? (x != 0.f ? 0.f : -INFINITY) : x;
}

// to [D][kStride] = 64 rows of from, turned; rows beyond `rows` are zero.
template <class T>
__device__ __forceinline__ void load_turned(float* to, const T* from, int64_t stride, int64_t rows, int D) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * ((D + 3) / 4); i += kThreads) {
    const int row = i % kTile, d0 = i / kTile * 4;
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (const int d = d0 + k; d < D) to[d * kStride + row] = row < rows ? widen(from[row * stride + d]) : 0.f;
  }
}

__device__ __forceinline__ float most_of_half(float x) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}
__device__ __forceinline__ float sum_of_half(float x) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// kWide: columns of 64 that the result has.
template <class T, int kWide>
__global__ void __launch_bounds__(kThreads) attend_tiled_kernel(const __grid_constant__ AttendJob job) {
  extern __shared__ __align__(16) float memory[];
  const int D = static_cast<int>(job.D), Dv = static_cast<int>(job.Dv);
  float* const queries = memory;                    // [D][kStride]
  float* const keys_at = queries + D * kStride;     // [D][kStride]
  float* const weights = keys_at + D * kStride;     // [keys][kStride]: of 64 queries
  float* const values = weights + kTile * kStride;  // [keys][64 kWide]
  const int thread = static_cast<int>(threadIdx.x), row0 = thread / 16 * kOwn, column0 = thread % 16 * kOwn;
  const int64_t first = int64_t{blockIdx.x} * kTile, head = blockIdx.y, batch = blockIdx.z;
  const int64_t kv_head = head / (job.H / job.G);
  const T* q = static_cast<const T*>(job.q.data) + batch * job.q.batch + head * job.q.head + first * job.q.row;
  const T* k = static_cast<const T*>(job.k.data) + batch * job.k.batch + kv_head * job.k.head;
  const T* v = static_cast<const T*>(job.v.data) + batch * job.v.batch + kv_head * job.v.head;
  wait_for_previous();
  let_next_start();
  load_turned(queries, q, job.q.row, job.S - first, D);
  const int64_t last = min(job.S, first + kTile) - 1;  // the query that sees most
  const int64_t end = job.causal ? min(job.L, last + job.offset + 1) : job.L;
  float out[kOwn][kWide * kOwn] = {}, most[kOwn], sum[kOwn] = {};
#pragma unroll
  for (float& one : most) one = -INFINITY;
  for (int64_t key0 = 0; key0 < end; key0 += kTile) {
    __syncthreads();
    load_turned(keys_at, k + key0 * job.k.row, job.k.row, job.L - key0, D);
    for (int i = thread; i < kTile * kWide * 64; i += kThreads) {
      const int key = i / (kWide * 64), d = i % (kWide * 64);
      values[i] = d < Dv && key0 + key < job.L ? widen(v[(key0 + key) * job.v.row + d]) : 0.f;
    }
    __syncthreads();
    float scores[kOwn][kOwn] = {};
#pragma unroll 8
    for (int d = 0; d < D; ++d) {
      const auto a = *reinterpret_cast<const float4*>(queries + d * kStride + row0);
      const auto b = *reinterpret_cast<const float4*>(keys_at + d * kStride + column0);
      const float as[kOwn] = {a.x, a.y, a.z, a.w}, bs[kOwn] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) scores[i][j] = fmaf(as[i], bs[j], scores[i][j]);
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t query = first + row0 + i;
      const int64_t seen = query >= job.S ? 0 : job.causal ? min(job.L, query + job.offset + 1) : job.L;
      const int64_t bias_row = batch * job.bias_strides[0] + head * job.bias_strides[1] + query * job.bias_strides[2];
      float top = most[i];
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const int64_t key = key0 + column0 + j;
        float x = -INFINITY;
        if (key < seen) {
          x = scores[i][j] * job.scale;
          if (job.softcap > 0.f) x = job.softcap * tanhf(x / job.softcap);
          if (job.bias != nullptr) x += bias_of(job, bias_row, key);
        }
        scores[i][j] = x;
        top = fmaxf(top, x);
      }
      top = most_of_half(top);
      const bool nothing = top == -INFINITY;  // no key is seen yet
      const float shrink = nothing ? 1.f : expf(most[i] - top);
      most[i] = top;
      float added = 0.f;
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        scores[i][j] = nothing ? 0.f : expf(scores[i][j] - top);
        added += scores[i][j];
      }
      sum[i] = sum[i] * shrink + sum_of_half(added);
#pragma unroll
      for (float& one : out[i]) one *= shrink;
    }
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
      *reinterpret_cast<float4*>(weights + (column0 + j) * kStride + row0) =
          make_float4(scores[0][j], scores[1][j], scores[2][j], scores[3][j]);
    __syncthreads();
#pragma unroll 4
    for (int key = 0; key < kTile; ++key) {
      const auto a = *reinterpret_cast<const float4*>(weights + key * kStride + row0);
      const float as[kOwn] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int part = 0; part < kWide; ++part) {
        const auto b = *reinterpret_cast<const float4*>(values + key * kWide * 64 + part * 64 + column0);
        const float bs[kOwn] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < kOwn; ++i)
#pragma unroll
          for (int j = 0; j < kOwn; ++j) out[i][part * kOwn + j] = fmaf(as[i], bs[j], out[i][part * kOwn + j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int64_t query = first + row0 + i;
    if (query >= job.S) continue;
    T* to = static_cast<T*>(job.out.data) + batch * job.out.batch + head * job.out.head + query * job.out.row;
    const float inverse = sum[i] > 0.f ? 1.f / sum[i] : 0.f;
#pragma unroll
    for (int part = 0; part < kWide; ++part)
#pragma unroll
      for (int j = 0; j < kOwn; ++j)
        if (const int d = part * 64 + column0 + j; d < Dv) to[d] = narrow_to<T>(out[i][part * kOwn + j] * inverse);
  }
}

template <class T, int kWide>
int run_tiled(const CudaTarget& target, const AttendJob& job) {
  const int64_t bytes =
      (2 * job.D * kStride + kTile * kStride + kTile * kWide * 64) * static_cast<int64_t>(sizeof(float));
  if (bytes > target.shared_bytes_block || job.B > 65535 || job.H > 65535) return kNoSuchChoice;
  auto* const kernel = attend_tiled_kernel<T, kWide>;
  const auto prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (prepared != cudaSuccess) return prepared;
  const dim3 grid(static_cast<unsigned>(ceil_div(job.S, kTile)), static_cast<unsigned>(job.H),
                  static_cast<unsigned>(job.B));
  return launch(target, kernel, grid, dim3(kThreads), static_cast<size_t>(bytes), job);
}

template <class T>
int run_tiled_with(const CudaTarget& target, const AttendJob& job) {
  if (job.Dv <= 64) return run_tiled<T, 1>(target, job);
  return job.Dv <= 128 ? run_tiled<T, 2>(target, job) : run_tiled<T, 4>(target, job);
}

}  // namespace
}  // namespace cuda

int run_attend_tiled(const CudaTarget& target, const AttendJob& job) {
  if (job.D > 256 || job.Dv > 256) return kNoSuchChoice;
  if (job.dtype == DType::kF16) return cuda::run_tiled_with<__half>(target, job);
  if (job.dtype == DType::kBF16) return cuda::run_tiled_with<__nv_bfloat16>(target, job);
  return cuda::run_tiled_with<float>(target, job);
}

}  // namespace bolide
