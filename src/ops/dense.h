// Dense arithmetic that the groups of heavy ops share: tensors widened to the few types that are computed in, and a
// blocked, threaded matrix product.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "ir/op_def.h"
#include "ops/number.h"

namespace bolide {

// The tensor as float, double or uint64_t (integers modulo 2^64): itself if it is of that type. kInvalid: a float asked
// for as uint64_t, or no number.
template <class T>
Result<Tensor> widened(const RunContext& c, const Tensor& tensor);
// Input i, widened; an empty Tensor if it is absent.
template <class T>
Result<Tensor> widened_if(const RunContext& c, size_t i);
// Sets output i to `wide` (f32, f64, or u64 for integers), narrowed to dtype.
Result<> emit(RunContext& c, size_t i, DType dtype, Tensor wide);

// f.operator()<float>() for f32, f16 and bf16, <double>() for f64.
template <class F>
Result<> in_float(DType dtype, std::string_view what, F&& f) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: return f.template operator()<float>();
    case DType::kF64: return f.template operator()<double>();
    default:
      return error(Code::kInvalid, fmt::format("{} is of {}, expected f32, f64, f16 or bf16", what, to_string(dtype)));
  }
}
// The same, and <uint64_t>() for integers, whose sums and products wrap.
template <class F>
Result<> in_wide(DType dtype, std::string_view what, F&& f) {
  switch (dtype) {
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
    case DType::kU64:
    case DType::kU32:
    case DType::kU16:
    case DType::kU8: return f.template operator()<uint64_t>();
    default: return in_float(dtype, what, f);
  }
}

// Scratch of a wide type, in elements; all zero if asked.
template <class T>
Result<Tensor> make_wide(const RunContext& c, const Shape& shape, bool zero = false);

// Products of dims and counts; kInvalid if they pass 2^62.
Result<int64_t> product_of(std::span<const int64_t> dims);

// kInvalid unless tensor (named `what`) has this shape.
Result<> expect_shape(const Tensor& tensor, const Shape& shape, std::string_view what);

// Elements (i, j) lie at data[i * row + j * column].
template <class T>
struct MatrixView {
  const T* data = nullptr;
  int64_t row = 0, column = 0;
};
// One product of a batch: out [M, N], rows `stride` apart.
template <class T>
struct Product {
  MatrixView<T> a;  // [M, K]
  MatrixView<T> b;  // [K, N]
  T* out = nullptr;
  int64_t stride = 0;
};
// Writes B's rows [k, k + rows) of columns [j, j + columns) to `to`, `stride` elements a row. Called from any thread.
template <class T>
using PackRows = FunctionRef<void(int64_t k, int64_t rows, int64_t j, int64_t columns, T* to, int64_t stride)>;

// out = a b for each product of the batch, all M x K by K x N. T: float, double, uint64_t.
template <class T>
void multiply(Workers& workers, int64_t M, int64_t N, int64_t K, int64_t batch,
              FunctionRef<Product<T>(int64_t)> product);
// out [M, N] += a [M, K] b, where b's rows come from `pack`.
template <class T>
void multiply_packed(Workers& workers, int64_t M, int64_t N, int64_t K, MatrixView<T> a, PackRows<T> pack, T* out,
                     int64_t stride);

// Chunks of [0, total) of about `grain` each: f(begin, end), on the workers.
void parallel(Workers& workers, int64_t total, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> f);

}  // namespace bolide
