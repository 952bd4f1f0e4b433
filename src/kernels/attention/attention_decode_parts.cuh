// What the decode attention (attention_decode.cuh) is made of: rows into registers, products of tiles, sends within a
// cluster, merged results, and which cached positions a token sees.
#pragma once

#include "kernels/attention/attention_cuda_parts.h"
#include "kernels/common/cuda_launch.cuh"

namespace bolide::cuda {
namespace {

constexpr int kSubtile = 16, kWarpsMax = 8, kClusterMax = 16, kTileHeads = 8;
constexpr float kLog2E = 1.4426950408889634f;

struct DecodeArguments {
  const __nv_bfloat16* q;
  void* out;
  int64_t q_stride, out_stride;
  bool narrow_out;
  int group, kv_heads;  // query heads of a kv head
  float scale, cap;     // of powers of two; cap 0: none
  int window;           // 0: none
  const char *k, *v;
  int64_t block_bytes;
  int page_shift;
  const int32_t *cu_tokens, *context, *block_table;
  int block_table_stride, sequences;
};

// What differs between the pools' element types.
struct BF16Pool {
  static constexpr int kBytes = 2, kSubtiles64 = 2, kSubtiles = 1;
};
struct F8Pool {  // widened to f16, exactly
  static constexpr int kBytes = 1, kSubtiles64 = 2, kSubtiles = 2;
};

template <class Pool, int kDim>
struct Layout {
  static constexpr int kRowBytes = kDim * Pool::kBytes;
  static constexpr int kSubtiles = kDim == 64 ? Pool::kSubtiles64 : Pool::kSubtiles;
  static constexpr int kTile = kSubtile * kSubtiles;
  static constexpr int kKeyWords = kRowBytes / 16, kValueWords = kRowBytes / 32;  // of a lane, of one row
  static constexpr int kSteps = kDim / 16;                                        // of the product with q
  static constexpr int kDimTiles = kDim / 16;
  static constexpr int kRowItems = kDim / 4;  // float4s of a row of results
};

// ---- words of a row: `kLanes` lanes have 16 bytes each of the first 16 * kLanes bytes, and so on; what is left at the
// end goes to them in 8 and 4 bytes.
__device__ __forceinline__ constexpr int word_offset(int word, int words, int lanes, int lane) {
  const int whole = words / 4 * 4;
  if (word < whole) return word / 4 * 16 * lanes + lane * 16 + word % 4 * 4;
  const int pairs = (words - whole) / 2 * 2;
  if (word < whole + pairs) return whole * 4 * lanes + lane * 8 + (word - whole) * 4;
  return (whole + pairs) * 4 * lanes + lane * 4;
}

template <int kWords, int kLanes>
__device__ __forceinline__ void load_row(const char* row, int lane, uint32_t (&out)[kWords]) {
  int word = 0;
#pragma unroll
  for (; word + 4 <= kWords; word += 4)
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[word]), "=r"(out[word + 1]), "=r"(out[word + 2]), "=r"(out[word + 3])
                 : "l"(row + word_offset(word, kWords, kLanes, lane)));
  if constexpr (kWords % 4 >= 2)
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(out[kWords / 4 * 4]), "=r"(out[kWords / 4 * 4 + 1])
                 : "l"(row + word_offset(kWords / 4 * 4, kWords, kLanes, lane)));
  if constexpr (kWords % 2 == 1)
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];"
                 : "=r"(out[kWords - 1])
                 : "l"(row + word_offset(kWords - 1, kWords, kLanes, lane)));
}

// Asks for a row in L2.
template <int kWords, int kLanes>
__device__ __forceinline__ void want_row(const char* row, int lane) {
#pragma unroll
  for (int word = 0; word < kWords; word += 4)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row + word_offset(word, kWords, kLanes, lane)));
}

// ---- tensor cores: c += a b, [16, 8] += [16, 16] [16, 8]
template <class Pool>
__device__ __forceinline__ void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  if constexpr (Pool::kBytes == 2) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Two f8e4m3, the low half of `pair` or its high half, as two f16.
__device__ __forceinline__ uint32_t widen_pair(uint32_t pair, bool high) {
  uint32_t out;
  const auto half = static_cast<uint16_t>(high ? pair >> 16 : pair & 0xffffu);
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(half));
  return out;
}

// Two numbers in the pool's wide type, `low` in the low half.
template <class Pool>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  uint32_t out;
  if constexpr (Pool::kBytes == 2) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  }
  return out;
}

// An 8 x 8 matrix of 16-bit numbers, two neighbours of row lane / 4 a lane, transposed.
__device__ __forceinline__ uint32_t transpose(uint32_t x) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(x));
  return out;
}

__device__ __forceinline__ float exp2_fast(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// ---- clusters
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ uint32_t address_in(uint32_t address, int rank) {
  uint32_t out;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(out) : "r"(address), "r"(rank));
  return out;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void send(uint32_t to, float4 x, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send(uint32_t to, float2 x, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(x.x),
               "f"(x.y), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void wait_for_bytes(uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier)
      : "memory");
}

// ---- results of several warps or blocks, merged in ascending order
struct Merged {
  float4 sum;
  float largest, total;
};
// Of i < count: sums[i * sums_stride], and stats[i * stats_stride], which are the largest score and the sum of weights.
// All of them are read at once, as the latency is what counts.
template <int kMost>
__device__ __forceinline__ Merged merge(const float4* sums, int sums_stride, const float2* stats, int stats_stride,
                                        int count) {
  float2 stat[kMost];
  float4 sum[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    stat[i] = make_float2(-INFINITY, 0);
    sum[i] = make_float4(0, 0, 0, 0);
    if (i < count) stat[i] = stats[i * stats_stride], sum[i] = sums[i * sums_stride];
  }
  Merged merged{{0, 0, 0, 0}, -INFINITY, 0};
#pragma unroll
  for (int i = 0; i < kMost; ++i) merged.largest = fmaxf(merged.largest, stat[i].x);
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const float weight = exp2_fast(stat[i].x - merged.largest);
    merged.total = fmaf(stat[i].y, weight, merged.total);
    merged.sum.x = fmaf(sum[i].x, weight, merged.sum.x), merged.sum.y = fmaf(sum[i].y, weight, merged.sum.y);
    merged.sum.z = fmaf(sum[i].z, weight, merged.sum.z), merged.sum.w = fmaf(sum[i].w, weight, merged.sum.w);
  }
  return merged;
}

__device__ __forceinline__ void store_result(const DecodeArguments& a, int64_t at, const Merged& merged) {
  const float factor = __fdividef(1.f, merged.total);
  const float4 x{merged.sum.x * factor, merged.sum.y * factor, merged.sum.z * factor, merged.sum.w * factor};
  if (a.narrow_out) {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.out) + at) =
        make_uint2(pack_pair<BF16Pool>(x.x, x.y), pack_pair<BF16Pool>(x.z, x.w));
  } else {
    *reinterpret_cast<float4*>(static_cast<float*>(a.out) + at) = x;
  }
}

// The token's sequence, and which cached positions it sees: [begin, end). Those below `old` were cached before this
// step.
struct Range {
  int sequence = 0, begin = 0, end = 0, old = 0;
};
__device__ __forceinline__ Range range_of(const DecodeArguments& a, int token) {
  Range range;
  range.sequence = min(token, a.sequences - 1);
  int first = a.cu_tokens[range.sequence], next = a.cu_tokens[range.sequence + 1];
  int context = a.context[range.sequence];
  if (first != token || next != token + 1) {  // not one token a sequence: the last that starts at or before the token
    int low = 0;
    for (int high = a.sequences; high - low > 1;) {
      const int middle = (low + high) / 2;
      if (a.cu_tokens[middle] <= token) {
        low = middle;
      } else {
        high = middle;
      }
    }
    range.sequence = low, first = a.cu_tokens[low], next = a.cu_tokens[low + 1], context = a.context[low];
  }
  if (token >= next) return range;  // padding
  range.end = context - (next - token) + 1;
  range.begin = a.window > 0 && range.end > a.window ? range.end - a.window : 0;
  range.old = context - (next - first);
  return range;
}

// The tile that a warp is at: which rows its lanes want.
template <class L>
struct Tile {
  int page[L::kSubtiles];

  __device__ __forceinline__ static int inside(const Range& range, int key) {
    return min(max(key, range.begin), range.end - 1);
  }
  // Entries of the block table beyond the range are arbitrary, and so is what lies there.
  __device__ __forceinline__ void find(const DecodeArguments& a, const Range& range, const int32_t* table, int first) {
#pragma unroll
    for (int s = 0; s < L::kSubtiles; ++s) page[s] = table[inside(range, first + s * kSubtile) >> a.page_shift];
  }
  __device__ __forceinline__ const char* row(const DecodeArguments& a, const Range& range, const char* pool, int s,
                                             int key) const {
    const int in_page = inside(range, key) & ((1 << a.page_shift) - 1);
    return pool + page[s] * a.block_bytes + in_page * L::kRowBytes;
  }
};

}  // namespace
}  // namespace bolide::cuda
