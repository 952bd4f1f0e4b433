#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "ops/dense.h"
#include "ops/layout.h"
#include "ops/moves.h"
#include "ops/number.h"

namespace bolide::layout {
namespace {

using Maps = std::vector<std::vector<int64_t>>;

// Maps of a result of this shape grow with it: a long axis has a list of as many places.
Result<> expect_maps(const Shape& shape) {
  int64_t places = 0;
  for (const int64_t dim : shape.span()) places += dim;  // which a tensor has been made of
  return expect_memory(places, sizeof(int64_t));
}

// maps[axis] of `to` where nothing happens along an axis.
Maps same_maps(const Shape& shape) {
  Maps maps(static_cast<size_t>(shape.rank));
  for (int d = 0; d < shape.rank; ++d) {
    maps[static_cast<size_t>(d)].resize(static_cast<size_t>(shape[d]));
    std::iota(maps[static_cast<size_t>(d)].begin(), maps[static_cast<size_t>(d)].end(), int64_t{0});
  }
  return maps;
}

// The attribute of old versions, or the input of new ones.
Result<std::vector<int64_t>> attribute_or_input(const RunContext& c, std::string_view name, size_t input) {
  if (c.attributes().has(name)) return c.attributes().integers(name);
  return c.integers(input);
}

// Axes as given, all of them if none are.
Result<std::vector<int>> axes_or_all(const std::vector<int64_t>& given, bool is_given, int rank) {
  std::vector<int> axes;
  if (!is_given)
    for (int d = 0; d < rank; ++d) axes.push_back(d);
  BOLIDE_TRY(axes_of(given, rank).has_value() ? ok() : axes_of(given, rank).error());
  for (const int64_t one : given) axes.push_back(static_cast<int>(one < 0 ? one + rank : one));
  return axes;
}

int64_t modulo(int64_t a, int64_t n) { return ((a % n) + n) % n; }

Result<> move(RunContext& c, const Moves& moves) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), moves.shape));
  if (y->elements() == 0) return {};
  return copy_mapped(*x, moves.maps, moves.fill ? &moves.fill : nullptr, *y, c.workers());
}

}  // namespace

Result<> run_transpose(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  std::vector<int64_t> reversed;
  for (int d = x->rank() - 1; d >= 0; --d) reversed.push_back(d);
  BOLIDE_TRY(const std::vector<int64_t> given, c.attributes().integers("perm", reversed));
  if (given.size() != static_cast<size_t>(x->rank()))
    return error(Code::kInvalid, fmt::format("perm has {} axes, the tensor {}", given.size(), x->rank()));
  BOLIDE_TRY(const std::vector<int> order, axes_or_all(given, true, x->rank()).context("perm"));
  BOLIDE_TRY(Tensor y, transposed(*x, order, c.pool()));
  c.set(0, std::move(y));
  return {};
}

Result<> run_concat(RunContext& c) {
  BOLIDE_TRY(const int64_t axis, c.attributes().integer("axis", 1));
  std::vector<const Tensor*> parts;
  for (size_t i = 0; i < c.inputs(); ++i) {
    BOLIDE_TRY(const Tensor* part, c.tensor(i));
    parts.push_back(part);
  }
  BOLIDE_TRY(Tensor y, concatenated(parts, axis, c.pool()));
  c.set(0, std::move(y));
  return {};
}

Result<> run_split(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t given_axis, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int axis, axis_of(given_axis, x->rank()));
  BOLIDE_TRY(std::vector<int64_t> lengths, attribute_or_input(c, "split", 1));
  const int64_t dim = x->dim(axis);
  if (!c.attributes().has("split") && !c.has(1)) {
    const auto outputs = static_cast<int64_t>(c.outputs());
    BOLIDE_TRY(const int64_t parts, c.attributes().integer("num_outputs", outputs));
    if (parts < 1 || parts < outputs) return error(Code::kInvalid, fmt::format("num_outputs {}", parts));
    if (c.version() < 18 && dim % parts != 0)
      return error(Code::kInvalid, fmt::format("{} equal parts of {}", parts, dim));
    const int64_t length = dim / parts + (dim % parts != 0 ? 1 : 0);
    int64_t left = dim;
    for (int64_t i = 0; i < outputs; ++i) {
      lengths.push_back(std::min(length, left));
      left -= lengths.back();
    }
  } else if (lengths.size() != c.outputs()) {
    return error(Code::kInvalid, fmt::format("split has {} lengths for {} outputs", lengths.size(), c.outputs()));
  }
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > dim - at)
      return error(Code::kInvalid, fmt::format("split: a part of {} after {} of {}", lengths[i], at, dim));
    BOLIDE_TRY(Tensor part, part_of(*x, axis, at, lengths[i], c.pool()));
    c.set(i, std::move(part));
    at += lengths[i];
  }
  // The last of equal parts may not be asked for.
  if (at != dim && (c.has(1) || c.attributes().has("split")))
    return error(Code::kInvalid, fmt::format("split: parts of {} in all of {}", at, dim));
  return {};
}

Result<> run_slice(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> starts, attribute_or_input(c, "starts", 1));
  BOLIDE_TRY(const std::vector<int64_t> ends, attribute_or_input(c, "ends", 2));
  BOLIDE_TRY(std::vector<int64_t> given, attribute_or_input(c, "axes", 3));
  const bool is_given = c.has(3) || c.attributes().has("axes");
  for (size_t i = 0; !is_given && i < starts.size(); ++i) given.push_back(static_cast<int64_t>(i));
  BOLIDE_TRY(const std::vector<int64_t> steps, c.integers(4, std::vector<int64_t>(starts.size(), 1)));
  BOLIDE_TRY(const std::vector<int> axes, axes_or_all(given, true, x->rank()).context("axes"));
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return error(Code::kInvalid, fmt::format("{} starts, {} ends, {} axes and {} steps", starts.size(), ends.size(),
                                             axes.size(), steps.size()));
  Shape shape = x->shape();
  Strides strides = strides_of(x->shape());
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axes[i];
    const int64_t dim = x->dim(axis);
    if (steps[i] == 0) return error(Code::kInvalid, fmt::format("a step of 0 along axis {}", axis));
    const int64_t step = std::clamp(steps[i], -dim - 1, dim + 1);  // more is as much
    const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? dim : dim - 1;
    const auto bound = [&](int64_t at) { return std::clamp(at < 0 ? at + dim : at, lowest, highest); };
    const int64_t start = step > 0 ? bound(starts[i]) : std::max<int64_t>(bound(starts[i]), dim == 0 ? -1 : 0);
    const int64_t end = bound(ends[i]), distance = step > 0 ? end - start : start - end;
    shape[axis] = distance <= 0 ? 0 : (distance - 1) / std::abs(step) + 1;
    offset += start * strides[static_cast<size_t>(axis)];
    strides[static_cast<size_t>(axis)] *= step;
  }
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
  return copy_strided(*x, offset, strides, *y);
}

Result<Moves> moves_of_pad(const RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  const int rank = x->rank();
  BOLIDE_TRY(const std::string mode, c.attributes().text("mode", "constant"));
  BOLIDE_TRY(const std::vector<int64_t> pads, attribute_or_input(c, c.version() < 2 ? "paddings" : "pads", 1));
  BOLIDE_TRY(const std::vector<int64_t> given, c.integers(3));
  BOLIDE_TRY(const std::vector<int> axes, axes_or_all(given, c.has(3), rank).context("axes"));
  if (pads.size() != 2 * axes.size())
    return error(Code::kInvalid, fmt::format("{} pads for {} axes", pads.size(), axes.size()));
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    return error(Code::kInvalid, fmt::format("mode {:.40}", mode));
  Shape shape = x->shape();
  std::array<int64_t, kRankMax> before{};
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t& dim = shape[axes[i]];
    before[static_cast<size_t>(axes[i])] = pads[i];
    if (__builtin_add_overflow(dim, pads[i], &dim) || __builtin_add_overflow(dim, pads[i + axes.size()], &dim) ||
        dim < 0 || pads[i] < -x->dim(axes[i]) || (x->dim(axes[i]) == 0 && dim > 0 && mode != "constant"))
      return error(Code::kInvalid, fmt::format("pads {} and {} of axis {} of {}", pads[i], pads[i + axes.size()],
                                               axes[i], x->dim(axes[i])));
  }
  Tensor fill;
  if (c.has(2)) {
    BOLIDE_TRY(const Tensor* value, c.tensor(2));
    if (value->dtype() != x->dtype() || value->elements() != 1)
      return error(Code::kInvalid,
                   fmt::format("constant_value is {}{}, expected one element of {}", to_string(value->dtype()),
                               to_string(value->shape()), to_string(x->dtype())));
    fill = *value;
  } else if (c.attributes().has("value")) {
    BOLIDE_TRY(const float value, c.attributes().number("value", 0));
    BOLIDE_TRY(fill, Tensor::make(x->dtype(), {1}));
    BOLIDE_TRY(dispatch(kFloats, x->dtype(), "data", [&]<class T>() -> Result<> {
      fill.mutate<T>()[0] = narrow<T>(static_cast<Wide<T>>(value));
      return {};
    }));
  }
  BOLIDE_TRY(const int64_t elements, product_of(shape.span()));
  if (elements == 0) return Moves{shape, {}, {}};
  BOLIDE_TRY(expect_maps(shape));
  Maps maps(static_cast<size_t>(rank));
  for (int d = 0; d < rank; ++d) {
    maps[static_cast<size_t>(d)].reserve(static_cast<size_t>(shape[d]));
    const int64_t dim = x->dim(d);
    for (int64_t i = 0; i < shape[d]; ++i) {
      int64_t at = i - before[static_cast<size_t>(d)];
      if (at < 0 || at >= dim) {
        if (mode == "constant") {
          at = -1;
        } else if (mode == "edge") {
          at = std::clamp<int64_t>(at, 0, dim - 1);
        } else if (mode == "wrap") {
          at = modulo(at, dim);
        } else {
          at = dim == 1 ? 0 : modulo(at, 2 * (dim - 1));
          at = std::min(at, 2 * (dim - 1) - at);
        }
      }
      maps[static_cast<size_t>(d)].push_back(at);
    }
  }
  return Moves{shape, std::move(maps), std::move(fill)};
}

Result<> run_pad(RunContext& c) {
  BOLIDE_TRY(const Moves moves, moves_of_pad(c));
  return move(c, moves);
}

namespace {

Result<Moves> tiled(const Tensor& x, std::span<const int64_t> repeats) {
  Shape shape = x.shape();
  for (int d = 0; d < x.rank(); ++d)
    if (repeats[static_cast<size_t>(d)] < 0 ||
        __builtin_mul_overflow(shape[d], repeats[static_cast<size_t>(d)], &shape[d]))
      return error(Code::kInvalid, fmt::format("{} repeats of axis {}", repeats[static_cast<size_t>(d)], d));
  BOLIDE_TRY(const int64_t elements, product_of(shape.span()));
  if (elements == 0) return Moves{shape, {}, {}};
  BOLIDE_TRY(expect_maps(shape));
  Maps maps = same_maps(shape);
  for (int d = 0; d < x.rank(); ++d)
    for (int64_t& at : maps[static_cast<size_t>(d)]) at %= x.dim(d);
  return Moves{shape, std::move(maps), {}};
}

}  // namespace

Result<Moves> moves_of_tile(const RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> repeats, c.integers(1));
  if (repeats.size() != static_cast<size_t>(x->rank()))
    return error(Code::kInvalid, fmt::format("{} repeats for {} axes", repeats.size(), x->rank()));
  return tiled(*x, repeats);
}

Result<> run_tile(RunContext& c) {
  BOLIDE_TRY(const Moves moves, moves_of_tile(c));
  return move(c, moves);
}

Result<> run_tile_of_axis(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const double tiles, c.number(1, 1));
  BOLIDE_TRY(const double given, c.number(2, 0));
  if (!(tiles >= 0 && tiles < 1e12) || !(given >= 0 && given < x->rank()))
    return error(Code::kInvalid, fmt::format("{} tiles along axis {} of {}", tiles, given, x->rank()));
  std::vector<int64_t> repeats(static_cast<size_t>(x->rank()), 1);
  repeats[static_cast<size_t>(given)] = static_cast<int64_t>(tiles);
  BOLIDE_TRY(const Moves moves, tiled(*x, repeats));
  return move(c, moves);
}

namespace {

struct Blocks {
  const Tensor* x = nullptr;
  int64_t size = 0;
  bool columns_first = false;  // mode CRD: of the channels, the block's place is the inner part
};
Result<Blocks> blocks_of(const RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t size, c.attributes().integer("blocksize", 0));
  BOLIDE_TRY(const std::string mode, c.attributes().text("mode", "DCR"));
  if (x->rank() != 4) return error(Code::kInvalid, fmt::format("a tensor of {} dims, expected 4", x->rank()));
  if (size < 1 || size > 1 << 20) return error(Code::kInvalid, fmt::format("blocksize {}", size));
  if (mode != "DCR" && mode != "CRD") return error(Code::kInvalid, fmt::format("mode {:.40}", mode));
  return Blocks{x, size, mode == "CRD"};
}

Result<> regroup(RunContext& c, const Tensor& x, const Shape& apart, std::initializer_list<int> order,
                 const Shape& together) {
  BOLIDE_TRY(const Tensor moved, transposed(x.reshaped(apart), std::span(order.begin(), order.size()), c.pool()));
  c.set(0, moved.reshaped(together));
  return {};
}

}  // namespace

Result<> run_depth_to_space(RunContext& c) {
  BOLIDE_TRY(const Blocks given, blocks_of(c));
  const Shape& s = given.x->shape();
  const int64_t b = given.size, channels = s[1] / (b * b);
  if (s[1] % (b * b) != 0) return error(Code::kInvalid, fmt::format("blocksize {} of {} channels", b, s[1]));
  const Shape together{s[0], channels, s[2] * b, s[3] * b};
  if (given.columns_first)
    return regroup(c, *given.x, {s[0], channels, b, b, s[2], s[3]}, {0, 1, 4, 2, 5, 3}, together);
  return regroup(c, *given.x, {s[0], b, b, channels, s[2], s[3]}, {0, 3, 4, 1, 5, 2}, together);
}

Result<> run_space_to_depth(RunContext& c) {
  BOLIDE_TRY(const Blocks given, blocks_of(c));
  const Shape& s = given.x->shape();
  const int64_t b = given.size, rows = s[2] / b, columns = s[3] / b;
  if (s[2] % b != 0 || s[3] % b != 0)
    return error(Code::kInvalid, fmt::format("blocksize {} of an image of {} x {}", b, s[2], s[3]));
  const Shape apart{s[0], s[1], rows, b, columns, b}, together{s[0], s[1] * b * b, rows, columns};
  if (given.columns_first) return regroup(c, *given.x, apart, {0, 1, 3, 5, 2, 4}, together);
  return regroup(c, *given.x, apart, {0, 3, 5, 1, 2, 4}, together);
}

Result<> run_reverse_sequence(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> lengths, c.integers(1));
  BOLIDE_TRY(const int64_t batch_axis, c.attributes().integer("batch_axis", 1));
  BOLIDE_TRY(const int64_t time_axis, c.attributes().integer("time_axis", 0));
  if (x->rank() < 2 || batch_axis < 0 || batch_axis > 1 || time_axis != 1 - batch_axis)
    return error(Code::kInvalid, fmt::format("batch_axis {} and time_axis {} of a tensor of {} dims", batch_axis,
                                             time_axis, x->rank()));
  const int64_t batch = x->dim(static_cast<int>(batch_axis)), time = x->dim(static_cast<int>(time_axis));
  if (static_cast<int64_t>(lengths.size()) != batch)
    return error(Code::kInvalid, fmt::format("{} sequence_lens for a batch of {}", lengths.size(), batch));
  for (const int64_t length : lengths)
    if (length < 0 || length > time) return error(Code::kInvalid, fmt::format("length {} of {} steps", length, time));
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
  if (y->elements() == 0) return {};
  const int64_t run = x->elements() / (batch * time);
  const auto place = [&](int64_t b, int64_t t) { return (batch_axis == 0 ? b * time + t : t * batch + b) * run; };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < time; ++t) {
      const int64_t length = lengths[static_cast<size_t>(b)];
      copy_block(*x, place(b, t < length ? length - 1 - t : t), *y, place(b, t), run);
    }
  return {};
}

Result<> run_center_crop_pad(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> wanted, c.integers(1));
  BOLIDE_TRY(const std::vector<int64_t> given, c.attributes().integers("axes"));
  BOLIDE_TRY(const std::vector<int> axes, axes_or_all(given, c.attributes().has("axes"), x->rank()).context("axes"));
  if (wanted.size() != axes.size())
    return error(Code::kInvalid, fmt::format("shape has {} dims for {} axes", wanted.size(), axes.size()));
  Shape shape = x->shape();
  for (size_t i = 0; i < axes.size(); ++i) shape[axes[i]] = wanted[i];
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
  if (y->elements() == 0) return {};
  BOLIDE_TRY(expect_maps(shape));
  Maps maps = same_maps(shape);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t from = x->dim(axes[i]), to = wanted[i];
    const int64_t shift = from >= to ? (from - to) / 2 : -((to - from) / 2);
    for (int64_t& at : maps[static_cast<size_t>(axes[i])]) {
      at += shift;
      if (at < 0 || at >= from) at = -1;
    }
  }
  return copy_mapped(*x, maps, nullptr, *y, c.workers());
}

}  // namespace bolide::layout
