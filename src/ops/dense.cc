// multiply: C tiles of (all or part of M) x kColumns, K in steps of kDepth. A tile's rows of B are copied once, A in
// panels of kRows; the inner loop holds kRows x 2 vectors of sums in registers (16 bytes each: baseline x86-64 and
// AArch64 have 16 or more). Per K step a tile reads kDepth * (kColumns + M) elements for 2 * kDepth * kColumns * M
// operations, so that M and N of 64 and more are bound by arithmetic.
#include "ops/dense.h"

#include <algorithm>
#include <cstring>

namespace bolide {
namespace {

constexpr int64_t kRows = 4, kColumns = 256, kDepth = 256, kBlock = 64;
constexpr int64_t kPad = 16;  // keeps rows of a packed B off the same cache sets
constexpr int64_t kPackedStride = kColumns + kPad;

template <class T>
struct VectorOf {
  // NOLINTNEXTLINE(modernize-use-using): an alias takes no attributes of a dependent type.
  typedef T type __attribute__((vector_size(16), aligned(alignof(T)), may_alias));
};

// acc [kRows, 2 vectors] of a panel of A [depth, kRows] and rows of B [depth, stride]; to [kRows, 2 vectors].
template <class T>
void tile(int64_t depth, const T* a, const T* b, int64_t stride, T* to) {
  using V = typename VectorOf<T>::type;
  constexpr int64_t kLanes = 16 / sizeof(T);
  V s00{}, s01{}, s10{}, s11{}, s20{}, s21{}, s30{}, s31{};
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += stride) {
    const V b0 = *reinterpret_cast<const V*>(b), b1 = *reinterpret_cast<const V*>(b + kLanes);
    s00 += a[0] * b0, s01 += a[0] * b1;
    s10 += a[1] * b0, s11 += a[1] * b1;
    s20 += a[2] * b0, s21 += a[2] * b1;
    s30 += a[3] * b0, s31 += a[3] * b1;
  }
  const V sums[8] = {s00, s01, s10, s11, s20, s21, s30, s31};
  std::memcpy(to, sums, sizeof sums);
}

template <class T>
void pack_rows_of_a(const MatrixView<T>& a, int64_t rows, int64_t k0, int64_t depth, int64_t i0, T* to) {
  for (int64_t i = 0; i < rows; i += kRows, to += kRows * depth)
    for (int64_t r = 0; r < kRows; ++r) {
      if (i + r >= rows) {
        for (int64_t k = 0; k < depth; ++k) to[k * kRows + r] = T{};
        continue;
      }
      const T* from = a.data + (i0 + i + r) * a.row + k0 * a.column;
      for (int64_t k = 0; k < depth; ++k) to[k * kRows + r] = from[k * a.column];
    }
}

template <class T>
void pack_view(const MatrixView<T>& b, int64_t k0, int64_t rows, int64_t j0, int64_t columns, T* to, int64_t stride) {
  const T* from = b.data + k0 * b.row + j0 * b.column;
  if (b.column == 1) {
    for (int64_t k = 0; k < rows; ++k)
      std::memcpy(to + k * stride, from + k * b.row, static_cast<size_t>(columns) * sizeof(T));
    return;
  }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = 0; k < rows; ++k) to[k * stride + j] = from[k * b.row + j * b.column];
}

// Rows [i0, i1) and columns [j0, j1) of out, added to what is there.
template <class T>
void multiply_tile(int64_t i0, int64_t i1, int64_t j0, int64_t j1, int64_t K, const MatrixView<T>& a, PackRows<T> pack,
                   T* out, int64_t out_stride, std::vector<T>& memory) {
  constexpr int64_t kTileColumns = 2 * 16 / sizeof(T);
  if (memory.empty()) memory.assign(static_cast<size_t>(kDepth * kPackedStride + kBlock * kDepth), T{});
  T* const packed_b = memory.data();
  T* const packed_a = packed_b + kDepth * kPackedStride;
  const int64_t columns = j1 - j0;
  for (int64_t k0 = 0; k0 < K; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, K - k0);
    pack(k0, depth, j0, columns, packed_b, kPackedStride);
    for (int64_t i = i0; i < i1; i += kBlock) {
      const int64_t rows = std::min(kBlock, i1 - i);
      pack_rows_of_a(a, rows, k0, depth, i, packed_a);
      for (int64_t j = 0; j < columns; j += kTileColumns) {
        const int64_t wide = std::min(kTileColumns, columns - j);
        for (int64_t r = 0; r < rows; r += kRows) {
          alignas(16) T sums[kRows * kTileColumns];
          tile(depth, packed_a + r * depth, packed_b + j, kPackedStride, sums);
          const int64_t high = std::min(kRows, rows - r);
          for (int64_t y = 0; y < high; ++y) {
            T* to = out + (i + r + y) * out_stride + j0 + j;
            for (int64_t x = 0; x < wide; ++x) to[x] += sums[y * kTileColumns + x];
          }
        }
      }
    }
  }
}

// A few rows: B is read once, as it lies.
template <class T>
void multiply_few(int64_t i, int64_t j0, int64_t j1, int64_t K, const Product<T>& p) {
  const T* a = p.a.data + i * p.a.row;
  T* out = p.out + i * p.stride;
  if (p.b.column == 1) {
    for (int64_t j = j0; j < j1; ++j) out[j] = T{};
    int64_t k = 0;
    for (; k + 4 <= K; k += 4) {
      const T* row = p.b.data + k * p.b.row;
      const T *row1 = row + p.b.row, *row2 = row1 + p.b.row, *row3 = row2 + p.b.row;
      const T scale = a[k * p.a.column], scale1 = a[(k + 1) * p.a.column];
      const T scale2 = a[(k + 2) * p.a.column], scale3 = a[(k + 3) * p.a.column];
      for (int64_t j = j0; j < j1; ++j)
        out[j] += (scale * row[j] + scale1 * row1[j]) + (scale2 * row2[j] + scale3 * row3[j]);
    }
    for (; k < K; ++k)
      for (int64_t j = j0; j < j1; ++j) out[j] += a[k * p.a.column] * p.b.data[k * p.b.row + j];
    return;
  }
  for (int64_t j = j0; j < j1; ++j) {
    constexpr int64_t kSums = 8;  // that many partial sums, so that they make vectors
    T sums[kSums] = {};
    const T* column = p.b.data + j * p.b.column;
    int64_t k = 0;
    if (p.a.column == 1 && p.b.row == 1)
      for (; k + kSums <= K; k += kSums)
        for (int64_t s = 0; s < kSums; ++s) sums[s] += a[k + s] * column[k + s];
    T sum{};
    for (; k < K; ++k) sum += a[k * p.a.column] * column[k * p.b.row];
    for (const T partial : sums) sum += partial;
    out[j] = sum;
  }
}

struct Split {
  int64_t rows = 0, row_blocks = 0, column_blocks = 0;
};
// Parts of M only where N alone gives too few chunks.
Split split_of(int64_t M, int64_t N, int64_t batch, int threads) {
  Split split;
  split.column_blocks = (N + kColumns - 1) / kColumns;
  const int64_t parts = std::max<int64_t>(1, 4 * threads / std::max<int64_t>(1, split.column_blocks * batch));
  const int64_t blocks = (M + kBlock - 1) / kBlock;
  split.rows = std::max<int64_t>(1, (blocks + parts - 1) / parts) * kBlock;
  split.row_blocks = (M + split.rows - 1) / split.rows;
  return split;
}

template <class To, class From>
void copy_as(const Tensor& from, Tensor& to) {
  const auto in = from.as<From>();
  const auto out = to.mutate<To>();
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<To>(widen(in[i]));  // NOLINT(bugprone-signed-char-misuse): numbers, modulo 2^64
}

template <class To, class From>
void narrow_as(const Tensor& from, Tensor& to) {
  const auto in = from.as<From>();
  const auto out = to.mutate<To>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = narrow<To>(static_cast<Wide<To>>(in[i]));
}

}  // namespace

template <class T>
Result<Tensor> make_wide(const RunContext& c, const Shape& shape, bool zero) {
  BOLIDE_TRY(Tensor made, c.scratch(kDTypeOf<T>, shape));
  if (zero && made.bytes() > 0) std::memset(made.mutable_data(), 0, made.bytes());
  return made;
}

template <class T>
Result<Tensor> widened(const RunContext& c, const Tensor& tensor) {
  if (tensor.dtype() == kDTypeOf<T>) return tensor;
  BOLIDE_TRY(Tensor wide, c.scratch(kDTypeOf<T>, tensor.shape()));
  const auto run = [&]<class From>() -> Result<> {
    copy_as<T, From>(tensor, wide);
    return {};
  };
  if constexpr (std::is_integral_v<T>)
    BOLIDE_TRY(dispatch(kIntegers, tensor.dtype(), "an input", run));
  else
    BOLIDE_TRY(dispatch(kFloats, tensor.dtype(), "an input", run));
  return wide;
}

template <class T>
Result<Tensor> widened_if(const RunContext& c, size_t i) {
  BOLIDE_TRY(const Tensor* tensor, c.tensor_if(i));
  if (tensor == nullptr) return Tensor();
  return widened<T>(c, *tensor).context(fmt::format("input {}", i));
}

Result<> emit(RunContext& c, size_t i, DType dtype, Tensor wide) {
  if (wide.dtype() == dtype) {
    c.set(i, std::move(wide));
    return {};
  }
  BOLIDE_TRY(Tensor * out, c.make(i, dtype, wide.shape()));
  if (wide.dtype() == DType::kU64)
    return dispatch(kIntegers, dtype, "an output", [&]<class To>() -> Result<> {
      narrow_as<To, uint64_t>(wide, *out);
      return {};
    });
  return dispatch(kFloats, dtype, "an output", [&]<class To>() -> Result<> {
    if (wide.dtype() == DType::kF32)
      narrow_as<To, float>(wide, *out);
    else
      narrow_as<To, double>(wide, *out);
    return {};
  });
}

Result<int64_t> product_of(std::span<const int64_t> dims) {
  int64_t product = 1;
  bool overflow = false;
  for (const int64_t dim : dims) {
    if (dim == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(product, dim, &product) || product > int64_t{1} << 62;
  }
  if (overflow) return error(Code::kInvalid, "a tensor would have more than 2^62 elements");
  return product;
}

Result<> expect_shape(const Tensor& tensor, const Shape& shape, std::string_view what) {
  if (tensor.shape() == shape) return {};
  return error(Code::kInvalid, fmt::format("{} is {}, expected {}", what, to_string(tensor.shape()), to_string(shape)));
}

template <class T>
void multiply(Workers& workers, int64_t M, int64_t N, int64_t K, int64_t batch,
              FunctionRef<Product<T>(int64_t)> product) {
  if (M == 0 || N == 0 || batch == 0) return;
  const int threads = workers.threads();
  if (M < kRows || K == 0) {
    // Long runs of a row of B at a time, as far as all threads get some.
    const int64_t width = std::clamp<int64_t>(batch * N / (2 * threads), kColumns, 16 * kColumns);
    const int64_t blocks = (N + width - 1) / width;
    parallel(workers, batch * blocks, std::max<int64_t>(1, 65536 / (std::max<int64_t>(K, 1) * std::min(N, width))),
             [&](int64_t begin, int64_t end) {
               for (int64_t chunk = begin; chunk < end; ++chunk) {
                 const Product<T> p = product(chunk / blocks);
                 const int64_t j = chunk % blocks * width;
                 for (int64_t i = 0; i < M; ++i) multiply_few(i, j, std::min(N, j + width), K, p);
               }
             });
    return;
  }
  const Split split = split_of(M, N, batch, threads);
  const int64_t tiles = split.row_blocks * split.column_blocks;
  std::vector<std::vector<T>> memory(static_cast<size_t>(threads));
  const auto run_tile = [&](int64_t chunk, int thread) {
    const Product<T> p = product(chunk / tiles);
    const int64_t i = chunk % tiles / split.column_blocks * split.rows;
    const int64_t j = chunk % split.column_blocks * kColumns;
    const int64_t i1 = std::min(M, i + split.rows), j1 = std::min(N, j + kColumns);
    for (int64_t row = i; row < i1; ++row) std::fill(p.out + row * p.stride + j, p.out + row * p.stride + j1, T{});
    multiply_tile<T>(
        i, i1, j, j1, K, p.a,
        [&](int64_t k, int64_t rows, int64_t j0, int64_t columns, T* to, int64_t stride) {
          pack_view(p.b, k, rows, j0, columns, to, stride);
        },
        p.out, p.stride, memory[static_cast<size_t>(thread)]);
  };
  if (batch * tiles * std::min(M, split.rows) * std::min(N, kColumns) * K < 65536)  // less than waking threads costs
    for (int64_t chunk = 0; chunk < batch * tiles; ++chunk) run_tile(chunk, 0);
  else
    workers.run(batch * tiles, run_tile);
}

template <class T>
void multiply_packed(Workers& workers, int64_t M, int64_t N, int64_t K, MatrixView<T> a, PackRows<T> pack, T* out,
                     int64_t stride) {
  if (M == 0 || N == 0 || K == 0) return;
  const Split split = split_of(M, N, 1, workers.threads());
  std::vector<std::vector<T>> memory(static_cast<size_t>(workers.threads()));
  workers.run(split.row_blocks * split.column_blocks, [&](int64_t chunk, int thread) {
    const int64_t i = chunk / split.column_blocks * split.rows, j = chunk % split.column_blocks * kColumns;
    multiply_tile<T>(i, std::min(M, i + split.rows), j, std::min(N, j + kColumns), K, a, pack, out, stride,
                     memory[static_cast<size_t>(thread)]);
  });
}

void parallel(Workers& workers, int64_t total, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> f) {
  if (total <= 0) return;
  const int64_t most = std::max<int64_t>(1, int64_t{16} * workers.threads());
  const int64_t step = std::max({int64_t{1}, grain, (total + most - 1) / most});
  const int64_t chunks = (total + step - 1) / step;
  workers.run(chunks, [&](int64_t chunk, int) { f(chunk * step, std::min(total, (chunk + 1) * step)); });
}

#define BOLIDE_WIDE(T)                                                                                       \
  template Result<Tensor> make_wide<T>(const RunContext&, const Shape&, bool);                               \
  template Result<Tensor> widened<T>(const RunContext&, const Tensor&);                                      \
  template Result<Tensor> widened_if<T>(const RunContext&, size_t);                                          \
  template void multiply<T>(Workers&, int64_t, int64_t, int64_t, int64_t, FunctionRef<Product<T>(int64_t)>); \
  template void multiply_packed<T>(Workers&, int64_t, int64_t, int64_t, MatrixView<T>, PackRows<T>, T*, int64_t);
BOLIDE_WIDE(float)
BOLIDE_WIDE(double)
BOLIDE_WIDE(uint64_t)
#undef BOLIDE_WIDE

}  // namespace bolide
