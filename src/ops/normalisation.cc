#include <cmath>

#include "ops/dense.h"
#include "ops/normalise.h"
#include "ops/ops.h"
#include "ops/prepared_rows.h"
#include "ops/shape.h"

namespace bolide {
namespace {

Result<double> read_epsilon(const RunContext& c) {
  BOLIDE_TRY(const float epsilon, c.attributes().number("epsilon", 1e-5f));
  return static_cast<double>(epsilon);
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias for the planes of [N, C, ...], by channel.
template <class T>
void scale_planes(RunContext& c, const T* x, T* y, int64_t N, int64_t C, int64_t plane, const double* mean,
                  const double* variance, const T* scale, const T* bias, double epsilon) {
  if (N == 0 || plane == 0) return;
  parallel(c.workers(), N * C, std::max<int64_t>(1, 16384 / plane), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t channel = i % C;
      const double factor = static_cast<double>(scale[channel]) / std::sqrt(variance[channel] + epsilon);
      const auto a = static_cast<T>(factor);
      const auto b = static_cast<T>(static_cast<double>(bias[channel]) - mean[channel] * factor);
      for (int64_t j = i * plane; j < (i + 1) * plane; ++j) y[j] = x[j] * a + b;
    }
  });
}

// Versions before 9 may have statistics of each element (spatial 0); those before 7 test only if is_test is set, those
// from 14 on train only if training_mode is set, those between if they have more than one output.
Result<> run_batch_normalization(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const double epsilon, read_epsilon(c));
  BOLIDE_TRY(const float momentum, c.attributes().number("momentum", 0.9f));
  BOLIDE_TRY(const int64_t spatial, c.attributes().integer("spatial", 1));
  BOLIDE_TRY(const int64_t is_test, c.attributes().integer("is_test", 0));
  BOLIDE_TRY(const int64_t training_mode, c.attributes().integer("training_mode", 0));
  if (x->rank() < 1) return error(Code::kInvalid, "X is a scalar");
  const bool train = c.version() >= 14  ? training_mode != 0
                     : c.version() >= 7 ? c.outputs() > 1
                                        : is_test == 0 && c.outputs() > 1;
  const int64_t N = x->rank() == 1 ? 1 : x->dim(0);
  int64_t C = x->dim(x->rank() == 1 ? 0 : 1), plane = 1;
  for (int i = 2; i < x->rank(); ++i) (spatial != 0 || c.version() >= 9 ? plane : C) *= x->dim(i);
  for (size_t i = 1; i < 5; ++i) {
    BOLIDE_TRY(const Tensor* parameter, c.tensor(i));
    if (parameter->elements() != C)
      return error(Code::kInvalid,
                   fmt::format("input {} is {}, expected {} elements", i, to_string(parameter->shape()), C));
  }
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor scale, widened_if<T>(c, 1));
    BOLIDE_TRY(const Tensor bias, widened_if<T>(c, 2));
    BOLIDE_TRY(Tensor mean, widened_if<double>(c, 3));
    BOLIDE_TRY(Tensor variance, widened_if<double>(c, 4));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    BOLIDE_TRY(const Tensor* given_mean, c.tensor(3));
    BOLIDE_TRY(const Tensor* given_variance, c.tensor(4));
    if (train) {
      BOLIDE_TRY(Tensor batch_mean, make_wide<double>(c, mean.shape()));
      BOLIDE_TRY(Tensor batch_variance, make_wide<double>(c, mean.shape()));
      BOLIDE_TRY(Tensor running_mean, make_wide<double>(c, mean.shape()));
      BOLIDE_TRY(Tensor running_variance, make_wide<double>(c, mean.shape()));
      const T* in = wide.as<T>().data();
      const double keep = static_cast<double>(momentum), count = static_cast<double>(N) * static_cast<double>(plane);
      for (int64_t channel = 0; channel < C; ++channel) {
        const auto over = [&](auto&& f) {
          double sum = 0;
          for (int64_t n = 0; plane > 0 && n < N; ++n)
            for (int64_t j = 0; j < plane; ++j) sum += f(static_cast<double>(in[(n * C + channel) * plane + j]));
          return count == 0 ? 0 : sum / count;
        };
        const auto at = static_cast<size_t>(channel);
        const double m = over([](double v) { return v; });
        const double v = over([m](double value) { return (value - m) * (value - m); });
        batch_mean.mutate<double>()[at] = m, batch_variance.mutate<double>()[at] = v;
        running_mean.mutate<double>()[at] = mean.as<double>()[at] * keep + m * (1 - keep);
        running_variance.mutate<double>()[at] = variance.as<double>()[at] * keep + v * (1 - keep);
      }
      const auto emit_f64 = [&](size_t i, DType dtype, Tensor values) -> Result<> {
        return i < c.outputs() ? emit(c, i, dtype, std::move(values)) : Result<>();
      };
      BOLIDE_TRY(emit_f64(1, given_mean->dtype(), std::move(running_mean)));
      BOLIDE_TRY(emit_f64(2, given_variance->dtype(), std::move(running_variance)));
      BOLIDE_TRY(emit_f64(3, given_mean->dtype(), batch_mean));
      BOLIDE_TRY(emit_f64(4, given_variance->dtype(), batch_variance));
      mean = std::move(batch_mean), variance = std::move(batch_variance);
    } else {
      if (c.outputs() > 1) c.set(1, *given_mean);
      if (c.outputs() > 2) c.set(2, *given_variance);
      if (c.outputs() > 3) c.set(3, *given_mean);
      if (c.outputs() > 4) c.set(4, *given_variance);
    }
    scale_planes(c, wide.as<T>().data(), y.mutate<T>().data(), N, C, plane, mean.as<double>().data(),
                 variance.as<double>().data(), scale.as<T>().data(), bias.as<T>().data(), epsilon);
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// Groups of channels of [N, C, ...] are normalised each by itself. `by_group`: scale and bias have one value a group.
Result<> normalise_groups(RunContext& c, int64_t groups, bool by_group) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const double epsilon, read_epsilon(c));
  const int64_t N = x->dim(0), C = x->dim(1);
  if (groups < 1 || C % groups != 0) return error(Code::kInvalid, fmt::format("{} groups of {} channels", groups, C));
  for (size_t i = 1; i < 3; ++i) {
    BOLIDE_TRY(const Tensor* parameter, c.tensor(i));
    BOLIDE_TRY(expect_shape(*parameter, {by_group ? groups : C}, i == 1 ? "scale" : "the bias"));
  }
  return in_float(x->dtype(), "the input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor scale, widened_if<T>(c, 1));
    BOLIDE_TRY(const Tensor bias, widened_if<T>(c, 2));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    if (y.elements() == 0) return emit(c, 0, x->dtype(), std::move(y));
    const int64_t channels = C / groups, plane = y.elements() / (N * C);
    const T* in = wide.as<T>().data();
    T* out = y.mutate<T>().data();
    parallel(c.workers(), N * groups, std::max<int64_t>(1, 16384 / (channels * plane)),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const Moments moments = moments_of(in + i * channels * plane, channels * plane);
                 const double inverse = 1 / std::sqrt(moments.variance + epsilon);
                 for (int64_t k = 0; k < channels; ++k) {
                   const auto at = static_cast<size_t>(by_group ? i % groups : i % groups * channels + k);
                   const double factor = static_cast<double>(scale.as<T>()[at]) * inverse;
                   const double shift = static_cast<double>(bias.as<T>()[at]) - moments.mean * factor;
                   const int64_t from = (i * channels + k) * plane;
                   for (int64_t j = from; j < from + plane; ++j)
                     out[j] = static_cast<T>(static_cast<double>(in[j]) * factor + shift);
                 }
               }
             });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

Result<> check_channels(const RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->rank() < 2)
    return error(Code::kInvalid, fmt::format("the input is {}, expected [N, C, ...]", to_string(x->shape())));
  return {};
}

Result<> run_instance_normalization(RunContext& c) {
  BOLIDE_TRY(check_channels(c));
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->dim(1) == 0) {
    c.set(0, *x);
    return {};
  }
  return normalise_groups(c, x->dim(1), false);
}

Result<> run_group_normalization(RunContext& c) {
  BOLIDE_TRY(check_channels(c));
  BOLIDE_TRY(const int64_t groups, c.attributes().integer("num_groups", 0));
  return normalise_groups(c, groups, c.version() < 21);
}

Result<> run_layer_normalization(RunContext& c) {
  BOLIDE_TRY(const int64_t axis, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const double epsilon, read_epsilon(c));
  return normalise_rows(c, {.axis = axis, .epsilon = epsilon, .scale = 1, .bias = 2, .mean = 1, .inverse = 2});
}

Result<> run_rms_normalization(RunContext& c) {
  BOLIDE_TRY(const int64_t axis, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const double epsilon, read_epsilon(c));
  return normalise_rows(c, {.axis = axis, .epsilon = epsilon, .centred = false, .scale = 1});
}

Result<> run_lp_normalization(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t p, c.attributes().integer("p", 2));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", -1));
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  if (p != 1 && p != 2) return error(Code::kInvalid, fmt::format("p is {}, expected 1 or 2", p));
  return in_float(x->dtype(), "the input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    const T* in = wide.as<T>().data();
    T* out = y.mutate<T>().data();
    const int64_t size = x->dim(axis), stride = strides_of(x->shape())[static_cast<size_t>(axis)];
    if (y.elements() == 0) return emit(c, 0, x->dtype(), std::move(y));
    for (int64_t i = 0; i < y.elements() / size; ++i) {
      const int64_t begin = i / stride * stride * size + i % stride;
      double sum = 0;
      for (int64_t j = 0; j < size; ++j) {
        const double value = static_cast<double>(in[begin + j * stride]);
        sum += p == 1 ? std::abs(value) : value * value;
      }
      const double norm = p == 1 ? sum : std::sqrt(sum);
      for (int64_t j = 0; j < size; ++j)
        out[begin + j * stride] = norm == 0 ? T{} : static_cast<T>(static_cast<double>(in[begin + j * stride]) / norm);
    }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// y = x / (bias + alpha / size * (squares of `size` channels around))^beta
Result<> run_lrn(RunContext& c) {
  BOLIDE_TRY(check_channels(c));
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const float alpha, c.attributes().number("alpha", 1e-4f));
  BOLIDE_TRY(const float beta, c.attributes().number("beta", 0.75f));
  BOLIDE_TRY(const float bias, c.attributes().number("bias", 1));
  BOLIDE_TRY(const int64_t size, c.attributes().integer("size", 0));
  if (size < 1) return error(Code::kInvalid, fmt::format("size is {}, expected at least 1", size));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    const int64_t N = x->dim(0), C = x->dim(1);
    if (y.elements() == 0) return emit(c, 0, x->dtype(), std::move(y));
    const int64_t plane = y.elements() / (N * C);
    const int64_t before = std::min((size - 1) / 2, C), after = std::min(size - 1 - (size - 1) / 2, C);
    parallel(c.workers(), N, 1, [&](int64_t begin, int64_t end) {
      std::vector<double> sums(static_cast<size_t>(plane));
      for (int64_t n = begin; n < end; ++n)
        for (int64_t channel = 0; channel < C; ++channel) {
          const T* in = wide.as<T>().data() + n * C * plane;
          std::fill(sums.begin(), sums.end(), 0.0);
          for (int64_t k = std::max<int64_t>(0, channel - before); k <= std::min(C - 1, channel + after); ++k)
            for (int64_t j = 0; j < plane; ++j) {
              const double value = static_cast<double>(in[k * plane + j]);
              sums[static_cast<size_t>(j)] += value * value;
            }
          T* out = y.mutate<T>().data() + (n * C + channel) * plane;
          for (int64_t j = 0; j < plane; ++j) {
            const double base = static_cast<double>(bias) +
                                static_cast<double>(alpha) / static_cast<double>(size) * sums[static_cast<size_t>(j)];
            out[j] = static_cast<T>(static_cast<double>(in[channel * plane + j]) /
                                    std::pow(base, static_cast<double>(beta)));
          }
        }
    });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// (x - mean) / (standard deviation + 1e-9) over the axes.
Result<> run_mean_variance_normalization(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  std::vector<int64_t> standard;
  if (c.version() < 9) {
    BOLIDE_TRY(const int64_t across, c.attributes().integer("across_channels", 0));
    standard = across ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{0, 2, 3};
  } else {
    standard = {0, 2, 3};
  }
  BOLIDE_TRY(const auto axes, c.attributes().integers("axes", standard));
  BOLIDE_TRY(const auto reduced, axes_of(axes, x->rank()));
  Shape kept = x->shape();
  for (int i = 0; i < kept.rank; ++i)
    if (reduced[static_cast<size_t>(i)]) kept[i] = 1;
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, x->shape()));
    BOLIDE_TRY(Tensor mean, make_wide<double>(c, kept, true));
    BOLIDE_TRY(Tensor variance, make_wide<double>(c, kept, true));
    if (y.elements() == 0) return emit(c, 0, x->dtype(), std::move(y));
    const auto in = wide.as<T>();
    const auto means = mean.mutate<double>(), variances = variance.mutate<double>();
    const int64_t elements = y.elements() / kept.elements();
    const auto count = static_cast<double>(elements);
    const Strides strides = broadcast_strides(kept, x->shape());
    const auto each = [&](auto&& f) {
      for_each_offset(x->shape(), strides, {},
                      [&](int64_t i, int64_t at, int64_t) { f(static_cast<size_t>(i), static_cast<size_t>(at)); });
    };
    each([&](size_t i, size_t at) { means[at] += static_cast<double>(in[i]) / count; });
    each([&](size_t i, size_t at) {
      const double d = static_cast<double>(in[i]) - means[at];
      variances[at] += d * d / count;
    });
    each([&](size_t i, size_t at) {
      y.mutate<T>()[i] = static_cast<T>((static_cast<double>(in[i]) - means[at]) / (std::sqrt(variances[at]) + 1e-9));
    });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

constexpr OpDef kOps[] = {
    {"", "BatchNormalization", 1, run_batch_normalization},
    {"", "InstanceNormalization", 1, run_instance_normalization},
    {"", "GroupNormalization", 18, run_group_normalization},
    // 17; exporters write it in models of older versions, too
    {.domain = "", .name = "LayerNormalization", .run = run_layer_normalization, .prepare = prepare_layer_norm},
    {.domain = "", .name = "RMSNormalization", .since = 23, .run = run_rms_normalization, .prepare = prepare_rms_norm},
    {"", "LpNormalization", 1, run_lp_normalization},
    {"", "LRN", 1, run_lrn},
    {"", "MeanVarianceNormalization", 1, run_mean_variance_normalization},
};

}  // namespace

std::span<const OpDef> normalisation_ops() { return kOps; }

}  // namespace bolide
