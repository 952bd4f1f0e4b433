// The ring of weights in shared memory of streaming products (gemv_cuda.cuh), and the warps that fill it.
#pragma once

#include "kernels/linear/gemv_finish.cuh"
#include "kernels/linear/gemv_formats.cuh"
#include "kernels/linear/gemv_x.cuh"

namespace bolide::cuda {

inline constexpr int kGemvCopiers = 4;
inline constexpr int kGemvPairs = 16, kGemvRows = 2 * kGemvPairs;  // of a stage
inline constexpr int kGemvSegment = 512;                           // bytes of a row

// Stages that are asked for and not there yet: what keeps the memory busy. With more of them, x would wait behind
// weights that nobody wants yet.
template <int kMost>
inline constexpr int kGemvPace = kMost > 1 ? 4 : 3;

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
// True if the phase has passed, after a wait of some hundred nanoseconds at most.
__device__ __forceinline__ bool barrier_passes(uint32_t barrier, uint32_t parity) {
  uint32_t past = 1;
  NV_IF_ELSE_TARGET(NV_PROVIDES_SM_90,
                    (asm volatile("{\n .reg .pred past;\n mbarrier.try_wait.parity.shared.b64 past, [%1], %2, 200;\n"
                                  " selp.u32 %0, 1, 0, past;\n}" : "=r"(past) : "r"(barrier),
                                  "r"(parity) : "memory");),
                    (barrier_wait(barrier, parity);))
  return past != 0;
}

// How a block works. kMost: products that it has at most, one after the other.
template <class TheFormat, int kTheTokenTiles, bool kTheShared, int kTheMost>
struct GemvShape {
  using Format = TheFormat;
  using X = typename Format::X;
  static constexpr int kTokenTiles = kTheTokenTiles, kMost = kTheMost;
  static constexpr bool kShared = kTheShared;  // x goes through shared memory
  static constexpr int kFinishers = 2 * kTokenTiles;
  static constexpr int kThreads = (kGemvWarps + kGemvCopiers + kFinishers) * kWarp;

  // Rows of a stage lie 544 bytes apart, odd ones 32 further, so that neighbours are in different banks.
  static constexpr int kCodes = kGemvRows * (kGemvSegment + 32);
  static constexpr int kConstants = Format::kConstantBytes;
  static constexpr int kConstantPitch = kConstants > 0 ? kConstants + 16 : 0;
  static constexpr int kStage = kCodes + kGemvRows * kConstantPitch;
  static constexpr int kDepthMax = 16;
  // x that does not fit and that needs no conversion: each lane's own pieces of some windows ahead. What is converted
  // anyway is read a window ahead into registers: with a ring it is slower.
  static constexpr bool kHasXRing = std::is_same_v<X, __nv_bfloat16>;
  static constexpr int kWindowsAhead = 4, kXPieces = kGemvWarps * kWarp * 16;
  static constexpr int kXRing = kHasXRing ? kWindowsAhead * kTokenTiles * Format::kChunks * kXPieces : 0;

  // Stages behind a full ring that a chain asks for in L2, and cycles between two of them. Measured: of 8 bits 2 % of a
  // step, else nothing, and where multiplying is the bound it is in the way.
  static constexpr int kAhead = kMost > 1 && Format::kBits == 8 ? 8 : 0;
  static constexpr uint32_t kAheadCycles = 900;

  // Shared memory: the ring, x, sums of two passes, what warps know of x, barriers.
  static constexpr int kXSums = kGemvWarps * kGemvTokensMax * 4, kBarriers = kDepthMax * 16,
                       kEnd = 3 * kXSums + kBarriers + 16;
  static __host__ __device__ int x_bytes(int tokens, int k) {
    return kShared ? tokens * gemv_x_pitch<Format>(k) * static_cast<int>(sizeof(X)) : kXRing;
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

// Asks in L2 for a copier's rows of the stage that comes `ahead` stages after this one, if there is one.
template <class Shape>
__device__ __forceinline__ void gemv_prefetch(const GemvChain<Shape::kMost>& chain, int p, int from, int segment,
                                              int ahead, int copier, int lane) {
  constexpr int kLine = 128, kLines = kGemvSegment / kLine;
  static_assert(kGemvRows / kGemvCopiers * kLines == kWarp);
  segment += ahead;
  for (int end = gemv_end(chain.product[p]);;) {
    if (from < end) {
      if (segment < chain.product[p].segments) break;
      segment -= chain.product[p].segments, from += kGemvPairs;
    } else {
      if (++p == chain.count) return;
      from = gemv_begin(chain.product[p]), end = gemv_end(chain.product[p]);
    }
  }
  const GemvArgs& a = chain.product[p];
  const int r = copier * (kGemvRows / kGemvCopiers) + lane / kLines, pair = from + r / 16 * 8 + r % 8;
  if (pair >= gemv_end(a)) return;
  int low, high;
  gemv_rows(a, chain.heads, gemv_begin(a), gemv_end(a), pair, &low, &high);
  const uint8_t* const row = a.codes + (r / 8 % 2 == 0 ? low : high) * a.row_bytes;
  const int codes = segment * kGemvSegment + lane % kLines * kLine, constants = segment * Shape::kConstants;
  if (codes < (Shape::kConstants > 0 ? a.groups_from : a.row_bytes))
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row + codes));
  if constexpr (Shape::kConstants > 0)
    if (lane % kLines == 0 && constants % kLine < Shape::kConstants && constants < a.row_bytes - a.groups_from)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(row + a.groups_from + constants));
}

// A warp that copies: some rows of each stage, 16 bytes a lane. The next product's come at once behind the last's.
// While a chain's ring is full, what comes next may be asked for in L2, no faster than memory gives it: x would wait
// behind it.
template <class Shape>
__device__ __forceinline__ void gemv_copy(const GemvChain<Shape::kMost>& chain, uint32_t ring, uint32_t barriers,
                                          int copier, int lane) {
  using Format = typename Shape::Format;
  constexpr int kRows = kGemvRows / kGemvCopiers;
  const int first = copier * kRows;
  const uint32_t place = ring + static_cast<uint32_t>(first * (kGemvSegment + 32) + lane * 16);
  // Constants: kPieces of 16 bytes of a row, a lane has piece lane % kPieces of some rows.
  constexpr int kPieces = Shape::kConstants > 0 ? Shape::kConstants / 16 : 1, kRowsAtOnce = kWarp / kPieces;
  constexpr int kConstantCopies = Shape::kConstants > 0 ? (kRows + kRowsAtOnce - 1) / kRowsAtOnce : 0;
  const int depth = chain.depth, pace = min(kGemvPace<Shape::kMost>, depth);
  int i = 0, slot = 0, ahead = 0;  // ahead: stages from the next on that were asked for in L2
  uint32_t parity = 1;
  int arrived = 0;  // the stage that must be there before the next is asked for
  uint32_t arrived_parity = 0;
#pragma unroll 1
  for (int p = 0; p < gemv_count(chain); ++p) {
    const GemvArgs& a = chain.product[p];
    const int begin = gemv_begin(a), end = gemv_end(a), segments = a.segments;
    const int pieces =
        Shape::kConstants > 0 ? (a.k + Format::kWindow - 1) / Format::kWindow * 4 : (a.k * Format::kBits + 127) / 128;
    const auto row_pieces = static_cast<uint32_t>(a.row_bytes / 16);
    const auto constant_bytes = static_cast<int>(a.row_bytes - a.groups_from);
#pragma unroll 1
    for (int from = begin; from < end; from += kGemvPairs) {
      const uint8_t *row[kRows], *constant_row[kConstantCopies + 1];
      const int r = first + lane % kRows;
      int low, high;
      gemv_rows(a, chain.heads, begin, end, from + r / 16 * 8 + r % 8, &low, &high);
      const uint32_t at = static_cast<uint32_t>(r / 8 % 2 == 0 ? low : high) * row_pieces;
#pragma unroll
      for (int j = 0; j < kRows; ++j)
        row[j] = a.codes + (uint64_t{__shfl_sync(0xffffffffu, at, j)} + static_cast<uint32_t>(lane)) * 16;
#pragma unroll
      for (int j = 0; j < kConstantCopies; ++j)
        constant_row[j] =
            a.codes + uint64_t{__shfl_sync(0xffffffffu, at, min(j * kRowsAtOnce + lane / kPieces, kRows - 1))} * 16 +
            a.groups_from + lane % kPieces * 16;
      const bool present = end - from > first / 16 * 8;
#pragma unroll 1
      for (int segment = 0; segment < segments; ++segment, ++i) {
        const bool exists = segment * kWarp + lane < pieces;
        const uint32_t full = barriers + static_cast<uint32_t>(slot * 16);
        if constexpr (Shape::kAhead > 0) {
          if (i >= depth) {
            auto last = static_cast<uint32_t>(clock());
            while (!__all_sync(0xffffffffu, barrier_passes(full + 8, parity))) {
              const auto now = static_cast<uint32_t>(clock());
              if (ahead >= Shape::kAhead || !__all_sync(0xffffffffu, now - last >= Shape::kAheadCycles)) continue;
              gemv_prefetch<Shape>(chain, p, from, segment, ahead, copier, lane);
              ++ahead, last = now;
            }
            if (ahead > 0) --ahead;
          }
        } else if (i >= depth) {
          barrier_wait(full + 8, parity);
        }
        if (i >= pace) {
          barrier_wait(barriers + static_cast<uint32_t>(arrived * 16), arrived_parity);
          if (++arrived == depth) arrived = 0, arrived_parity ^= 1u;
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
            const bool is = (segment * kPieces + lane % kPieces) * 16 < constant_bytes;
#pragma unroll
            for (int j = 0; j < kConstantCopies; ++j) {
              const int in_stage = j * kRowsAtOnce + lane / kPieces;
              if (lane >= kPieces * kRowsAtOnce || in_stage >= kRows) continue;
              copy_async(ring + static_cast<uint32_t>(slot * Shape::kStage + Shape::kCodes +
                                                      (first + in_stage) * Shape::kConstantPitch + lane % kPieces * 16),
                         is ? constant_row[j] : a.codes, is);
              constant_row[j] += Shape::kConstants;
            }
          }
        }
        barrier_arrive_copied(full);
        if (++slot == depth) slot = 0, parity ^= 1u;
      }
    }
  }
  let_next_start();
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace bolide::cuda
