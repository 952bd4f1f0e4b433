// Shapes, views, copies and gathers on GPUs.
#include <algorithm>
#include <array>

#include "ops/device/device_op.h"
#include "ops/moves.h"

namespace bolide {
namespace {

// A job that copies `from` [dims] to `to`, both given by strides; both may be parts of tensors.
Result<bool> copy_part(DeviceContext& c, const DeviceTensor& from, int64_t from_offset, const Strides& from_strides,
                       const DeviceTensor& to, int64_t to_offset, const Strides& to_strides, const Shape& shape) {
  if (shape.elements() == 0) return true;
  if (shape.elements() >= int64_t{1} << 31) return false;
  ElementsJob job;
  const auto bytes = static_cast<int64_t>(element_bytes(from.dtype));
  job.in[0] = {static_cast<std::byte*>(from.data()) + from_offset * bytes, from.dtype, {}};
  job.out = {static_cast<std::byte*>(to.data()) + to_offset * bytes, to.dtype, {}};
  // Dims that run on in both are one.
  for (int d = 0; d < shape.rank; ++d) {
    const auto axis = static_cast<size_t>(d);
    if (shape[d] == 1) continue;
    const auto before = static_cast<size_t>(job.rank - 1);
    if (job.rank > 0 && job.in[0].strides[before] == from_strides[axis] * shape[d] &&
        job.out.strides[before] == to_strides[axis] * shape[d]) {
      job.dims[before] *= shape[d];
      job.in[0].strides[before] = from_strides[axis], job.out.strides[before] = to_strides[axis];
    } else {
      const auto at = static_cast<size_t>(job.rank++);
      job.dims[at] = shape[d];
      job.in[0].strides[at] = from_strides[axis], job.out.strides[at] = to_strides[axis];
    }
  }
  if (job.rank == 0) job.rank = 1, job.dims[0] = 1, job.in[0].strides[0] = job.out.strides[0] = 1;
  job.floats = is_float(from.dtype);
  BOLIDE_TRY(launch_elements(c.stream(), job));
  return true;
}

// The same elements in another shape, which the CPU's row works out.
Result<bool> run_view(DeviceContext& c) {
  for (size_t i = 1; i < c.inputs(); ++i)
    if (c.has(i) && c.known(i) == nullptr) return false;
  BOLIDE_TRY(c.with_shapes([&](RunContext& r) -> Result<> {
    const OpDef* def = c.def();
    return def->run(r);
  }));
  const Shape shape = c.made_on_host()[0].shape();
  c.made_on_host()[0] = {};
  BOLIDE_TRY(DeviceTensor x, c.raw(0));
  if (x.channels_last) {
    // [N, C, ...] whose spatial axes are joined or split lies the same way.
    const bool same = shape.rank >= 3 && shape[0] == x.shape[0] && shape[1] == x.shape[1];
    if (!same) {
      BOLIDE_TRY(x, c.rows(0));
    }
  }
  x.shape = shape;
  c.set(0, std::move(x));
  return true;
}
Result<bool> run_identity(DeviceContext& c) {
  BOLIDE_TRY(DeviceTensor x, c.raw(0));
  c.set(0, std::move(x));
  return true;
}
// Where nothing is learned.
Result<bool> run_dropout(DeviceContext& c) {
  if (c.version() < 7 || c.is_output_used(1)) return false;
  if (c.has(2) && c.known(2) == nullptr) return false;
  if (c.has(2)) {
    BOLIDE_TRY(const auto training, doubles_of(*c.known(2)));
    if (training.size() != 1 || training[0] != 0) return false;
  }
  return run_identity(c);
}
// Of shapes alone: to the host.
Result<bool> run_shape(DeviceContext& c) {
  BOLIDE_TRY(c.with_shapes([&](RunContext& r) -> Result<> { return c.def()->run(r); }));
  return true;
}

Result<bool> run_transpose(DeviceContext& c) {
  const Shape& shape = c.shape(0);
  std::vector<int64_t> perm;
  for (int d = shape.rank - 1; d >= 0; --d) perm.push_back(d);
  BOLIDE_TRY(perm, c.attributes().integers("perm", perm));
  std::array<bool, kRankMax> seen{};
  if (static_cast<int>(perm.size()) != shape.rank || !can_copy(c.dtype(0))) return false;
  for (int64_t& axis : perm) {
    if (axis < 0) axis += shape.rank;
    if (axis < 0 || axis >= shape.rank || seen[static_cast<size_t>(axis)]) return false;
    seen[static_cast<size_t>(axis)] = true;
  }
  BOLIDE_TRY(DeviceTensor x, c.any(0));
  Shape turned = shape;
  Strides from = x.strides(), strides{};
  for (size_t d = 0; d < perm.size(); ++d)
    turned.dims[d] = shape[static_cast<int>(perm[d])], strides[d] = from[static_cast<size_t>(perm[d])];
  // A view where the elements lie in the order that is asked for.
  const Strides plain = strides_of(turned);
  bool is_view = true, is_last = turned.rank > 2;
  DeviceTensor view = x;
  view.shape = turned, view.channels_last = true;
  const Strides last = is_last ? view.strides() : plain;
  for (int d = 0; d < turned.rank; ++d) {
    const auto axis = static_cast<size_t>(d);
    is_view = is_view && (turned[d] == 1 || strides[axis] == plain[axis]);
    is_last = is_last && (turned[d] == 1 || strides[axis] == last[axis]);
  }
  if (is_view || is_last) {
    view.channels_last = !is_view;
    c.set(0, std::move(view));
    return true;
  }
  // Two axes of many elements that change places are turned by tiles.
  if (!x.channels_last && is_float(x.dtype) && turned.rank >= 2) {
    const auto r = static_cast<size_t>(turned.rank);
    bool tail = true;
    for (size_t d = 0; d + 2 < r; ++d) tail = tail && perm[d] == static_cast<int64_t>(d);
    if (tail) {
      BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), turned));
      TurnJob job{.in = x.data(), .out = out.data(), .in_dtype = x.dtype, .out_dtype = out.dtype};
      job.rows = shape[-2], job.columns = shape[-1], job.padded = job.rows, job.batch = 1;
      for (int d = 0; d + 2 < shape.rank; ++d) job.batch *= shape[d];
      BOLIDE_TRY(launch_turn(c.stream(), job));
      return true;
    }
  }
  BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), turned));
  return copy_part(c, x, 0, strides, out, 0, out.strides(), turned);
}

Result<bool> run_concat(DeviceContext& c) {
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 1));
  Shape shape = c.shape(0);
  BOLIDE_TRY(const int axis, axis_of(given, shape.rank));
  if (!can_copy(c.dtype(0))) return false;
  bool last = false;
  shape[axis] = 0;
  for (size_t i = 0; i < c.inputs(); ++i) {
    if (!c.has(i) || c.dtype(i) != c.dtype(0) || c.shape(i).rank != shape.rank) return false;
    for (int d = 0; d < shape.rank; ++d)
      if (d != axis && c.shape(i)[d] != c.shape(0)[d]) return false;
    shape[axis] += c.shape(i)[axis];
    BOLIDE_TRY(const DeviceTensor part, c.any(i));
    last = last || part.channels_last;
  }
  BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), shape, last));
  const Strides to = out.strides();
  int64_t at = 0;
  for (size_t i = 0; i < c.inputs(); ++i) {
    BOLIDE_TRY(const DeviceTensor part, last ? c.last(i) : c.rows(i));
    BOLIDE_TRY(const bool copied,
               copy_part(c, part, 0, part.strides(), out, at * to[static_cast<size_t>(axis)], to, part.shape));
    if (!copied) return false;
    at += part.shape[axis];
  }
  return true;
}

// x[start, start + step, ...] of each axis.
Result<bool> take_part(DeviceContext& c, size_t output, const DeviceTensor& x, int64_t offset, const Strides& strides,
                       const Shape& shape) {
  BOLIDE_TRY(const DeviceTensor out, c.make(output, c.dtype(0), shape, x.channels_last));
  return copy_part(c, x, offset, strides, out, 0, out.strides(), shape);
}

Result<bool> run_split(DeviceContext& c) {
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int axis, axis_of(given, c.shape(0).rank));
  if (!can_copy(c.dtype(0))) return false;
  BOLIDE_TRY(std::vector<int64_t> lengths, c.attributes().integers("split"));
  const int64_t dim = c.shape(0)[axis];
  if (c.has(1)) {
    const auto known = c.integers(1);
    if (!known) return false;
    lengths = *known;
  }
  if (lengths.empty()) {
    const auto outputs = static_cast<int64_t>(c.outputs());
    BOLIDE_TRY(const int64_t parts, c.attributes().integer("num_outputs", outputs));
    if (parts < outputs || (dim % parts != 0 && c.version() < 18)) return false;
    const int64_t length = (dim + parts - 1) / parts;
    for (int64_t i = 0, left = dim; i < outputs; ++i, left -= lengths.back()) lengths.push_back(std::min(length, left));
  }
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0) return false;
    sum += length;
  }
  if (lengths.size() != c.outputs() || sum > dim) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Shape shape = x.shape;
    shape[axis] = lengths[i];
    BOLIDE_TRY(const bool taken, take_part(c, i, x, at * x.strides()[static_cast<size_t>(axis)], x.strides(), shape));
    if (!taken) return false;
    at += lengths[i];
  }
  return true;
}

Result<bool> run_slice(DeviceContext& c) {
  if (!can_copy(c.dtype(0))) return false;
  const bool in_file = c.version() < 10;
  BOLIDE_TRY(const auto file_starts, c.attributes().integers("starts"));
  BOLIDE_TRY(const auto file_ends, c.attributes().integers("ends"));
  BOLIDE_TRY(const auto file_axes, c.attributes().integers("axes"));
  const auto starts = in_file ? std::optional(file_starts) : c.integers(1);
  const auto ends = in_file ? std::optional(file_ends) : c.integers(2);
  if (!starts || !ends) return false;
  std::vector<int64_t> every, ones(starts->size(), 1);
  for (size_t i = 0; i < starts->size(); ++i) every.push_back(static_cast<int64_t>(i));
  const auto axes = !in_file ? c.integers(3, every) : std::optional(file_axes.empty() ? every : file_axes);
  const auto steps = in_file ? std::optional(ones) : c.integers(4, ones);
  if (!axes || !steps || ends->size() != starts->size() || axes->size() != starts->size() ||
      steps->size() != starts->size())
    return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  Shape shape = x.shape;
  Strides strides = x.strides();
  int64_t offset = 0;
  std::array<bool, kRankMax> seen{};
  for (size_t i = 0; i < axes->size(); ++i) {
    BOLIDE_TRY(const int axis, axis_of((*axes)[i], shape.rank));
    const auto d = static_cast<size_t>(axis);
    const int64_t dim = x.shape[axis], step = (*steps)[i];
    if (step == 0 || step == INT64_MIN || seen[d]) return false;
    seen[d] = true;
    const auto place = [&](int64_t at, int64_t low, int64_t high) {
      return std::clamp(at < 0 ? at + dim : at, low, high);
    };
    const int64_t first = step > 0 ? place((*starts)[i], 0, dim) : place((*starts)[i], 0, dim - 1);
    const int64_t end = step > 0 ? place((*ends)[i], 0, dim) : place((*ends)[i], -1, dim - 1);
    const int64_t distance = step > 0 ? end - first : first - end, by = step > 0 ? step : -step;
    shape[axis] = dim == 0 || distance <= 0 ? 0 : (distance - 1) / by + 1;
    offset += first * x.strides()[d];
    strides[d] = x.strides()[d] * step;
  }
  return take_part(c, 0, x, shape.elements() == 0 ? 0 : offset, strides, shape);
}

Result<bool> run_expand(DeviceContext& c) {
  const auto dims = c.integers(1);
  if (!dims || !can_copy(c.dtype(0))) return false;
  BOLIDE_TRY(const Shape given, shape_of(*dims));
  BOLIDE_TRY(const Shape shape, broadcast(c.shape(0), given));
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), shape));
  return copy_part(c, x, 0, broadcast_strides(x.shape, shape), out, 0, out.strides(), shape);
}

// Blocks of b x b of an image to channels, or channels to blocks: a copy between views of six axes.
template <bool to_space>
Result<bool> run_blocks(DeviceContext& c) {
  BOLIDE_TRY(const int64_t b, c.attributes().integer("blocksize", 0));
  BOLIDE_TRY(const std::string mode, c.attributes().text("mode", "DCR"));
  const Shape& shape = c.shape(0);
  if (shape.rank != 4 || b < 1 || b > 1 << 20 || !can_copy(c.dtype(0)) || (mode != "DCR" && mode != "CRD"))
    return false;
  if (to_space ? shape[1] % (b * b) != 0 : shape[2] % b != 0 || shape[3] % b != 0) return false;
  const Shape turned = to_space ? Shape{shape[0], shape[1] / (b * b), shape[2] * b, shape[3] * b}
                                : Shape{shape[0], shape[1] * b * b, shape[2] / b, shape[3] / b};
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), turned, x.channels_last));
  // Deep: many channels; wide: a large image. Both have axes [N, channels, H, row in block, W, column in block].
  const DeviceTensor &deep = to_space ? x : out, &wide = to_space ? out : x;
  const int64_t channels = wide.shape[1];
  const Strides d = deep.strides(), w = wide.strides();
  const int64_t channel = mode == "CRD" ? d[1] * b * b : d[1], row = mode == "CRD" ? d[1] * b : d[1] * b * channels,
                column = mode == "CRD" ? d[1] : d[1] * channels;
  const Strides of_deep{d[0], channel, d[2], row, d[3], column}, of_wide{w[0], w[1], w[2] * b, w[2], w[3] * b, w[3]};
  const Shape axes{shape[0], channels, deep.shape[2], b, deep.shape[3], b};
  return copy_part(c, x, 0, to_space ? of_deep : of_wide, out, 0, to_space ? of_wide : of_deep, axes);
}

Result<bool> run_gather(DeviceContext& c) {
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  if (c.shape(0).rank < 1 || (c.dtype(1) != DType::kI64 && c.dtype(1) != DType::kI32) || !can_copy(c.dtype(0)))
    return false;
  BOLIDE_TRY(const int axis, axis_of(given, c.shape(0).rank));
  if (c.shape(0).rank + c.shape(1).rank - 1 > kRankMax) return false;
  const Shape &from = c.shape(0), &at = c.shape(1);
  const Around sizes = around(from, axis);
  Shape shape;
  const auto add = [&](int64_t dim) { shape.dims[static_cast<size_t>(shape.rank++)] = dim; };
  for (int d = 0; d < axis; ++d) add(from[d]);
  for (int d = 0; d < at.rank; ++d) add(at[d]);
  for (int d = axis + 1; d < from.rank; ++d) add(from[d]);
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  if (const auto index = c.integers(1); index && index->size() == 1) {  // a part, or a view of the first axis
    int64_t i = (*index)[0];
    if (i < 0) i += from[axis];
    if (i < 0 || i >= from[axis]) return false;  // the CPU says what is wrong
    const auto bytes = static_cast<int64_t>(element_bytes(x.dtype));
    if (sizes.before == 1 && sizes.after * bytes % 16 == 0) {
      DeviceTensor view = x;
      view.memory = std::shared_ptr<std::byte>(x.memory, x.memory.get() + i * sizes.after * bytes);
      view.shape = shape;
      c.set(0, std::move(view));
      return true;
    }
  }
  BOLIDE_TRY(const DeviceTensor indices, c.rows(1));
  BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), shape));
  BOLIDE_TRY(launch_gather(c.stream(), {.data = x.data(),
                                        .indices = indices.data(),
                                        .out = out.data(),
                                        .wide = indices.dtype == DType::kI64,
                                        .outer = sizes.before,
                                        .axis = from[axis],
                                        .inner = sizes.after,
                                        .count = at.elements(),
                                        .bytes = static_cast<int>(element_bytes(x.dtype)),
                                        .fault = c.machine().fault,
                                        .mark = c.mark()}));
  return true;
}

constexpr DeviceOp kRows[] = {
    {"", "Reshape", run_view},
    {"", "Flatten", run_view},
    {"", "Squeeze", run_view},
    {"", "Unsqueeze", run_view},
    {"", "Identity", run_identity},
    {"", "Shape", run_shape},
    {"", "Size", run_shape},
    {"", "Transpose", run_transpose},
    {"", "Concat", run_concat},
    {"", "Split", run_split},
    {"", "Slice", run_slice},
    {"", "Expand", run_expand},
    {"", "Gather", run_gather},
    {"", "Dropout", run_dropout},
    {"", "DepthToSpace", run_blocks<true>},
    {"", "SpaceToDepth", run_blocks<false>},
};

}  // namespace

std::span<const DeviceOp> device_layout_ops() { return kRows; }

}  // namespace bolide
