// Attention of prompts on sm_90a: out[t] = softmax(q[t] * transposed(k) * scale) * v over the cached tokens that token
// t sees, for ragged batches of chunks, k and v in pages.
//
// A work item is a tile of the query rows of one sequence and one kv head: kRows / (H / G) consecutive tokens times the
// H / G query heads that share its keys, so that keys are read once for all of them and a sequence of one token costs a
// tile a kv head. Keys are gone over in tiles of kKeys, from the last that the tile sees to the first. Blocks stay for
// several items, in order of falling length, there and back (no block gets two long ones).
//
// One warp copies (TMA: q once an item, pages of k and v into rings of kStages tiles); kConsumers warpgroups have 64
// rows each: scores by wgmma from shared memory, a running softmax in registers, weights as bf16 in registers times v.
// The scores of the next tile are computed beside the sums of this one, and the warpgroups take turns to start
// products, so that one's exponentials run beside the other's products.
//
// A tile of 128 rows, 128 keys, D = 128 is 8.4 Mflop over 64 KiB from L2, so 600 TFLOP/s is 4.7 TB/s of L2; 16384
// exponentials take half of the time of the products. Bound by tensor cores. After FlashAttention-3 (Shah et al. 2024,
// arXiv:2407.08608).
#pragma once

#include <cudaTypedefs.h>

#include <algorithm>

#include "kernels/attention/attention_cuda_parts.h"
#include "kernels/attention/attention_prompt_copies.cuh"
#include "kernels/attention/attention_prompt_rows.cuh"

namespace bolide::cuda::prompt {

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attention_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                     const __grid_constant__ CUtensorMap v_map, const __grid_constant__ Arguments a) {
  extern __shared__ unsigned char unaligned[];
  unsigned char* shared_memory = unaligned + (-shared_address(unaligned) & 1023);
  const uint32_t shared = shared_address(shared_memory);
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarp, 0);
  const Barriers<C> barriers(shared);
  if (threadIdx.x == 0) {
    constexpr int kGroup = kWarpgroup / kWarp, kWarps = C::kConsumers * kGroup, kFills = C::kF8 ? kGroup : 1;
    barriers.items.init(1, 1 + kWarps + (C::kF8 ? kGroup : 0));
    barriers.queries.init(1, kWarps);
    barriers.keys.init(kFills, kWarps);
    barriers.values.init(kFills, kWarps);
    barriers.raws.init(1, kGroup);
    barrier_init_done();
    prefetch_map(&q_map), prefetch_map(&k_map), prefetch_map(&v_map);
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  if (warp < kWarpgroup / kWarp) {
    give_registers<C::kProducerRegisters>();
    if (warp == 0) {
      produce<C>(a, &q_map, &k_map, &v_map, shared_memory, shared, barriers);
    } else if (warp == 1) {
      plan<C>(a, shared_memory, barriers);
    } else {
      clear_padding(a);
    }
  } else if (C::kF8 && warp >= (1 + C::kConsumers) * kWarpgroup / kWarp) {
    if constexpr (C::kF8) {
      give_registers<C::kConverterRegisters>();
      convert<C>(a, shared_memory, barriers);
    }
  } else {
    take_registers<C::kConsumerRegisters>();
    consume<C>(a, shared_memory, shared, barriers, warp / (kWarpgroup / kWarp) - 1);
  }
}

// The driver's function that writes maps; the runtime finds it, so that nothing links the driver.
inline PFN_cuTensorMapEncodeTiled_v12000 find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess)
    return nullptr;
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// `rank` dimensions, the first contiguous; strides in elements of the others. Swizzle 0: rows of boxes lie together.
inline bool encode(CUtensorMap* map, const void* data, DType dtype, int rank, const uint64_t* sizes,
                   const uint64_t* strides, const uint32_t* box, int swizzle) {
  static const PFN_cuTensorMapEncodeTiled_v12000 function = find_encode();
  if (function == nullptr) return false;
  const bool narrow = dtype == DType::kBF16;
  uint64_t stride_bytes[2];
  for (int i = 0; i + 1 < rank; ++i) stride_bytes[i] = strides[i] * (narrow ? 2 : 1);
  const uint32_t steps[3] = {1, 1, 1};
  return function(map, narrow ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
                  static_cast<uint32_t>(rank), const_cast<void*>(data), sizes, stride_bytes, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE,
                  swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                  : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                  : CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class C>
int launch(const CudaTarget& target, const AttentionWork& work, int* report = nullptr) {
  Arguments a{};
  a.cu_tokens = work.cu_tokens, a.context = work.context, a.block_table = work.block_table;
  a.block_table_stride = work.block_table_stride, a.sequences = work.sequences;
  a.tokens = static_cast<int>(work.q.rows);
  a.out = static_cast<__nv_bfloat16*>(work.out.data), a.out_stride = work.out.stride;
  a.heads_per_kv = work.heads / work.kv_heads, a.kv_heads = work.kv_heads, a.dim = work.head_dim;
  a.tile_tokens = C::kRows / a.heads_per_kv;
  a.block_tokens = work.block_tokens, a.box_tokens = work.block_tokens < C::kKeys ? work.block_tokens : C::kKeys;
  a.window = static_cast<int>(work.window < INT32_MAX ? work.window : 0);
  constexpr float kLog2E = 1.4426950408889634f;
  a.scale_log2 = C::kSoftcap ? 1.f : work.scale * kLog2E;
  a.cap_in = C::kSoftcap ? work.scale / work.softcap : 0.f, a.cap_out = work.softcap * kLog2E;
  a.report = report;

  const uint64_t dim = C::kDim, heads = static_cast<uint64_t>(work.heads);
  const uint64_t q_sizes[] = {dim, heads, static_cast<uint64_t>(work.q.rows)};
  const uint64_t q_strides[] = {dim, static_cast<uint64_t>(work.q.stride)};
  const uint32_t q_box[] = {C::kPanelDim, static_cast<uint32_t>(a.heads_per_kv), static_cast<uint32_t>(a.tile_tokens)};
  // How many rows a pool has is not known here; the block table stays inside.
  const uint64_t pool_sizes[] = {dim, INT32_MAX};
  const uint32_t pool_box[] = {static_cast<uint32_t>(C::kF8 ? C::kDim : C::kPanelDim),
                               static_cast<uint32_t>(a.box_tokens)};
  constexpr DType kPool = C::kF8 ? DType::kF8E4M3 : DType::kBF16;
  constexpr int kPoolSwizzle = C::kF8 ? 0 : C::kSwizzle;
  CUtensorMap q_map, k_map, v_map;
  if (!encode(&q_map, work.q.data, DType::kBF16, 3, q_sizes, q_strides, q_box, C::kSwizzle) ||
      !encode(&k_map, work.k, kPool, 2, pool_sizes, &dim, pool_box, kPoolSwizzle) ||
      !encode(&v_map, work.v, kPool, 2, pool_sizes, &dim, pool_box, kPoolSwizzle))
    return cudaErrorNotSupported;

  constexpr size_t shared = 1024 + C::kSharedBytes;
  if (const cudaError_t status = cudaFuncSetAttribute(attention_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(shared));
      status != cudaSuccess)
    return status;
  const int64_t items = (work.q.rows / a.tile_tokens + work.sequences) * work.kv_heads;
  const int64_t grid = std::clamp<int64_t>(items, 1, target.multiprocessors);
  return cuda::launch(target, attention_kernel<C>, dim3(static_cast<unsigned>(grid)), C::kThreads, shared, q_map, k_map,
                      v_map, a);
}

}  // namespace bolide::cuda::prompt
