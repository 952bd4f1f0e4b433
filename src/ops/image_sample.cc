#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/image.h"
#include "ops/moves.h"
#include "ops/number.h"

namespace bolide::image {
namespace {

enum class Padding : uint8_t { kZeros, kBorder, kReflection };

// One spatial axis of the image.
struct Axis {
  int64_t dim = 0;
  Padding padding = Padding::kZeros;
  bool align_corners = false;

  double lowest() const { return align_corners ? 0 : -0.5; }
  double highest() const { return static_cast<double>(dim) + (align_corners ? -1 : -0.5); }

  // From [-1, 1] to places on the axis, rounded as f32 unless the grid is of f64.
  double place_of(double grid, bool is_f64) const {
    const auto place = [&](auto n) {
      const auto length = static_cast<decltype(n)>(dim);
      return align_corners ? (n + 1) / 2 * (length - 1) : ((n + 1) * length - 1) / 2;
    };
    return is_f64 ? place(grid) : static_cast<double>(place(static_cast<float>(grid)));
  }
  double reflected(double x) const {
    const double low = lowest(), range = highest() - low;
    if (range <= 0) return 0;
    const double distance = x < low ? low - x : x - low;
    const double rest = std::fmod(distance, 2 * range);
    return rest <= range ? low + rest : low + 2 * range - rest;
  }
  double padded(double x) const {
    if (x >= lowest() && x <= highest()) return x;
    if (padding == Padding::kBorder) return std::clamp(x, 0.0, static_cast<double>(dim - 1));
    return padding == Padding::kReflection ? reflected(x) : x;
  }
  // The sample at an index, -1 for a zero.
  int64_t sample(double index) const {
    const auto last = static_cast<double>(dim - 1);
    if (padding == Padding::kZeros) return index >= 0 && index <= last ? static_cast<int64_t>(index) : -1;
    if (padding == Padding::kReflection && (index < 0 || index > last)) index = reflected(index);
    return static_cast<int64_t>(std::clamp(index, 0.0, last));
  }
};

struct Tap {
  int64_t index;  // -1: nothing
  double weight;
};

enum class Filter : uint8_t { kNearest, kLinear, kCubic };

// At most four samples along an axis.
size_t taps_of(const Axis& axis, Filter filter, double x, std::array<Tap, 4>& taps) {
  if (!(std::abs(x) < 1e15)) {  // no number, or far away
    if (axis.padding == Padding::kZeros) return 0;
    x = std::isnan(x) || axis.padding == Padding::kReflection ? 0 : x;
  }
  if (filter == Filter::kNearest) {
    taps[0] = {axis.sample(axis.padded(std::nearbyint(x))), 1};
    return 1;
  }
  // Cubic samples beyond the border are the border's, from wherever x is.
  if (filter != Filter::kCubic || axis.padding != Padding::kBorder) x = axis.padded(x);
  const double left = std::floor(x), t = x - left;
  if (filter == Filter::kLinear) {
    taps[0] = {axis.sample(left), 1 - t};
    taps[1] = {axis.sample(left + 1), t};
    return 2;
  }
  constexpr double kA = -0.75;
  const auto near = [](double d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
  const auto far = [](double d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
  const double weights[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
  for (size_t k = 0; k < 4; ++k) taps[k] = {axis.sample(left - 1 + static_cast<double>(k)), weights[k]};
  return 4;
}

}  // namespace

// X [N, C, spatial ...], grid [N, places ..., as many numbers as spatial axes, the last axis first].
Result<> run_grid_sample(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* grid, c.tensor(1));
  BOLIDE_TRY(const std::string mode, c.attributes().text("mode", "linear"));
  BOLIDE_TRY(const std::string padding, c.attributes().text("padding_mode", "zeros"));
  BOLIDE_TRY(const int64_t align_corners, c.attributes().integer("align_corners", 0));
  const int spatial = x->rank() - 2;
  if (spatial < 1 || grid->rank() != x->rank() || grid->dim(-1) != spatial || grid->dim(0) != x->dim(0))
    return error(Code::kInvalid,
                 fmt::format("grid {} for an image {}", to_string(grid->shape()), to_string(x->shape())));
  Filter filter = Filter::kLinear;
  if (mode == "nearest")
    filter = Filter::kNearest;
  else if (mode == "cubic" || mode == "bicubic")
    filter = Filter::kCubic;
  else if (mode != "linear" && mode != "bilinear")
    return error(Code::kInvalid, fmt::format("mode {:.40}", mode));
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return error(Code::kInvalid, fmt::format("padding_mode {:.40}", padding));
  std::vector<Axis> axes;
  for (int d = 0; d < spatial; ++d)
    axes.push_back({x->dim(d + 2),
                    padding == "zeros"    ? Padding::kZeros
                    : padding == "border" ? Padding::kBorder
                                          : Padding::kReflection,
                    align_corners != 0});
  Shape shape = grid->shape();
  for (int d = shape.rank - 1; d > 1; --d) shape[d] = shape[d - 1];
  shape[1] = x->dim(1);
  BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), shape));
  if (y->elements() == 0) return {};
  for (const Axis& axis : axes)
    if (axis.dim == 0) return error(Code::kInvalid, fmt::format("an image {}", to_string(x->shape())));
  BOLIDE_TRY(const std::vector<double> places, doubles_of(*grid));
  const bool is_f64 = grid->dtype() == DType::kF64;
  const int64_t batches = x->dim(0), channels = x->dim(1), points = y->elements() / (batches * channels);
  const int64_t pixels = x->elements() / (batches * channels);
  return dispatch(kNumbers, x->dtype(), "X", [&]<class T>() -> Result<> {
    using W = std::conditional_t<std::is_same_v<Wide<T>, float>, float, double>;
    const int64_t chunks = std::min<int64_t>(batches * points, int64_t{4} * c.workers().threads());
    c.workers().run(chunks, [&](int64_t chunk, int) {
      std::vector<std::pair<int64_t, double>> sum, next;
      const int64_t all = batches * points;
      for (int64_t i = all * chunk / chunks; i < all * (chunk + 1) / chunks; ++i) {
        sum.assign(1, {0, 1.0});
        for (int d = 0; d < spatial; ++d) {
          const Axis& axis = axes[static_cast<size_t>(d)];
          std::array<Tap, 4> taps{};
          const double place = axis.place_of(places[static_cast<size_t>(i * spatial + spatial - 1 - d)], is_f64);
          const size_t count = taps_of(axis, filter, place, taps);
          next.clear();
          for (const auto& [offset, weight] : sum)
            for (size_t k = 0; k < count; ++k)
              if (taps[k].index >= 0) next.emplace_back(offset * axis.dim + taps[k].index, weight * taps[k].weight);
          sum.swap(next);
        }
        const int64_t batch = i / points;
        for (int64_t channel = 0; channel < channels; ++channel) {
          const T* plane = x->as<T>().data() + (batch * channels + channel) * pixels;
          W value = 0;
          for (const auto& [offset, weight] : sum)
            value += static_cast<W>(weight) * static_cast<W>(widen(plane[offset]));
          y->mutate<T>()[static_cast<size_t>((batch * channels + channel) * points + i % points)] =
              narrow<T>(static_cast<Wide<T>>(value));
        }
      }
    });
    return {};
  });
}

// theta [N, 2, 3] and size [N, C, H, W] give a grid [N, H, W, 2]; of volumes [N, 3, 4] gives [N, D, H, W, 3].
Result<> run_affine_grid(RunContext& c) {
  BOLIDE_TRY(const Tensor* theta, c.tensor(0));
  BOLIDE_TRY(const std::vector<int64_t> size, c.integers(1, {}, kRankMax));
  BOLIDE_TRY(const int64_t align_corners, c.attributes().integer("align_corners", 0));
  const int spatial = static_cast<int>(size.size()) - 2;
  if (spatial < 2 || spatial > 3 || theta->shape() != Shape{size[0], spatial, spatial + 1})
    return error(Code::kInvalid,
                 fmt::format("theta {} for a size of {} numbers", to_string(theta->shape()), size.size()));
  std::vector<int64_t> dims{size[0]};
  dims.insert(dims.end(), size.begin() + 2, size.end());
  dims.push_back(spatial);
  BOLIDE_TRY(const Shape shape, shape_of(dims));
  BOLIDE_TRY(const std::vector<double> matrix, doubles_of(*theta));
  return dispatch(kFloats, theta->dtype(), "theta", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, theta->dtype(), shape));
    T* to = y->mutate<T>().data();
    const int64_t points = y->elements() == 0 ? 0 : y->elements() / size[0] / spatial;
    for (int64_t i = 0; i < size[0] * points; ++i) {
      double place[4] = {0, 0, 0, 0};  // the last axis first, then 1
      int64_t rest = i % points;
      for (int d = 0; d < spatial; ++d) {
        const int64_t dim = shape[spatial - d], at = rest % dim;
        rest /= dim;
        const auto index = static_cast<double>(at), length = static_cast<double>(dim);
        place[d] = align_corners == 0 ? (2 * index + 1) / length - 1 : dim == 1 ? -1 : 2 * index / (length - 1) - 1;
      }
      place[spatial] = 1;
      const double* row = matrix.data() + i / points * spatial * (spatial + 1);
      for (int d = 0; d < spatial; ++d) {
        double sum = 0;
        for (int k = 0; k <= spatial; ++k) sum += *row++ * place[k];
        *to++ = narrow<T>(static_cast<Wide<T>>(sum));
      }
    }
    return {};
  });
}

}  // namespace bolide::image
