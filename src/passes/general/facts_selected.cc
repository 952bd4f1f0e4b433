// Facts of ops that read shapes and pick from values: Shape, Gather, Concat, Slice, Squeeze, Unsqueeze, Split; and of
// those that change sizes alone: Resize, Pad, Tile, DepthToSpace and their like.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "ir/op_def.h"
#include "passes/general/facts.h"
#include "passes/general/facts_limits.h"

namespace bolide {

// Shape, Gather, Concat, Slice and their like: what shapes are computed with.
Facts FactsTable::selected(const Node& node, const Generic& op, size_t output) {
  const std::string_view name = op.def->name;
  const Attributes& a = *op.attributes;
  const auto in = [&](size_t i) -> const Facts& { return (*this)[i < node.in.size() ? node.in[i] : kNoValue]; };
  const Facts& x = in(0);
  Facts to;
  to.dtype = x.dtype;
  const auto axis_of = [&](int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; };
  if (name == "Shape") {
    to.dtype = DType::kI64;
    to.dims = Numbers{fresh()};
    if (!x.dims) return to;
    const int64_t rank = x.rank();
    const auto start = a.integer("start", 0), end = a.integer("end", rank);
    if (!start || !end) return to;
    const int64_t begin = std::clamp<int64_t>(*start < 0 ? *start + rank : *start, 0, rank);
    const int64_t stop = std::clamp<int64_t>(*end < 0 ? *end + rank : *end, begin, rank);
    to.values = Numbers(x.dims->begin() + begin, x.dims->begin() + stop);
    to.dims = Numbers{stop - begin};
  } else if (name == "Gather") {
    const Facts& at = in(1);
    const auto axis = a.integer("axis", 0);
    if (!axis || !x.dims || !at.dims) return to;
    const int64_t k = axis_of(*axis, x.rank());
    if (k < 0 || k >= x.rank()) return to;
    to.dims = x.dims;
    to.dims->erase(to.dims->begin() + k);
    to.dims->insert(to.dims->begin() + k, at.dims->begin(), at.dims->end());
    if (x.values && at.values && at.rank() <= 1) {
      Numbers picked;
      for (int64_t i : *at.values) {
        if (is_number(i) && i < 0) i += static_cast<int64_t>(x.values->size());
        if (!is_number(i) || i < 0 || i >= static_cast<int64_t>(x.values->size())) return to;
        picked.push_back((*x.values)[static_cast<size_t>(i)]);
      }
      to.values = picked;
    }
  } else if (name == "Concat") {
    const auto axis = a.integer("axis", 0);
    Numbers values;
    bool known = axis.has_value();
    for (size_t i = 0; i < node.in.size(); ++i) {
      const Facts& part = in(i);
      known = known && part.values && part.rank() == 1 && values.size() < static_cast<size_t>(kValuesMax);
      if (known) values.insert(values.end(), part.values->begin(), part.values->end());
      if (!part.dims || !x.dims || part.rank() != x.rank() || !axis) {
        to.dims.reset();
        return to;
      }
      const int64_t k = axis_of(*axis, x.rank());
      if (k < 0 || k >= x.rank()) return to;
      if (i == 0) {
        to.dims = x.dims;
        continue;
      }
      int64_t& dim = (*to.dims)[static_cast<size_t>(k)];
      const int64_t more = (*part.dims)[static_cast<size_t>(k)];
      dim = is_number(dim) && is_number(more) ? std::min(dim + more, kDimMax) : fresh();
    }
    if (known) to.values = values;
  } else if (name == "Slice") {
    if (!x.dims) return to;
    to.dims = x.dims;
    const bool attributes = op.version < 10;
    const auto given = [&](std::string_view key, size_t i) -> std::optional<Numbers> {
      if (attributes) {
        const auto list = a.integers(key);
        return list && a.has(key) ? std::optional(*list) : std::nullopt;
      }
      return in(i).values;
    };
    const auto starts = given("starts", 1), ends = given("ends", 2);
    auto axes = given("axes", 3), steps = attributes ? std::nullopt : in(4).values;
    const bool has_axes = attributes ? a.has("axes") : node.in.size() > 3 && node.in[3] != kNoValue;
    const bool has_steps = !attributes && node.in.size() > 4 && node.in[4] != kNoValue;
    if (!starts || !ends || starts->size() != ends->size() || (has_axes && !axes) || (has_steps && !steps)) {
      for (int64_t& dim : *to.dims) dim = fresh();
      return to;
    }
    for (size_t i = 0; i < starts->size(); ++i) {
      const int64_t k = axis_of(has_axes && i < axes->size() ? (*axes)[i] : static_cast<int64_t>(i), x.rank());
      if (k < 0 || k >= x.rank()) return to;
      int64_t& dim = (*to.dims)[static_cast<size_t>(k)];
      const int64_t step = has_steps && i < steps->size() ? (*steps)[i] : 1;
      int64_t begin = (*starts)[i], end = (*ends)[i];
      if (!is_number(dim) || !is_number(begin) || !is_number(end) || step != 1) {
        const bool all = begin == 0 && step == 1 && is_number(end) && end >= INT32_MAX;
        const bool clips = begin == 0 && step == 1 && is_symbol(end) && is_number(dim) && dim >= 2;
        if (!all) dim = fresh();
        if (clips) clipped_.emplace(dim, end);
        continue;
      }
      begin = std::clamp<int64_t>(begin < 0 ? begin + dim : begin, 0, dim);
      end = std::clamp<int64_t>(end < 0 ? end + dim : end, begin, dim);
      if (x.values && x.rank() == 1) to.values = Numbers(x.values->begin() + begin, x.values->begin() + end);
      dim = end - begin;
    }
  } else if (name == "Squeeze" || name == "Unsqueeze") {
    const auto listed = a.integers("axes");
    const bool by_input = op.version >= 13 && node.in.size() > 1 && node.in[1] != kNoValue;
    if (!x.dims || !listed || (by_input && !in(1).values)) return to;
    Numbers axes = by_input ? *in(1).values : *listed;
    const bool insert = name == "Unsqueeze";
    const int rank = x.rank() + (insert ? static_cast<int>(axes.size()) : 0);
    for (int64_t& axis : axes) {
      axis = is_number(axis) ? axis_of(axis, rank) : -1;
      if (axis < 0 || axis >= rank) return to;
    }
    std::sort(axes.begin(), axes.end());
    if (!insert && axes.empty()) {
      for (const int64_t dim : *x.dims)
        if (is_symbol(dim)) return to;
      for (int i = 0; i < rank; ++i)
        if ((*x.dims)[static_cast<size_t>(i)] == 1) axes.push_back(i);
    }
    to.dims = x.dims;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (insert)
        to.dims->insert(to.dims->begin() + axes[i], 1);
      else
        to.dims->erase(to.dims->begin() + axes[axes.size() - 1 - i]);
    }
    if (to.dims->size() <= 1) to.values = x.values;
  } else if (name == "Split") {
    const auto axis = a.integer("axis", 0);
    if (!x.dims || !axis) return to;
    const int64_t k = axis_of(*axis, x.rank());
    if (k < 0 || k >= x.rank()) return to;
    to.dims = x.dims;
    int64_t& dim = (*to.dims)[static_cast<size_t>(k)];
    const auto attribute = a.integers("split");
    std::optional<Numbers> sizes = in(1).values;
    if (!sizes && attribute && !attribute->empty()) sizes = *attribute;
    const auto parts = static_cast<int64_t>(node.out.size());
    if (sizes && output < sizes->size() && is_number((*sizes)[output]))
      dim = (*sizes)[output];
    else if ((node.in.size() < 2 || node.in[1] == kNoValue) && is_number(dim) && dim % parts == 0)
      dim /= parts;
    else
      dim = fresh();
  }
  return to;
}

// Type and rank are the input's; dims where constants say them.
Facts FactsTable::resized(const Node& node, const Generic& op) {
  const std::string_view name = op.def->name;
  const Attributes& a = *op.attributes;
  const auto in = [&](size_t i) -> const Facts& { return (*this)[i < node.in.size() ? node.in[i] : kNoValue]; };
  const auto given = [&](size_t i) { return i < node.in.size() && node.in[i] != kNoValue; };
  const Facts& x = in(0);
  Facts to;
  to.dtype = x.dtype;
  if (!x.dims) return to;
  to.dims = x.dims;
  const auto set = [&](size_t i, auto of) {
    int64_t& dim = (*to.dims)[i];
    const std::optional<int64_t> size = of(dim);
    dim = size && (is_symbol(*size) || (*size >= 0 && *size <= kDimMax)) ? *size : fresh();
  };
  const auto rank = static_cast<size_t>(x.rank());
  if (name == "DepthToSpace" || name == "SpaceToDepth") {
    const int64_t block = a.integer("blocksize", 0).value_or(0);
    const bool deeper = name == "SpaceToDepth";
    for (size_t i = 1; i < rank; ++i)
      set(i, [&](int64_t dim) -> std::optional<int64_t> {
        if (!is_number(dim) || block < 1 || block > 1024) return std::nullopt;
        const int64_t factor = i == 1 ? block * block : block;
        return (i == 1) == deeper ? dim * factor : dim / factor;
      });
    return to;
  }
  const bool by_rank = !a.has("axes") && !(name == "Pad" && given(3));
  const std::optional<Numbers> list = name == "Pad"    ? op.version < 11 ? std::nullopt : in(1).values
                                      : name == "Tile" ? in(1).values
                                      : given(3)       ? in(3).values
                                                       : std::nullopt;
  const Tensor* scales = name == "Pad" || name == "Tile" || given(3) ? nullptr
                         : name == "Resize" && op.version >= 11      ? in(2).constant
                                                                     : in(1).constant;
  for (size_t i = 0; i < rank; ++i)
    set(i, [&](int64_t dim) -> std::optional<int64_t> {
      if (!by_rank) return std::nullopt;
      const bool has = list && list->size() == (name == "Pad" ? 2 * rank : rank);
      if (name == "Pad") {
        if (!has || !is_number((*list)[i]) || !is_number((*list)[i + rank])) return std::nullopt;
        const int64_t more =
            std::clamp((*list)[i], -kDimMax, kDimMax) + std::clamp((*list)[i + rank], -kDimMax, kDimMax);
        return is_number(dim) ? std::optional(dim + more) : std::nullopt;
      }
      if (name == "Tile") {
        int64_t size = 0;
        const bool known = has && is_number((*list)[i]) && is_number(dim);
        return known && !__builtin_mul_overflow((*list)[i], dim, &size) ? std::optional(size) : std::nullopt;
      }
      if (has && !a.has("keep_aspect_ratio_policy"))
        return is_number((*list)[i]) ? std::optional((*list)[i]) : std::nullopt;
      if (scales == nullptr || scales->dtype() != DType::kF32 || scales->elements() != static_cast<int64_t>(rank))
        return std::nullopt;
      if (scales->as<float>()[i] == 1) return dim;
      if (!is_number(dim)) return std::nullopt;
      const float size = std::floor(static_cast<float>(dim) * scales->as<float>()[i]);  // as the op computes it
      return size >= 0 && size <= static_cast<float>(kDimMax) ? std::optional(static_cast<int64_t>(size))
                                                              : std::nullopt;
    });
  return to;
}

}  // namespace bolide
