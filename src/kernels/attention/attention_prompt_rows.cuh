// Attention of prompts, the warpgroups that compute.
#pragma once

#include "kernels/attention/attention_prompt_items.cuh"

namespace bolide::cuda::prompt {

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ __forceinline__ uint32_t pair_of(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Element (lane, i) of four lanes and four registers goes to (i, lane).
__device__ __forceinline__ void transpose_quad(uint32_t (&x)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      const bool upper = (lane & bit) != 0;
      const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i | bit], bit);
      (upper ? x[i] : x[i | bit]) = got;
    }
}

// What a thread has of its two rows (h = 0, 1: eight apart): scores, sums, and the running softmax.
template <class C>
struct Rows {
  float sums[C::kDim / 2];
  float scores[C::kKeys / 2];
  uint32_t weights[C::kKeys / 4];
  float largest[2], total[2];

  // scores = q * transposed(k)
  __device__ __forceinline__ void multiply_keys(uint64_t q, uint64_t k) {
    settle(scores);
    products_begin();
#pragma unroll
    for (int step = 0; step < C::kDim / 16; ++step) {
      constexpr int kSteps = C::kPanelDim / 16;
      const int panel = step / kSteps, inside = step % kSteps * 32;
      product_shared(scores, q + static_cast<uint64_t>((panel * C::kQueryPanel + inside) / 16),
                     k + static_cast<uint64_t>((panel * C::kTilePanel + inside) / 16), step > 0 ? 1 : 0);
    }
    products_commit();
  }

  // sums += weights * v
  __device__ __forceinline__ void multiply_values(uint64_t v) {
    settle(sums), settle(weights);
    products_begin();
#pragma unroll
    for (int step = 0; step < C::kKeys / 16; ++step)
      product_registers(sums, weights + 4 * step, v + static_cast<uint64_t>(step * 16 * C::kSwizzle / 16));
    products_commit();
  }

  __device__ __forceinline__ void cap(const Arguments& a) {
#pragma unroll
    for (int i = 0; i < C::kKeys / 2; ++i) {
      // tanh(x) = 1 - 2 / (exp(2x) + 1); tanh.approx errs by 2^-11 of a score, which is too much for its exponential.
      const float e = power_of_two(scores[i] * a.cap_in * 2.885390082f);
      scores[i] = a.cap_out - __fdividef(2 * a.cap_out, e + 1);
    }
  }

  // Hides keys that a row does not see. position[h] - first key of the tile - this thread's first column.
  __device__ __forceinline__ void mask(const int (&last)[2], int window) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int first = window > 0 ? last[h] - window : -1 - C::kKeys;  // keys up to this one are out of the window
#pragma unroll
      for (int i = 0; i < C::kKeys / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[4 * i + 2 * h + e];
          const int key = 8 * i + e;
          score = key > last[h] || key <= first ? -INFINITY : score;
        }
    }
  }

  // Scores to weights, in place; factor[h] is by what earlier sums shrink.
  __device__ __forceinline__ void soften(float scale, float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = largest[h];
#pragma unroll
      for (int i = 0; i < C::kKeys / 8; ++i)
        most = fmaxf(most, fmaxf(scores[4 * i + 2 * h], scores[4 * i + 2 * h + 1]));
      most = quad_max(most);
      const float offset = most == -INFINITY ? 0.f : most * scale;  // nothing seen yet: all weights are 0
      factor[h] = power_of_two(fmaf(largest[h], scale, -offset));
      largest[h] = most;
      float even = 0, odd = 0;
#pragma unroll
      for (int i = 0; i < C::kKeys / 8; ++i) {
        float &x = scores[4 * i + 2 * h], &y = scores[4 * i + 2 * h + 1];
        x = power_of_two(fmaf(x, scale, -offset)), y = power_of_two(fmaf(y, scale, -offset));
        even += x, odd += y;
      }
      total[h] = fmaf(total[h], factor[h], even + odd);
    }
  }

  __device__ __forceinline__ void narrow_weights() {
#pragma unroll
    for (int i = 0; i < C::kKeys / 4; ++i) weights[i] = pair_of(scores[2 * i], scores[2 * i + 1]);
  }

  __device__ __forceinline__ void shrink(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) sums[i] *= factor[i / 2 % 2];
  }
};

// Rows [valid, kKeys) of a tile of values become zeros: weights there are 0, but memory may hold anything. By a
// warpgroup; others may do the same at the same time.
template <class C>
__device__ __forceinline__ void clear_values(unsigned char* tile, int valid, int barrier) {
  const int begin = valid * C::kSwizzle, thread = static_cast<int>(threadIdx.x) % kWarpgroup;
#pragma unroll
  for (int panel = 0; panel < C::kPanels; ++panel)
    for (int at = begin + thread * 16; at < C::kTilePanel; at += kWarpgroup * 16)
      *reinterpret_cast<uint4*>(tile + panel * C::kTilePanel + at) = uint4{0, 0, 0, 0};
  fence_async_proxy();
  meet(barrier, kWarpgroup);
}

template <class C>
__device__ __forceinline__ void consume(const Arguments& a, unsigned char* shared_memory, uint32_t shared,
                                        const Barriers<C>& barriers, int group) {
  constexpr int kTurn = 1, kAlone = kTurn + C::kConsumers;  // named barriers, one a warpgroup
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % kWarp;
  const int column = lane % 4 * 2;
  const int row = group * 64 + thread / kWarp * 16 + lane / 4;  // and 8 further on
  const auto queries_at = [&](int stage) {
    return panel_descriptor<C::kSwizzle>(shared + stage * C::kQueryBytes + group * 64 * C::kSwizzle, 16);
  };
  const auto keys_at = [&](int stage) {
    return panel_descriptor<C::kSwizzle>(shared + C::kKeysAt + stage * C::kTileBytes, 16);
  };
  const auto values_at = [&](int stage) {
    return panel_descriptor<C::kSwizzle>(shared + C::kValuesAt + stage * C::kTileBytes, C::kTilePanel);
  };
  const auto leave = [&](uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  if (C::kTurns && group == C::kConsumers - 1) pass(kTurn, 2 * kWarpgroup);  // the first group starts

  Rows<C> rows;
  Ring<C::kItems> items;
  Ring<C::kQueries> queries;
  Ring<C::kStages> keys, values;
  Item item;
  while (next_item<C>(a, shared_memory, barriers, items, item)) {
    int token[2], head[2], position[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int mine = row + 8 * h;
      token[h] = mine / a.heads_per_kv, head[h] = item.head * a.heads_per_kv + mine % a.heads_per_kv;
      position[h] = item.first_position + token[h] - column;
    }
#pragma unroll
    for (int i = 0; i < C::kDim / 2; ++i) rows.sums[i] = 0;
    rows.largest[0] = rows.largest[1] = -INFINITY, rows.total[0] = rows.total[1] = 0;

    if (item.begin < item.end) {
      const auto hide = [&](int tile) {
        const int first = tile * C::kKeys;
        const int last[2] = {position[0] - first, position[1] - first};
        rows.mask(last, a.window);
      };
      float factor[2];
      await(a, barriers.queries.full(queries.stage), queries.parity, kQueryFull);
      const uint64_t q = queries_at(queries.stage);
      await(a, barriers.keys.full(keys.stage), keys.parity, kKeyFull);
      rows.multiply_keys(q, keys_at(keys.stage));
      products_wait<0>();
      settle(rows.scores);
      leave(barriers.keys.empty(keys.stage));
      if (item.end - 1 == item.begin) leave(barriers.queries.empty(queries.stage));
      keys.next();
      if (C::kSoftcap) rows.cap(a);
      hide(item.end - 1);
      rows.soften(a.scale_log2, factor);
      rows.narrow_weights();
      const int valid = item.context - (item.end - 1) * C::kKeys;
      if (valid < C::kKeys) {
        await(a, barriers.values.full(values.stage), values.parity, kValueFull);
        clear_values<C>(shared_memory + C::kValuesAt + values.stage * C::kTileBytes, valid, kAlone + group);
      }

      for (int tile = item.end - 2; tile >= item.begin; --tile) {
        await(a, barriers.keys.full(keys.stage), keys.parity, kKeyFull);
        if (C::kTurns) meet(kTurn + group, 2 * kWarpgroup);
        rows.multiply_keys(q, keys_at(keys.stage));
        await(a, barriers.values.full(values.stage), values.parity, kValueFull);
        rows.multiply_values(values_at(values.stage));
        if (C::kTurns) pass(kTurn + (group + 1) % C::kConsumers, 2 * kWarpgroup);
        products_wait<1>();
        settle(rows.scores);
        leave(barriers.keys.empty(keys.stage));
        if (tile == item.begin) leave(barriers.queries.empty(queries.stage));
        keys.next();
        if (C::kSoftcap) rows.cap(a);
        const int first_key = tile * C::kKeys;
        if (first_key + C::kKeys - 1 > item.first_position ||
            (a.window > 0 && first_key < item.first_position + item.tokens - a.window))
          hide(tile);
        rows.soften(a.scale_log2, factor);
        products_wait<0>();
        settle(rows.sums), settle(rows.weights);
        leave(barriers.values.empty(values.stage));
        values.next();
        rows.narrow_weights();
        rows.shrink(factor);
      }

      await(a, barriers.values.full(values.stage), values.parity, kValueFull);
      rows.multiply_values(values_at(values.stage));
      products_wait<0>();
      settle(rows.sums), settle(rows.weights);
      leave(barriers.values.empty(values.stage));
      values.next();
      queries.next();
    }

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = quad_sum(rows.total[h]), inverse = total != 0 ? 1 / total : 0.f;
      __nv_bfloat16* to = a.out + (item.row + int64_t{token[h]}) * a.out_stride + head[h] * C::kDim + lane % 4 * 8;
#pragma unroll
      for (int i = 0; i < C::kDim / 32; ++i) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = 4 * (4 * i + j) + 2 * h;
          x[j] = pair_of(rows.sums[at] * inverse, rows.sums[at + 1] * inverse);
        }
        transpose_quad(x);
        if (token[h] < item.tokens) *reinterpret_cast<uint4*>(to + 32 * i) = uint4{x[0], x[1], x[2], x[3]};
      }
    }
  }
}

}  // namespace bolide::cuda::prompt
