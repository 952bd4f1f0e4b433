#include <fmt/format.h>

#include <algorithm>

#include "ops/gather.h"
#include "ops/moves.h"
#include "ops/number.h"

namespace bolide::gather {
namespace {

enum class Reduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };

Result<Reduction> reduction_of(const RunContext& c) {
  BOLIDE_TRY(const std::string name, c.attributes().text("reduction", "none"));
  constexpr std::string_view kNames[] = {"none", "add", "mul", "max", "min"};
  const auto* const at = std::find(std::begin(kNames), std::end(kNames), name);
  if (at == std::end(kNames)) return error(Code::kInvalid, fmt::format("reduction {:.40}", name));
  return static_cast<Reduction>(at - std::begin(kNames));
}

template <class W>
W reduced(Reduction how, W a, W b) {
  // Integers wrap around.
  const auto wrapped = [](auto x, auto y, bool add) {
    if constexpr (std::is_integral_v<W>) {
      const uint64_t u = static_cast<std::make_unsigned_t<W>>(x), v = static_cast<std::make_unsigned_t<W>>(y);
      return static_cast<W>(add ? u + v : u * v);
    } else {
      return add ? x + y : x * y;
    }
  };
  switch (how) {
    case Reduction::kAdd: return wrapped(a, b, true);
    case Reduction::kMul: return wrapped(a, b, false);
    case Reduction::kMax: return a < b || b != b ? b : a;
    case Reduction::kMin: return b < a || b != b ? b : a;
    default: return b;
  }
}

// to[at] becomes to[at] reduced with updates[i], for runs of n elements.
using Places = std::vector<int64_t>;
Result<> apply(Reduction how, const Tensor& updates, const Places& places, int64_t run, Tensor& to) {
  if (how == Reduction::kNone) {
    for (size_t i = 0; i < places.size(); ++i) copy_block(updates, static_cast<int64_t>(i) * run, to, places[i], run);
    return {};
  }
  return dispatch(kNumbers, to.dtype(), "data", [&]<class T>() -> Result<> {
    const T* from = updates.as<T>().data();
    for (const int64_t place : places) {
      T* target = to.mutate<T>().data() + place;
      for (int64_t i = 0; i < run; ++i, ++from, ++target)
        *target = narrow<T>(reduced<Wide<T>>(how, widen(*target), widen(*from)));
    }
    return {};
  });
}

Result<> scatter(RunContext& c, const Tensor& x, const Tensor& updates, const Places& places, int64_t run) {
  if (updates.dtype() != x.dtype())
    return error(Code::kInvalid,
                 fmt::format("updates of {} for data of {}", to_string(updates.dtype()), to_string(x.dtype())));
  BOLIDE_TRY(const Reduction how, reduction_of(c));
  BOLIDE_TRY(Tensor * y, c.make(0, x.dtype(), x.shape()));
  copy_block(x, 0, *y, 0, x.elements());
  return apply(how, updates, places, run, *y);
}

}  // namespace

Result<> run_scatter_elements(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor indices, wide_integers(c, 1));
  BOLIDE_TRY(const Tensor* updates, c.tensor(2));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  bool fits = indices.rank() == x->rank() && updates->shape() == indices.shape();
  for (int d = 0; fits && d < x->rank(); ++d) fits = d == axis || indices.dim(d) <= x->dim(d);
  if (!fits)
    return error(Code::kInvalid, fmt::format("indices {} and updates {} into {}", to_string(indices.shape()),
                                             to_string(updates->shape()), to_string(x->shape())));
  const int64_t dim = x->dim(axis);
  for (const int64_t index : indices.as<int64_t>()) BOLIDE_TRY(index_of(index, dim, "indices"));
  Strides strides = strides_of(x->shape());
  const int64_t step = strides[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  Places places(static_cast<size_t>(indices.elements()));
  for_each_offset(indices.shape(), strides, strides, [&](int64_t i, int64_t offset, int64_t) {
    const int64_t index = indices.as<int64_t>()[static_cast<size_t>(i)];
    places[static_cast<size_t>(i)] = offset + (index < 0 ? index + dim : index) * step;
  });
  return scatter(c, *x, *updates, places, 1);
}

Result<> run_scatter_nd(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor indices, wide_integers(c, 1));
  BOLIDE_TRY(const Tensor* updates, c.tensor(2));
  if (indices.rank() < 1 || indices.dim(-1) > x->rank())
    return error(Code::kInvalid, fmt::format("indices {} into {}", to_string(indices.shape()), to_string(x->shape())));
  const int k = static_cast<int>(indices.dim(-1));
  std::vector<int64_t> dims(indices.shape().span().begin(), indices.shape().span().end() - 1);
  dims.insert(dims.end(), x->shape().span().begin() + k, x->shape().span().end());
  BOLIDE_TRY(const Shape wanted, shape_of(dims));
  if (updates->shape() != wanted)
    return error(Code::kInvalid,
                 fmt::format("updates {}, expected {}", to_string(updates->shape()), to_string(wanted)));
  int64_t run = 1;
  for (int d = k; d < x->rank(); ++d) run *= x->dim(d);
  const Strides strides = strides_of(x->shape());
  Places places(updates->elements() == 0 ? 0 : static_cast<size_t>(updates->elements() / run));
  const int64_t* tuple = indices.as<int64_t>().data();
  for (int64_t& place : places)
    for (int d = 0; d < k; ++d) {
      BOLIDE_TRY(const int64_t index, index_of(*tuple++, x->dim(d), "indices"));
      place += index * strides[static_cast<size_t>(d)];
    }
  return scatter(c, *x, *updates, places, run);
}

}  // namespace bolide::gather
