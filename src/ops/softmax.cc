#include "ops/softmax.h"

#include <algorithm>
#include <cmath>

#include "ops/cast.h"
#include "ops/number.h"
#include "ops/prepared_rows.h"
#include "ops/shape.h"

namespace bolide {
namespace {

// One lane of n > 0 elements, `step` apart.
template <class T>
void softmax_lane(const T* x, T* y, int64_t n, int64_t step, SoftmaxKind kind) {
  T most = x[0];
  int64_t at = 0;
  for (int64_t i = 1; i < n; ++i)
    if (x[i * step] > most) most = x[i * step], at = i;
  if (kind == SoftmaxKind::kHard) {
    for (int64_t i = 0; i < n; ++i) y[i * step] = i == at ? T(1) : T(0);
    return;
  }
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T e = std::exp(x[i * step] - most);
    sum += e;
    y[i * step] = e;
  }
  if (kind == SoftmaxKind::kSoftmax) {
    for (int64_t i = 0; i < n; ++i) y[i * step] /= sum;
    return;
  }
  const T shift = std::log(sum);
  for (int64_t i = 0; i < n; ++i) y[i * step] = x[i * step] - most - shift;
}

template <class T>
void softmax_lanes(const T* x, T* y, const Lanes& lanes, SoftmaxKind kind, Workers& workers) {
  const int64_t count = lanes.outer * lanes.inner;
  const int64_t at_a_time = std::max<int64_t>(1, 8192 / lanes.n);
  workers.run((count + at_a_time - 1) / at_a_time, [&](int64_t chunk, int) {
    const int64_t end = std::min(count, (chunk + 1) * at_a_time);
    for (int64_t lane = chunk * at_a_time; lane < end; ++lane) {
      const int64_t first = lane / lanes.inner * lanes.n * lanes.inner + lane % lanes.inner;
      softmax_lane(x + first, y + first, lanes.n, lanes.inner, kind);
    }
  });
}

template <SoftmaxKind kind>
Result<> run_softmax(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(dispatch(kFloats, x->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  // Before 13, all dims from the axis on are one.
  const bool flat = c.version() < 13;
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", flat ? 1 : -1));
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  Lanes lanes = lanes_of(x->shape(), axis);
  if (flat) lanes.n *= lanes.inner, lanes.inner = 1;
  const DType wide = x->dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  BOLIDE_TRY(const Tensor from, cast(*x, wide, c.pool()));
  BOLIDE_TRY(Tensor to, c.scratch(wide, x->shape()));
  softmax(from, to, lanes, kind, c.workers());
  BOLIDE_TRY(Tensor y, cast(to, x->dtype(), c.pool()));
  c.set(0, std::move(y));
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "Softmax", .run = run_softmax<SoftmaxKind::kSoftmax>, .prepare = prepare_softmax},
    {.domain = "", .name = "LogSoftmax", .run = run_softmax<SoftmaxKind::kLog>, .prepare = prepare_log_softmax},
    {.domain = "", .name = "Hardmax", .run = run_softmax<SoftmaxKind::kHard>},
};

}  // namespace

Lanes lanes_of(const Shape& shape, int axis) {
  Lanes lanes;
  for (const int64_t dim : shape.span())
    if (dim == 0) return {0, shape[axis], 0};  // the product of the others may be beyond i64
  for (int i = 0; i < axis; ++i) lanes.outer *= shape[i];
  lanes.n = shape[axis];
  for (int i = axis + 1; i < shape.rank; ++i) lanes.inner *= shape[i];
  return lanes;
}

void softmax(const Tensor& x, Tensor& y, const Lanes& lanes, SoftmaxKind kind, Workers& workers) {
  if (x.elements() == 0) return;
  if (x.dtype() == DType::kF64)
    softmax_lanes(x.as<double>().data(), y.mutate<double>().data(), lanes, kind, workers);
  else
    softmax_lanes(x.as<float>().data(), y.mutate<float>().data(), lanes, kind, workers);
}

std::span<const OpDef> softmax_ops() { return kRows; }

}  // namespace bolide
