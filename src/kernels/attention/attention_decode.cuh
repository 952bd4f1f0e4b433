// Attention of one new token a sequence over its pages: for the GPUs of compute capability 9.0.
//
// Problem: q [T, H, D] against [context, G, D] keys and values in pages; every key and value is read once for all H / G
// query heads that share it, so the memory's bandwidth is the bound, or latency if there is little to read.
//
// How it is cut up: a cluster of `splits` blocks has one token and one kv head; the warps of all its blocks take tiles
// of 16 or 32 cached positions in turn and keep a running softmax each (Milakov & Gimelshein 2018, arXiv:1805.02867).
// A block merges its warps through shared memory, then sends each block of the cluster that has work its slice of the
// heads' dims (st.async, which counts its bytes in the receiver's mbarrier); that one merges the slices in the order of
// the blocks and writes them. Nothing is left behind in memory, and the order of all sums is fixed by the sizes.
//
// Keys and values go from memory into the registers that the tensor cores read them from, 16 bytes a lane and row:
//   scores^T [16 keys, 8 heads] = K [16, D] q^T:       a lane has keys lane / 4 and 8 more, a quarter of each row
//   out^T [16 dims, 8 heads] += V^T [16, 16 keys] p^T: a lane has four keys, an eighth of each row
// Which dims of a row a lane's words are is the same for q and for the results, so the order within a row is free. A
// tile of 16 keys of 128 dims is 8 KB on the way for a warp; keys of a later tile are asked for once this one's scores
// are there, its values once this one's are summed.
//
// What was cached before this step does not depend on the kernel before this one: it is fetched before that has ended.
#pragma once

#include "kernels/attention/attention_decode_parts.cuh"

namespace bolide::cuda {
namespace {

// kDepth: tiles that a warp has on their way. One leaves registers for three blocks of four warps on a multiprocessor.
template <class Pool, int kDim, int kHeadTiles, int kDepth>
__global__ void __maxnreg__(kHeadTiles == 1 && kDepth == 1 ? 168 : 255)
    attention_decode_kernel(const __grid_constant__ DecodeArguments a) {
  using L = Layout<Pool, kDim>;
  extern __shared__ float4 shared[];
  __shared__ uint64_t arrived;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int threads = static_cast<int>(blockDim.x), warps = threads / kWarp;
  const int eighth = lane / 4, quarter = lane % 4;
  const int splits = static_cast<int>(gridDim.x), rank = static_cast<int>(blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y), token = static_cast<int>(blockIdx.z);
  let_next_start();
  const uint32_t barrier = shared_address(&arrived);
  if (splits > 1) {
    if (thread == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_arrive();
  }

  // Who has what: tiles go to the warps of the cluster in turn.
  const Range range = range_of(a, token);
  const int origin = range.begin / L::kTile * L::kTile;
  const int tiles = range.end > range.begin ? (range.end - origin + L::kTile - 1) / L::kTile : 0;
  const int blocks = min(splits, (tiles + warps - 1) / warps);  // that have work
  if (rank >= max(blocks, 1)) return;
  const int64_t head_row = int64_t{token} * a.out_stride + int64_t{kv_head} * a.group * kDim;
  const int items = a.group * L::kRowItems;
  if (blocks == 0) {
    wait_for_previous();
    for (int i = thread; i < items; i += threads) store_result(a, head_row + i * 4, {{0, 0, 0, 0}, 0, 1});
    return;
  }
  const int32_t* table = a.block_table + int64_t{range.sequence} * a.block_table_stride;
  const int64_t head_bytes = (int64_t{kv_head} << a.page_shift) * L::kRowBytes;
  const char *keys = a.k + head_bytes, *values = a.v + head_bytes;

  using Keys = uint32_t[L::kSubtiles][2][L::kKeyWords];
  using Values = uint32_t[L::kSubtiles][4][L::kValueWords];
  const auto key_at = [&](const Tile<L>& tile, int first, int s, int i) {
    return tile.row(a, range, keys, s, first + s * kSubtile + eighth + i * 8);
  };
  const auto value_at = [&](const Tile<L>& tile, int first, int s, int i) {
    return tile.row(a, range, values, s, first + s * kSubtile + quarter * 2 + i % 2 + i / 2 * 8);
  };
  const auto load_keys = [&](const Tile<L>& tile, int first, Keys& k) {
#pragma unroll
    for (int s = 0; s < L::kSubtiles; ++s)
#pragma unroll
      for (int i = 0; i < 2; ++i) load_row<L::kKeyWords, 4>(key_at(tile, first, s, i), quarter, k[s][i]);
  };
  const auto load_values = [&](const Tile<L>& tile, int first, Values& v) {
#pragma unroll
    for (int s = 0; s < L::kSubtiles; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) load_row<L::kValueWords, 8>(value_at(tile, first, s, i), eighth, v[s][i]);
  };

  const int stride = blocks * warps;
  int t = rank * warps + warp;
  Keys k[kDepth];
  Values v[kDepth];
  Tile<L> next[kDepth];
  {
    Tile<L> tile[kDepth];
    bool late[kDepth];
#pragma unroll
    for (int b = 0; b < kDepth; ++b) {
      const int mine = t + b * stride, first = origin + mine * L::kTile;
      if (mine < tiles) tile[b].find(a, range, table, first);
      if (mine + kDepth * stride < tiles) next[b].find(a, range, table, first + kDepth * stride * L::kTile);
    }
#pragma unroll
    for (int b = 0; b < kDepth; ++b) {
      const int mine = t + b * stride, first = origin + mine * L::kTile;
      late[b] = mine < tiles && min(first + L::kTile, range.end) > range.old;
      if (late[b]) {
#pragma unroll
        for (int s = 0; s < L::kSubtiles; ++s) {
#pragma unroll
          for (int i = 0; i < 2; ++i) want_row<L::kKeyWords, 4>(key_at(tile[b], first, s, i), quarter);
#pragma unroll
          for (int i = 0; i < 4; ++i) want_row<L::kValueWords, 8>(value_at(tile[b], first, s, i), eighth);
        }
      } else if (mine < tiles) {
        load_keys(tile[b], first, k[b]);
        load_values(tile[b], first, v[b]);
      }
    }
    wait_for_previous();
#pragma unroll
    for (int b = 0; b < kDepth; ++b)
      if (late[b]) {
        const int first = origin + (t + b * stride) * L::kTile;
        load_keys(tile[b], first, k[b]);
        load_values(tile[b], first, v[b]);
      }
  }

  uint32_t q[kHeadTiles][L::kSteps][2];
#pragma unroll
  for (int h = 0; h < kHeadTiles; ++h) {
    const int head = h * kTileHeads + eighth;
    const __nv_bfloat16* row =
        a.q + int64_t{token} * a.q_stride + (int64_t{kv_head} * a.group + min(head, a.group - 1)) * kDim;
#pragma unroll
    for (int step = 0; step < L::kSteps; ++step) {
      // The four dims whose keys are this step's.
      const int dim = word_offset(step * Pool::kBytes, L::kKeyWords, 4, quarter) / Pool::kBytes;
      auto pair = *reinterpret_cast<const uint2*>(row + dim);
      if constexpr (Pool::kBytes == 1) {
        const auto through = [](uint32_t x) {
          const float low = __uint_as_float(x << 16), high = __uint_as_float(x & 0xffff0000u);
          return pack_pair<Pool>(fminf(fmaxf(low, -65504.f), 65504.f), fminf(fmaxf(high, -65504.f), 65504.f));
        };
        pair = make_uint2(through(pair.x), through(pair.y));
      }
      q[h][step][0] = head < a.group ? pair.x : 0u;
      q[h][step][1] = head < a.group ? pair.y : 0u;
    }
  }

  // Of heads 2 * quarter and the next one: the largest score so far, this lane's share of the weights, sums of values.
  float largest[kHeadTiles][2], total[kHeadTiles][2], sum[kHeadTiles][L::kDimTiles][4];
#pragma unroll
  for (int h = 0; h < kHeadTiles; ++h) {
    largest[h][0] = largest[h][1] = -INFINITY;
    total[h][0] = total[h][1] = 0;
#pragma unroll
    for (int d = 0; d < L::kDimTiles; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[h][d][i] = 0;
  }

  const auto attend = [&](const int b) {  // to tile t, which is in k[b] and v[b]
    const int first = origin + t * L::kTile, later = first + kDepth * stride * L::kTile;
    const bool more = t + kDepth * stride < tiles;
    // Scores: element i of a subtile is key lane / 4 + i / 2 * 8, head 2 * quarter + i % 2.
    float score[kHeadTiles][L::kSubtiles][4];
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h)
#pragma unroll
      for (int s = 0; s < L::kSubtiles; ++s) {
        float parts[2][4] = {};
#pragma unroll
        for (int step = 0; step < L::kSteps; ++step) {
          const uint32_t(&x)[2][L::kKeyWords] = k[b][s];
          const uint32_t b0 = q[h][step][0], b1 = q[h][step][1];
          if constexpr (Pool::kBytes == 2) {
            multiply<Pool>(parts[step % 2], x[0][step * 2], x[1][step * 2], x[0][step * 2 + 1], x[1][step * 2 + 1], b0,
                           b1);
          } else {
            multiply<Pool>(parts[step % 2], widen_pair(x[0][step], false), widen_pair(x[1][step], false),
                           widen_pair(x[0][step], true), widen_pair(x[1][step], true), b0, b1);
          }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) score[h][s][i] = parts[0][i] + parts[1][i];
      }
    if (more) load_keys(next[b], later, k[b]);

#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h) {
      float most[2] = {largest[h][0], largest[h][1]};
#pragma unroll
      for (int s = 0; s < L::kSubtiles; ++s)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float x = score[h][s][i] * a.scale;
          if (a.cap > 0) x = a.cap - __fdividef(2 * a.cap, exp2_fast(x) + 1);  // tanh
          const int key = first + s * kSubtile + eighth + i / 2 * 8;
          score[h][s][i] = key >= range.begin && key < range.end ? x : -INFINITY;
          most[i % 2] = fmaxf(most[i % 2], score[h][s][i]);
        }
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2)
#pragma unroll
        for (int i = 0; i < 2; ++i) most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], step));
      float old[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        old[i] = exp2_fast(largest[h][i] - most[i]);
        largest[h][i] = most[i];
        total[h][i] *= old[i];
      }
#pragma unroll
      for (int d = 0; d < L::kDimTiles; ++d)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[h][d][i] *= old[i % 2];
#pragma unroll
      for (int s = 0; s < L::kSubtiles; ++s) {
        float weight[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          weight[i] = exp2_fast(score[h][s][i] - most[i % 2]);
          total[h][i % 2] += weight[i];
        }
        const uint32_t b0 = transpose(pack_pair<Pool>(weight[0], weight[1]));
        const uint32_t b1 = transpose(pack_pair<Pool>(weight[2], weight[3]));
        const uint32_t(&x)[4][L::kValueWords] = v[b][s];
#pragma unroll
        for (int word = 0; word < L::kValueWords; ++word) {
          if constexpr (Pool::kBytes == 2) {
            multiply<Pool>(sum[h][word], __byte_perm(x[0][word], x[1][word], 0x5410),
                           __byte_perm(x[0][word], x[1][word], 0x7632), __byte_perm(x[2][word], x[3][word], 0x5410),
                           __byte_perm(x[2][word], x[3][word], 0x7632), b0, b1);
          } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const uint32_t order = half == 0 ? 0x5140 : 0x7362;
              const uint32_t low = __byte_perm(x[0][word], x[1][word], order),
                             high = __byte_perm(x[2][word], x[3][word], order);
              multiply<Pool>(sum[h][word * 2 + half], widen_pair(low, false), widen_pair(low, true),
                             widen_pair(high, false), widen_pair(high, true), b0, b1);
            }
          }
        }
      }
    }
    if (more) {
      load_values(next[b], later, v[b]);
      if (t + 2 * kDepth * stride < tiles) next[b].find(a, range, table, later + kDepth * stride * L::kTile);
    }
  };
  while (t < tiles) {
#pragma unroll
    for (int b = 0; b < kDepth; ++b) {
      if (t >= tiles) break;
      attend(b);
      t += stride;
    }
  }

  // This block's warps. Results [warps, group, dims] in float4s whose place within a row is swizzled by its head, so
  // that the lanes of a store use all banks.
  const auto place = [](int head, int item) {
    const int pair = head / 2 % 4;
    return item ^ (L::kValueWords * 4 / Pool::kBytes == 16 && Pool::kBytes == 1 ? pair : (pair & 1) | (pair & 2) << 1);
  };
  float4* const sums = shared;
  auto* const stats = reinterpret_cast<float2*>(shared + warps * items);  // [warps, group]
  const int active = min(warps, tiles - rank * warps);
  if (warp < active) {
#pragma unroll
    for (int h = 0; h < kHeadTiles; ++h)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float all = total[h][i];
#pragma unroll
        for (int step = 4; step < kWarp; step *= 2) all += __shfl_xor_sync(0xffffffffu, all, step);
        const int head = h * kTileHeads + quarter * 2 + i;
        if (head >= a.group) continue;
        if (eighth == 0) stats[warp * a.group + head] = make_float2(largest[h][i], all);
        float4* row = sums + (warp * a.group + head) * L::kRowItems;
      // Element i of a tile of dims is the first of its two dims, element i + 2 the second.
#pragma unroll
        for (int tile_pair = 0; tile_pair < L::kDimTiles; tile_pair += 2) {
          const int dim = word_offset(tile_pair * Pool::kBytes / 2, L::kValueWords, 8, eighth) / Pool::kBytes;
          row[place(head, dim / 4)] = make_float4(sum[h][tile_pair][i], sum[h][tile_pair][i + 2],
                                                  sum[h][tile_pair + 1][i], sum[h][tile_pair + 1][i + 2]);
        }
      }
  }
  // What other blocks send: [blocks, slice] sums, [blocks, group] stats of the slice's heads.
  const int slice = (items + blocks - 1) / blocks, begin = rank * slice, own = min(slice, items - begin);
  float4* const received = shared + warps * items + (warps * a.group + 1) / 2;
  auto* const received_stats = reinterpret_cast<float2*>(received + items + kClusterMax);
  if (blocks > 1) {
    if (thread == 0 && own > 0) {
      const int heads = (begin + own - 1) / L::kRowItems - begin / L::kRowItems + 1;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(blocks * (own * 16 + heads * 8))
                   : "memory");
    }
    cluster_wait();  // all of them have started
  }
  __syncthreads();
  for (int item = thread; item < items; item += threads) {
    const int head = item / L::kRowItems, at = item % L::kRowItems;
    const Merged merged =
        merge<kWarpsMax>(sums + head * L::kRowItems + place(head, at), items, stats + head, a.group, active);
    if (blocks == 1) {
      store_result(a, head_row + item * 4, merged);
      continue;
    }
    const int owner = item / slice, index = item - owner * slice;
    const uint32_t its_barrier = address_in(barrier, owner);
    send(address_in(shared_address(received + rank * slice + index), owner), merged.sum, its_barrier);
    if (index == 0 || at == 0)
      send(address_in(shared_address(received_stats + rank * a.group + head), owner),
           make_float2(merged.largest, merged.total), its_barrier);
  }
  if (blocks == 1 || own <= 0) return;
  wait_for_bytes(barrier);
  for (int i = thread; i < own; i += threads) {
    const int head = (begin + i) / L::kRowItems;
    store_result(a, head_row + (begin + i) * 4,
                 merge<kClusterMax>(received + i, slice, received_stats + head, a.group, blocks));
  }
}

// Bytes of shared memory of a block.
template <int kDim>
size_t decode_shared_bytes(int group, int warps, int splits) {
  const int items = group * kDim / 4;
  int quads = warps * items + (warps * group + 1) / 2;
  if (splits > 1) quads += items + kClusterMax + (kClusterMax * group + 1) / 2;
  return static_cast<size_t>(quads) * 16;
}

template <class Pool, int kDim>
int decode_as(const CudaTarget& target, const DecodeArguments& a, int tokens, DecodeShape shape) {
  const dim3 grid(static_cast<unsigned>(shape.splits), static_cast<unsigned>(a.kv_heads),
                  static_cast<unsigned>(tokens));
  auto* kernel = a.group > kTileHeads ? attention_decode_kernel<Pool, kDim, 2, 1>
                 : shape.depth > 1    ? attention_decode_kernel<Pool, kDim, 1, 2>
                                      : attention_decode_kernel<Pool, kDim, 1, 1>;
  return launch_clusters(target, kernel, grid, kWarp * shape.warps, shape.splits,
                         decode_shared_bytes<kDim>(a.group, shape.warps, shape.splits), a);
}

template <class Pool>
int decode_of(const CudaTarget& target, const AttentionWork& work, DecodeShape shape) {
  DecodeArguments a{};
  a.q = static_cast<const __nv_bfloat16*>(work.q.data), a.q_stride = work.q.stride;
  a.out = work.out.data, a.out_stride = work.out.stride;
  a.narrow_out = work.out.dtype == DType::kBF16;
  a.group = work.heads / work.kv_heads, a.kv_heads = work.kv_heads;
  a.scale = work.softcap > 0 ? 2 * kLog2E * work.scale / work.softcap : kLog2E * work.scale;
  a.cap = work.softcap > 0 ? kLog2E * work.softcap : 0;
  a.window = static_cast<int>(work.window < INT32_MAX ? work.window : 0);
  a.k = static_cast<const char*>(work.k), a.v = static_cast<const char*>(work.v);
  a.block_bytes = int64_t{work.kv_heads} * work.block_tokens * work.head_dim * Pool::kBytes;
  while (1 << a.page_shift < work.block_tokens) ++a.page_shift;
  a.cu_tokens = work.cu_tokens, a.context = work.context;
  a.block_table = work.block_table, a.block_table_stride = work.block_table_stride, a.sequences = work.sequences;
  const auto tokens = static_cast<int>(work.q.rows);
  switch (work.head_dim) {
    case 64: return decode_as<Pool, 64>(target, a, tokens, shape);
    case 96: return decode_as<Pool, 96>(target, a, tokens, shape);
    case 128: return decode_as<Pool, 128>(target, a, tokens, shape);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace
}  // namespace bolide::cuda
