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
// A kernel may have several products, each of which waits until all blocks have finished the one before: for a counter
// in memory instead of the end of a kernel. The copies do not wait, so the ring is full of the next product's weights
// when its x is there. Once a block has begun a product, nobody reads or writes anything for those before.
//
// Rows come in pairs that meet in one thread: gate and up, or the two halves of a rotated head. RmsNorm is a factor a
// token: x * gain is multiplied, and the sums are scaled. Sums of the warps are added in fixed order: bits depend on
// neither the batch nor the run.
#pragma once

#include "kernels/linear/gemv_ring.cuh"

namespace bolide::cuda {

// Named barriers: of sums that are there (1, 2) and sums that are read (3, 4); 5 is gemv_x.cuh's, 6 the finishers'.
template <class Shape, bool kWait>
__device__ __forceinline__ void meet(int name) {
  constexpr int kThreads = (kGemvWarps + Shape::kFinishers) * kWarp;
  if constexpr (kWait) {
    asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
  } else {
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "n"(kThreads) : "memory");
  }
}

// Places in shared memory.
template <class Shape>
struct GemvPlaces {
  using X = typename Shape::X;
  uint8_t* ring;
  X* x;
  float2* sums;
  GemvXSums x_sums;
  uint32_t barriers, x_ready;  // full, empty of each stage; a product's x may be read

  __device__ __forceinline__ GemvPlaces(uint8_t* shared, const GemvChain<Shape::kMost>& chain) {
    ring = shared, shared += chain.depth * Shape::kStage;
    x = reinterpret_cast<X*>(shared), shared += chain.x_bytes;
    sums = reinterpret_cast<float2*>(shared), shared += Shape::sums_bytes(chain.product[0].tokens);
    const auto floats = [&] {
      auto* const p = reinterpret_cast<float*>(shared);
      shared += Shape::kXSums;
      return p;
    };
    x_sums.squares = floats(), x_sums.largest = floats(), x_sums.factors = floats();
    barriers = shared_address(shared), x_ready = barriers + Shape::kBarriers;
  }
};

// The warps that finish. The first thread also counts this block among those that have finished a product, and waits
// for the others.
template <class Shape>
__device__ __forceinline__ void gemv_finish(const GemvChain<Shape::kMost>& chain, const GemvPlaces<Shape>& places,
                                            int thread) {
  constexpr int kThreads = Shape::kFinishers * kWarp, kTokensAtOnce = kThreads / kGemvPairs;
  const int in_pass = thread % kGemvPairs;
#pragma unroll 1
  for (int p = 0; p < gemv_count(chain); ++p) {
    const GemvArgs& a = chain.product[p];
    const int begin = gemv_begin(a), end = gemv_end(a), tokens = a.tokens;
    const int passes = (end - begin + kGemvPairs - 1) / kGemvPairs;
    GemvUnit unit{};
    unit.find(a, chain.heads, begin, end, begin + in_pass, thread / kGemvPairs);
    if (p == 0) {
      wait_for_previous();
    } else {
      if (thread == 0) {
        while (count_of(chain.barriers + p - 1) != gridDim.x) {
        }
        barrier_arrive(places.x_ready);
      }
      barrier_wait(places.x_ready, static_cast<uint32_t>(p - 1) % 2);
    }
#pragma unroll 1
    for (int pass = 0, from = 0; pass < passes;) {
      const int half = pass % 2;
      unit.read(a, chain.heads);
      if (from == 0) meet<Shape, true>(1 + half);
      if (unit.exists) {
        float norm = 1;
        if (a.gain != nullptr && !(Shape::Format::kRounds && a.rounds)) {
          float sum = 0;
#pragma unroll
          for (int i = 0; i < kGemvWarps; ++i) sum += places.x_sums.squares[i * kGemvTokensMax + unit.token];
          norm = rsqrtf(sum / static_cast<float>(a.k) + a.eps);
        }
        float2 sum{};
#pragma unroll
        for (int i = 0; i < kGemvWarps; ++i) {
          const float2 more = places.sums[((half * kGemvWarps + i) * tokens + unit.token) * kGemvPairs + in_pass];
          sum.x += more.x, sum.y += more.y;
        }
        unit.finish(a, chain.heads, {sum.x * norm, sum.y * norm});
      }
      from += kTokensAtOnce;
      if (from >= tokens) {
        if (pass + 2 < passes) meet<Shape, false>(3 + half);
        ++pass, from = 0;
      }
      if (pass < passes) {
        unit = {};
        unit.find(a, chain.heads, begin, end, begin + pass * kGemvPairs + in_pass, from + thread / kGemvPairs);
      }
    }
    if constexpr (Shape::kMost > 1) {
      asm volatile("bar.sync 6, %0;" ::"n"(kThreads) : "memory");
      if (thread == 0 && p + 1 < chain.count) count_up(chain.barriers + p);
    }
  }
  if constexpr (Shape::kMost > 1) {
    if (thread == 0 && chain.count > 1) {
      uint32_t* const all = chain.barriers + chain.count - 1;
      // The last: no block looks at the counters any more.
      if (atomicAdd(all, 1u) == gridDim.x - 1)
        for (int i = 0; i < chain.count; ++i) chain.barriers[i] = 0;
    }
  }
}

// The warps that multiply.
template <class Shape>
__device__ __forceinline__ void gemv_multiply(const GemvChain<Shape::kMost>& chain, const GemvPlaces<Shape>& places,
                                              int warp, int lane) {
  using Format = typename Shape::Format;
  using X = typename Shape::X;
  constexpr int kTokenTiles = Shape::kTokenTiles, kWords = 4 * Format::kChunks;
  constexpr bool kShared = Shape::kShared, kHalf = std::is_same_v<X, __half>;
  const int g = lane / 4, t = lane % 4;
  const int depth = chain.depth;
  const uint8_t* const mine = places.ring + g * (kGemvSegment + 32) + g % 2 * 32 + warp * 64 + t * 16;
  const uint8_t* const constants = places.ring + Shape::kCodes + g * Shape::kConstantPitch;
  int slot = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int p = 0; p < gemv_count(chain); ++p) {
    const GemvArgs& a = chain.product[p];
    const int begin = gemv_begin(a), end = gemv_end(a), tokens = a.tokens, segments = a.segments;
    const int passes = (end - begin + kGemvPairs - 1) / kGemvPairs;
    const auto wait_for_x = [&] {
      if (p == 0) {
        wait_for_previous();
      } else {
        barrier_wait(places.x_ready, static_cast<uint32_t>(p - 1) % 2);
      }
    };
    if (passes <= 0) {
      wait_for_x();
      continue;
    }
    if constexpr (kShared) {
      if (a.gain != nullptr) {
        const GemvShareX<Format, true, (Shape::kMost > 1)> share(a, warp, lane);
        wait_for_x();
        share.run(places.x, places.x_sums);
      } else {
        const GemvShareX<Format, false, (Shape::kMost > 1)> share(a, warp, lane);
        wait_for_x();
        share.run(places.x, places.x_sums);
      }
    } else {
      wait_for_x();
    }
    // Columns of tokens that do not exist are products of some other token, and are not stored.
    int64_t x_at[kTokenTiles];
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
      x_at[n] = min(n * 8 + g, tokens - 1) * (kShared ? int64_t{gemv_x_pitch<Format>(a.k)} : a.x_stride);
    // Of a segment, or from a place in the ring, where each lane has places of its own.
    constexpr bool kRing = !kShared && Shape::kHasXRing, kDirect = !kShared && !Shape::kHasXRing;
    const auto read_x = [&](int at, uint4(&v)[kTokenTiles][Format::kChunks]) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int j = 0; j < Format::kChunks; ++j) {
          const int k = (at * kGemvWarps + warp) * Format::kWindow + Format::chunk_k(j, t);
          if constexpr (kShared) {
            v[n][j] = load<uint4>(places.x + static_cast<int>(x_at[n]) + k);
          } else if constexpr (kDirect) {
            v[n][j] = {};
            if (k < a.k)
              v[n][j] = __ldcg(reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.x) + x_at[n] + k));
          } else {
            v[n][j] = load<uint4>(reinterpret_cast<const uint8_t*>(places.x) + (warp * kWarp + lane) * 16 +
                                  ((at * kTokenTiles + n) * Format::kChunks + j) * Shape::kXPieces);
          }
        }
    };
    int x_slot = 0, x_segment = 0, x_left = passes * segments;
    const uint32_t x_place = shared_address(places.x) + static_cast<uint32_t>(warp * kWarp + lane) * 16;
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
        if (++x_segment == segments) x_segment = 0;
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      if (++x_slot == Shape::kWindowsAhead) x_slot = 0;
    };

    const int units = (a.k * Format::kBits + 127) / 128;  // 16 bytes of a row
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
      for (int segment = 0; segment < segments; ++segment) {
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
        if constexpr (kDirect) read_x(segment + 1 == segments ? 0 : segment + 1, next);
        const uint32_t full = places.barriers + static_cast<uint32_t>(slot * 16);
        // Also those that have nothing to do in the row's last segment: one that went on and left the stage before it
        // is there could do so for a use in which another has not left it yet. That one would be waited for no more,
        // its stage be written again while it reads, and its wait be for a phase that has passed: for ever.
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
        if (++slot == depth) slot = 0, parity ^= 1u;
      }

      const int half = pass % 2;
      if (pass >= 2) meet<Shape, true>(3 + half);
      float2* const there = places.sums + (half * kGemvWarps + warp) * tokens * kGemvPairs + g;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int token = n * 8 + 2 * t + i;
          if (token >= tokens) continue;
          float factor = kHalf ? Format::kSumScale / kGemvF16Scale<Format> : 1;
          if constexpr (kShared)
            if (kHalf || (Format::kRounds && a.rounds)) factor = places.x_sums.factors[warp * kGemvTokensMax + token];
#pragma unroll
          for (int tile = 0; tile < 2; ++tile)
            there[token * kGemvPairs + tile * 8] = {c[tile][n][i] * factor, c[tile][n][i + 2] * factor};
        }
      meet<Shape, false>(1 + half);
    }
  }
}

template <class Shape>
__device__ __forceinline__ void gemv_body(const GemvChain<Shape::kMost>& chain) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarp, 0);  // so that it is known uniform
  const GemvPlaces<Shape> places(shared, chain);
  if (warp == kGemvWarps) {
    if (lane < chain.depth) {
      barrier_init(places.barriers + static_cast<uint32_t>(lane * 16), kGemvCopiers * kWarp);
      barrier_init(places.barriers + static_cast<uint32_t>(lane * 16 + 8), kGemvWarps);
    }
    if (lane == kWarp - 1) barrier_init(places.x_ready, 1);
  }
  __syncthreads();
  if (warp < kGemvWarps) {
    gemv_multiply<Shape>(chain, places, warp, lane);
  } else if (warp < kGemvWarps + Shape::kFinishers) {
    gemv_finish<Shape>(chain, places, (warp - kGemvWarps) * kWarp + lane);
  } else {
    gemv_copy<Shape>(chain, shared_address(places.ring), places.barriers, warp - kGemvWarps - Shape::kFinishers, lane);
  }
}

// One block a multiprocessor at least: left to itself, the compiler saves registers for two and spills.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) gemv_kernel(const __grid_constant__ GemvChain<1> chain) {
  gemv_body<Shape>(chain);
}
// As many registers as leave room for a block of attention of four warps (decode_shape.h).
template <class Shape>
__global__ void __maxnreg__(96) gemv_chain_kernel(const __grid_constant__ GemvChain<Shape::kMost> chain) {
  gemv_body<Shape>(chain);
}

}  // namespace bolide::cuda
