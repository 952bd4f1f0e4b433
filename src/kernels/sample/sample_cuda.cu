// A cluster of blocks a row of logits. A block reads its part once, into its shared memory if that is large enough
// (into no place, else: later passes read the logits again), while it looks for the largest; a second pass has the
// log-probability's sum and the greedy choice, and rows that draw go on (sample_draw.cuh). Few rows are bound by
// latency (a launch, two or three exchanges within the cluster), many by memory.
#include "kernels/sample/sample_cuda_parts.h"
#include "kernels/sample/sample_draw.cuh"

namespace bolide::cuda {
namespace {

// A NaN if there is one.
__device__ __forceinline__ float larger(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// The largest of this thread's logits; copies them.
__device__ __forceinline__ float read_part(const float* logits, int count, bool packed, float* copy) {
  constexpr int kFlight = 4, kStep = kThreads * 4;
  using P = Pack<float>;
  float largest = -CUDART_INF_F;
  const int packs_end = packed ? count / 4 * 4 : 0;
#pragma unroll 1
  for (int base = thread() * 4; base < packs_end; base += kStep * kFlight) {
    P packs[kFlight];
#pragma unroll
    for (int f = 0; f < kFlight; ++f) {
      packs[f] = {largest, largest, largest, largest};
      if (base + f * kStep < packs_end) packs[f] = load<P>(logits + base + f * kStep);
    }
#pragma unroll
    for (int f = 0; f < kFlight; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) largest = larger(largest, packs[f].value[i]);
      if (copy != nullptr && base + f * kStep < packs_end) store(copy + base + f * kStep, packs[f]);
    }
  }
#pragma unroll 1
  for (int i = packs_end + thread(); i < count; i += kThreads) {
    largest = larger(largest, logits[i]);
    if (copy != nullptr) copy[i] = logits[i];
  }
  return largest;
}

// Penalties are the client's and may be extreme.
__device__ __forceinline__ float bounded(float score) {
  if (isnan(score)) return -CUDART_MAX_NORMAL_F;
  return isinf(score) ? copysignf(CUDART_MAX_NORMAL_F, score) : score;
}

// penalties.cc, by all threads of the block that has the ids from `first` on. A token's biases are a finite one and
// -infinities, whose sum does not depend on their order.
__device__ __noinline__ void add_biases(const SamplingRow& row, int first, int count, float* scores) {
#pragma unroll 1
  for (int i = thread(); i < row.bias_count; i += kThreads) {
    const TokenBias b = row.biases[i];
    if (b.id >= first && b.id < first + count) atomicAdd(&scores[b.id - first], b.bias);
  }
  __syncthreads();
}

// The same of penalties: whose addition to a count is the first
// one (or who takes it away) has the id.
__device__ __noinline__ void penalise(const SamplingRow& row, int first, int count, float* scores, int32_t* counts) {
  const auto for_ids = [&](int begin, auto&& body) {
#pragma unroll 1
    for (int i = begin + thread(); i < row.history_count; i += kThreads)
      if (const int32_t id = row.history[i]; id >= first && id < first + count) body(id - first);
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

struct Task {
  const float* logits;
  int64_t stride;
  int rows, count;
  const SamplingRow* sampling;
  float* workspace;  // [clusters, 2, count]
  int32_t* next;
  float* log_probability;
  int cluster, part;  // blocks a row, and logits a block: a multiple of 4
  bool packed;        // rows are aligned to 16 bytes
  bool copied;        // there is shared memory for a part
};

constexpr int32_t kNoToken = -2;

// By the row's parameters, c being its logits: the token's id, or -1 in blocks that leave it to another; kNoToken in
// all of them if biases forbid every token.
__device__ __noinline__ int32_t choose(const SamplingRow& row, Candidates c, int vocabulary, float* copy,
                                       float* workspace, Cluster cluster) {
  int32_t id = -1;
  if (row.adjusts()) {
    float* scores = copy;
    if (scores == nullptr) {
      scores = workspace + c.first_id;
      for (int i = thread(); i < c.count; i += kThreads) scores[i] = c.scores[i];
      __syncthreads();
    }
    add_biases(row, c.first_id, c.count, scores);
    if (row.needs_history())
      penalise(row, c.first_id, c.count, scores, reinterpret_cast<int32_t*>(workspace + vocabulary) + c.first_id);
    c.scores = scores;
    Mass first = 0;  // key, then the id's complement
    for (int i = thread(); i < c.count; i += kThreads)
      first = max(first, Mass{key_of(scores[i])} << 32 | ~static_cast<uint32_t>(c.first_id + i));
    first = over_cluster(s.board, cluster, first, true);
    c.largest = score_of(static_cast<uint32_t>(first >> 32));
    if (!(fabsf(c.largest) < CUDART_INF_F)) return kNoToken;
    if (cluster.rank == 0) id = static_cast<int32_t>(~static_cast<uint32_t>(first));
  }
  if (!(row.temperature > 0)) return id;
  c.inverse = fminf(1.f / row.temperature, 1e30f);
  return Draw(c, cluster).run(row, vocabulary);
}

// Row r, with its cluster's memory of the workspace.
__device__ __forceinline__ void sample_row(const Task& task, int r, float* workspace, float* copy, Cluster cluster) {
  const float* logits = task.logits + r * task.stride;
  const int begin = min(cluster.rank * task.part, task.count), count = min(task.part, task.count - begin);
  const SamplingRow row = task.sampling[r];  // read early: what is used of it
  const bool greedy = !(row.temperature > 0) && !row.adjusts();
  const float mine = read_part(logits + begin, count, task.packed, copy);
  cluster_wait();
  const float largest = score_of(static_cast<uint32_t>(over_cluster(s.board, cluster, Mass{key_of(mine)}, true)));
  const auto none = [&] {
    if (cluster.rank == 0 && thread() == 0) task.next[r] = -1, task.log_probability[r] = CUDART_NAN_F;
  };
  if (!(fabsf(largest) < CUDART_INF_F)) return none();

  const float* scores = copy != nullptr ? copy : logits + begin;
  Mass sums[2] = {0, 0};  // of the weights; the complement of the first id with the largest logit
#pragma unroll 4
  for (int i = thread(); i < count; i += kThreads) {
    sums[0] += mass_of(expf(scores[i] - largest));
    if (scores[i] == largest) sums[1] = max(sums[1], ~static_cast<Mass>(begin + i));
  }
  over_cluster(s.board, cluster, sums, 2);
  // Relative to the largest logit, whose weight is 1.
  const float log_total = logf(static_cast<float>(s.board.total[0]) * (1.f / kUnit));
  auto id = cluster.rank == 0 ? static_cast<int32_t>(~s.board.total[1]) : -1;
  if (!greedy) id = choose(task.sampling[r], {scores, count, begin, largest, 1}, task.count, copy, workspace, cluster);
  if (id == kNoToken) return none();
  if (id < 0 || thread() != 0) return;
  task.next[r] = id;
  task.log_probability[r] = (greedy ? 0.f : logits[id] - largest) - log_total;
}

__global__ void __launch_bounds__(kThreads, 2) sample_kernel(const Task task) {
  extern __shared__ __align__(16) float copy[];
  if (thread() == 0) s.board.turn = 0;
  cluster_arrive();  // the first wait is in sample_row: every block of the cluster runs then
  wait_for_previous();
  let_next_start();
  const int group = static_cast<int>(blockIdx.x) / task.cluster, groups = static_cast<int>(gridDim.x) / task.cluster;
  const Cluster cluster{static_cast<int>(blockIdx.x) % task.cluster, task.cluster};
  for (int r = group; r < task.rows; r += groups) {
    if (r != group) cluster_arrive();
    sample_row(task, r, task.workspace + int64_t{group} * 2 * task.count, task.copied ? copy : nullptr, cluster);
    __syncthreads();  // all have read
  }
}

constexpr int64_t kPartLeast = 2048, kPartMost = 24 * 1024;  // logits a block: 96 KB, two blocks a multiprocessor

// Blocks that a cluster may have here: code for older GPUs, which may run on newer ones, has none, and 16 need room
// that a part of a GPU may lack.
int cluster_max(const CudaTarget& target) {
  if (target.compute_capability < 90) return 1;
  static const int most = [] {
    constexpr int kPortable = 8;
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, sample_kernel) != cudaSuccess || attributes.ptxVersion < 90) return 1;
    cudaLaunchAttribute shape{};
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim = {kClusterMax, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = kClusterMax, config.blockDim = kThreads;
    config.dynamicSmemBytes = kPartMost * sizeof(float);
    config.attrs = &shape, config.numAttrs = 1;
    int clusters = 0;
    const bool fits =
        cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
        cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(config.dynamicSmemBytes)) == cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&clusters, sample_kernel, &config) == cudaSuccess && clusters > 0;
    if (!fits) cudaGetLastError();  // forgotten
    return fits ? kClusterMax : kPortable;
  }();
  return most;
}

}  // namespace

int sample(const CudaTarget& target, const CudaMatrix& logits, const SamplingRow* rows, void* workspace, int64_t slots,
           int32_t* next, float* log_probability) {
  const int64_t groups = logits.rows < slots ? logits.rows : slots;
  const int most = cluster_max(target);
  int64_t cluster = 1;
  while (cluster < most && logits.cols > cluster * kPartLeast &&
         (groups * cluster < target.multiprocessors || logits.cols > cluster * kPartMost))
    cluster *= 2;
  const int64_t part = ceil_div(ceil_div(logits.cols, cluster), 4) * 4;
  // Always the same limit: graphs keep launches of several sizes.
  const int64_t room = target.shared_bytes_block - int64_t{sizeof(SampleShared)};
  const bool copied = part * 4 <= room;
  const auto shared_bytes = static_cast<size_t>(copied ? part * 4 : 0);
  const auto status = cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(room > 0 ? room : 0));
  if (status != cudaSuccess) return status;
  const Task task{static_cast<const float*>(logits.data),
                  logits.stride,
                  static_cast<int>(logits.rows),
                  static_cast<int>(logits.cols),
                  rows,
                  static_cast<float*>(workspace),
                  next,
                  log_probability,
                  static_cast<int>(cluster),
                  static_cast<int>(part),
                  is_aligned(logits.data, logits.stride * 4, 16),
                  copied};
  return launch_clusters(target, sample_kernel, static_cast<unsigned>(groups * cluster), kThreads,
                         static_cast<int>(cluster), shared_bytes, task);
}

}  // namespace bolide::cuda
