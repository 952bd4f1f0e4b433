#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/dense.h"
#include "ops/ops.h"
#include "ops/region.h"
#include "ops/shape.h"
#include "ops/window.h"

namespace bolide {
namespace {

// Calls f(offset in the plane) for the inputs of the window at `at` that are no padding.
template <class F>
void for_each_input(const Window& window, const SpatialDims& at, F&& f) {
  const auto rank = static_cast<size_t>(window.rank), last = rank - 1;
  std::array<std::array<int64_t, 2>, kSpatialMax> range;
  SpatialDims count{}, tap{};
  for (size_t i = 0; i < rank; ++i) {
    range[i] = window.inside(static_cast<int>(i), at[i]);
    count[i] = range[i][1] - range[i][0];
    if (count[i] <= 0) return;
  }
  const auto place = [&](size_t i, int64_t t) {
    return at[i] * window.stride[i] + (range[i][0] + t) * window.dilation[i] - window.begin[i];
  };
  do {
    int64_t row = 0;
    for (size_t i = 0; i < last; ++i) row = row * window.input[i] + place(i, tap[i]);
    int64_t offset = row * window.input[last] + place(last, 0);
    for (int64_t t = 0; t < count[last]; ++t, offset += window.dilation[last]) f(offset);
  } while (step({count.data(), last}, {tap.data(), last}));
}

// Calls f(plane, output offset, position) for all outputs of N * C planes, on the workers.
template <class F>
void for_each_output(RunContext& c, const Window& window, int64_t planes, F&& f) {
  const auto rank = static_cast<size_t>(window.rank);
  const int64_t outputs = window.outputs();
  if (outputs == 0) return;
  parallel(c.workers(), planes, std::max<int64_t>(1, 16384 / outputs), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      SpatialDims at{};
      int64_t i = plane * outputs;
      do f(plane, i++, at);
      while (step({window.output.data(), rank}, {at.data(), rank}));
    }
  });
}

struct Pool {
  const Tensor* x = nullptr;
  Window window;
  Shape shape;
  int64_t planes = 0;
};
Result<Pool> read_pool(RunContext& c) {
  Pool pool;
  BOLIDE_TRY(pool.x, c.tensor(0));
  BOLIDE_TRY(const int64_t ceil, c.attributes().integer("ceil_mode", 0));
  BOLIDE_TRY(pool.window, forward_window(c, *pool.x, {}, ceil != 0));
  BOLIDE_TRY(pool.shape, output_shape(pool.window, pool.x->dim(0), pool.x->dim(1)));
  pool.planes = pool.x->dim(0) * pool.x->dim(1);
  return pool;
}

// Where an element of a plane lies if the first axis runs fastest.
int64_t column_major(const Window& window, int64_t offset) {
  SpatialDims at{};
  for (size_t i = static_cast<size_t>(window.rank); i-- > 0;)
    at[i] = offset % window.input[i], offset /= window.input[i];
  int64_t to = 0;
  for (size_t i = static_cast<size_t>(window.rank); i-- > 0;) to = to * window.input[i] + at[i];
  return to;
}

template <class T>
Result<> max_pool(RunContext& c, const Pool& pool, const Tensor& x, bool columns) {
  BOLIDE_TRY(Tensor y, c.scratch(x.dtype(), pool.shape));
  const bool indexed = c.outputs() > 1;
  int64_t* indices = nullptr;
  if (indexed) {
    BOLIDE_TRY(Tensor * made, c.make(1, DType::kI64, pool.shape));
    indices = made->mutate<int64_t>().data();
  }
  const T* in = x.as<T>().data();
  T* out = y.mutate<T>().data();
  const int64_t inputs = pool.window.inputs();
  constexpr T kLeast =
      std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  for_each_output(c, pool.window, pool.planes, [&](int64_t plane, int64_t i, const SpatialDims& at) {
    const T* from = in + plane * inputs;
    T most = kLeast;
    int64_t where = -1;
    for_each_input(pool.window, at, [&](int64_t offset) {
      if (from[offset] > most || where < 0) most = from[offset], where = offset;
    });
    out[i] = most;
    if (indexed) indices[i] = where < 0 ? -1 : plane * inputs + (columns ? column_major(pool.window, where) : where);
  });
  return emit(c, 0, pool.x->dtype(), std::move(y));
}

Result<> run_max_pool(RunContext& c) {
  BOLIDE_TRY(const Pool pool, read_pool(c));
  BOLIDE_TRY(const int64_t order, c.attributes().integer("storage_order", 0));
  if (pool.x->dtype() == DType::kI8) return max_pool<int8_t>(c, pool, *pool.x, order != 0);
  if (pool.x->dtype() == DType::kU8) return max_pool<uint8_t>(c, pool, *pool.x, order != 0);
  return in_float(pool.x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *pool.x));
    return max_pool<T>(c, pool, wide, order != 0);
  });
}

Result<> run_average_pool(RunContext& c) {
  BOLIDE_TRY(const Pool pool, read_pool(c));
  BOLIDE_TRY(const int64_t padded, c.attributes().integer("count_include_pad", 0));
  return in_float(pool.x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *pool.x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, pool.shape));
    const Window& window = pool.window;
    const int64_t inputs = window.inputs();
    for_each_output(c, window, pool.planes, [&](int64_t plane, int64_t i, const SpatialDims& at) {
      const T* from = wide.as<T>().data() + plane * inputs;
      T sum{};
      int64_t count = 0;
      for_each_input(window, at, [&](int64_t offset) { sum += from[offset], ++count; });
      if (padded != 0) {  // padding counts, what ceil_mode reaches beyond it does not
        count = 1;
        for (size_t d = 0; d < static_cast<size_t>(window.rank); ++d) {
          const int64_t room = window.input[d] + window.end[d] - (at[d] * window.stride[d] - window.begin[d]);
          count *= std::clamp<int64_t>((room + window.dilation[d] - 1) / window.dilation[d], 0, window.kernel[d]);
        }
      }
      y.mutate<T>()[static_cast<size_t>(i)] = count == 0 ? T{} : sum / static_cast<T>(count);
    });
    return emit(c, 0, pool.x->dtype(), std::move(y));
  });
}

Result<double> read_p(const RunContext& c) {
  if (const auto* any = c.attributes().find("p"); any != nullptr && std::holds_alternative<float>(*any))
    return static_cast<double>(std::get<float>(*any));  // version 1
  BOLIDE_TRY(const int64_t p, c.attributes().integer("p", 2));
  if (p < 1) return error(Code::kInvalid, fmt::format("p is {}", p));
  return static_cast<double>(p);
}

template <class T>
T power(T value, double p) {
  value = std::abs(value);
  return p == 1 ? value : p == 2 ? value * value : static_cast<T>(std::pow(static_cast<double>(value), p));
}
template <class T>
T root(T value, double p) {
  return p == 1 ? value : p == 2 ? std::sqrt(value) : static_cast<T>(std::pow(static_cast<double>(value), 1 / p));
}

Result<> run_lp_pool(RunContext& c) {
  BOLIDE_TRY(const Pool pool, read_pool(c));
  BOLIDE_TRY(const double p, read_p(c));
  return in_float(pool.x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *pool.x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, pool.shape));
    for_each_output(c, pool.window, pool.planes, [&](int64_t plane, int64_t i, const SpatialDims& at) {
      const T* from = wide.as<T>().data() + plane * pool.window.inputs();
      T sum{};
      for_each_input(pool.window, at, [&](int64_t offset) { sum += power(from[offset], p); });
      y.mutate<T>()[static_cast<size_t>(i)] = root(sum, p);
    });
    return emit(c, 0, pool.x->dtype(), std::move(y));
  });
}

// One value a plane: reduce.operator()(elements).
template <class F>
Result<> global_pool(RunContext& c, F&& reduce) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->rank() < 2) return error(Code::kInvalid, fmt::format("X is {}, expected [N, C, ...]", to_string(x->shape())));
  Shape shape = x->shape();
  for (int i = 2; i < shape.rank; ++i) shape[i] = 1;
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    const auto out = y.mutate<T>();
    const size_t inputs = out.empty() ? 0 : wide.as<T>().size() / out.size();
    for (size_t i = 0; i < out.size(); ++i) out[i] = reduce(wide.as<T>().subspan(i * inputs, inputs));
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

Result<> run_global_average_pool(RunContext& c) {
  return global_pool(c, []<class T>(std::span<const T> values) {
    double sum = 0;
    for (const T value : values) sum += static_cast<double>(value);
    return values.empty() ? T{} : static_cast<T>(sum / static_cast<double>(values.size()));
  });
}
Result<> run_global_max_pool(RunContext& c) {
  return global_pool(c, []<class T>(std::span<const T> values) {
    return values.empty() ? -std::numeric_limits<T>::infinity() : *std::max_element(values.begin(), values.end());
  });
}
Result<> run_global_lp_pool(RunContext& c) {
  BOLIDE_TRY(const double p, read_p(c));
  return global_pool(c, [p]<class T>(std::span<const T> values) {
    T sum{};
    for (const T value : values) sum += power(value, p);
    return root(sum, p);
  });
}

// Each value goes where its index says; the indices are of the output that pads, strides and kernel imply, which
// output_shape may enlarge.
Result<> run_max_unpool(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* indices, c.tensor(1));
  BOLIDE_TRY(const auto wanted, c.integers(2, {}, kRankMax));
  BOLIDE_TRY(const Window window, read_window(c, *x, {}));
  if (indices->dtype() != DType::kI64) return error(Code::kInvalid, "the indices are not of i64");
  BOLIDE_TRY(expect_shape(*indices, x->shape(), "the indices' tensor"));
  Shape own{x->dim(0), x->dim(1)};
  for (size_t i = 0; i < static_cast<size_t>(window.rank); ++i) {
    const int64_t size = (window.input[i] - 1) * window.stride[i] - window.begin[i] - window.end[i] + window.kernel[i];
    if (size < 0) return error(Code::kInvalid, fmt::format("pads leave nothing of axis {}", i + 2));
    own.dims[static_cast<size_t>(own.rank++)] = size;
  }
  Shape shape = own;
  if (!wanted.empty()) {
    BOLIDE_TRY(shape, shape_of(wanted));
    if (shape.rank != own.rank)
      return error(Code::kInvalid, fmt::format("output_shape is {} for {} dims", to_string(shape), own.rank));
  }
  BOLIDE_TRY(const int64_t total, product_of(own.span()));
  BOLIDE_TRY(product_of(shape.span()));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape, true));
    const Strides from = strides_of(own), to = strides_of(shape);
    for (size_t i = 0; i < wide.as<T>().size(); ++i) {
      const int64_t index = indices->as<int64_t>()[i];
      if (index < 0 || index >= total)
        return error(Code::kInvalid, fmt::format("index {} of a tensor of {} elements", index, total));
      int64_t offset = 0;
      bool inside = true;
      for (size_t d = 0; d < static_cast<size_t>(own.rank); ++d) {
        const int64_t at = index / from[d] % own.dims[d];
        inside = inside && at < shape.dims[d];
        offset += at * to[d];
      }
      if (inside) y.mutate<T>()[static_cast<size_t>(offset)] = wide.as<T>()[i];
    }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

constexpr OpDef kOps[] = {
    {"", "MaxPool", 1, run_max_pool},
    {"", "AveragePool", 1, run_average_pool},
    {"", "LpPool", 1, run_lp_pool},
    {"", "GlobalAveragePool", 1, run_global_average_pool},
    {"", "GlobalMaxPool", 1, run_global_max_pool},
    {"", "GlobalLpPool", 1, run_global_lp_pool},
    {"", "MaxUnpool", 9, run_max_unpool},
    {"", "MaxRoiPool", 1, run_max_roi_pool},
    {"", "RoiAlign", 10, run_roi_align},
};

}  // namespace

std::span<const OpDef> pool_ops() { return kOps; }

}  // namespace bolide
