// Products by tensor cores (mma.sync), f32 sums: plain ones and convolutions of channels-last tensors, whose rows are
// gathered as they are copied (nothing is unfolded in memory). A block makes a tile of the result; a cluster of blocks
// may share a tile, each summing a part of K, and add the parts up in shared memory.
//
// f32 is multiplied as tf32, which has 10 bits behind the point: once if the caller asks for that, else three times,
// a = high + low, a b = high high + high low + low high, which leaves an error of about 2^-21 of each product, as much
// as sums of f32 have (Ootomo and Yokota 2022, "Recovering single precision accuracy from Tensor Cores").
#pragma once

#include "kernels/general/elements.cuh"

namespace bolide::cuda {

constexpr int kRowBytes = 128;  // of K in a stage: 8 chunks of 16 bytes, which are swizzled
constexpr int kChunks = kRowBytes / 16;
// Elements of K in a stage, and in a chunk.
template <class T>
constexpr int kStepK = kRowBytes / static_cast<int>(sizeof(T));
template <class T>
constexpr int kEach = 16 / static_cast<int>(sizeof(T));

// How f32 is multiplied.
enum class Parts : uint8_t { kWhole, kTf32, kThreeTf32 };  // whole: f16, bf16

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// Copies 16 (or 8) bytes, or writes zeros.
__device__ __forceinline__ void copy16(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy8(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(there ? 8 : 0) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ __forceinline__ void load_turned(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
// d [16, 8] += a [16, 16] b [16, 8]
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                         __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d [16, 8] += a [16, 8] b [8, 8]
__device__ __forceinline__ void multiply_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
// x becomes its high part; what is left of it is returned. Infinities and NaN have nothing left.
__device__ __forceinline__ uint32_t split_tf32(uint32_t& x) {
  const float whole = __uint_as_float(x);
  x = to_tf32(whole);
  const float rest = whole - __uint_as_float(x);
  return to_tf32(isfinite(rest) ? rest : 0.f);
}

__device__ __forceinline__ void cluster_barrier() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                                                "barrier.cluster.wait.acquire.aligned;" :: : "memory");))
}
__device__ __forceinline__ float4 load_from(int rank, const float* here) {
  float4 value{};
  NV_IF_TARGET(NV_PROVIDES_SM_90,
               (uint32_t there; asm volatile(
                    "mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(here)), "r"(rank));
                asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(value.x), "=f"(value.y),
                             "=f"(value.z), "=f"(value.w) : "r"(there) : "memory");))
  return value;
}

// How rows of A are found.
enum class Rows : uint8_t { kPlain, kTaps, kTapsOf4 };  // of4: 4 channels, so that a chunk has two taps

template <int kBM, int kBN, int kWarpsM, int kWarpsN, int kStages>
struct TileShape {
  static constexpr int BM = kBM, BN = kBN, warps_m = kWarpsM, warps_n = kWarpsN, stages = kStages;
  static constexpr int threads = kWarpsM * kWarpsN * kWarp;
  static constexpr int WM = BM / warps_m, WN = BN / warps_n;  // of a warp
  static constexpr int stage_bytes = (BM + BN) * kRowBytes;
  static constexpr int sums_stride = BN + 8;  // floats
  static constexpr int pipeline_bytes = stages * stage_bytes, sums_bytes = BM * sums_stride * 4;
  static constexpr int shared_bytes = pipeline_bytes > sums_bytes ? pipeline_bytes : sums_bytes;
};

template <class T, class Tile, Rows kRows, Parts kParts>
__global__ void __launch_bounds__(Tile::threads)
    product_half_kernel(const __grid_constant__ ProductJob job, int tiles_m, int tiles_n, int splits) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kRowsPass = Tile::threads / kChunks;  // rows that one pass of all threads copies
  constexpr int kPassesA = Tile::BM / kRowsPass, kPassesB = Tile::BN / kRowsPass;
  static_assert(Tile::BM % kRowsPass == 0 && Tile::BN % kRowsPass == 0 && Tile::WM % 16 == 0 && Tile::WN % 16 == 0);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int split = static_cast<int>(blockIdx.x) % splits, tile = static_cast<int>(blockIdx.x) / splits;
  // Tiles in groups of 8 rows, column by column, so that what runs at a time shares rows of both matrices.
  constexpr int kGroup = 8;
  const int group = tile / (kGroup * tiles_n), first = group * kGroup;
  const int height = min(tiles_m - first, kGroup), inside = tile - group * kGroup * tiles_n;
  const int64_t m0 = int64_t{first + inside % height} * Tile::BM, n0 = int64_t{inside / height} * Tile::BN;
  const int64_t batch = blockIdx.y;
  const T* const a = static_cast<const T*>(job.a) + batch * job.a_batch;
  const T* const b = static_cast<const T*>(job.b) + batch * job.b_batch;
  const int steps_all = static_cast<int>((job.K + kStepK<T> - 1) / kStepK<T>);
  const int step0 = steps_all * split / splits, steps = steps_all * (split + 1) / splits - step0;

  // This thread's chunk of its rows: row0, row0 + kRowsPass, ...; all of them are swizzled alike.
  const int chunk = thread % kChunks, row0 = thread / kChunks;
  const Geometry& g = job.at;
  int64_t k = int64_t{step0} * kStepK<T> + chunk * kEach<T>, k_b = k;
  const T* from_b = b + (n0 + row0) * job.b_stride + k;
  const T* from_a = a;                                   // plain: this thread's chunk of row0
  uint32_t there_a = 0, there_b = 0;                     // which of the rows exist
  int offset[kPassesA], at_h[kPassesA], at_w[kPassesA];  // taps: where a row's window begins
#pragma unroll
  for (int p = 0; p < kPassesB; ++p) there_b |= static_cast<uint32_t>(n0 + row0 + p * kRowsPass < job.N) << p;
  if constexpr (kRows == Rows::kPlain) {
    from_a += (m0 + row0) * job.a_stride + k;
#pragma unroll
    for (int p = 0; p < kPassesA; ++p) there_a |= static_cast<uint32_t>(m0 + row0 + p * kRowsPass < job.M) << p;
  } else {
#pragma unroll
    for (int p = 0; p < kPassesA; ++p) {
      const int64_t m = m0 + row0 + p * kRowsPass;
      const auto at = static_cast<uint32_t>(m), plane = static_cast<uint32_t>(g.OH * g.OW);
      const uint32_t image = at / plane, rest = at % plane, oh = rest / static_cast<uint32_t>(g.OW),
                     ow = rest % static_cast<uint32_t>(g.OW);
      at_h[p] = m < job.M ? static_cast<int>(oh) * g.stride_h - g.pad_h : -(1 << 28);
      at_w[p] = static_cast<int>(ow) * g.stride_w - g.pad_w;
      offset[p] = m < job.M ? static_cast<int>(((static_cast<int>(image) * g.H + at_h[p]) * g.W + at_w[p]) * g.C) : 0;
    }
  }
  const int64_t pass_a = kRowsPass * job.a_stride, pass_b = kRowsPass * job.b_stride;
  const int H = static_cast<int>(g.H), W = static_cast<int>(g.W), C = static_cast<int>(g.C), S = static_cast<int>(g.S);
  int tap_r = 0, tap_s = 0, channel = 0;
  if constexpr (kRows == Rows::kTaps) {
    const int tap = static_cast<int>(k) / C;
    channel = static_cast<int>(k) % C, tap_r = tap / S, tap_s = tap % S;
  }

  const uint32_t base = shared_address(memory);
  const uint32_t place = static_cast<uint32_t>(row0 * kRowBytes + ((chunk ^ (row0 & 7)) << 4));
  constexpr uint32_t kPassBytes = kRowsPass * kRowBytes;
  const auto copy_b = [&](int stage) {
    const uint32_t to = base + place + static_cast<uint32_t>(stage * Tile::stage_bytes + Tile::BM * kRowBytes);
    const uint32_t there = k_b < job.K ? there_b : 0;
#pragma unroll
    for (int p = 0; p < kPassesB; ++p) copy16(to + p * kPassBytes, from_b + p * pass_b, (there >> p & 1) != 0);
    from_b += kStepK<T>, k_b += kStepK<T>;
  };
  const auto copy_a = [&](int stage) {
    const uint32_t to = base + place + static_cast<uint32_t>(stage * Tile::stage_bytes);
    if constexpr (kRows == Rows::kPlain) {
      const uint32_t there = k < job.K ? there_a : 0;
#pragma unroll
      for (int p = 0; p < kPassesA; ++p) copy16(to + p * kPassBytes, from_a + p * pass_a, (there >> p & 1) != 0);
      from_a += kStepK<T>;
    } else if constexpr (kRows == Rows::kTaps) {
      const int height = k < job.K ? H : 0, dh = tap_r * g.dilation_h, dw = tap_s * g.dilation_w;
      const int move = (dh * W + dw) * C + channel;
#pragma unroll
      for (int p = 0; p < kPassesA; ++p) {
        const bool there = static_cast<unsigned>(at_h[p] + dh) < static_cast<unsigned>(height) &&
                           static_cast<unsigned>(at_w[p] + dw) < static_cast<unsigned>(W);
        copy16(to + p * kPassBytes, a + (offset[p] + move), there);
      }
      channel += kStepK<T>;
      while (channel >= C) {
        channel -= C;
        if (++tap_s == S) tap_s = 0, ++tap_r;
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tap = static_cast<int>(k) / 4 + half, r = tap / S, s = tap % S;
        const int dh = r * g.dilation_h, dw = s * g.dilation_w, move = (dh * W + dw) * 4;
        const int height = r < g.R ? H : 0;
#pragma unroll
        for (int p = 0; p < kPassesA; ++p) {
          const bool there = static_cast<unsigned>(at_h[p] + dh) < static_cast<unsigned>(height) &&
                             static_cast<unsigned>(at_w[p] + dw) < static_cast<unsigned>(W);
          copy8(to + p * kPassBytes + static_cast<uint32_t>(half * 8), a + (offset[p] + move), there);
        }
      }
    }
    k += kStepK<T>;
  };

  // Constants may be fetched while the kernel before ends.
  if (job.b_is_constant) {
#pragma unroll
    for (int s = 0; s < Tile::stages - 1; ++s)
      if (s < steps) copy_b(s);
  }
  wait_for_previous();
  let_next_start();
#pragma unroll
  for (int s = 0; s < Tile::stages - 1; ++s) {
    if (s < steps) {
      if (!job.b_is_constant) copy_b(s);
      copy_a(s);
    }
    commit();
  }

  constexpr int kMs = Tile::WM / 16, kNs = Tile::WN / 8;
  float sums[kMs][kNs][4] = {};
  const int warp_m = warp / Tile::warps_n * Tile::WM, warp_n = warp % Tile::warps_n * Tile::WN;
  // ldmatrix: this lane's row within 16 and its half of 16 elements of K.
  const int a_row = warp_m + lane % 16, a_half = lane / 16;
  const int b_row = warp_n + lane % 8 + lane / 16 * 8, b_half = lane / 8 % 2;
  for (int step = 0; step < steps; ++step) {
    wait_copies<Tile::stages - 2>();
    __syncthreads();
    if (const int next = step + Tile::stages - 1; next < steps) {
      copy_b(next % Tile::stages);
      copy_a(next % Tile::stages);
    }
    commit();
    const uint32_t at_a = base + static_cast<uint32_t>(step % Tile::stages * Tile::stage_bytes);
    const uint32_t at_b = at_a + Tile::BM * kRowBytes;
    // Operands of the next 16 of K are on their way while these are multiplied.
    uint32_t fa[2][kMs][4], fb[2][kNs / 2][4];
    const auto fetch = [&](int part, int turn) {
#pragma unroll
      for (int i = 0; i < kMs; ++i)
        load_matrices(fa[turn][i], at_a + static_cast<uint32_t>((a_row + i * 16) * kRowBytes +
                                                                (((part * 2 + a_half) ^ (a_row & 7)) << 4)));
#pragma unroll
      for (int j = 0; j < kNs / 2; ++j)
        load_matrices(fb[turn][j], at_b + static_cast<uint32_t>((b_row + j * 16) * kRowBytes +
                                                                (((part * 2 + b_half) ^ (b_row & 7)) << 4)));
    };
    constexpr int kInStage = kRowBytes / 32;
    if constexpr (kParts == Parts::kWhole) {
      fetch(0, 0);
#pragma unroll
      for (int part = 0; part < kInStage; ++part) {
        const int turn = part % 2;
        if (part + 1 < kInStage) fetch(part + 1, turn ^ 1);
#pragma unroll
        for (int i = 0; i < kMs; ++i)
#pragma unroll
          for (int j = 0; j < kNs; ++j)
            multiply(sums[i][j], fa[turn][i], fb[turn][j / 2][j % 2 * 2], fb[turn][j / 2][j % 2 * 2 + 1], T{});
      }
    } else {
#pragma unroll
      for (int part = 0; part < kInStage; ++part) {
        fetch(part, 0);
        uint32_t(&low_a)[kMs][4] = fa[1], (&low_b)[kNs / 2][4] = fb[1];
#pragma unroll
        for (int i = 0; i < kMs; ++i)
#pragma unroll
          for (int r = 0; r < 4; ++r) low_a[i][r] = split_tf32(fa[0][i][r]);
#pragma unroll
        for (int j = 0; j < kNs / 2; ++j)
#pragma unroll
          for (int r = 0; r < 4; ++r) low_b[j][r] = split_tf32(fb[0][j][r]);
        if constexpr (kParts == Parts::kThreeTf32) {
#pragma unroll
          for (int i = 0; i < kMs; ++i)
#pragma unroll
            for (int j = 0; j < kNs; ++j) {
              multiply_tf32(sums[i][j], low_a[i], fb[0][j / 2][j % 2 * 2], fb[0][j / 2][j % 2 * 2 + 1]);
              multiply_tf32(sums[i][j], fa[0][i], low_b[j / 2][j % 2 * 2], low_b[j / 2][j % 2 * 2 + 1]);
            }
        }
#pragma unroll
        for (int i = 0; i < kMs; ++i)
#pragma unroll
          for (int j = 0; j < kNs; ++j)
            multiply_tf32(sums[i][j], fa[0][i], fb[0][j / 2][j % 2 * 2], fb[0][j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  wait_copies<0>();
  __syncthreads();

  auto* const staged = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int i = 0; i < kMs; ++i)
#pragma unroll
    for (int j = 0; j < kNs; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_m + i * 16 + lane / 4 + half * 8, column = warp_n + j * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(staged + row * Tile::sums_stride + column) =
            make_float2(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
      }
  if (splits > 1)
    cluster_barrier();
  else
    __syncthreads();

  // 8 columns of a row each; the blocks of a cluster share the rows.
  constexpr int kAcross = Tile::BN / 8;
  const Epilogue& e = job.epilogue;
  T* const out = static_cast<T*>(job.out) + batch * job.out_batch;
  const T* const residual =
      e.residual == nullptr ? nullptr : static_cast<const T*>(e.residual) + batch * e.residual_batch;
  const bool wide = job.N % 8 == 0 && job.out_stride % 8 == 0;
  for (int i = thread + split * Tile::threads; i < Tile::BM * kAcross; i += Tile::threads * splits) {
    const int row = i / kAcross, column = i % kAcross * 8;
    const int64_t m = m0 + row, n = n0 + column;
    if (m >= job.M || n >= job.N) continue;
    float y[8] = {};
    for (int s = 0; s < splits; ++s) {
      const float* from = staged + row * Tile::sums_stride + column;
      const bool mine = s == split;
      const float4 low = mine ? *reinterpret_cast<const float4*>(from) : load_from(s, from);
      const float4 high = mine ? *reinterpret_cast<const float4*>(from + 4) : load_from(s, from + 4);
      y[0] += low.x, y[1] += low.y, y[2] += low.z, y[3] += low.w;
      y[4] += high.x, y[5] += high.y, y[6] += high.z, y[7] += high.w;
    }
    constexpr int kHalves = 8 / kEach<T>;
    Pack<T> added[kHalves] = {}, kept[kHalves];
    if (residual != nullptr) {
      const T* from = residual + m * e.residual_stride + n;
      if (wide) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) added[h] = load<Pack<T>>(from + h * kEach<T>);
      } else {
#pragma unroll
        for (int c = 0; c < 8; ++c)
          if (n + c < job.N) added[c / kEach<T>].value[c % kEach<T>] = from[c];
      }
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      y[c] *= e.alpha;
      if (e.bias != nullptr && n + c < job.N) y[c] += e.bias[n + c];
      y[c] += widen(added[c / kEach<T>].value[c % kEach<T>]);
    }
    apply_all(e.then, y);
#pragma unroll
    for (int c = 0; c < 8; ++c) kept[c / kEach<T>].value[c % kEach<T>] = narrow_to<T>(y[c]);
    if (wide) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) store(out + m * job.out_stride + n + h * kEach<T>, kept[h]);
    } else {
#pragma unroll
      for (int c = 0; c < 8; ++c)
        if (n + c < job.N) out[m * job.out_stride + n + c] = kept[c / kEach<T>].value[c % kEach<T>];
    }
  }
  if (splits > 1) cluster_barrier();  // others may still read this block's sums
}

template <class T, class Tile, Rows kRows, Parts kParts>
int launch_product(const CudaTarget& target, const ProductJob& job, int splits) {
  auto* const kernel = product_half_kernel<T, Tile, kRows, kParts>;
  static const auto prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::shared_bytes);
  if (prepared != cudaSuccess) return prepared;
  const int64_t tiles_m = ceil_div(job.M, Tile::BM), tiles_n = ceil_div(job.N, Tile::BN);
  const dim3 grid(static_cast<unsigned>(tiles_m * tiles_n * splits), static_cast<unsigned>(job.batch));
  return launch_clusters(target, kernel, grid, dim3(Tile::threads), splits, Tile::shared_bytes, job,
                         static_cast<int>(tiles_m), static_cast<int>(tiles_n), splits);
}

template <class T, class Tile, Parts kParts = Parts::kWhole>
int run_tile(const CudaTarget& target, const ProductJob& job, int splits) {
  const int64_t steps = ceil_div(job.K, kStepK<T>), tiles = ceil_div(job.M, Tile::BM) * ceil_div(job.N, Tile::BN);
  // Parts only where blocks would not fill the GPU, and each has work.
  if (splits > 1 && (target.compute_capability != 90 || steps < splits * 2 ||
                     tiles * job.batch * splits > 4 * target.multiprocessors))
    return kNoSuchChoice;
  if (tiles * splits >= int64_t{1} << 31 || job.batch > 65535 || Tile::shared_bytes > target.shared_bytes_block)
    return kNoSuchChoice;
  // Half of a larger tile or more would be empty.
  if (Tile::BN > 64 && job.N <= Tile::BN / 2) return kNoSuchChoice;
  if (Tile::BM > 64 && job.M <= Tile::BM / 2) return kNoSuchChoice;
  if (!job.is_convolution) return launch_product<T, Tile, Rows::kPlain, kParts>(target, job, splits);
  if constexpr (sizeof(T) == 2)
    if (job.at.C == 4) return launch_product<T, Tile, Rows::kTapsOf4, kParts>(target, job, splits);
  return launch_product<T, Tile, Rows::kTaps, kParts>(target, job, splits);
}

inline constexpr int kTiles = 6, kSplitKinds = 4;

template <class T>
int run_product(const CudaTarget& target, const ProductJob& job, int choice) {
  const int splits = 1 << choice % kSplitKinds;
  switch (choice / kSplitKinds) {
    case 0: return run_tile<T, TileShape<128, 128, 2, 2, 3>>(target, job, splits);
    case 1: return run_tile<T, TileShape<128, 64, 2, 2, 4>>(target, job, splits);
    case 2: return run_tile<T, TileShape<64, 64, 2, 2, 4>>(target, job, splits);
    case 3: return run_tile<T, TileShape<64, 128, 2, 2, 4>>(target, job, splits);
    case 4: return run_tile<T, TileShape<32, 64, 2, 2, 6>>(target, job, splits);
    case 5: return run_tile<T, TileShape<256, 128, 4, 2, 3>>(target, job, splits);
    default: return kNoSuchChoice;
  }
}

}  // namespace bolide::cuda
