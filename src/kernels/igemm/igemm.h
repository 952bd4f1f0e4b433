// igemm: products of f32 matrices, C [M, N] = f(A B + bias + residual), where A is rows in memory or the windows that a
// convolution reads (never written out as a whole), and B is packed beforehand. Channels-last convolutions, Gemm and
// MatMul are all this one product.
//
// Bound: FMA, at about 97 % of its peak from K of 128 on. Blocks: 14 rows by 32 columns of sums in registers (AVX2: 6
// by 16), up to 768 of K a pass, so that a pass of B's columns and of A's rows stay in L2.
//
// Nothing outside A's rows, B's strips, bias, residual and C is read or written. C overlaps nothing else. Sums run
// along K in order, in f32; the result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "base/cpu.h"
#include "base/workers.h"

namespace bolide::igemm {

// A level that this folder has kernels for. The rest of this header needs one.
constexpr bool supports(Isa isa) { return isa >= Isa::kAvx2; }

inline constexpr int64_t kStrip = 16;  // columns of B that lie together

// Floats of B [K, N] in strips: [ceil(N / 16)][K][16], zeros beyond N. 64-byte alignment is faster, none is needed.
constexpr int64_t strips_size(int64_t K, int64_t N) { return (N + kStrip - 1) / kStrip * K * kStrip; }
// Packs strips [first, last) of B, whose element (k, n) is b[k * row_stride + n * column_stride], to `strips` (the
// whole of it: strip i is written at i * K * 16), times `scale`. Strips may be packed by several threads.
void pack_strips(Isa isa, const float* b, int64_t row_stride, int64_t column_stride, int64_t K, int64_t N,
                 int64_t first, int64_t last, float* strips, float scale = 1);

enum class Activation : uint8_t {
  kNone,
  kRelu,
  kClip,       // to [alpha, beta]
  kLeakyRelu,  // alpha x below 0
  kSigmoid,
  kTanh,
  kHardSigmoid,  // alpha x + beta, within [0, 1]
  kHardSwish,    // x times x / 6 + 1 / 2, within [0, 1]
  kSilu,
  kGelu,
  kGeluTanh,
};

// The windows of an NHWC image: row m of A is the window of output (m / width_out / height_out, ...), [kernel height,
// kernel width, channels]; what lies in the padding is 0. Item::a points at the first image's first channel.
struct Windows {
  int64_t height = 0, width = 0, channels = 0;
  int64_t pixel_stride = 0;  // floats from a pixel to the next: channels, or more with groups
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1}, begin[2] = {0, 0};  // height, width
  int64_t height_out = 0, width_out = 0;

  constexpr int64_t depth() const { return kernel[0] * kernel[1] * channels; }  // K
  constexpr int64_t image_stride() const { return height * width * pixel_stride; }
};

// One of the products that share all sizes: batches, heads, groups.
struct Item {
  const float* a = nullptr;
  const float* strips = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;      // [N]; null: none
  const float* residual = nullptr;  // null: none
};

// Columns of A that lie by themselves: row m at a + m * stride.
struct Part {
  const float* a = nullptr;
  int64_t stride = 0, depth = 0;
};

struct Products {
  std::span<const Item> items;
  int64_t M = 0, N = 0, K = 0;
  std::span<const Part> parts;  // instead of Item::a and a_stride: A's columns part after part, K in all; of one item
  int64_t a_stride = 0;         // floats from a row of A to the next
  const Windows* windows = nullptr;  // instead of a_stride; depth() is K
  int64_t c_stride = 0, residual_stride = 0;
  Activation activation = Activation::kNone;
  float alpha = 0, beta = 0;
};

// Any sizes; K of 0 gives f(bias + residual). Each thread keeps up to 1 MB of scratch memory.
void multiply(Workers& workers, Isa isa, const Products& products);

// y = f(x), count elements; may be in place.
void activate(Isa isa, Activation activation, float alpha, float beta, const float* x, float* y, int64_t count);

}  // namespace bolide::igemm
