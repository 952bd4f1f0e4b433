// ArgMax, ArgMin, CumSum, CumProd: along one axis.
#include "ops/number.h"
#include "ops/reduce.h"
#include "ops/shape.h"
#include "ops/softmax.h"

namespace bolide {
namespace {

// NaN is the largest and the least, as in numpy.
template <bool largest, class W>
bool is_better(W x, W best) {
  if (x != x) return best == best;
  return largest ? x > best : x < best;
}

template <bool largest>
Result<> run_arg(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  BOLIDE_TRY(const int64_t keep, c.attributes().integer("keepdims", 1));
  BOLIDE_TRY(const int64_t select_last, c.attributes().integer("select_last_index", 0));
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  Shape shape;
  for (int i = 0; i < x->rank(); ++i)
    if (i != axis || keep != 0) shape.dims[static_cast<size_t>(shape.rank++)] = i == axis ? 1 : x->dim(i);
  BOLIDE_TRY(Tensor * out, c.make(0, DType::kI64, shape));
  if (out->elements() == 0) return {};
  if (x->dim(axis) == 0)
    return error(Code::kInvalid, fmt::format("axis {} of {} has no element", given, to_string(x->shape())));
  const Lanes lanes = lanes_of(x->shape(), axis);
  const auto to = out->mutate<int64_t>();
  return dispatch(kNumbers, x->dtype(), "input 0", [&]<class T>() -> Result<> {
    const auto from = x->as<T>();
    for (int64_t lane = 0; lane < out->elements(); ++lane) {
      const T* const first = from.data() + lane / lanes.inner * lanes.n * lanes.inner + lane % lanes.inner;
      Wide<T> best = widen(*first);
      int64_t at = 0;
      for (int64_t i = 1; i < lanes.n; ++i) {
        const Wide<T> v = widen(first[i * lanes.inner]);
        if (is_better<largest>(v, best) || (select_last != 0 && v == best)) best = v, at = i;
      }
      to[static_cast<size_t>(lane)] = at;
    }
    return {};
  });
}

template <bool product>
Result<> run_cumulate(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> axes, c.integers(1));
  if (axes.size() != 1) return error(Code::kInvalid, fmt::format("input 1 has {} axes, expected one", axes.size()));
  BOLIDE_TRY(const int axis, axis_of(axes[0], x->rank()));
  BOLIDE_TRY(const int64_t exclusive, c.attributes().integer("exclusive", 0));
  BOLIDE_TRY(const int64_t reverse, c.attributes().integer("reverse", 0));
  const Lanes lanes = lanes_of(x->shape(), axis);
  return dispatch(kNumbers, x->dtype(), "input 0", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
    // Integers wrap.
    using W = std::conditional_t<std::is_integral_v<T>, uint64_t, Wide<T>>;
    for (int64_t lane = 0; lane < lanes.outer * lanes.inner; ++lane) {
      const int64_t first = lane / lanes.inner * lanes.n * lanes.inner + lane % lanes.inner;
      W sum = product ? W(1) : W(0);
      for (int64_t i = 0; i < lanes.n; ++i) {
        const int64_t at = first + (reverse != 0 ? lanes.n - 1 - i : i) * lanes.inner;
        const W v = static_cast<W>(widen(x->as<T>().data()[at]));
        const W next = product ? sum * v : sum + v;
        y->mutate<T>().data()[at] = narrow<T>(static_cast<Wide<T>>(exclusive != 0 ? sum : next));
        sum = next;
      }
    }
    return {};
  });
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "ArgMax", .run = run_arg<true>},
    {.domain = "", .name = "ArgMin", .run = run_arg<false>},
    {.domain = "", .name = "CumSum", .since = 11, .run = run_cumulate<false>},
    {.domain = "", .name = "CumProd", .since = 26, .run = run_cumulate<true>},
};

}  // namespace

std::span<const OpDef> along_ops() { return kRows; }

}  // namespace bolide
