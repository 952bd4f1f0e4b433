// ArgMax, TopK and what picks single elements, on GPUs.
#include "ops/device/device_op.h"
#include "ops/moves.h"

namespace bolide {
namespace {

template <bool least>
Result<bool> run_arg(DeviceContext& c) {
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int64_t keep, c.attributes().integer("keepdims", 1));
  BOLIDE_TRY(const int64_t last, c.attributes().integer("select_last_index", 0));
  const Shape& shape = c.shape(0);
  if (!c.is_half_or_single(0) || shape.rank < 1) return false;
  BOLIDE_TRY(const int axis, axis_of(given, shape.rank));
  if (shape.elements() == 0) return false;
  Shape result;
  for (int d = 0; d < shape.rank; ++d)
    if (d != axis || keep != 0) result.dims[static_cast<size_t>(result.rank++)] = d == axis ? 1 : shape[d];
  const Around around_axis = around(shape, axis);
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, DType::kI64, result));
  ArgJob job{.in = x.data(), .out = static_cast<int64_t*>(y.data()), .dtype = x.dtype};
  job.outer = around_axis.before, job.count = shape[axis], job.inner = around_axis.after;
  job.least = least, job.last = last != 0;
  BOLIDE_TRY(launch_arg(c.stream(), job));
  return true;
}

Result<bool> run_top_k(DeviceContext& c) {
  BOLIDE_TRY(const int64_t in_file, c.attributes().integer("k", -1));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const int64_t largest, c.attributes().integer("largest", 1));
  const Shape& shape = c.shape(0);
  const auto asked = c.integers(1, {in_file});
  if (!c.is_half_or_single(0) || shape.rank < 1 || !asked || asked->size() != 1 || c.outputs() < 2) return false;
  BOLIDE_TRY(const int axis, axis_of(given, shape.rank));
  const int64_t k = (*asked)[0], count = shape[axis];
  if (k < 0 || k > count || count > kTopKMax || shape.elements() / std::max<int64_t>(count, 1) >= int64_t{1} << 31)
    return false;
  Shape result = shape;
  result[axis] = k;
  const Around around_axis = around(shape, axis);
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  BOLIDE_TRY(const DeviceTensor values, c.make(0, c.dtype(0), result));
  BOLIDE_TRY(const DeviceTensor indices, c.make(1, DType::kI64, result));
  TopKJob job{.in = x.data(), .values = values.data(), .indices = static_cast<int64_t*>(indices.data())};
  job.dtype = x.dtype, job.outer = around_axis.before, job.count = count, job.inner = around_axis.after;
  job.k = k, job.least = largest == 0;
  BOLIDE_TRY(launch_top_k(c.stream(), job));
  return true;
}

Result<bool> run_gather_elements(DeviceContext& c) {
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  const Shape &data = c.shape(0), &at = c.shape(1);
  if (data.rank < 1 || at.rank != data.rank || (c.dtype(1) != DType::kI64 && c.dtype(1) != DType::kI32) ||
      !can_copy(c.dtype(0)))
    return false;
  BOLIDE_TRY(const int axis, axis_of(given, data.rank));
  for (int d = 0; d < data.rank; ++d)
    if (d != axis && at[d] > data[d]) return false;  // the CPU says what is wrong
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  BOLIDE_TRY(const DeviceTensor indices, c.rows(1));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), at));
  GatherElementsJob job{.data = x.data(), .indices = indices.data(), .out = y.data()};
  job.wide = indices.dtype == DType::kI64, job.rank = data.rank, job.axis = axis;
  job.bytes = static_cast<int>(element_bytes(x.dtype)), job.limit = data[axis];
  job.fault = c.machine().fault, job.mark = c.mark();
  const Strides strides = x.strides();
  for (int d = 0; d < data.rank; ++d) job.dims[d] = at[d], job.data_strides[d] = strides[static_cast<size_t>(d)];
  BOLIDE_TRY(launch_gather_elements(c.stream(), job));
  return true;
}

constexpr DeviceOp kRows[] = {
    {"", "ArgMax", run_arg<false>},
    {"", "ArgMin", run_arg<true>},
    {"", "TopK", run_top_k},
    {"", "GatherElements", run_gather_elements},
};

}  // namespace

std::span<const DeviceOp> device_select_ops() { return kRows; }

}  // namespace bolide
