// Moving elements of tensors of any type, strings too: what layouts, gathers, sequences and bodies share.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/workers.h"
#include "ir/op_def.h"
#include "ops/shape.h"
#include "tensor/value.h"

namespace bolide {

// The type of an attribute such as `dtype` or `to`: a TensorProto.DataType. kInvalid: none that tensors can have.
Result<DType> dtype_of_code(int64_t code);

// to[j, j + n) = from[i, i + n), in elements; both are of one type. The caller has checked the bounds.
void copy_block(const Tensor& from, int64_t i, Tensor& to, int64_t j, int64_t n);
// The whole of `to` becomes zeros, empty strings or false.
void clear(Tensor& to);
// to[j, j + n) = from[i].
void fill_block(const Tensor& from, int64_t i, Tensor& to, int64_t j, int64_t n);

// to[x, y, ...] = from[offset + x * strides[0] + y * strides[1] + ...], strides in elements.
Result<> copy_strided(const Tensor& from, int64_t offset, const Strides& strides, Tensor& to);
// to[x, y, ...] = from[maps[0][x], maps[1][y], ...]; where a map says -1, the one element of `fill`.
// maps[axis] has to.dim(axis) numbers in [-1, from.dim(axis)).
Result<> copy_mapped(const Tensor& from, std::span<const std::vector<int64_t>> maps, const Tensor* fill, Tensor& to,
                     Workers& workers);

// `from` with its axes in this order, a permutation.
Result<Tensor> transposed(const Tensor& from, std::span<const int> order, TensorPool& pool);
// Indices [start, start + count) of an axis; the caller has checked the bounds.
Result<Tensor> part_of(const Tensor& from, int axis, int64_t start, int64_t count, TensorPool& pool);
// The same of one index, without the axis.
Result<Tensor> item_of(const Tensor& from, int axis, int64_t index, TensorPool& pool);
// kInvalid: there are none, or types or other dims differ, or there is no such axis. Negative axes count from the end.
Result<Tensor> concatenated(std::span<const Tensor* const> parts, int64_t axis, TensorPool& pool);
// Along a new axis.
Result<Tensor> stacked(std::span<const Tensor* const> parts, int64_t axis, TensorPool& pool);

// Products of the dims before and after an axis.
struct Around {
  int64_t before = 1, after = 1;
};
inline Around around(const Shape& shape, int axis) {
  Around found;
  for (int d = 0; d < axis; ++d) found.before *= shape[d];
  for (int d = axis + 1; d < shape.rank; ++d) found.after *= shape[d];
  return found;
}

// An index of an axis, negative ones from the end. kInvalid: outside [-dim, dim).
inline Result<int64_t> index_of(int64_t index, int64_t dim, std::string_view what) {
  if (index < -dim || index >= dim)
    return error(Code::kInvalid, fmt::format("{}: index {} of an axis of {}", what, index, dim));
  return index < 0 ? index + dim : index;
}

// The elements as f64. kInvalid: they are no numbers.
Result<std::vector<double>> doubles_of(const Tensor& tensor);
// The same of input i; absent: none.
Result<std::vector<double>> doubles_of(const RunContext& c, size_t i);
// Input i: a tensor of i64 or i32, widened.
Result<Tensor> wide_integers(const RunContext& c, size_t i);

}  // namespace bolide
