// The draw of one row by its cluster, without atomic additions of floats, so that runs agree to the bit, however many
// blocks there are.
//
// Weights exp((score - largest) / temperature) become integers in units of 2^-42: their sums do not depend on an order.
// Every filter of sample.h keeps a prefix of the candidates (by score, then id), so a filter is a number, the mass of
// its prefix, and the draw is one question: which is the first candidate at which the mass of the prefix reaches
// `wanted`?
//   1. One pass: masses and counts of the candidates above some levels. The answer lies between two of them. While too
//      many candidates do, passes over levels between those.
//   2. Every block gets the list of the candidates there, from the first one on if they are few, and sorts it: the
//      answer, and those of the row's other questions that it has, is a place in the list.
//   3. A score with more candidates than a list may have is not listed: ties have the same mass, in order of ids.
// top_k asks the same by count instead of mass.
#pragma once

#include <math_constants.h>

#include "kernels/sample/philox.h"
#include "kernels/sample/sample_cluster.cuh"
#include "kernels/sampling_row.h"

namespace bolide::cuda {

constexpr float kUnit = 0x1p42f;  // of a weight of 1: sums of 2^21 weights fit 64 bits
constexpr int kLevels = 8;
constexpr int kListMax = 2 * kThreads;

// Larger floats have larger keys; both zeros have the same, and NaN the largest.
__device__ __forceinline__ uint32_t key_of(float score) {
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float score_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ Mass mass_of(float weight) { return __float2ull_rn(__fmul_rn(weight, kUnit)); }

// A block's part of one row's scores, and how they are weighed.
struct Candidates {
  const float* scores;
  int count, first_id;
  float largest, inverse;  // inverse of the temperature

  // How far a score lies below the largest, in units of the temperature: falls as the score rises.
  __device__ __forceinline__ float depth(float score) const {
    const float d = __fmul_rn(__fsub_rn(largest, score), inverse);
    return d >= 0.f ? d : score == largest ? 0.f : CUDART_INF_F;  // infinity times zero
  }
  __device__ __forceinline__ float weight(float score) const { return expf(-depth(score)); }
  __device__ __forceinline__ Mass mass(float score) const { return mass_of(weight(score)); }
};

// The candidates whose keys are at least `key`: their mass, how many they are, and how many of them lie in blocks
// before this one.
struct Prefix {
  Mass mass;
  uint32_t key, count, elsewhere;
};

struct SampleShared {
  Board board;
  Prefix first[kLevels], finer[kLevels];
  Mass list[kListMax];        // key, then the id's complement: largest first
  Mass mass_until[kListMax];  // of the prefix that ends there
  Mass of_warp[kWarps];
  uint32_t cursor;
  int found;
};

// The block's: a name of the file, so that functions that are called reach it by fixed addresses.
__shared__ SampleShared s;

class Draw {
 public:
  __device__ __forceinline__ Draw(const Candidates& c, Cluster cluster) : c_(c), cluster_(cluster) {}

  // In every thread of the block that has the token (or of the first, if all know it); -1 in the others.
  __device__ __forceinline__ int32_t run(const SamplingRow& row, int vocabulary) {
    if (thread() < kLevels) {
      float depth = 0.75f;  // 2, 3.75, 6.25, 9.75, 14.5, 20.75: most masses lie in the first ones
      for (int i = 1; i <= thread(); ++i) depth += 1.f + 0.25f * static_cast<float>(i * (i + 1) / 2);
      s.first[thread()].key = thread() == kLevels - 1 ? 0 : key_of(__fsub_rn(c_.largest, __fdiv_rn(depth, c_.inverse)));
    }
    measure(c_, cluster_, s.first);
    Mass kept = s.first[kLevels - 1].mass;
    if (row.top_k > 0 && row.top_k < vocabulary) {
      look_for(static_cast<Mass>(row.top_k), true);
      kept = mass_with_ties(static_cast<uint32_t>(row.top_k));
    }
    if (row.top_p < 1) {
      const double wanted = ceil(static_cast<double>(kept) * static_cast<double>(row.top_p));
      const Mass bounded = wanted >= 1 ? min(static_cast<Mass>(wanted), kept) : Mass{1};
      look_for(bounded, false);
      kept = min(kept, single_ ? before_.mass + ties(bounded) * each_ : s.mass_until[place_of(bounded)]);
    }
    if (row.min_p > 0) {
      Mass part = 0;
      for (int i = thread(); i < c_.count; i += kThreads) {
        const float score = c_.scores[i], weight = c_.weight(score);
        if (score == c_.largest || weight >= row.min_p) part += mass_of(weight);
      }
      kept = min(kept, over_cluster(s.board, cluster_, part, false));
    }
    // More than a uniform share of what is kept.
    const double share = sample::uniform(row.seed, row.request, row.position) * static_cast<double>(kept);
    const Mass wanted = min(static_cast<Mass>(share) + 1, kept);
    look_for(wanted, false);
    if (single_) return tied_candidate(ties(wanted));
    const auto id = static_cast<int32_t>(~static_cast<uint32_t>(s.list[place_of(wanted)]));
    return cluster_.rank == 0 ? id : -1;
  }

 private:
  // Fills in the prefixes of those keys, which fall.
  __device__ __noinline__ static void measure(Candidates c, Cluster cluster, Prefix* prefixes) {
    __syncthreads();
    uint32_t key[kLevels], count[kLevels];
    Mass value[kLevels + kLevels / 2];  // two counts a word
#pragma unroll
    for (int j = 0; j < kLevels; ++j) key[j] = prefixes[j].key, count[j] = 0, value[j] = 0;
#pragma unroll 1
    for (int i = thread(); i < c.count; i += kThreads) {
      const float score = c.scores[i];
      const uint32_t mine = key_of(score);
      const Mass mass = c.mass(score);
#pragma unroll
      for (int j = 0; j < kLevels; ++j)
        if (mine >= key[j]) value[j] += mass, ++count[j];
    }
#pragma unroll
    for (int j = 0; j < kLevels; j += 2) value[kLevels + j / 2] = Mass{count[j + 1]} << 32 | count[j];
    over_cluster(s.board, cluster, value, 0);
    if (const int j = thread(); j < kLevels) {
      const int word = kLevels + j / 2, shift = j % 2 * 32;
      const auto count_of = [shift](Mass counts) { return static_cast<uint32_t>(counts >> shift); };
      Prefix& p = prefixes[j];
      p.mass = s.board.total[j];
      p.count = count_of(s.board.total[word]);
      p.elsewhere = 0;
#pragma unroll 1
      for (int of = 0; of < cluster.rank; ++of) p.elsewhere += count_of(s.board.of_block[s.board.turn ^ 1][word][of]);
    }
    __syncthreads();
  }

  // Has the candidate at which the prefix reaches a mass (or number) of `wanted` among those in view: a sorted list, or
  // those of a single score.
  __device__ __noinline__ void look_for(Mass wanted, bool by_count) {
    const auto reached = [&](const Prefix& p) { return by_count ? p.count : p.mass; };
    if (listed_ > 0 && reached(before_) < wanted && wanted <= reached(until_)) return;
    const Prefix* prefixes = s.first;
    Prefix above{0, key_of(c_.largest) + 1, 0, 0};
    const Prefix top = above;
    for (int pass = 0;; ++pass) {
      int j = 0;
      while (j < kLevels - 1 && reached(prefixes[j]) < wanted) ++j;
      if (j > 0) above = prefixes[j - 1];
      until_ = prefixes[j];
      if (until_.count <= kListMax) above = top;
      single_ = until_.count - above.count > kListMax;
      if (!single_ || above.key - until_.key == 1) break;
      __syncthreads();  // all have read
      if (thread() < kLevels) s.finer[thread()].key = level_between(above.key, until_.key, pass);
      measure(c_, cluster_, s.finer);
      prefixes = s.finer;
    }
    before_ = above;
    if (single_) {
      each_ = c_.mass(score_of(until_.key));
      listed_ = 1;
    } else {
      gather();
      sort();
      add_up();
    }
  }

  // Evenly spaced scores, until their rounding might leave no place between two; then evenly spaced keys.
  __device__ __forceinline__ static uint32_t level_between(uint32_t above, uint32_t least, int pass) {
    const auto eighths = static_cast<uint32_t>(thread() + 1);
    const float high = score_of(above - 1), low = score_of(least);
    if (eighths == kLevels) return least;
    if (pass >= 3 || !(low > -CUDART_INF_F))
      return above - static_cast<uint32_t>(uint64_t{above - least} * eighths / kLevels);
    return min(max(key_of(high - (high - low) * (static_cast<float>(eighths) / kLevels)), least), above - 1);
  }

  // The candidates from until_ to before_ into every block's list.
  __device__ __forceinline__ void gather() {
    if (listed_ > 0) cluster_barrier();  // others may still read their lists
    listed_ = static_cast<int>(until_.count - before_.count);
    padded_ = 2;
    while (padded_ < listed_) padded_ *= 2;
    if (thread() == 0) s.cursor = until_.elsewhere - before_.elsewhere;
    __syncthreads();
#pragma unroll 1
    for (int i = thread(); i < c_.count; i += kThreads) {
      const uint32_t key = key_of(c_.scores[i]);
      if (key < until_.key || key >= before_.key) continue;
      const uint32_t at = atomicAdd(&s.cursor, 1);
      const Mass entry = Mass{key} << 32 | ~static_cast<uint32_t>(c_.first_id + i);
#pragma unroll 1
      for (int to = 0; to < cluster_.size; ++to) store_to(to, &s.list[at], entry);
    }
    for (int i = listed_ + thread(); i < padded_; i += kThreads) s.list[i] = 0;
    cluster_barrier();
  }

  // Batcher's bitonic network; a warp's pairs up to a warp apart are its own.
  __device__ __forceinline__ void sort() {
#pragma unroll 1
    for (int run = 2; run <= padded_; run *= 2)
#pragma unroll 1
      for (int step = run / 2; step > 0; step /= 2) {
        const int i = 2 * thread() - (thread() & (step - 1));
        if (i < padded_) {
          const Mass a = s.list[i], b = s.list[i + step];
          if ((a < b) == ((i & run) == 0)) s.list[i] = b, s.list[i + step] = a;
        }
        const int next = step > 1 ? step / 2 : run;
        step > kWarp || next > kWarp ? __syncthreads() : __syncwarp();
      }
    __syncthreads();
  }

  __device__ __forceinline__ void add_up() {
    const int warp = thread() / kWarp, lane = thread() % kWarp, i = 2 * thread();
    const Mass first = i < listed_ ? c_.mass(score_at(i)) : 0, second = i + 1 < listed_ ? c_.mass(score_at(i + 1)) : 0;
    Mass until = first + second;
    for (int step = 1; step < kWarp; step *= 2) {
      const Mass lower = __shfl_up_sync(0xffffffffu, until, step);
      if (lane >= step) until += lower;
    }
    if (lane == kWarp - 1) s.of_warp[warp] = until;
    __syncthreads();
    until += before_.mass;
    for (int w = 0; w < warp; ++w) until += s.of_warp[w];
    s.mass_until[i] = until - second;
    s.mass_until[i + 1] = until;
    __syncthreads();
  }

  __device__ __forceinline__ float score_at(int place) const {
    return score_of(static_cast<uint32_t>(s.list[place] >> 32));
  }

  // The place in the list that is the only one for which `is` holds.
  template <class F>
  __device__ __forceinline__ int place(F is) {
    __syncthreads();  // found may still be read
    for (int i = thread(); i < listed_; i += kThreads)
      if (is(i)) s.found = i;
    __syncthreads();
    return s.found;
  }
  __device__ __forceinline__ int place_of(Mass wanted) {
    return place(
        [&](int i) { return wanted <= s.mass_until[i] && (i == 0 ? before_.mass : s.mass_until[i - 1]) < wanted; });
  }
  // The mass of the first `wanted` candidates and of those that have the last one's score.
  __device__ __forceinline__ Mass mass_with_ties(uint32_t wanted) {
    if (single_) return until_.mass;
    const float last = score_at(static_cast<int>(wanted - before_.count) - 1);
    return s
        .mass_until[place([&](int i) { return score_at(i) == last && (i + 1 == listed_ || score_at(i + 1) != last); })];
  }

  // Of a single score: candidates, in order, until the mass reaches `wanted`.
  __device__ __forceinline__ Mass ties(Mass wanted) const { return (wanted - before_.mass + each_ - 1) / each_; }

  // The `rank`-th candidate (from 1) of that score, by id; -1 in blocks that do not have it.
  __device__ __forceinline__ int32_t tied_candidate(Mass rank) {
    const int warp = thread() / kWarp, lane = thread() % kWarp;
    const int piece = (c_.count + kThreads - 1) / kThreads * kWarp;  // consecutive candidates of a warp
    const int begin = warp * piece, end = min(begin + piece, c_.count);
    const auto votes = [&](int base) {
      const int i = base + lane;
      return __ballot_sync(0xffffffffu, i < end && key_of(c_.scores[i]) == until_.key);
    };
    Mass mine = 0;
    for (int base = begin; base < end; base += kWarp) mine += __popc(votes(base));
    if (lane == 0) s.of_warp[warp] = mine;
    if (thread() == 0) s.found = -1;
    __syncthreads();
    Mass seen = until_.elsewhere - before_.elsewhere;
    for (int w = 0; w < warp; ++w) seen += s.of_warp[w];
    if (seen < rank && rank <= seen + mine)
      for (int base = begin; base < end; base += kWarp) {
        const uint32_t hits = votes(base);
        if ((hits >> lane & 1) != 0 && seen + __popc(hits & ((2u << lane) - 1u)) == rank) s.found = base + lane;
        seen += __popc(hits);
      }
    __syncthreads();
    return s.found < 0 ? -1 : c_.first_id + s.found;
  }

  const Candidates c_;
  const Cluster cluster_;
  // What is in view: the candidates from until_ to before_, none at first.
  Prefix before_{}, until_{};
  int listed_ = 0, padded_ = 0;  // entries of the list, and these as a power of two
  bool single_ = false;          // no list: all have one score
  Mass each_ = 0;
};

}  // namespace bolide::cuda
