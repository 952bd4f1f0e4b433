#include "ops/region.h"

#include <algorithm>
#include <cmath>

#include "ops/dense.h"
#include "ops/shape.h"

namespace bolide {
namespace {

constexpr int64_t kGridMax = 1024;

struct Regions {
  int64_t N = 0, C = 0, H = 0, W = 0, count = 0, oh = 0, ow = 0;
  double scale = 1;
};

Result<Regions> read_regions(const RunContext& c, const Tensor& x, const Tensor& rois, int64_t columns, int64_t oh,
                             int64_t ow) {
  if (x.rank() != 4 || rois.rank() != 2 || rois.dim(1) != columns)
    return error(Code::kInvalid, fmt::format("X is {} and the regions are {}, expected [N, C, H, W] and [count, {}]",
                                             to_string(x.shape()), to_string(rois.shape()), columns));
  if (oh < 1 || ow < 1 || oh > 1 << 20 || ow > 1 << 20)
    return error(Code::kInvalid, fmt::format("an output of {} x {}", oh, ow));
  BOLIDE_TRY(const float scale, c.attributes().number("spatial_scale", 1));
  Regions regions{x.dim(0), x.dim(1), x.dim(2), x.dim(3), rois.dim(0), oh, ow, static_cast<double>(scale)};
  BOLIDE_TRY(product_of(std::array{regions.count, regions.C, oh, ow}));
  return regions;
}

// A coordinate as a whole number, far ones cut.
int64_t whole(double value) { return std::isnan(value) ? 0 : static_cast<int64_t>(std::clamp(value, -1e9, 1e9)); }

// One sample: the four neighbours and their weights. `inside` false: it counts as 0.
struct Sample {
  bool inside = false;
  int64_t at[4] = {};
  double weight[4] = {};
};
Sample sample_of(double y, double x, int64_t H, int64_t W) {
  Sample sample;
  const auto height = static_cast<double>(H), width = static_cast<double>(W);
  if (H < 1 || W < 1 || !(y >= -1 && y <= height && x >= -1 && x <= width)) return sample;
  sample.inside = true;
  y = std::clamp(y, 0.0, height - 1), x = std::clamp(x, 0.0, width - 1);
  const auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
  const int64_t bottom = std::min(top + 1, H - 1), right = std::min(left + 1, W - 1);
  const double fy = y - static_cast<double>(top), fx = x - static_cast<double>(left);
  const int64_t at[4] = {top * W + left, top * W + right, bottom * W + left, bottom * W + right};
  const double weight[4] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
  std::copy_n(at, 4, sample.at);
  std::copy_n(weight, 4, sample.weight);
  return sample;
}

}  // namespace

Result<> run_max_roi_pool(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* rois, c.tensor(1));
  BOLIDE_TRY(const auto pooled, c.attributes().integers("pooled_shape"));
  if (pooled.size() != 2) return error(Code::kInvalid, fmt::format("pooled_shape has {} values", pooled.size()));
  BOLIDE_TRY(const Regions r, read_regions(c, *x, *rois, 5, pooled[0], pooled[1]));
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor boxes, widened<double>(c, *rois));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, {r.count, r.C, r.oh, r.ow}));
    T* out = y.mutate<T>().data();
    for (int64_t n = 0; n < r.count; ++n) {
      const double* box = boxes.as<double>().data() + n * 5;
      const int64_t batch = whole(box[0]);
      if (batch < 0 || batch >= r.N)
        return error(Code::kInvalid, fmt::format("a region of batch {} of {}", batch, r.N));
      const int64_t left = whole(std::round(box[1] * r.scale)), top = whole(std::round(box[2] * r.scale));
      const int64_t right = whole(std::round(box[3] * r.scale)), bottom = whole(std::round(box[4] * r.scale));
      const double bin_h = static_cast<double>(std::max<int64_t>(bottom - top + 1, 1)) / static_cast<double>(r.oh);
      const double bin_w = static_cast<double>(std::max<int64_t>(right - left + 1, 1)) / static_cast<double>(r.ow);
      for (int64_t channel = 0; channel < r.C; ++channel)
        for (int64_t i = 0; i < r.oh; ++i)
          for (int64_t j = 0; j < r.ow; ++j) {
            const auto edge = [](int64_t at, double bin, int64_t start, int64_t size, bool upper) {
              const double value = static_cast<double>(at) * bin;
              return std::clamp<int64_t>(whole(upper ? std::ceil(value) : std::floor(value)) + start, 0, size);
            };
            const int64_t y0 = edge(i, bin_h, top, r.H, false), y1 = edge(i + 1, bin_h, top, r.H, true);
            const int64_t x0 = edge(j, bin_w, left, r.W, false), x1 = edge(j + 1, bin_w, left, r.W, true);
            const T* plane = wide.as<T>().data() + (batch * r.C + channel) * r.H * r.W;
            T most{};
            for (int64_t yy = y0; yy < y1; ++yy)
              for (int64_t xx = x0; xx < x1; ++xx)
                if (const T value = plane[yy * r.W + xx]; (yy == y0 && xx == x0) || value > most) most = value;
            *out++ = most;
          }
    }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

Result<> run_roi_align(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* rois, c.tensor(1));
  BOLIDE_TRY(const auto batches, c.integers(2, {}, int64_t{1} << 30));
  BOLIDE_TRY(const int64_t oh, c.attributes().integer("output_height", 1));
  BOLIDE_TRY(const int64_t ow, c.attributes().integer("output_width", 1));
  BOLIDE_TRY(const int64_t sampling, c.attributes().integer("sampling_ratio", 0));
  BOLIDE_TRY(const std::string mode, c.attributes().text("mode", "avg"));
  BOLIDE_TRY(const std::string transform, c.attributes().text("coordinate_transformation_mode",
                                                              c.version() < 16 ? "output_half_pixel" : "half_pixel"));
  BOLIDE_TRY(const Regions r, read_regions(c, *x, *rois, 4, oh, ow));
  if (static_cast<int64_t>(batches.size()) != r.count)
    return error(Code::kInvalid, fmt::format("{} batch indices of {} regions", batches.size(), r.count));
  if ((mode != "avg" && mode != "max") || (transform != "half_pixel" && transform != "output_half_pixel"))
    return error(Code::kInvalid,
                 fmt::format("mode '{:.40}', coordinate_transformation_mode '{:.40}'", mode, transform));
  const bool half = transform == "half_pixel", largest = mode == "max";
  return in_float(x->dtype(), "X", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(const Tensor boxes, widened<double>(c, *rois));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, {r.count, r.C, oh, ow}));
    std::vector<Sample> samples;
    for (int64_t n = 0; n < r.count; ++n) {
      const double* box = boxes.as<double>().data() + n * 4;
      const int64_t batch = batches[static_cast<size_t>(n)];
      if (batch < 0 || batch >= r.N)
        return error(Code::kInvalid, fmt::format("a region of batch {} of {}", batch, r.N));
      const double shift = half ? 0.5 : 0;
      const double left = box[0] * r.scale - shift, top = box[1] * r.scale - shift;
      double width = box[2] * r.scale - shift - left, height = box[3] * r.scale - shift - top;
      if (!half) width = std::max(width, 1.0), height = std::max(height, 1.0);
      const double bin_h = height / static_cast<double>(oh), bin_w = width / static_cast<double>(ow);
      const int64_t grid_h = std::max<int64_t>(0, sampling > 0 ? sampling : whole(std::ceil(bin_h)));
      const int64_t grid_w = std::max<int64_t>(0, sampling > 0 ? sampling : whole(std::ceil(bin_w)));
      if (grid_h > kGridMax || grid_w > kGridMax)
        return error(Code::kInvalid, fmt::format("region {} takes {} x {} samples a bin, at most {} each make sense", n,
                                                 grid_h, grid_w, kGridMax));
      const double count = static_cast<double>(std::max<int64_t>(grid_h * grid_w, 1));
      for (int64_t bin = 0; bin < oh * ow; ++bin) {
        const int64_t bin_row = bin / ow;
        samples.clear();
        for (int64_t iy = 0; iy < grid_h; ++iy)
          for (int64_t ix = 0; ix < grid_w; ++ix) {
            const double sy = (static_cast<double>(iy) + 0.5) / static_cast<double>(grid_h);
            const double sx = (static_cast<double>(ix) + 0.5) / static_cast<double>(grid_w);
            samples.push_back(sample_of(top + (static_cast<double>(bin_row) + sy) * bin_h,
                                        left + (static_cast<double>(bin % ow) + sx) * bin_w, r.H, r.W));
          }
        for (int64_t channel = 0; channel < r.C; ++channel) {
          const T* plane = wide.as<T>().data() + (batch * r.C + channel) * r.H * r.W;
          double result = 0;
          for (size_t s = 0; s < samples.size(); ++s) {
            double value = largest ? -INFINITY : 0;
            for (size_t k = 0; k < 4; ++k) {
              const double part =
                  samples[s].inside ? samples[s].weight[k] * static_cast<double>(plane[samples[s].at[k]]) : 0;
              value = largest ? std::max(value, part) : value + part;
            }
            result = largest && s > 0 ? std::max(result, value) : largest ? value : result + value;
          }
          y.mutate<T>()[static_cast<size_t>((n * r.C + channel) * oh * ow + bin)] =
              static_cast<T>(largest ? result : result / count);
        }
      }
    }
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

}  // namespace bolide
