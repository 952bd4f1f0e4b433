// Products of up to 16 tokens: bound by reading the weight once, so the kernel is a stream of weights with tensor cores
// at its end. One block a multiprocessor owns a range of output rows, and its warps have three tasks:
//
// - Four copy: a stage is 512 bytes of 32 rows (16 pairs), of which each copies 8 rows into a ring in shared memory
//   (cp.async). They begin before the kernel waits for the one in front of it, since weights depend on nothing, and let
//   the next kernel start when their own last copies are under way: the next one's first copies then keep the memory
//   busy while this one ends.
// - Eight multiply: a stage is eight windows of 64 bytes of a row, one for each warp, and a warp prepares just the x of
//   its own windows, so none waits for another. mma m16n8k16, 16 rows by 8 tokens: its k may be numbered freely as long
//   as weight and x agree, so a thread's 16 bytes hold neighbouring k, and rows need no other order than the file's.
// - Two or four finish: they have read all that the end needs when the sums of the eight arrive.
//
// Rows come in pairs that meet in one thread: gate and up, or the two halves of a rotated head. RmsNorm is a factor a
// token: x * gain is multiplied, and the sums are scaled. Sums of the warps are added in fixed order: bits depend on
// neither the batch nor the run.
#pragma once

#include <algorithm>

#include "kernels/linear/gemv_finish.cuh"
#include "kernels/linear/gemv_formats.cuh"
#include "kernels/linear/gemv_x.cuh"

namespace bolide::cuda {

inline constexpr int kGemvCopiers = 4;
constexpr int gemv_finishers(int token_tiles) { return 2 * token_tiles; }
constexpr int gemv_threads(int token_tiles) {
  return (kGemvWarps + kGemvCopiers + gemv_finishers(token_tiles)) * kWarp;
}
inline constexpr int kGemvPairs = 16, kGemvRows = 2 * kGemvPairs;  // of a stage
inline constexpr int kGemvSegment = 512;                           // bytes of a row

// Stages that are asked for and not there yet: what keeps the memory busy. With more of them, x would wait behind
// weights that nobody wants yet.
inline constexpr int kGemvPace = 3;

// Barriers in shared memory.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  NV_IF_ELSE_TARGET(
      NV_PROVIDES_SM_90,
      (asm volatile("{\n .reg .pred past;\nagain:\n mbarrier.try_wait.parity.shared.b64 past, [%0], %1;\n"
                    " @!past bra again;\n}" ::"r"(barrier),
                    "r"(parity) : "memory");),
      (asm volatile("{\n .reg .pred past;\nagain:\n mbarrier.test_wait.parity.shared.b64 past, [%0], %1;\n"
                    " @!past bra again;\n}" ::"r"(barrier),
                    "r"(parity) : "memory");))
}
// Named barriers: of sums that are there (1, 2) and sums that are read (3, 4).
template <int kTokenTiles, bool kWait>
__device__ __forceinline__ void meet(int name) {
  constexpr int kThreads = (kGemvWarps + gemv_finishers(kTokenTiles)) * kWarp;
  if constexpr (kWait) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
  } else {
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
  }
}

// Shared memory: the ring, then x, sums, squares and factors, barriers.
template <class Format>
struct GemvShape {
  using X = typename Format::X;
  // Rows of a stage lie 544 bytes apart, odd ones 32 further, so that neighbours are in different banks.
  static constexpr int kCodes = kGemvRows * (kGemvSegment + 32);
  static constexpr int kConstants = Format::kConstantBytes;
  static constexpr int kConstantPitch = kConstants > 0 ? kConstants + 16 : 0;
  static constexpr int kStage = kCodes + kGemvRows * kConstantPitch;
  static constexpr int kSmall = 2 * kGemvWarps * kGemvTokensMax * 4 + 256;
  static constexpr int kDepthMax = 16;
  // x that does not fit and that needs no conversion: each lane's own pieces of some windows ahead. What is converted
  // anyway is read a window ahead into registers: with a ring it is slower.
  static constexpr bool kHasXRing = std::is_same_v<X, __nv_bfloat16>;
  static constexpr int kWindowsAhead = 4, kXPieces = kGemvWarps * kWarp * 16;
  template <int kTokenTiles>
  static constexpr int kXRing = kHasXRing ? kWindowsAhead * kTokenTiles * Format::kChunks * kXPieces : 0;

  static __host__ __device__ int x_bytes(int tokens, int k) {
    return tokens * gemv_x_pitch<Format>(k) * static_cast<int>(sizeof(X));
  }
  static __host__ __device__ int sums_bytes(int tokens) { return 2 * kGemvWarps * tokens * kGemvPairs * 8; }
};

// 16 bytes, past level 1, or zeros.
__device__ __forceinline__ void copy_async(uint32_t there, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(there), "l"(from), "r"(exists ? 16 : 0)
               : "memory");
}
// Arrives when the thread's copies so far are there.
__device__ __forceinline__ void barrier_arrive_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// A warp that copies: some rows of each stage, 16 bytes a lane.
template <class Format>
__device__ __forceinline__ void gemv_copy(const GemvArgs& a, const GemvHeads& heads, uint32_t ring, uint32_t barriers,
                                          int copier, int lane, int begin, int end) {
  using Shape = GemvShape<Format>;
  constexpr int kRows = kGemvRows / kGemvCopiers;
  const int pieces =
      Shape::kConstants > 0 ? (a.k + Format::kWindow - 1) / Format::kWindow * 4 : (a.k * Format::kBits + 127) / 128;
  const int passes = (end - begin + kGemvPairs - 1) / kGemvPairs, stages = passes * a.segments;
  const auto row_pieces = static_cast<uint32_t>(a.row_bytes / 16);
  const int first = copier * kRows;
  const uint32_t place = ring + static_cast<uint32_t>(first * (kGemvSegment + 32) + lane * 16);
  // Constants: kPieces of 16 bytes of a row, a lane has piece lane % kPieces of some rows.
  constexpr int kPieces = Shape::kConstants > 0 ? Shape::kConstants / 16 : 1, kRowsAtOnce = kWarp / kPieces;
  constexpr int kConstantCopies = Shape::kConstants > 0 ? (kRows + kRowsAtOnce - 1) / kRowsAtOnce : 0;
  int slot = 0, segment = 0, pass = 0;
  uint32_t parity = 1;
  const int pace = min(kGemvPace, a.depth);
  int arrived = 0;  // the stage that must be there before the next is asked for
  uint32_t arrived_parity = 0;
  const uint8_t *row[kRows], *constant_row[kConstantCopies + 1];
  bool present = false;
#pragma unroll 1
  for (int i = 0; i < stages; ++i) {
    if (segment == 0) {
      const int r = first + lane % kRows;
      int low, high;
      gemv_rows(a, heads, begin, end, begin + pass * kGemvPairs + r / 16 * 8 + r % 8, &low, &high);
      const uint32_t at = static_cast<uint32_t>(r / 8 % 2 == 0 ? low : high) * row_pieces;
#pragma unroll
      for (int j = 0; j < kRows; ++j)
        row[j] = a.codes + (uint64_t{__shfl_sync(0xffffffffu, at, j)} + static_cast<uint32_t>(lane)) * 16;
#pragma unroll
      for (int j = 0; j < kConstantCopies; ++j)
        constant_row[j] =
            a.codes + uint64_t{__shfl_sync(0xffffffffu, at, min(j * kRowsAtOnce + lane / kPieces, kRows - 1))} * 16 +
            a.groups_from + lane % kPieces * 16;
      present = end - begin - pass * kGemvPairs > first / 16 * 8;
      ++pass;
    }
    const bool exists = segment * kWarp + lane < pieces;
    const uint32_t full = barriers + static_cast<uint32_t>(slot * 16);
    if (i >= a.depth) barrier_wait(full + 8, parity);
    if (i >= pace) {
      barrier_wait(barriers + static_cast<uint32_t>(arrived * 16), arrived_parity);
      if (++arrived == a.depth) arrived = 0, arrived_parity ^= 1u;
    }
    const uint32_t there = place + static_cast<uint32_t>(slot * Shape::kStage);
    if (present) {
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        copy_async(there + static_cast<uint32_t>(j * (kGemvSegment + 32) + j % 2 * 32), exists ? row[j] : a.codes,
                   exists);
        row[j] += kGemvSegment;
      }
      if constexpr (Shape::kConstants > 0) {
        const bool is = (segment * kPieces + lane % kPieces) * 16 < static_cast<int>(a.row_bytes - a.groups_from);
#pragma unroll
        for (int j = 0; j < kConstantCopies; ++j) {
          const int r = j * kRowsAtOnce + lane / kPieces;
          if (lane >= kPieces * kRowsAtOnce || r >= kRows) continue;
          copy_async(ring + static_cast<uint32_t>(slot * Shape::kStage + Shape::kCodes +
                                                  (first + r) * Shape::kConstantPitch + lane % kPieces * 16),
                     is ? constant_row[j] : a.codes, is);
          constant_row[j] += Shape::kConstants;
        }
      }
    }
    barrier_arrive_copied(full);
    if (i == stages - 1) let_next_start();
    if (++segment == a.segments) segment = 0;
    if (++slot == a.depth) slot = 0, parity ^= 1u;
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

template <class Format, int kTokenTiles, bool kShared>
__global__ void __launch_bounds__(gemv_threads(kTokenTiles),
                                  kTokenTiles == 1 && (kShared || GemvShape<Format>::kHasXRing) ? Format::kBlocks : 1)
    gemv_kernel(const __grid_constant__ GemvArgs a, const __grid_constant__ GemvHeads heads) {
  using Shape = GemvShape<Format>;
  using X = typename Format::X;
  constexpr int kWords = 4 * Format::kChunks;
  constexpr bool kHalf = std::is_same_v<X, __half>;
  extern __shared__ __align__(128) uint8_t shared[];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarp, 0);  // so that it is known uniform
  auto* const x_shared = reinterpret_cast<X*>(shared + a.depth * Shape::kStage);
  const int x_bytes = kShared ? Shape::x_bytes(a.tokens, a.k) : Shape::template kXRing<kTokenTiles>;
  auto* const sums = reinterpret_cast<float2*>(reinterpret_cast<uint8_t*>(x_shared) + x_bytes);
  auto* const squares = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(sums) + Shape::sums_bytes(a.tokens));
  float* const factors = squares + kGemvWarps * kGemvTokensMax;
  const uint32_t barriers = shared_address(factors + kGemvWarps * kGemvTokensMax);  // full, empty of each stage
  const int begin = static_cast<int>(blockIdx.x) * a.pairs_block, end = min(begin + a.pairs_block, a.pairs);
  const int passes = (end - begin + kGemvPairs - 1) / kGemvPairs;

  if (warp == kGemvWarps) {
    if (lane < a.depth) {
      barrier_init(barriers + static_cast<uint32_t>(lane * 16), kGemvCopiers * kWarp);
      barrier_init(barriers + static_cast<uint32_t>(lane * 16 + 8), kGemvWarps);
    }
  }
  __syncthreads();

  constexpr int kFinishers = gemv_finishers(kTokenTiles);
  if (warp >= kGemvWarps + kFinishers) {
    gemv_copy<Format>(a, heads, shared_address(shared), barriers, warp - kGemvWarps - kFinishers, lane, begin, end);
    return;
  }

  if (warp >= kGemvWarps) {  // finish
    constexpr int kTokensAtOnce = kFinishers * kWarp / kGemvPairs;
    const int thread = (warp - kGemvWarps) * kWarp + lane, in_pass = thread % kGemvPairs;
    GemvUnit unit{};
    unit.find(a, heads, begin, end, begin + in_pass, thread / kGemvPairs);
    wait_for_previous();
#pragma unroll 1
    for (int pass = 0, from = 0; pass < passes;) {
      const int half = pass % 2;
      unit.read(a, heads);
      if (from == 0) meet<kTokenTiles, true>(1 + half);
      if (unit.exists) {
        float norm = 1;
        if (a.gain != nullptr) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < kGemvWarps; ++i) sum += squares[i * kGemvTokensMax + unit.token];
          norm = rsqrtf(sum / static_cast<float>(a.k) + a.eps);
        }
        float2 sum{};
#pragma unroll
        for (int i = 0; i < kGemvWarps; ++i) {
          const float2 more = sums[((half * kGemvWarps + i) * a.tokens + unit.token) * kGemvPairs + in_pass];
          sum.x += more.x, sum.y += more.y;
        }
        unit.finish(a, heads, {sum.x * norm, sum.y * norm});
      }
      from += kTokensAtOnce;
      if (from >= a.tokens) {
        if (pass + 2 < passes) meet<kTokenTiles, false>(3 + half);
        ++pass, from = 0;
      }
      if (pass < passes) {
        unit = {};
        unit.find(a, heads, begin, end, begin + pass * kGemvPairs + in_pass, from + thread / kGemvPairs);
      }
    }
    return;
  }

  // Multiply.
  const int g = lane / 4, t = lane % 4;
  if constexpr (kShared) {
    if (a.gain != nullptr) {
      const GemvShareX<Format, true> share(a, warp, lane);
      wait_for_previous();
      share.run(x_shared, squares + warp * kGemvTokensMax, factors + warp * kGemvTokensMax);
    } else {
      const GemvShareX<Format, false> share(a, warp, lane);
      wait_for_previous();
      share.run(x_shared, squares + warp * kGemvTokensMax, factors + warp * kGemvTokensMax);
    }
  } else {
    wait_for_previous();
  }
  // Columns of tokens that do not exist are products of some other token, and are not stored.
  int64_t x_at[kTokenTiles];
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n)
    x_at[n] = min(n * 8 + g, a.tokens - 1) * (kShared ? int64_t{gemv_x_pitch<Format>(a.k)} : a.x_stride);
  // Of a segment, or from a place in the ring, where each lane has places of its own.
  constexpr bool kRing = !kShared && Shape::kHasXRing, kDirect = !kShared && !Shape::kHasXRing;
  const auto read_x = [&](int at, uint4(&v)[kTokenTiles][Format::kChunks]) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
      for (int j = 0; j < Format::kChunks; ++j) {
        const int k = (at * kGemvWarps + warp) * Format::kWindow + Format::chunk_k(j, t);
        if constexpr (kShared) {
          v[n][j] = load<uint4>(x_shared + static_cast<int>(x_at[n]) + k);
        } else if constexpr (kDirect) {
          v[n][j] = {};
          if (k < a.k)
            v[n][j] = __ldcg(reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.x) + x_at[n] + k));
        } else {
          v[n][j] = load<uint4>(reinterpret_cast<const uint8_t*>(x_shared) + (warp * kWarp + lane) * 16 +
                                ((at * kTokenTiles + n) * Format::kChunks + j) * Shape::kXPieces);
        }
      }
  };
  int x_slot = 0, x_segment = 0, x_left = passes * a.segments;
  const uint32_t x_place = shared_address(x_shared) + static_cast<uint32_t>(warp * kWarp + lane) * 16;
  const auto ask_for_x = [&] {
    if (x_left > 0) {
      --x_left;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int j = 0; j < Format::kChunks; ++j) {
          const int k = (x_segment * kGemvWarps + warp) * Format::kWindow + Format::chunk_k(j, t);
          const auto* const x = static_cast<const __nv_bfloat16*>(a.x) + x_at[n];
          copy_async(
              x_place + static_cast<uint32_t>(((x_slot * kTokenTiles + n) * Format::kChunks + j) * Shape::kXPieces),
              k < a.k ? x + k : x, k < a.k);
        }
      if (++x_segment == a.segments) x_segment = 0;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (++x_slot == Shape::kWindowsAhead) x_slot = 0;
  };

  const uint8_t* const mine = shared + g * (kGemvSegment + 32) + g % 2 * 32 + warp * 64 + t * 16;
  const uint8_t* const constants = shared + Shape::kCodes + g * Shape::kConstantPitch;
  const int units = (a.k * Format::kBits + 127) / 128;  // 16 bytes of a row
  int slot = 0;
  uint32_t parity = 0;
  uint4 next[kTokenTiles][Format::kChunks];
  if constexpr (kRing) {
#pragma unroll 1
    for (int i = 0; i < Shape::kWindowsAhead; ++i) ask_for_x();
  }
  if constexpr (kDirect) read_x(0, next);
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    float c[2][kTokenTiles][4] = {};
#pragma unroll 1
    for (int segment = 0; segment < a.segments; ++segment) {
      const int unit = (segment * kGemvWarps + warp) * 4;
      uint32_t x[kTokenTiles][kWords];
      if constexpr (kShared) {
        if (unit < units) read_x(segment, next);
      } else if constexpr (kRing) {
        asm volatile("cp.async.wait_group %0;" ::"n"(Shape::kWindowsAhead - 1) : "memory");
        read_x(x_slot, next);
        ask_for_x();
      }
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int i = 0; i < kWords; ++i) {
          const uint32_t word = word_of(next[n][i / 4], i % 4);
          if constexpr (kShared || !kHalf) {
            x[n][i] = word;
          } else {
            x[n][i] = gemv_f16_pair(word, kGemvF16Scale<Format> * (i % 2 == 0 ? 1.f : Format::kOddScale));
          }
        }
      if constexpr (kDirect) read_x(segment + 1 == a.segments ? 0 : segment + 1, next);
      const uint32_t full = barriers + static_cast<uint32_t>(slot * 16);
      // Also those that have nothing to do in the row's last segment: one that went on and left the stage before it is
      // there could do so for a use in which another has not left it yet. That one would be waited for no more, its
      // stage be written again while it reads, and its wait be for a phase that has passed: for ever.
      barrier_wait(full, parity);
      if (unit < units) {
        const uint8_t* const stage = mine + slot * Shape::kStage;
        const uint8_t* const stage_constants = constants + slot * Shape::kStage;
        typename Format::template Sums<kTokenTiles> x_sums;
        Format::template sum_x<kTokenTiles>(x_sums, x);
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {  // one that does not exist is computed, and not stored
          uint4 row[2];
          typename Format::Constants group[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            row[i] = load<uint4>(stage + (tile * 16 + i * 8) * (kGemvSegment + 32));
            group[i].read(stage_constants + (tile * 16 + i * 8) * Shape::kConstantPitch, warp, t);
          }
          Format::template multiply<kTokenTiles>(c[tile], row[0], row[1], group[0], group[1], x, x_sums);
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(full + 8);
      if (++slot == a.depth) slot = 0, parity ^= 1u;
    }

    const int half = pass % 2;
    if (pass >= 2) meet<kTokenTiles, true>(3 + half);
    float2* const there = sums + static_cast<int64_t>(half * kGemvWarps + warp) * a.tokens * kGemvPairs + g;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = n * 8 + 2 * t + i;
        if (token >= a.tokens) continue;
        float factor = Format::kSumScale / kGemvF16Scale<Format>;
        if constexpr (kShared) factor = factors[warp * kGemvTokensMax + token];
        if constexpr (!kHalf) factor = 1;
#pragma unroll
        for (int tile = 0; tile < 2; ++tile)
          there[token * kGemvPairs + tile * 8] = {c[tile][n][i] * factor, c[tile][n][i + 2] * factor};
      }
    meet<kTokenTiles, false>(1 + half);
  }
}

template <class Format, int kTokenTiles, bool kShared>
int gemv_launch(const CudaTarget& target, GemvArgs a, const GemvHeads& heads) {
  using Shape = GemvShape<Format>;
  const int fixed =
      (kShared ? Shape::x_bytes(a.tokens, a.k) : Shape::template kXRing<kTokenTiles>)+Shape::sums_bytes(a.tokens) +
      Shape::kSmall;
  // Two blocks to a multiprocessor, one of this kernel and one of the next, if registers allow it and if that leaves a
  // ring worth the name.
  constexpr int kHalfOfShared = (228 - 2) / 2 << 10, kFewest = 3;
  const bool half = kTokenTiles == 1 || !Shape::kHasXRing;
  int depth = half ? (kHalfOfShared - fixed) / Shape::kStage : 0;
  if (depth < kFewest) depth = (static_cast<int>(target.shared_bytes_block) - fixed) / Shape::kStage;
  // Whole pairs evenly, though some multiprocessors may then have none: a remainder spread over all is slower.
  a.pairs_block = static_cast<int>(ceil_div(a.pairs, target.multiprocessors));
  const int passes = (a.pairs_block + kGemvPairs - 1) / kGemvPairs;
  a.depth = std::min({depth, Shape::kDepthMax, passes * a.segments});
  if (a.depth < 1) return cudaErrorInvalidValue;
  const size_t shared = static_cast<size_t>(fixed + a.depth * Shape::kStage);
  const auto kernel = gemv_kernel<Format, kTokenTiles, kShared>;
  if (const auto status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
      status != cudaSuccess)
    return status;
  return launch(target, kernel, static_cast<unsigned>(ceil_div(a.pairs, a.pairs_block)), gemv_threads(kTokenTiles),
                shared, a, heads);
}

template <class Format>
int gemv_as(const CudaTarget& target, const GemvWork& work) {
  const GemvWeight& w = work.weight;
  GemvArgs a{};
  a.codes = static_cast<const uint8_t*>(w.codes), a.row_bytes = w.row_bytes, a.groups_from = w.groups_from;
  a.rows = static_cast<int>(w.rows), a.k = static_cast<int>(w.k), a.tokens = static_cast<int>(work.x.rows);
  a.segments = static_cast<int>(ceil_div(w.k, Format::kWindow * kGemvWarps));
  const bool plain = work.pairs == GemvWork::Pairs::kRows;
  a.pairs = static_cast<int>(plain ? ceil_div(w.rows, 2) : w.rows / 2);
  if (a.pairs == 0) return cudaSuccess;
  a.x = work.x.data, a.x_stride = work.x.stride;
  a.gain = work.gain, a.eps = work.eps, a.scale = work.scale, a.token_scale = work.token_scale, a.bias = work.bias;
  a.kind = work.pairs, a.act = work.act;
  a.residual = work.residual.data, a.residual_stride = work.residual.stride;
  a.residual_narrow = work.residual.dtype == DType::kBF16, a.out_narrow = work.out.dtype == DType::kBF16;
  a.out = work.out.data, a.out_stride = work.out.stride;
  GemvHeads heads{};
  if (work.pairs == GemvWork::Pairs::kHeads)
    heads = {work.positions, work.heads, work.head_dim, work.pools, *work.rope};
  const bool shares = gemv_shares_x(work);
  if (a.tokens > 8)
    return shares ? gemv_launch<Format, 2, true>(target, a, heads) : gemv_launch<Format, 2, false>(target, a, heads);
  return shares ? gemv_launch<Format, 1, true>(target, a, heads) : gemv_launch<Format, 1, false>(target, a, heads);
}

}  // namespace bolide::cuda
