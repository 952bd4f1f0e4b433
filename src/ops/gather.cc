#include "ops/gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "ops/moves.h"
#include "ops/number.h"
#include "ops/ops.h"

namespace bolide {
namespace {

Result<> run_gather(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor indices, wide_integers(c, 1));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  if (x->rank() - 1 + indices.rank() > kRankMax)
    return error(Code::kUnsupported, fmt::format("indices {} into {}: more than {} dims", to_string(indices.shape()),
                                                 to_string(x->shape()), kRankMax));
  std::vector<int64_t> dims(x->shape().span().begin(), x->shape().span().begin() + axis);
  dims.insert(dims.end(), indices.shape().span().begin(), indices.shape().span().end());
  dims.insert(dims.end(), x->shape().span().begin() + axis + 1, x->shape().span().end());
  const int64_t dim = x->dim(axis);
  for (const int64_t index : indices.as<int64_t>()) BOLIDE_TRY(index_of(index, dim, "indices"));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), Shape(dims)));
  if (y->elements() == 0) return {};
  const auto [before, after] = around(x->shape(), axis);
  int64_t to = 0;
  for (int64_t i = 0; i < before; ++i)
    for (const int64_t index : indices.as<int64_t>()) {
      copy_block(*x, (i * dim + (index < 0 ? index + dim : index)) * after, *y, to, after);
      to += after;
    }
  return {};
}

Result<> run_gather_elements(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor indices, wide_integers(c, 1));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  bool fits = indices.rank() == x->rank();
  for (int d = 0; fits && d < x->rank(); ++d) fits = d == axis || indices.dim(d) <= x->dim(d);
  if (!fits)
    return error(Code::kInvalid, fmt::format("indices {} into {}", to_string(indices.shape()), to_string(x->shape())));
  const int64_t dim = x->dim(axis);
  for (const int64_t index : indices.as<int64_t>()) BOLIDE_TRY(index_of(index, dim, "indices"));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), indices.shape()));
  Strides strides = strides_of(x->shape());
  const int64_t step = strides[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  return dispatch_moves(x->dtype(), [&]<class T>() -> Result<> {
    const auto from = x->as<T>();
    const auto to = y->mutate<T>();
    for_each_offset(indices.shape(), strides, strides, [&](int64_t i, int64_t offset, int64_t) {
      const int64_t index = indices.as<int64_t>()[static_cast<size_t>(i)];
      to[static_cast<size_t>(i)] = from[static_cast<size_t>(offset + (index < 0 ? index + dim : index) * step)];
    });
    return {};
  });
}

Result<> run_gather_nd(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor indices, wide_integers(c, 1));
  BOLIDE_TRY(const int64_t batch_dims, c.attributes().integer("batch_dims", 0));
  const int q = indices.rank();
  if (batch_dims < 0 || batch_dims >= q || batch_dims > x->rank() || indices.dim(-1) > x->rank() - batch_dims)
    return error(Code::kInvalid, fmt::format("indices {} into {} after {} dims of batch", to_string(indices.shape()),
                                             to_string(x->shape()), batch_dims));
  const int b = static_cast<int>(batch_dims), k = static_cast<int>(indices.dim(-1));
  int64_t batches = 1;
  for (int d = 0; d < b; ++d) {
    if (indices.dim(d) != x->dim(d))
      return error(Code::kInvalid, fmt::format("dim {} of indices {} and of data {} differ", d,
                                               to_string(indices.shape()), to_string(x->shape())));
    batches *= x->dim(d);
  }
  std::vector<int64_t> dims(indices.shape().span().begin(), indices.shape().span().end() - 1);
  dims.insert(dims.end(), x->shape().span().begin() + b + k, x->shape().span().end());
  BOLIDE_TRY(const Shape shape, shape_of(dims));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
  if (y->elements() == 0) return {};
  const Strides strides = strides_of(x->shape());
  int64_t run = 1, tuples = 1;
  for (int d = b + k; d < x->rank(); ++d) run *= x->dim(d);
  for (int d = b; d + 1 < q; ++d) tuples *= indices.dim(d);
  const int64_t batch_stride = x->elements() / batches;
  const int64_t* tuple = indices.as<int64_t>().data();
  for (int64_t i = 0; i < batches * tuples; ++i, tuple += k) {
    int64_t from = i / tuples * batch_stride;
    for (int d = 0; d < k; ++d) {
      BOLIDE_TRY(const int64_t index, index_of(tuple[d], x->dim(b + d), "indices"));
      from += index * strides[static_cast<size_t>(b + d)];
    }
    copy_block(*x, from, *y, i * run, run);
  }
  return {};
}

Result<> run_non_zero(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  return dispatch(kNumbers + Types<Bool>{}, x->dtype(), "X", [&]<class T>() -> Result<> {
    const auto from = x->as<T>();
    const auto is_found = [](T value) { return widen(value) != Wide<T>{0}; };
    const int64_t count = std::count_if(from.begin(), from.end(), is_found);
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kI64, {x->rank(), count}));
    const Strides strides = strides_of(x->shape());
    int64_t* to = y->mutate<int64_t>().data();
    for (int d = 0; d < x->rank(); ++d)
      for (size_t i = 0; i < from.size(); ++i)
        if (is_found(from[i])) *to++ = static_cast<int64_t>(i) / strides[static_cast<size_t>(d)] % x->dim(d);
    return {};
  });
}

Result<> run_compress(RunContext& c) {
  BOLIDE_TRY(const Tensor* given, c.tensor(0));
  BOLIDE_TRY(const Tensor* condition, c.tensor(1));
  Tensor x = *given;
  int axis = 0;
  if (c.attributes().has("axis")) {
    BOLIDE_TRY(const int64_t along, c.attributes().integer("axis", 0));
    BOLIDE_TRY(axis, axis_of(along, x.rank()));
  } else {
    x = x.reshaped({x.elements()});
  }
  if (condition->dtype() != DType::kBool || condition->rank() != 1)
    return error(Code::kInvalid, "condition is no vector of bool");
  BOLIDE_TRY(expect_memory(condition->elements(), 2 * sizeof(int64_t)));
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < condition->elements(); ++i)
    if (condition->as<uint8_t>()[static_cast<size_t>(i)] != 0) kept.push_back(i);
  if (!kept.empty() && kept.back() >= x.dim(axis))
    return error(Code::kInvalid, fmt::format("condition keeps item {} of {}", kept.back(), x.dim(axis)));
  Shape shape = x.shape();
  shape[axis] = static_cast<int64_t>(kept.size());
  BOLIDE_TRY(Tensor * y, c.make(0, x.dtype(), shape));
  if (y->elements() == 0) return {};
  const auto [before, after] = around(shape, axis);
  int64_t to = 0;
  for (int64_t i = 0; i < before; ++i)
    for (const int64_t at : kept) {
      copy_block(x, (i * x.dim(axis) + at) * after, *y, to, after);
      to += after;
    }
  return {};
}

Result<> run_one_hot(RunContext& c) {
  BOLIDE_TRY(const Tensor* indices, c.tensor(0));
  BOLIDE_TRY(const double depth, c.number(1, -1));
  BOLIDE_TRY(const Tensor* values, c.tensor(2));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", -1));
  if (values->elements() != 2)
    return error(Code::kInvalid, fmt::format("{} values, expected off and on", values->elements()));
  if (!(depth >= 0 && depth < 1e12)) return error(Code::kInvalid, fmt::format("depth {}", depth));
  if (indices->rank() >= kRankMax) return error(Code::kUnsupported, fmt::format("indices of {} dims", indices->rank()));
  BOLIDE_TRY(const int axis, axis_of(given, indices->rank() + 1));
  const auto classes = static_cast<int64_t>(depth);
  Shape shape;
  shape.rank = indices->rank() + 1;
  for (int d = 0, from = 0; d < shape.rank; ++d) shape[d] = d == axis ? classes : indices->dim(from++);
  BOLIDE_TRY(Tensor * y, c.make(0, values->dtype(), shape));
  if (y->elements() == 0) return {};
  fill_block(*values, 0, *y, 0, y->elements());
  const auto [before, after] = around(shape, axis);
  return dispatch(kNumbers, indices->dtype(), "indices", [&]<class T>() -> Result<> {
    for (int64_t i = 0; i < before; ++i)
      for (int64_t j = 0; j < after; ++j) {
        const auto asked = static_cast<double>(widen(indices->as<T>()[static_cast<size_t>(i * after + j)]));
        const double at = asked < 0 ? asked + static_cast<double>(classes) : asked;
        if (!(at >= 0 && at < static_cast<double>(classes))) continue;
        copy_block(*values, 1, *y, (i * classes + static_cast<int64_t>(at)) * after + j, 1);
      }
    return {};
  });
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "Gather", .since = 1, .run = run_gather},
    {.domain = "", .name = "GatherElements", .since = 11, .run = run_gather_elements},
    {.domain = "", .name = "GatherND", .since = 11, .run = run_gather_nd},
    {.domain = "", .name = "NonZero", .since = 9, .run = run_non_zero},
    {.domain = "", .name = "Compress", .since = 9, .run = run_compress},
    {.domain = "", .name = "OneHot", .since = 9, .run = run_one_hot},
    {.domain = "", .name = "Scatter", .since = 9, .run = gather::run_scatter_elements},
    {.domain = "", .name = "ScatterElements", .since = 11, .run = gather::run_scatter_elements},
    {.domain = "", .name = "ScatterND", .since = 11, .run = gather::run_scatter_nd},
    {.domain = "", .name = "Unique", .since = 11, .run = gather::run_unique},
    {.domain = "", .name = "TopK", .since = 1, .run = gather::run_top_k},
};

}  // namespace

std::span<const OpDef> gather_ops() { return kOps; }

}  // namespace bolide
