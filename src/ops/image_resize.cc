#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/memory.h"
#include "ops/dense.h"
#include "ops/image.h"
#include "ops/moves.h"
#include "ops/number.h"

namespace bolide::image {
namespace {

enum class Filter : uint8_t { kNearest, kLinear, kCubic };
enum class Rounding : uint8_t { kFloorOfTies, kCeilOfTies, kFloor, kCeil };
enum class Coordinates : uint8_t {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kCropAndResize,
  kHalfPixelUnmoved,
};

struct Options {
  Filter filter = Filter::kNearest;
  Rounding rounding = Rounding::kFloorOfTies;
  Coordinates coordinates = Coordinates::kHalfPixel;
  double cubic_a = -0.75;
  bool antialias = false, exclude_outside = false;
  float extrapolation = 0;
};

struct AxisPlan {
  int axis = 0;
  int64_t in = 0, out = 0;
  double scale = 1;         // of this axis: out is about in * scale
  double from = 0, to = 1;  // the part that kCropAndResize takes
};

template <class E, size_t N>
Result<E> choice(const RunContext& c, std::string_view name, const std::string_view (&names)[N],
                 std::string_view otherwise) {
  BOLIDE_TRY(const std::string given, c.attributes().text(name, otherwise));
  const auto* const at = std::find(std::begin(names), std::end(names), given);
  if (at == std::end(names)) return error(Code::kInvalid, fmt::format("{} {:.60}", name, given));
  return static_cast<E>(at - std::begin(names));
}

// Where an index of the output lies on the input's axis.
double source_of(const Options& o, const AxisPlan& p, int64_t i) {
  const auto x = static_cast<double>(i), in = static_cast<double>(p.in);
  const double width = in * p.scale;
  switch (o.coordinates) {
    case Coordinates::kAlignCorners: return width == 1 ? 0 : x * (in - 1) / (width - 1);
    case Coordinates::kAsymmetric: return x / p.scale;
    case Coordinates::kCropAndResize:
      return (width == 1 ? (p.to - p.from) * (in - 1) / 2 : x * (p.to - p.from) * (in - 1) / (width - 1)) +
             p.from * (in - 1);
    case Coordinates::kPytorchHalfPixel:
      if (width == 1) return -0.5;
      break;
    case Coordinates::kHalfPixelSymmetric:
      return in / 2 * (1 - static_cast<double>(p.out) / width) + (x + 0.5) / p.scale - 0.5;
    case Coordinates::kHalfPixelUnmoved: return (x + 0.5) / p.scale;
    default: break;
  }
  return (x + 0.5) / p.scale - 0.5;
}

bool is_outside(const Options& o, const AxisPlan& p, double x) {
  return o.coordinates == Coordinates::kCropAndResize && !(x >= 0 && x <= static_cast<double>(p.in - 1));
}

int64_t nearest_of(const Options& o, double x) {
  switch (o.rounding) {
    case Rounding::kFloorOfTies: return static_cast<int64_t>(std::ceil(x - 0.5));
    case Rounding::kCeilOfTies: return static_cast<int64_t>(std::floor(x + 0.5));
    case Rounding::kFloor: return static_cast<int64_t>(std::floor(x));
    default: return static_cast<int64_t>(std::ceil(x));
  }
}

// Keys 1981, "Cubic convolution interpolation for digital image processing".
double cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// out = sum of weights[i * count + k] * in[indices[i * count + k]]; where outside[i], the extrapolated value.
struct Taps {
  int64_t count = 0;
  std::vector<int64_t> indices;
  std::vector<double> weights;
  std::vector<bool> outside;
};

Taps taps_of(const Options& o, const AxisPlan& p) {
  Taps taps;
  const double stretch = o.antialias ? std::min(p.scale, 1.0) : 1;
  const double reach = o.filter == Filter::kCubic ? 2 : 1;
  const auto first = static_cast<int64_t>(std::floor(-reach / stretch)) + 1;
  taps.count = 2 - 2 * first;
  for (int64_t i = 0; i < p.out; ++i) {
    const double x = source_of(o, p, i);
    taps.outside.push_back(is_outside(o, p, x));
    // Between two samples, or at the right one of them.
    const double left = taps.outside.back() ? 0 : std::ceil(std::clamp(x, -1e15, 1e15)) - 1, ratio = x - left;
    double sum = 0;
    const size_t begin = taps.weights.size();
    for (int64_t k = first; k < first + taps.count; ++k) {
      const double distance = (static_cast<double>(k) - ratio) * stretch;
      double weight =
          o.filter == Filter::kCubic ? cubic(distance, o.cubic_a) : std::clamp(1 - std::abs(distance), 0.0, 1.0);
      const int64_t index = static_cast<int64_t>(left) + k;
      if (o.exclude_outside && (index < 0 || index >= p.in)) weight = 0;
      taps.indices.push_back(std::clamp<int64_t>(index, 0, p.in - 1));
      taps.weights.push_back(weight);
      sum += weight;
    }
    if ((o.antialias || o.exclude_outside) && sum != 0)
      for (size_t k = begin; k < taps.weights.size(); ++k) taps.weights[k] /= sum;
  }
  return taps;
}

// One axis of [before, in, after].
template <class W>
std::vector<W> resize_axis(const std::vector<W>& from, const AxisPlan& p, const Around& n, const Taps& taps, W outside,
                           Workers& workers) {
  std::vector<W> to(static_cast<size_t>(n.before * p.out * n.after));
  const std::vector<W> weights(taps.weights.begin(), taps.weights.end());
  const int64_t chunks = std::min<int64_t>(n.before * p.out, int64_t{4} * workers.threads());
  workers.run(chunks, [&](int64_t chunk, int) {
    const int64_t rows = n.before * p.out;
    for (int64_t row = rows * chunk / chunks; row < rows * (chunk + 1) / chunks; ++row) {
      const int64_t i = row % p.out;
      W* target = to.data() + row * n.after;
      if (taps.outside[static_cast<size_t>(i)]) {
        std::fill_n(target, n.after, outside);
        continue;
      }
      const W* plane = from.data() + row / p.out * p.in * n.after;
      for (auto k = static_cast<size_t>(i * taps.count); k < static_cast<size_t>((i + 1) * taps.count); ++k) {
        const W* source = plane + taps.indices[k] * n.after;
        for (int64_t j = 0; j < n.after; ++j) target[j] += weights[k] * source[j];
      }
    }
  });
  return to;
}

template <class T, class W>
T rounded(W value) {
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    const W nearest = std::nearbyint(value);
    if (!(nearest > static_cast<W>(Limits::min()))) return Limits::min();
    return nearest >= static_cast<W>(Limits::max()) ? Limits::max() : static_cast<T>(nearest);
  } else {
    return narrow<T>(static_cast<Wide<T>>(value));
  }
}

Result<> resize(RunContext& c, const Tensor& x, const Options& o, const std::vector<AxisPlan>& plans) {
  Shape shape = x.shape();
  for (const AxisPlan& p : plans) {
    if (p.in == 0 && p.out > 0) return error(Code::kInvalid, fmt::format("axis {} has no items", p.axis));
    shape[p.axis] = p.out;
  }
  BOLIDE_TRY(Tensor * y, c.make(0, x.dtype(), shape));
  if (y->elements() == 0) return {};
  int64_t places = 0;  // of lists that long axes have
  for (const int64_t dim : shape.span()) places += dim;
  if (o.filter == Filter::kNearest) {
    BOLIDE_TRY(expect_memory(places, sizeof(int64_t)));
    std::vector<std::vector<int64_t>> maps(static_cast<size_t>(x.rank()));
    for (int d = 0; d < x.rank(); ++d) {
      maps[static_cast<size_t>(d)].resize(static_cast<size_t>(shape[d]));
      std::iota(maps[static_cast<size_t>(d)].begin(), maps[static_cast<size_t>(d)].end(), int64_t{0});
    }
    for (const AxisPlan& p : plans)
      for (int64_t i = 0; i < p.out; ++i) {
        const double at = source_of(o, p, i);
        maps[static_cast<size_t>(p.axis)][static_cast<size_t>(i)] =
            is_outside(o, p, at) ? -1 : std::clamp<int64_t>(nearest_of(o, std::clamp(at, -1e15, 1e15)), 0, p.in - 1);
      }
    if (o.coordinates != Coordinates::kCropAndResize) return copy_mapped(x, maps, nullptr, *y, c.workers());
    BOLIDE_TRY(Tensor fill, c.scratch(x.dtype(), {1}));
    BOLIDE_TRY(dispatch(kNumbers, x.dtype(), "X", [&]<class T>() -> Result<> {
      fill.mutate<T>()[0] = rounded<T>(o.extrapolation);
      return {};
    }));
    return copy_mapped(x, maps, &fill, *y, c.workers());
  }
  return dispatch(kNumbers, x.dtype(), "X", [&]<class T>() -> Result<> {
    using W = std::conditional_t<(sizeof(T) > 2 && !std::is_same_v<T, float>), double, float>;
    // What is resized along one axis after the other, and places and weights along one.
    BOLIDE_TRY(expect_memory(x.elements() + y->elements() + 4 * places, sizeof(W)));
    std::vector<W> data;
    data.reserve(static_cast<size_t>(x.elements()));
    for (const T value : x.as<T>()) data.push_back(static_cast<W>(widen(value)));
    Shape now = x.shape();
    for (const AxisPlan& p : plans) {
      data = resize_axis(data, p, around(now, p.axis), taps_of(o, p), static_cast<W>(o.extrapolation), c.workers());
      now[p.axis] = p.out;
    }
    for (size_t i = 0; i < data.size(); ++i) y->mutate<T>()[i] = rounded<T>(data[i]);
    return {};
  });
}

Result<AxisPlan> plan_by_scale(const Tensor& x, int axis, double scale) {
  const int64_t in = x.dim(axis);
  const float out = std::floor(static_cast<float>(in) * static_cast<float>(scale));
  if (!(scale > 0) || !(out < 1e12F)) return error(Code::kInvalid, fmt::format("scale {} of axis {}", scale, axis));
  return AxisPlan{axis, in, static_cast<int64_t>(out), scale};
}

// Axes that change nothing are left out; what shrinks comes first, so that nothing between is larger than both ends.
void arrange(std::vector<AxisPlan>& plans) {
  std::erase_if(plans, [](const AxisPlan& p) {
    return p.in == p.out && std::abs(p.scale - 1) <= 1e-9 && p.from == 0 && p.to == 1;
  });
  const auto growth = [](const AxisPlan& p) {
    return static_cast<double>(p.out) / static_cast<double>(std::max<int64_t>(p.in, 1));
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const AxisPlan& a, const AxisPlan& b) { return growth(a) < growth(b); });
}

Result<std::vector<AxisPlan>> plans_of(const RunContext& c, const Tensor& x) {
  BOLIDE_TRY(std::vector<int64_t> axes, c.attributes().integers("axes"));
  if (!c.attributes().has("axes"))
    for (int d = 0; d < x.rank(); ++d) axes.push_back(d);
  BOLIDE_TRY(axes_of(axes, x.rank()).has_value() ? ok() : axes_of(axes, x.rank()).error().context("axes"));
  BOLIDE_TRY(const std::vector<double> roi, doubles_of(c, 1));
  BOLIDE_TRY(const std::vector<double> scales, doubles_of(c, 2));
  BOLIDE_TRY(const std::vector<int64_t> sizes, c.integers(3, {}, kRankMax));
  BOLIDE_TRY(const std::string policy, c.attributes().text("keep_aspect_ratio_policy", "stretch"));
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    return error(Code::kInvalid, fmt::format("keep_aspect_ratio_policy {:.40}", policy));
  const size_t n = axes.size();
  if ((scales.empty() ? sizes.size() : scales.size()) != n || (!scales.empty() && !sizes.empty()))
    return error(Code::kInvalid, fmt::format("{} scales and {} sizes for {} axes", scales.size(), sizes.size(), n));
  std::vector<AxisPlan> plans;
  for (size_t i = 0; i < n; ++i) {
    const int axis = static_cast<int>(axes[i] < 0 ? axes[i] + x.rank() : axes[i]);
    if (!scales.empty()) {
      BOLIDE_TRY(const AxisPlan plan, plan_by_scale(x, axis, scales[i]));
      plans.push_back(plan);
      continue;
    }
    if (sizes[i] < 0) return error(Code::kInvalid, fmt::format("a size of {}", sizes[i]));
    const int64_t in = x.dim(axis);
    plans.push_back(
        {axis, in, sizes[i], static_cast<double>(sizes[i]) / static_cast<double>(std::max<int64_t>(in, 1))});
  }
  if (policy != "stretch" && scales.empty() && n > 0) {
    double scale = plans[0].scale;
    for (const AxisPlan& p : plans)
      scale = policy == "not_larger" ? std::min(scale, p.scale) : std::max(scale, p.scale);
    for (AxisPlan& p : plans) {
      const double out = std::floor(static_cast<double>(p.in) * scale + 0.5);
      if (!(out < 1e12)) return error(Code::kInvalid, fmt::format("axis {} becomes too long", p.axis));
      p.scale = scale;
      p.out = static_cast<int64_t>(out);
    }
  }
  BOLIDE_TRY(const std::string mode, c.attributes().text("coordinate_transformation_mode", "half_pixel"));
  if (mode == "tf_crop_and_resize") {
    if (roi.size() != 2 * n) return error(Code::kInvalid, fmt::format("roi has {} numbers for {} axes", roi.size(), n));
    for (size_t i = 0; i < n; ++i) plans[i].from = roi[i], plans[i].to = roi[i + n];
  }
  arrange(plans);
  return plans;
}

struct Request {
  Options options;
  std::vector<AxisPlan> plans;
};

Result<Request> read_by_scales(const RunContext& c, const Tensor& x, const std::vector<double>& scales) {
  if (scales.size() != static_cast<size_t>(x.rank()))
    return error(Code::kInvalid, fmt::format("{} scales for {} axes", scales.size(), x.rank()));
  BOLIDE_TRY(const std::string mode, c.attributes().text("mode", "nearest"));
  if (mode != "nearest" && mode != "linear" && mode != "bilinear")
    return error(Code::kInvalid, fmt::format("mode {:.40}", mode));
  Options o;
  o.filter = mode == "nearest" ? Filter::kNearest : Filter::kLinear;
  o.coordinates = Coordinates::kAsymmetric;
  o.rounding = Rounding::kFloor;
  std::vector<AxisPlan> plans;
  for (int d = 0; d < x.rank(); ++d) {
    BOLIDE_TRY(const AxisPlan plan, plan_by_scale(x, d, scales[static_cast<size_t>(d)]));
    plans.push_back(plan);
  }
  arrange(plans);
  return Request{o, std::move(plans)};
}
Result<Request> read_by_scales(const RunContext& c, const Tensor& x) {
  BOLIDE_TRY(const std::vector<float> in_file, c.attributes().numbers("scales"));
  BOLIDE_TRY(const std::vector<double> given, doubles_of(c, 1));
  return read_by_scales(c, x, in_file.empty() ? given : std::vector<double>(in_file.begin(), in_file.end()));
}

// From version 11 on.
Result<Request> read_resize(const RunContext& c, const Tensor& x) {
  constexpr std::string_view kFilters[] = {"nearest", "linear", "cubic"};
  constexpr std::string_view kRoundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
  constexpr std::string_view kCoordinates[] = {"half_pixel",          "half_pixel_symmetric", "pytorch_half_pixel",
                                               "align_corners",       "asymmetric",           "tf_crop_and_resize",
                                               "tf_half_pixel_for_nn"};
  Options o;
  BOLIDE_TRY(o.filter, choice<Filter>(c, "mode", kFilters, "nearest"));
  BOLIDE_TRY(o.rounding, choice<Rounding>(c, "nearest_mode", kRoundings, "round_prefer_floor"));
  BOLIDE_TRY(o.coordinates, choice<Coordinates>(c, "coordinate_transformation_mode", kCoordinates, "half_pixel"));
  BOLIDE_TRY(o.cubic_a, c.attributes().number("cubic_coeff_a", -0.75F));
  BOLIDE_TRY(o.antialias, c.attributes().integer("antialias", 0));
  BOLIDE_TRY(o.exclude_outside, c.attributes().integer("exclude_outside", 0));
  BOLIDE_TRY(o.extrapolation, c.attributes().number("extrapolation_value", 0));
  BOLIDE_TRY(std::vector<AxisPlan> plans, plans_of(c, x));
  return Request{o, std::move(plans)};
}

}  // namespace

Result<std::optional<Resampling>> resampling_of(const RunContext& c, bool by_scales) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Request request, by_scales ? read_by_scales(c, *x) : read_resize(c, *x));
  const Options& o = request.options;
  if (o.coordinates == Coordinates::kCropAndResize) return std::nullopt;
  Resampling found{x->shape(), {}};
  for (const AxisPlan& p : request.plans) {
    if (p.in == 0 && p.out > 0) return error(Code::kInvalid, fmt::format("axis {} has no items", p.axis));
    found.shape[p.axis] = p.out;
  }
  BOLIDE_TRY(const int64_t elements, product_of(found.shape.span()));
  if (elements == 0) return found;
  int64_t places = 0;
  for (const int64_t dim : found.shape.span()) places += dim;
  BOLIDE_TRY(expect_memory(places, 4 * sizeof(int64_t)));
  for (const AxisPlan& p : request.plans) {
    Resampling::Axis axis{p.axis, 1, {}, {}};
    if (o.filter == Filter::kNearest) {
      for (int64_t i = 0; i < p.out; ++i)
        axis.indices.push_back(
            std::clamp<int64_t>(nearest_of(o, std::clamp(source_of(o, p, i), -1e15, 1e15)), 0, p.in - 1));
    } else {
      Taps taps = taps_of(o, p);
      axis.count = taps.count, axis.indices = std::move(taps.indices), axis.weights = std::move(taps.weights);
    }
    found.axes.push_back(std::move(axis));
  }
  return found;
}

Result<> run_resize(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Request request, read_resize(c, *x));
  return resize(c, *x, request.options, request.plans);
}

Result<> run_resize_by_scales(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Request request, read_by_scales(c, *x));
  return resize(c, *x, request.options, request.plans);
}

Result<> run_upsample_of_image(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const float height, c.attributes().number("height_scale", 1));
  BOLIDE_TRY(const float width, c.attributes().number("width_scale", 1));
  BOLIDE_TRY(const Request request,
             read_by_scales(c, *x, {1, 1, static_cast<double>(height), static_cast<double>(width)}));
  return resize(c, *x, request.options, request.plans);
}

}  // namespace bolide::image
