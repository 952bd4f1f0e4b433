// Products over decoded weights: instantiated for a family of weights by each product_*.cu.
//
// product_rows: a warp reads a row of the weight once, 8 elements a lane, for kTokens tokens, whose activations come
// from L1 or L2. Bound by memory for one token, by decoding and L1 beyond.
// product_tiles: 64 x 64 outputs a block of 256 threads, 32 of K a step through shared memory, 4 x 4 outputs a thread:
// bound by FMA.
#pragma once

#include "kernels/common/cuda_decode.cuh"
#include "kernels/linear/linear_cuda_parts.h"

namespace bolide::cuda {
namespace {

// A matrix of activations whose type is looked at when it is used: for what is touched once an output.
struct AnyRows {
  void* data;
  int64_t stride;
  bool bf16;

  __device__ __forceinline__ float get(int64_t row, int64_t column) const {
    const int64_t at = row * stride + column;
    return bf16 ? widen(static_cast<const __nv_bfloat16*>(data)[at]) : static_cast<const float*>(data)[at];
  }
  __device__ __forceinline__ void put(int64_t row, int64_t column, float value) const {
    const int64_t at = row * stride + column;
    if (bf16) {
      static_cast<__nv_bfloat16*>(data)[at] = narrow<__nv_bfloat16>(value);
    } else {
      static_cast<float*>(data)[at] = value;
    }
  }
};

struct ProductShape {
  Bytes weight;
  int64_t row_bytes, matrix_bytes;
  int n, k, tokens;
  bool weight_wide, x_wide;  // rows start at multiples of 16 bytes
  const void* x;
  int64_t x_stride;
  const float *scale, *bias;
  AnyRows residual, out;
  const int32_t* experts;
  int share;

  __device__ __forceinline__ void finish(int64_t t, int i, float sum) const {
    if (scale != nullptr) sum *= scale[i];
    if (bias != nullptr) sum += bias[i];
    if (residual.data != nullptr) sum += residual.get(t, i);
    out.put(t, i, sum);
  }
};

constexpr int kRowsThreads = 256;

template <class W, class X, int kTokens>
__global__ void __launch_bounds__(kRowsThreads) rows_kernel(const __grid_constant__ ProductShape p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int i = static_cast<int>(blockIdx.x) * (kRowsThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int t0 = static_cast<int>(blockIdx.y) * kTokens;
  wait_for_previous();
  let_next_start();
  if (i >= p.n) return;
  Bytes row = p.weight + i * p.row_bytes;
  const X* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const int token = t0 + t < p.tokens ? t0 + t : p.tokens - 1;  // the last one again, not stored
    x[t] = static_cast<const X*>(p.x) + int64_t{token} * p.x_stride;
  }
  if constexpr (kTokens == 1) {
    if (p.experts != nullptr) {
      row += p.experts[t0] * p.matrix_bytes;
      x[0] = static_cast<const X*>(p.x) + int64_t{t0 / p.share} * p.x_stride;
    }
  }
  float sum[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) sum[t] = 0;
  const int units = (p.k + kUnit - 1) / kUnit;
  for (int u = lane; u < units; u += kWarp) {
    const int valid = p.k - u * kUnit < kUnit ? p.k - u * kUnit : kUnit;
    float w[kUnit];
    W::unit(row, u, valid, p.weight_wide, w);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float a[kUnit];
      Plain<X>::unit(reinterpret_cast<Bytes>(x[t]), u, valid, p.x_wide, a);
#pragma unroll
      for (int j = 0; j < kUnit; ++j) sum[t] = fmaf(w[j], a[j], sum[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float total = warp_sum(sum[t]);
    if (lane == 0 && t0 + t < p.tokens) p.finish(t0 + t, i, total);
  }
}

constexpr int kTile = 64, kStep = 32, kTileThreads = 256, kTilePitch = kTile + 4;

template <class W, class X>
__global__ void __launch_bounds__(kTileThreads) tiles_kernel(const __grid_constant__ ProductShape p) {
  __shared__ __align__(16) float ws[kStep][kTilePitch];
  __shared__ __align__(16) float xs[kStep][kTilePitch];
  const int thread = static_cast<int>(threadIdx.x);
  const int i0 = static_cast<int>(blockIdx.x) * kTile, t0 = static_cast<int>(blockIdx.y) * kTile;
  // What this thread brings: unit `unit` of each step of one row of either side. Rows beyond the end are the last.
  const int mine = thread % kTile, unit = thread / kTile;
  wait_for_previous();
  let_next_start();
  Bytes row = p.weight + (i0 + mine < p.n ? i0 + mine : p.n - 1) * p.row_bytes;
  const X* x = static_cast<const X*>(p.x) + int64_t{t0 + mine < p.tokens ? t0 + mine : p.tokens - 1} * p.x_stride;
  // What it computes: outputs [4 ty, 4 ty + 4) x [4 tx, 4 tx + 4) of the tile.
  const int tx = thread % 16, ty = thread / 16;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < p.k; k0 += kStep) {
    // Negative beyond the row's end, and left so: ptxas 13.0 takes max(min(left, 8), 0) == 8 as true for left <= 0.
    const int u = k0 / kUnit + unit, left = p.k - u * kUnit, valid = left < kUnit ? left : kUnit;
    float w[kUnit], a[kUnit];
    W::unit(row, u, valid, p.weight_wide, w);
    Plain<X>::unit(reinterpret_cast<Bytes>(x), u, valid, p.x_wide, a);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kUnit; ++j) {
      ws[unit * kUnit + j][mine] = w[j];
      xs[unit * kUnit + j][mine] = a[j];
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kStep; ++k) {
      const auto wk = load<Pack<float>>(&ws[k][tx * 4]), xk = load<Pack<float>>(&xs[k][ty * 4]);
#pragma unroll
      for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[t][i] = fmaf(wk.value[i], xk.value[t], sum[t][i]);
    }
  }
#pragma unroll
  for (int t = 0; t < 4; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = t0 + ty * 4 + t, out = i0 + tx * 4 + i;
      if (token < p.tokens && out < p.n) p.finish(token, out, sum[t][i]);
    }
}

inline AnyRows any_rows(const CudaMatrix& matrix) { return {matrix.data, matrix.stride, matrix.dtype == DType::kBF16}; }

inline ProductShape shape_of(const CudaProduct& product) {
  const CudaWeight& w = product.weight;
  const CudaMatrix& x = product.x;
  const int64_t x_size = x.dtype == DType::kBF16 ? 2 : 4;
  ProductShape p{};
  p.weight = static_cast<Bytes>(w.data);
  p.row_bytes = w.row_bytes, p.matrix_bytes = w.row_bytes * w.rows;
  p.n = static_cast<int>(w.rows), p.k = static_cast<int>(w.k), p.tokens = static_cast<int>(product.out.rows);
  p.weight_wide = is_aligned(w.data, w.row_bytes, 16), p.x_wide = is_aligned(x.data, x.stride * x_size, 16);
  p.x = x.data, p.x_stride = x.stride;
  p.scale = product.scale, p.bias = product.bias;
  p.residual = any_rows(product.residual), p.out = any_rows(product.out);
  p.experts = product.experts, p.share = product.share;
  return p;
}

template <class W, class X>
int product_as(const CudaTarget& target, const CudaProduct& product, bool tiles) {
  const ProductShape p = shape_of(product);
  const auto blocks = [](int64_t count, int64_t size) { return static_cast<unsigned>(ceil_div(count, size)); };
  if (tiles)
    return launch(target, tiles_kernel<W, X>, dim3(blocks(p.n, kTile), blocks(p.tokens, kTile)), kTileThreads, 0, p);
  const unsigned rows = blocks(p.n, kRowsThreads / kWarp);
  if (p.tokens == 1) return launch(target, rows_kernel<W, X, 1>, rows, kRowsThreads, 0, p);
  constexpr int kTokens = 4;
  // A grid has at most 65535 rows of blocks: 65535 tokens with experts, four times that without, beyond any bucket.
  const bool single = p.experts != nullptr;
  return launch(target, single ? rows_kernel<W, X, 1> : rows_kernel<W, X, kTokens>,
                dim3(rows, blocks(p.tokens, single ? 1 : kTokens)), kRowsThreads, 0, p);
}

template <class W>
int product_of(const CudaTarget& target, const CudaProduct& product, bool tiles) {
  return product.x.dtype == DType::kBF16 ? product_as<W, __nv_bfloat16>(target, product, tiles)
                                         : product_as<W, float>(target, product, tiles);
}

}  // namespace
}  // namespace bolide::cuda
