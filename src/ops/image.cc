#include "ops/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/memory.h"
#include "formats/image.h"
#include "ops/moves.h"
#include "ops/ops.h"

namespace bolide {
namespace {

struct Box {
  double top, left, bottom, right;

  double area() const { return (bottom - top) * (right - left); }
};

Box box_of(const double* numbers, bool is_center) {
  if (is_center) {
    const double x = numbers[0], y = numbers[1], w = numbers[2] / 2, h = numbers[3] / 2;
    return {y - h, x - w, y + h, x + w};
  }
  return {std::min(numbers[0], numbers[2]), std::min(numbers[1], numbers[3]), std::max(numbers[0], numbers[2]),
          std::max(numbers[1], numbers[3])};
}

// Whether the intersection is more than this part of the union.
bool overlap(const Box& a, const Box& b, double threshold) {
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (!(height > 0) || !(width > 0)) return false;
  const double both = height * width, either = a.area() + b.area() - both;
  return a.area() > 0 && b.area() > 0 && either > 0 && both / either > threshold;
}

Result<> run_non_max_suppression(RunContext& c) {
  BOLIDE_TRY(const Tensor* boxes, c.tensor(0));
  BOLIDE_TRY(const Tensor* scores, c.tensor(1));
  BOLIDE_TRY(const std::vector<int64_t> given, c.integers(2, {0}, 1));
  BOLIDE_TRY(const double threshold, c.number(3, 0));
  BOLIDE_TRY(const double least, c.number(4, -INFINITY));
  BOLIDE_TRY(const int64_t is_center, c.attributes().integer("center_point_box", 0));
  if (boxes->rank() != 3 || scores->rank() != 3 || boxes->dim(2) != 4 || boxes->dim(0) != scores->dim(0) ||
      boxes->dim(1) != scores->dim(2))
    return error(Code::kInvalid, fmt::format("boxes {} and scores {}, expected [batches, boxes, 4] and [batches, "
                                             "classes, boxes]",
                                             to_string(boxes->shape()), to_string(scores->shape())));
  BOLIDE_TRY(const std::vector<double> corners, doubles_of(*boxes));
  BOLIDE_TRY(const std::vector<double> values, doubles_of(*scores));
  const auto most = static_cast<size_t>(given.empty() ? 0 : std::max<int64_t>(given[0], 0));
  const int64_t batches = scores->dim(0), classes = scores->dim(1), count = boxes->dim(1);
  BOLIDE_TRY(expect_memory(count, 2 * (sizeof(int64_t) + sizeof(Box))));
  std::vector<int64_t> selected;
  for (int64_t batch = 0; batch < batches && most > 0; ++batch)
    for (int64_t one = 0; one < classes && count > 0; ++one) {
      const double* score = values.data() + (batch * classes + one) * count;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < count; ++i)
        if (!c.has(4) || score[i] > least) order.push_back(i);
      // Highest first; what is no number comes last.
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return score[a] > score[b] || (score[a] == score[a] && score[b] != score[b]);
      });
      std::vector<Box> kept;
      for (const int64_t i : order) {
        if (kept.size() >= most) break;
        const Box box = box_of(corners.data() + (batch * count + i) * 4, is_center != 0);
        if (std::any_of(kept.begin(), kept.end(), [&](const Box& other) { return overlap(box, other, threshold); }))
          continue;
        kept.push_back(box);
        selected.insert(selected.end(), {batch, one, i});
      }
    }
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kI64, {static_cast<int64_t>(selected.size()) / 3, 3}));
  std::copy(selected.begin(), selected.end(), y->mutate<int64_t>().begin());
  return {};
}

// Grey is ITU-R 601-2 luma in 16-bit fixed point, as the reference's library has it.
Result<> run_image_decoder(RunContext& c) {
  BOLIDE_TRY(const Tensor* stream, c.tensor(0));
  if (stream->dtype() != DType::kU8 || stream->rank() != 1)
    return error(Code::kInvalid, fmt::format("an encoded image is u8[N], not {}{}", to_string(stream->dtype()),
                                             to_string(stream->shape())));
  BOLIDE_TRY(const std::string format, c.attributes().text("pixel_format", "RGB"));
  if (format != "RGB" && format != "BGR" && format != "Grayscale")
    return error(Code::kInvalid, fmt::format("pixel_format {:.20}: RGB, BGR or Grayscale is known", format));
  BOLIDE_TRY(const Image image, parse_image(as_bytes(stream->as<uint8_t>()), "encoded_stream"));
  const int64_t channels = format == "Grayscale" ? 1 : 3;
  BOLIDE_TRY(Tensor * out, c.make(0, DType::kU8, {image.height, image.width, channels}));
  const auto to = out->mutate<uint8_t>();
  for (size_t i = 0; i < image.rgb.size() / 3; ++i) {
    const uint8_t *pixel = &image.rgb[i * 3], r = pixel[0], g = pixel[1], b = pixel[2];
    if (channels == 1)
      to[i] = static_cast<uint8_t>((r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16);
    else
      to[i * 3] = format == "RGB" ? r : b, to[i * 3 + 1] = g, to[i * 3 + 2] = format == "RGB" ? b : r;
  }
  return {};
}

constexpr OpDef kOps[] = {
    {.domain = "", .name = "ImageDecoder", .since = 20, .run = run_image_decoder},
    {.domain = "", .name = "NonMaxSuppression", .since = 10, .run = run_non_max_suppression},
    {.domain = "", .name = "Upsample", .since = 1, .run = image::run_upsample_of_image},
    {.domain = "", .name = "Upsample", .since = 7, .run = image::run_resize_by_scales},
    {.domain = "", .name = "Resize", .since = 10, .run = image::run_resize_by_scales},
    {.domain = "", .name = "Resize", .since = 11, .run = image::run_resize},
    {.domain = "", .name = "GridSample", .since = 16, .run = image::run_grid_sample},
    {.domain = "", .name = "AffineGrid", .since = 20, .run = image::run_affine_grid},
};

}  // namespace

std::span<const OpDef> image_ops() { return kOps; }

}  // namespace bolide
