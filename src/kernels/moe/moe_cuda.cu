// Routing: a warp a token, one pass over its scores for each expert it takes. Combination: a thread an output.
#include <math_constants.h>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/moe/moe_cuda_parts.h"

namespace bolide::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ double warp_total(double x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__global__ void __launch_bounds__(kThreads)
    choose_kernel(float* all_scores, int64_t stride, int tokens, int count, int top_k, bool renormalise,
                  int32_t* experts, float* weights) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int token = static_cast<int>(blockIdx.x) * (kThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  wait_for_previous();
  let_next_start();
  if (token >= tokens) return;
  float* scores = all_scores + token * stride;  // each lane touches its own alone
  experts += int64_t{token} * top_k, weights += int64_t{token} * top_k;
  float largest = -CUDART_INF_F;
  for (int i = lane; i < count; i += kWarp) largest = fmaxf(largest, scores[i]);
  for (int step = kWarp / 2; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  double sum = 0;
  for (int i = lane; i < count; i += kWarp) {
    const double e = exp(static_cast<double>(scores[i]) - static_cast<double>(largest));
    sum += e;
    scores[i] = static_cast<float>(e);
  }
  sum = warp_total(sum);
  double chosen = 0;
  for (int j = 0; j < top_k; ++j) {
    // The largest, the lower number first at ties. NaN never wins; expert 0 stands in if nothing else is left, and
    // carries the NaN. What is taken becomes -1.
    float best_score = -1;
    int best = count;
    for (int i = lane; i < count; i += kWarp)
      if (scores[i] > best_score) best = i, best_score = scores[i];
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const float other_score = __shfl_xor_sync(0xffffffffu, best_score, step);
      const int other = __shfl_xor_sync(0xffffffffu, best, step);
      if (other_score > best_score || (other_score == best_score && other < best))
        best = other, best_score = other_score;
    }
    const bool none = best >= count;
    if (none) best = 0, best_score = CUDART_NAN_F;
    if (!none && best % kWarp == lane) scores[best] = -1;
    chosen += static_cast<double>(best_score);
    if (lane == 0) experts[j] = best, weights[j] = best_score;
  }
  const double total = renormalise ? chosen : sum;
  if (lane == 0)
    for (int j = 0; j < top_k; ++j) weights[j] = static_cast<float>(static_cast<double>(weights[j]) / total);
}

template <class Out>
__global__ void __launch_bounds__(kThreads) combine_kernel(const float* parts, int64_t stride, const float* weights,
                                                           int top_k, Out* out, int64_t out_stride, int width) {
  wait_for_previous();
  let_next_start();
  const int column = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  const int64_t token = blockIdx.x;
  if (column >= width) return;
  float sum = 0;
  for (int j = 0; j < top_k; ++j)
    sum = fmaf(weights[token * top_k + j], parts[(token * top_k + j) * stride + column], sum);
  out[token * out_stride + column] = narrow<Out>(sum);
}

template <class Out>
int combine_as(const CudaTarget& target, const CudaMatrix& parts, const float* weights, int top_k,
               const CudaMatrix& out) {
  const dim3 grid(static_cast<unsigned>(out.rows), static_cast<unsigned>(ceil_div(out.cols, kThreads)));
  return launch(target, combine_kernel<Out>, grid, kThreads, 0, static_cast<const float*>(parts.data), parts.stride,
                weights, top_k, static_cast<Out*>(out.data), out.stride, static_cast<int>(out.cols));
}

}  // namespace

int choose_experts(const CudaTarget& target, const CudaMatrix& scores, int top_k, bool renormalise, int32_t* experts,
                   float* weights) {
  return launch(target, choose_kernel, static_cast<unsigned>(ceil_div(scores.rows, kThreads / kWarp)), kThreads, 0,
                static_cast<float*>(scores.data), scores.stride, static_cast<int>(scores.rows),
                static_cast<int>(scores.cols), top_k, renormalise, experts, weights);
}

int combine_experts(const CudaTarget& target, const CudaMatrix& parts, const float* weights, int top_k,
                    const CudaMatrix& out) {
  return out.dtype == DType::kBF16 ? combine_as<__nv_bfloat16>(target, parts, weights, top_k, out)
                                   : combine_as<float>(target, parts, weights, top_k, out);
}

}  // namespace bolide::cuda
