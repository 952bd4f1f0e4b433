#include "ops/normalise.h"

#include <cmath>

#include "ops/dense.h"
#include "ops/shape.h"

namespace bolide {
namespace {

// Input `i` as T, which broadcasts to `shape`; empty if it is absent. kInvalid: it does not broadcast.
template <class T>
Result<Tensor> parameter(const RunContext& c, int i, const Shape& shape) {
  if (i < 0) return Tensor();
  BOLIDE_TRY(Tensor wide, widened_if<T>(c, static_cast<size_t>(i)));
  if (!wide) return wide;
  const auto both = broadcast(wide.shape(), shape);
  if (!both || *both != shape)
    return error(Code::kInvalid, fmt::format("input {} is {}, which does not broadcast to {}", i,
                                             to_string(wide.shape()), to_string(shape)));
  return wide;
}

// f(element of x, element of the parameter) for all; `row` elements repeat unless it broadcasts otherwise.
template <class T, class F>
void with(const Tensor& parameter, const Shape& shape, F&& f) {
  for_each_offset(shape, broadcast_strides(parameter.shape(), shape), {}, [&](int64_t i, int64_t from, int64_t) {
    f(static_cast<size_t>(i), parameter.as<T>()[static_cast<size_t>(from)]);
  });
}

}  // namespace

Result<> normalise_rows(RunContext& c, const RowNormalisation& n) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int axis, axis_of(n.axis, x->rank()));
  Shape kept = x->shape();
  for (int i = axis; i < kept.rank; ++i) kept[i] = 1;
  int64_t row = 1;
  for (int i = axis; i < x->rank(); ++i) row *= x->dim(i);
  const int64_t rows = kept.elements();
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor scale, parameter<T>(c, n.scale, x->shape()));
    BOLIDE_TRY(const Tensor bias, parameter<T>(c, n.bias, x->shape()));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    BOLIDE_TRY(Tensor means, make_wide<T>(c, kept));
    BOLIDE_TRY(Tensor inverses, make_wide<T>(c, kept));
    Tensor sum = wide;
    for (const int input : {n.skip, n.skip_bias}) {
      BOLIDE_TRY(const Tensor added, parameter<T>(c, input, x->shape()));
      if (!added) continue;
      BOLIDE_TRY(Tensor next, make_wide<T>(c, x->shape()));
      with<T>(added, x->shape(), [&](size_t i, T value) { next.mutate<T>()[i] = sum.as<T>()[i] + value; });
      sum = std::move(next);
    }
    const T* in = sum.as<T>().data();
    T* out = y.mutate<T>().data();
    parallel(c.workers(), rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(row, 1)),
             [&](int64_t begin, int64_t end) {
               for (int64_t r = begin; r < end; ++r) {
                 Moments moments = moments_of(in + r * row, row);
                 if (!n.centred) moments = {0, moments.variance + moments.mean * moments.mean};
                 const double inverse = 1 / std::sqrt(moments.variance + n.epsilon);
                 for (int64_t i = r * row; i < (r + 1) * row; ++i)
                   out[i] = static_cast<T>((static_cast<double>(in[i]) - moments.mean) * inverse);
                 means.mutate<T>()[static_cast<size_t>(r)] = static_cast<T>(moments.mean);
                 inverses.mutate<T>()[static_cast<size_t>(r)] = static_cast<T>(inverse);
               }
             });
    if (scale) with<T>(scale, x->shape(), [&](size_t i, T value) { out[i] *= value; });
    if (bias) with<T>(bias, x->shape(), [&](size_t i, T value) { out[i] += value; });
    const auto emit_if = [&](int i, DType dtype, Tensor value) -> Result<> {
      return i >= 0 && static_cast<size_t>(i) < c.outputs() ? emit(c, static_cast<size_t>(i), dtype, std::move(value))
                                                            : Result<>();
    };
    BOLIDE_TRY(emit_if(n.mean, kDTypeOf<T>, std::move(means)));
    BOLIDE_TRY(emit_if(n.inverse, kDTypeOf<T>, std::move(inverses)));
    BOLIDE_TRY(emit_if(n.sum, x->dtype(), std::move(sum)));
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

}  // namespace bolide
