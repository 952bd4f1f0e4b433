// A block a row of logits, without a sort and without atomic additions of floats, so that runs agree to the bit.
//
// Weights exp((score - largest) / temperature) become integers in units of 2^-42: their sums do not depend on an order.
// Every filter of sample.h keeps a prefix of the candidates (by score, then id), so a filter is a number, the mass of
// its prefix, and the draw is one question: which is the first candidate at which the mass of the prefix reaches
// `wanted`?
//   1. One pass over the row: masses and counts of the candidates above kLevels depths below the largest.
//   2. Keys of the candidates between the two depths that enclose the answer go to a list: some hundreds to thousands.
//   3. Bisection over keys (a float's bits in order), which finds the answer's score; ties are told apart by id.
// top_k asks the same by count instead of mass. Passes over the row are bound by L2 and by the exponential.
#include <math_constants.h>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/sample/philox.h"
#include "kernels/sample/sample_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
constexpr float kUnit = 0x1p42f;  // of a weight of 1: sums of 2^21 weights fit 64 bits
constexpr int kLevels = 6;

using Mass = unsigned long long;

__device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }

// The result of combine(a, b), associative and commutative, over the values of all threads, in each of them.
template <class T, class F>
__device__ __forceinline__ T over_block(T value, T neutral, T* scratch, F combine) {
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  const int lane = thread() % kWarp;
  __syncthreads();  // scratch may still be read by those before
  if (lane == 0) scratch[thread() / kWarp] = value;
  __syncthreads();
  value = lane < kWarps ? scratch[lane] : neutral;
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

// Masses and counts of the candidates less deep than each level, and the mass of all.
struct Prefixes {
  Mass mass[kLevels + 1];
  uint32_t count[kLevels];
};

struct Shared {
  union {
    Mass mass[kWarps];
    double wide[kWarps];
    uint32_t word[kWarps];
  };
  Prefixes prefixes;
  int list_size;
  int32_t found;
};

__device__ __forceinline__ Mass sum(Mass value, Shared& s) {
  return over_block(value, Mass{0}, s.mass, [](Mass a, Mass b) { return a + b; });
}
__device__ __forceinline__ double sum(double value, Shared& s) {
  return over_block(value, 0., s.wide, [](double a, double b) { return a + b; });
}
__device__ __forceinline__ uint32_t largest_of(uint32_t value, Shared& s) {
  return over_block(value, 0u, s.word, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}
__device__ __forceinline__ uint32_t smallest_of(uint32_t value, Shared& s) {
  return over_block(value, ~0u, s.word, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
}

// Larger floats have larger keys; both zeros have the same. NaN lies beyond the infinities.
__device__ __forceinline__ uint32_t key_of(float score) {
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float score_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// One row's scores and how they are weighed.
struct Candidates {
  const float* scores;
  int count;
  float largest, inverse;  // inverse of the temperature

  // How far a score lies below the largest, in units of the temperature: falls as the score rises.
  __device__ __forceinline__ float depth(float score) const {
    const float d = __fmul_rn(__fsub_rn(largest, score), inverse);
    return d >= 0.f ? d : score == largest ? 0.f : CUDART_INF_F;  // infinity times zero
  }
  __device__ __forceinline__ float weight(float score) const { return expf(-depth(score)); }
  __device__ __forceinline__ Mass mass(float score) const { return __float2ull_rn(__fmul_rn(weight(score), kUnit)); }
};

__device__ __forceinline__ float level(int i) {
  constexpr float kDepths[kLevels] = {1, 2.5f, 4.5f, 7, 11, 18};
  float depth = kDepths[0];
#pragma unroll
  for (int j = 1; j < kLevels; ++j) depth = i == j ? kDepths[j] : depth;
  return depth;
}

__device__ __forceinline__ void measure(const Candidates& c, Shared& s) {
  Prefixes p{};
  for (int i = thread(); i < c.count; i += kThreads) {
    const float score = c.scores[i], depth = c.depth(score);
    const Mass mass = c.mass(score);
#pragma unroll
    for (int j = 0; j < kLevels; ++j)
      if (depth < level(j)) p.mass[j] += mass, p.count[j] += 1;
    p.mass[kLevels] += mass;
  }
#pragma unroll
  for (int j = 0; j <= kLevels; ++j) {
    const Mass mass = sum(p.mass[j], s);
    if (thread() == 0) s.prefixes.mass[j] = mass;
    if (j == kLevels) continue;
    const auto count = static_cast<uint32_t>(sum(Mass{p.count[j]}, s));
    if (thread() == 0) s.prefixes.count[j] = count;
  }
  __syncthreads();
}

// The first candidate at which the prefix has what is wanted: its score's key, and what lies before that score.
struct Boundary {
  uint32_t key;
  Mass before;  // mass of the candidates with larger scores
};

// kByCount: `wanted` candidates, else a mass of `wanted`, at most that of all; at least 1.
template <bool kByCount>
__device__ Boundary find(const Candidates& c, Mass wanted, uint32_t* list, Shared& s) {
  const Prefixes& p = s.prefixes;
  // The levels that enclose the answer: it lies in [low, high).
  float low = 0, high = CUDART_INF_F;
  Mass before = 0, before_wanted = 0;
  bool open = true;
#pragma unroll
  for (int j = 0; j < kLevels; ++j) {
    const Mass reached = kByCount ? p.count[j] : p.mass[j];
    if (!open) continue;
    if (reached >= wanted) {
      high = level(j), open = false;
    } else {
      low = level(j), before = p.mass[j], before_wanted = reached;
    }
  }
  if (thread() == 0) s.list_size = 0;
  __syncthreads();
  uint32_t smallest = ~0u, largest = 0;
  for (int base = 0; base < c.count; base += kThreads) {
    const int i = base + thread();
    const float score = i < c.count ? c.scores[i] : 0.f, depth = c.depth(score);
    // Infinitely deep ones too, if there is no level beyond: top_k may ask for them.
    const bool inside = i < c.count && depth >= low && (open || depth < high);
    const uint32_t votes = __ballot_sync(0xffffffffu, inside);
    if (votes == 0) continue;
    int at = 0;
    if (thread() % kWarp == 0) at = atomicAdd(&s.list_size, __popc(votes));
    at = __shfl_sync(0xffffffffu, at, 0) + __popc(votes & ((1u << (thread() % kWarp)) - 1u));
    if (inside) {
      const uint32_t key = key_of(score);
      list[at] = key;
      smallest = min(smallest, key), largest = max(largest, key);
    }
  }
  smallest = smallest_of(smallest, s), largest = largest_of(largest, s);  // waits for the list, too
  __syncthreads();
  const int size = s.list_size;
  // The largest key at which candidates from it on are enough; at `smallest` they are.
  uint32_t from = smallest, to = largest;
  while (from < to) {
    const uint32_t middle = from + (to - from) / 2 + 1;
    Mass part = 0;
    for (int i = thread(); i < size; i += kThreads)
      if (const uint32_t key = list[i]; key >= middle) part += kByCount ? Mass{1} : c.mass(score_of(key));
    if (before_wanted + sum(part, s) >= wanted) {
      from = middle;
    } else {
      to = middle - 1;
    }
  }
  Mass part = 0;
  for (int i = thread(); i < size; i += kThreads)
    if (const uint32_t key = list[i]; key > from) part += c.mass(score_of(key));
  return {from, before + sum(part, s)};
}

// The `rank`-th candidate (from 1) with that key, by id; -1 if there are fewer.
__device__ int32_t with_key(const Candidates& c, uint32_t key, Mass rank, Shared& s) {
  const int warp = thread() / kWarp, lane = thread() % kWarp;
  const int piece = (c.count + kThreads - 1) / kThreads * kWarp;  // consecutive candidates of a warp
  const int begin = warp * piece, end = min(begin + piece, c.count);
  Mass mine = 0;
  for (int base = begin; base < end; base += kWarp)
    mine += __popc(__ballot_sync(0xffffffffu, base + lane < end && key_of(c.scores[base + lane]) == key));
  __syncthreads();
  if (lane == 0) s.mass[warp] = mine;
  if (thread() == 0) s.found = -1;
  __syncthreads();
  Mass before = 0;
  for (int w = 0; w < warp; ++w) before += s.mass[w];
  if (before < rank && rank <= before + mine) {
    Mass seen = before;
    for (int base = begin; base < end; base += kWarp) {
      const bool hit = base + lane < end && key_of(c.scores[base + lane]) == key;
      const uint32_t votes = __ballot_sync(0xffffffffu, hit);
      if (hit && seen + __popc(votes & ((2u << lane) - 1u)) == rank) s.found = base + lane;
      seen += __popc(votes);
    }
  }
  __syncthreads();
  return s.found;
}

// Candidates with that key, in order, until the mass reaches `wanted`; at least one.
__device__ __forceinline__ Mass ties(const Candidates& c, const Boundary& b, Mass wanted) {
  const Mass each = c.mass(score_of(b.key));
  if (wanted <= b.before || each == 0) return 1;
  return (wanted - b.before + each - 1) / each;
}

__device__ int32_t draw(const Candidates& c, const SamplingRow& row, uint32_t* list, Shared& s) {
  measure(c, s);
  Mass kept = s.prefixes.mass[kLevels];
  if (row.top_k > 0 && row.top_k < c.count) {
    const Boundary b = find<true>(c, static_cast<Mass>(row.top_k), list, s);
    Mass part = 0;  // ties with the last one stay
    for (int i = thread(); i < c.count; i += kThreads)
      if (key_of(c.scores[i]) == b.key) part += c.mass(c.scores[i]);
    kept = b.before + sum(part, s);
  }
  if (row.top_p < 1) {
    const double wanted = ceil(static_cast<double>(kept) * static_cast<double>(row.top_p));
    const Mass bounded = wanted >= 1 ? min(static_cast<Mass>(wanted), kept) : Mass{1};
    const Boundary b = find<false>(c, bounded, list, s);
    kept = min(kept, b.before + ties(c, b, bounded) * c.mass(score_of(b.key)));
  }
  if (row.min_p > 0) {
    Mass part = 0;
    for (int i = thread(); i < c.count; i += kThreads) {
      const float score = c.scores[i];
      if (score == c.largest || c.weight(score) >= row.min_p) part += c.mass(score);
    }
    kept = min(kept, sum(part, s));
  }
  // More than a uniform share of what is kept.
  const double share = sample::uniform(row.seed, row.request, row.position) * static_cast<double>(kept);
  const Mass wanted = min(static_cast<Mass>(share) + 1, kept);
  const Boundary b = find<false>(c, wanted, list, s);
  return with_key(c, b.key, ties(c, b, wanted), s);
}

// Penalties are the client's and may be extreme.
__device__ __forceinline__ float bounded(float score) {
  if (isnan(score)) return -CUDART_MAX_NORMAL_F;
  return isinf(score) ? copysignf(CUDART_MAX_NORMAL_F, score) : score;
}

// penalties.cc, by all threads: whose addition to a count is the first one (or who takes it away) has the id.
__device__ void penalise(const SamplingRow& row, int vocabulary, float* scores, int32_t* counts) {
  const auto for_ids = [&](int begin, auto&& body) {
    for (int i = begin + thread(); i < row.history_count; i += kThreads)
      if (const int32_t id = row.history[i]; id >= 0 && id < vocabulary) body(id);
    __syncthreads();
  };
  if (row.repetition_penalty != 1) {
    for_ids(0, [&](int32_t id) { counts[id] = 0; });
    for_ids(0, [&](int32_t id) {
      if (atomicAdd(&counts[id], 1) != 0 || isinf(scores[id])) return;
      scores[id] = bounded(scores[id] < 0 ? __fmul_rn(scores[id], row.repetition_penalty)
                                          : __fdiv_rn(scores[id], row.repetition_penalty));
    });
  }
  if (row.presence_penalty != 0 || row.frequency_penalty != 0) {
    for_ids(row.prompt_count, [&](int32_t id) { counts[id] = 0; });
    for_ids(row.prompt_count, [&](int32_t id) { atomicAdd(&counts[id], 1); });
    for_ids(row.prompt_count, [&](int32_t id) {
      const int32_t count = atomicExch(&counts[id], 0);
      if (count == 0 || isinf(scores[id])) return;
      const float penalty =
          __fadd_rn(row.presence_penalty, __fmul_rn(row.frequency_penalty, static_cast<float>(count)));
      scores[id] = bounded(__fsub_rn(scores[id], penalty));
    });
  }
}

__device__ void sample_row(const float* logits, int count, const SamplingRow& row, float* scratch, int32_t* next,
                           float* log_probability, Shared& s) {
  uint32_t key = 0;
  bool nan = false;
  for (int i = thread(); i < count; i += kThreads) {
    key = max(key, key_of(logits[i]));
    nan = nan || isnan(logits[i]);
  }
  key = largest_of(key, s);
  nan = __syncthreads_or(nan ? 1 : 0) != 0;
  const float largest_logit = score_of(key);
  if (nan || isinf(largest_logit)) {
    if (thread() == 0) *next = -1, *log_probability = CUDART_NAN_F;
    return;
  }
  double total = 0;
  for (int i = thread(); i < count; i += kThreads) total += expf(logits[i] - largest_logit);
  total = sum(total, s);

  auto* list = reinterpret_cast<uint32_t*>(scratch + count);
  Candidates c{logits, count, largest_logit, fminf(1.f / row.temperature, 1e30f)};
  if (row.needs_history()) {
    for (int i = thread(); i < count; i += kThreads) scratch[i] = logits[i];
    __syncthreads();
    penalise(row, count, scratch, reinterpret_cast<int32_t*>(list));
    c.scores = scratch;
    key = 0;
    for (int i = thread(); i < count; i += kThreads) key = max(key, key_of(scratch[i]));
    key = largest_of(key, s);
    c.largest = score_of(key);
  }
  int32_t id = row.temperature > 0 ? draw(c, row, list, s) : -1;
  if (id < 0) id = with_key(c, key, 1, s);
  if (thread() == 0) {
    *next = id;
    *log_probability = static_cast<float>(static_cast<double>(logits[id]) - largest_logit - log(total));
  }
}

__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* logits, int64_t stride, int rows, int count, const SamplingRow* sampling,
                  float* workspace, int32_t* next, float* log_probability) {
  __shared__ Shared s;
  wait_for_previous();
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x)) {
    sample_row(logits + r * stride, count, sampling[r], workspace + int64_t{blockIdx.x} * 2 * count, next + r,
               log_probability + r, s);
    __syncthreads();
  }
}

}  // namespace

int sample(const CudaTarget& target, const CudaMatrix& logits, const SamplingRow* rows, void* workspace, int64_t slots,
           int32_t* next, float* log_probability) {
  const int64_t blocks = logits.rows < slots ? logits.rows : slots;
  return launch(target, sample_kernel, static_cast<unsigned>(blocks), kThreads, 0,
                static_cast<const float*>(logits.data), logits.stride, static_cast<int>(logits.rows),
                static_cast<int>(logits.cols), rows, static_cast<float*>(workspace), next, log_probability);
}

}  // namespace bolide::cuda
