#include "ops/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/layout_rows_prepared.h"
#include "ops/moves.h"
#include "ops/number.h"
#include "ops/ops.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

Result<> run_constant(RunContext& c) {
  const Attributes& a = c.attributes();
  for (const std::string_view name : {"value", "sparse_value"}) {
    const Attributes::Any* any = a.find(name);
    if (any == nullptr) continue;
    const Tensor* tensor = std::get_if<Tensor>(any);
    if (tensor == nullptr) return error(Code::kInvalid, fmt::format("attribute {} is no tensor", name));
    c.set(0, *tensor);
    return {};
  }
  if (a.has("value_float")) {
    BOLIDE_TRY(const float value, a.number("value_float", 0));
    c.set(0, Tensor::scalar(DType::kF32, value));
  } else if (a.has("value_int")) {
    BOLIDE_TRY(const int64_t value, a.integer("value_int", 0));
    c.set(0, Tensor::scalar(DType::kI64, value));
  } else if (a.has("value_string")) {
    BOLIDE_TRY(std::string value, a.text("value_string", ""));
    c.set(0, Tensor::strings({}, {std::move(value)}));
  } else if (a.has("value_floats")) {
    BOLIDE_TRY(const std::vector<float> values, a.numbers("value_floats"));
    c.set(0, Tensor::vector<float>(DType::kF32, values));
  } else if (a.has("value_ints")) {
    BOLIDE_TRY(const std::vector<int64_t> values, a.integers("value_ints"));
    c.set(0, Tensor::vector<int64_t>(DType::kI64, values));
  } else if (a.has("value_strings")) {
    BOLIDE_TRY(std::vector<std::string> values, a.texts("value_strings"));
    const auto count = static_cast<int64_t>(values.size());
    c.set(0, Tensor::strings({count}, std::move(values)));
  } else {
    return error(Code::kInvalid, "has no value");
  }
  return {};
}

Result<> run_constant_of_shape(RunContext& c) {
  BOLIDE_TRY(const std::vector<int64_t> dims, c.integers(0));
  BOLIDE_TRY(const Shape shape, shape_of(dims));
  Tensor value = Tensor::scalar(DType::kF32, 0.0F);
  if (const Attributes::Any* any = c.attributes().find("value")) {
    const Tensor* given = std::get_if<Tensor>(any);
    if (given == nullptr || given->elements() != 1)
      return error(Code::kInvalid, "attribute value is no tensor of one element");
    value = *given;
  }
  BOLIDE_TRY(Tensor * y, c.make(0, value.dtype(), shape));
  fill_block(value, 0, *y, 0, y->elements());
  return {};
}

Result<> run_identity(RunContext& c) {
  if (!c.has(0)) return error(Code::kInvalid, "input 0 is missing");
  c.set(0, *c.value(0));
  return {};
}

Result<> run_reshape(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> in_file, c.attributes().integers("shape"));
  BOLIDE_TRY(std::vector<int64_t> dims, c.integers(1, in_file));
  BOLIDE_TRY(const int64_t allow_zero, c.attributes().integer("allowzero", 0));
  if (dims.size() > kRankMax)
    return error(Code::kUnsupported,
                 fmt::format("a tensor of {} dims: at most {} are supported", dims.size(), kRankMax));
  int64_t* open = nullptr;
  int64_t known = 1;
  bool beyond = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && allow_zero == 0) {
      if (i >= static_cast<size_t>(x->rank()))
        return error(Code::kInvalid, fmt::format("dim {} of 0 copies none of {}", i, to_string(x->shape())));
      dims[i] = x->dim(static_cast<int>(i));
    }
    if (dims[i] == -1) {
      if (open != nullptr) return error(Code::kInvalid, "two dims of -1");
      open = &dims[i];
    } else {
      if (dims[i] < 0) return error(Code::kInvalid, fmt::format("a dim of {}", dims[i]));
      beyond = beyond || __builtin_mul_overflow(known, dims[i], &known);
    }
  }
  if (open != nullptr && !beyond && known != 0) *open = x->elements() / known;
  const auto wrong = [&] {
    return error(Code::kInvalid, fmt::format("{} elements of {} do not make [{}]", x->elements(), to_string(x->shape()),
                                             fmt::join(dims, ", ")));
  };
  if (beyond) return wrong();
  if (open != nullptr && *open < 0) {
    if (x->elements() != 0 || allow_zero != 0) return wrong();
    *open = 0;
  }
  const Shape shape(dims);
  if (shape.elements() != x->elements()) return wrong();
  c.set(0, x->reshaped(shape));
  return {};
}

Result<> run_flatten(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(int64_t axis, c.attributes().integer("axis", 1));
  if (axis < -x->rank() || axis > x->rank())
    return error(Code::kInvalid, fmt::format("axis {} of a tensor of {} dims", axis, x->rank()));
  if (axis < 0) axis += x->rank();
  int64_t rows = 1, columns = 1;
  for (int d = 0; d < x->rank(); ++d) (d < axis ? rows : columns) *= x->dim(d);
  c.set(0, x->reshaped({rows, columns}));
  return {};
}

Result<> run_squeeze(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> in_file, c.attributes().integers("axes"));
  BOLIDE_TRY(const std::vector<int64_t> axes, c.integers(1, in_file));
  BOLIDE_TRY(const auto flags, axes_of(axes, x->rank()).context("axes"));
  const bool all = !c.has(1) && !c.attributes().has("axes");
  Shape shape;
  for (int d = 0; d < x->rank(); ++d) {
    const bool away = all ? x->dim(d) == 1 : flags[static_cast<size_t>(d)];
    if (away && x->dim(d) != 1) return error(Code::kInvalid, fmt::format("axis {} has {} items", d, x->dim(d)));
    if (!away) shape.dims[static_cast<size_t>(shape.rank++)] = x->dim(d);
  }
  c.set(0, x->reshaped(shape));
  return {};
}

Result<> run_unsqueeze(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> in_file, c.attributes().integers("axes"));
  BOLIDE_TRY(const std::vector<int64_t> axes, c.integers(1, in_file));
  if (axes.size() > static_cast<size_t>(kRankMax - x->rank()))
    return error(Code::kUnsupported,
                 fmt::format("{} more axes than {}: at most {} dims are supported", axes.size(), x->rank(), kRankMax));
  Shape shape;
  shape.rank = x->rank() + static_cast<int>(axes.size());
  BOLIDE_TRY(const auto flags, axes_of(axes, shape.rank).context("axes"));
  for (int d = 0, from = 0; d < shape.rank; ++d) shape[d] = flags[static_cast<size_t>(d)] ? 1 : x->dim(from++);
  c.set(0, x->reshaped(shape));
  return {};
}

Result<> run_expand(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> dims, c.integers(1));
  BOLIDE_TRY(const Shape given, shape_of(dims));
  BOLIDE_TRY(const Shape shape, broadcast(x->shape(), given));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
  return copy_strided(*x, 0, broadcast_strides(x->shape(), shape), *y);
}

Result<> run_shape(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  const int64_t rank = x->rank();
  BOLIDE_TRY(int64_t start, c.attributes().integer("start", 0));
  BOLIDE_TRY(int64_t end, c.attributes().integer("end", rank));
  start = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
  end = std::clamp<int64_t>(end < 0 ? end + rank : end, start, rank);
  c.set(0, Tensor::vector(DType::kI64,
                          x->shape().span().subspan(static_cast<size_t>(start), static_cast<size_t>(end - start))));
  return {};
}

Result<> run_size(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  c.set(0, Tensor::scalar(DType::kI64, x->elements()));
  return {};
}

Result<> run_range(RunContext& c) {
  BOLIDE_TRY(const Tensor* start, c.tensor(0));
  BOLIDE_TRY(const Tensor* limit, c.tensor(1));
  BOLIDE_TRY(const Tensor* delta, c.tensor(2));
  for (const Tensor* t : {start, limit, delta})
    if (t->elements() != 1 || t->dtype() != start->dtype())
      return error(Code::kInvalid, "start, limit and delta are not one element of one type");
  return dispatch(kNumbers, start->dtype(), "start", [&]<class T>() -> Result<> {
    using W = Wide<T>;
    // Integers are counted exactly.
    using Count = std::conditional_t<std::is_integral_v<W>, __int128, double>;
    const W first = widen(start->as<T>()[0]), step = widen(delta->as<T>()[0]);
    if (step == W{0}) return error(Code::kInvalid, "a delta of 0");
    const Count distance = static_cast<Count>(widen(limit->as<T>()[0])) - static_cast<Count>(first);
    Count count = distance / static_cast<Count>(step);
    if constexpr (std::is_integral_v<W>)
      count += distance % static_cast<Count>(step) != 0 && (distance > 0) == (step > 0) ? 1 : 0;
    else
      count = std::ceil(count);
    if (!(count <= static_cast<Count>(int64_t{1} << 40))) return error(Code::kInvalid, "too many numbers");
    const int64_t n = count > 0 ? static_cast<int64_t>(count) : 0;
    BOLIDE_TRY(Tensor * y, c.make(0, start->dtype(), {n}));
    const auto to = y->mutate<T>();
    for (int64_t i = 0; i < n; ++i)
      to[static_cast<size_t>(i)] =
          narrow<T>(static_cast<W>(static_cast<Count>(first) + static_cast<Count>(i) * static_cast<Count>(step)));
    return {};
  });
}

Result<> run_eye_like(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->rank() != 2) return error(Code::kInvalid, fmt::format("a tensor of {} dims, expected 2", x->rank()));
  DType dtype = x->dtype();
  if (c.attributes().has("dtype")) {
    BOLIDE_TRY(const int64_t code, c.attributes().integer("dtype", 1));
    BOLIDE_TRY(dtype, dtype_of_code(code));
  }
  BOLIDE_TRY(const int64_t k, c.attributes().integer("k", 0));
  const int64_t rows = x->dim(0), columns = x->dim(1);
  return dispatch(kNumbers + Types<Bool>{}, dtype, "dtype", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, dtype, x->shape()));
    clear(*y);
    if (k <= -rows || k >= columns) return {};
    for (int64_t i = std::max<int64_t>(0, -k); i < rows && i + k < columns; ++i)
      y->mutate<T>()[static_cast<size_t>(i * columns + i + k)] = narrow<T>(static_cast<Wide<T>>(1));
    return {};
  });
}

Result<> run_trilu(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> given, c.integers(1, {0}, 1));
  BOLIDE_TRY(const int64_t upper, c.attributes().integer("upper", 1));
  if (x->rank() < 2 || given.size() != 1)
    return error(Code::kInvalid, fmt::format("a tensor of {} dims and {} diagonals", x->rank(), given.size()));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
  clear(*y);
  if (y->elements() == 0) return {};
  const int64_t rows = x->dim(-2), columns = x->dim(-1), k = std::clamp(given[0], -rows, columns);
  for (int64_t row = 0; row < x->elements() / columns; ++row) {
    const int64_t diagonal = row % rows + k;
    const int64_t from = upper != 0 ? std::clamp<int64_t>(diagonal, 0, columns) : 0;
    const int64_t to = upper != 0 ? columns : std::clamp<int64_t>(diagonal + 1, 0, columns);
    copy_block(*x, row * columns + from, *y, row * columns + from, to - from);
  }
  return {};
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "Constant", .since = 1, .run = run_constant},
    {.domain = "", .name = "ConstantOfShape", .since = 9, .run = run_constant_of_shape},
    {.domain = "", .name = "Identity", .since = 1, .run = run_identity},
    {.domain = "", .name = "Reshape", .since = 1, .run = run_reshape},
    {.domain = "", .name = "Flatten", .since = 1, .run = run_flatten},
    {.domain = "", .name = "Squeeze", .since = 1, .run = run_squeeze},
    {.domain = "", .name = "Unsqueeze", .since = 1, .run = run_unsqueeze},
    {.domain = "", .name = "Expand", .since = 8, .run = run_expand},
    {.domain = "", .name = "Shape", .since = 1, .run = run_shape},
    {.domain = "", .name = "Size", .since = 1, .run = run_size},
    {.domain = "", .name = "Range", .since = 11, .run = run_range},
    {.domain = "", .name = "EyeLike", .since = 9, .run = run_eye_like},
    {.domain = "", .name = "Trilu", .since = 14, .run = run_trilu},
    {.domain = "", .name = "Transpose", .run = layout::run_transpose, .prepare = layout::prepare_transpose},
    {.domain = "", .name = "Concat", .run = layout::run_concat, .prepare = layout::prepare_concat},
    {.domain = "", .name = "Split", .run = layout::run_split, .prepare = layout::prepare_split},
    {.domain = "", .name = "Slice", .since = 1, .run = layout::run_slice},
    {.domain = "", .name = "Pad", .since = 1, .run = layout::run_pad},
    {.domain = "", .name = "Tile", .since = 1, .run = layout::run_tile_of_axis},
    {.domain = "", .name = "Tile", .since = 6, .run = layout::run_tile},
    {.domain = "", .name = "DepthToSpace", .since = 1, .run = layout::run_depth_to_space},
    {.domain = "", .name = "SpaceToDepth", .since = 1, .run = layout::run_space_to_depth},
    {.domain = "", .name = "ReverseSequence", .since = 10, .run = layout::run_reverse_sequence},
    {.domain = "", .name = "CenterCropPad", .since = 18, .run = layout::run_center_crop_pad},
};

}  // namespace

std::span<const OpDef> layout_ops() { return kOps; }

}  // namespace bolide
