// YOLOv8n (Ultralytics 2023) up to its raw detections: [batch, 4 + 80, boxes], boxes as centre and size in pixels.
// Batch normalisation is folded into the convolutions, as in exported files.
#include <fmt/format.h>

#include <array>

#include "zoo/draft.h"
#include "zoo/networks.h"

namespace bolide {
namespace {

constexpr int64_t kSide = 640, kClasses = 80, kBins = 16, kBoxNumbers = 4 * kBins;
constexpr std::array<int64_t, 3> kStrides = {8, 16, 32};

class Yolo {
 public:
  Yolo(std::string_view name, const ZooOptions& options)
      : draft_(name, options), side_(options.image > 0 ? options.image : kSide) {}
  ZooModel build() &&;

 private:
  std::string at(int64_t index) const { return fmt::format("model.{}", index); }

  Signal block(const std::string& scope, const Signal& x, int64_t out, int64_t kernel = 1, int64_t stride = 1) {
    const Signal y =
        draft_.conv(scope + ".conv", x, {.out = out, .kernel = kernel, .stride = stride, .padding = kernel / 2});
    return draft_.silu(scope + ".act", y);
  }

  std::array<Signal, 2> split(const std::string& scope, const Signal& x, int64_t first) {
    const std::string sizes = draft_.integers(scope, {first, x.channels - first});
    const auto names = draft_.node_of(scope, "Split", {x.name, sizes}, 2, {{"axis", int64_t{1}}});
    return {Signal{names[0], first, x.mean, x.power}, Signal{names[1], x.channels - first, x.mean, x.power}};
  }

  // Cross stage partial with all its steps' outputs joined.
  Signal c2f(const std::string& scope, const Signal& x, int64_t out, int64_t steps, bool shortcut) {
    const auto halves = split(scope, block(scope + ".cv1", x, out), out / 2);
    std::vector<Signal> parts = {halves[0], halves[1]};
    for (int64_t step = 0; step < steps; ++step) {
      const std::string inner = fmt::format("{}.m.{}", scope, step);
      const Signal y = block(inner + ".cv2", block(inner + ".cv1", parts.back(), out / 2, 3), out / 2, 3);
      parts.push_back(shortcut ? draft_.add(inner, parts.back(), y) : y);
    }
    return block(scope + ".cv2", draft_.concat(scope, parts), out);
  }

  // Pyramid of three poolings of 5 x 5, one behind another. The largest of 25 lies higher each time.
  Signal sppf(const std::string& scope, const Signal& x, int64_t out) {
    std::vector<Signal> parts = {block(scope + ".cv1", x, x.channels / 2)};
    constexpr std::array kMeans = {1.4, 1.9, 2.2}, kPowers = {2.4, 3.9, 5.0};
    for (size_t i = 0; i < kMeans.size(); ++i) {
      Draft::Attributes attributes = {{"ceil_mode", int64_t{0}},
                                      {"kernel_shape", std::vector<int64_t>{5, 5}},
                                      {"pads", std::vector<int64_t>{2, 2, 2, 2}},
                                      {"strides", std::vector<int64_t>{1, 1}}};
      const std::string y = draft_.node(scope + ".m", "MaxPool", {parts.back().name}, std::move(attributes));
      parts.push_back({y, parts[0].channels, kMeans[i], kPowers[i]});
    }
    return block(scope + ".cv2", draft_.concat(scope, parts), out);
  }

  Signal upsample(const std::string& scope, const Signal& x) {
    const std::string scales = draft_.table(scope + ".scales", {4}, {1, 1, 2, 2});
    Draft::Attributes attributes = {{"coordinate_transformation_mode", std::string("asymmetric")},
                                    {"cubic_coeff_a", -0.75f},
                                    {"mode", std::string("nearest")},
                                    {"nearest_mode", std::string("floor")}};
    Signal out = x;
    out.name = draft_.node(scope, "Resize", {x.name, "", scales}, std::move(attributes));
    return out;
  }

  ZooModel detect(const std::string& scope, const std::array<Signal, 3>& levels);
  std::string boxes(const std::string& scope, const std::string& bins, const std::string& like);
  int64_t cells() const {
    int64_t cells = 0;
    for (const int64_t stride : kStrides) cells += (side_ / stride) * (side_ / stride);
    return cells;
  }

  Draft draft_;
  int64_t side_;
};

// Distances to the four sides, each the mean of a distribution over 16 bins, around the middle of the cell.
std::string Yolo::boxes(const std::string& scope, const std::string& bins, const std::string& like) {
  const std::string dfl = scope + ".dfl";
  std::vector<float> numbers, middles(static_cast<size_t>(2 * cells())), strides;
  for (int64_t i = 0; i < kBins; ++i) numbers.push_back(static_cast<float>(i));
  size_t at = 0;
  for (const int64_t stride : kStrides)
    for (int64_t y = 0; y < side_ / stride; ++y)
      for (int64_t x = 0; x < side_ / stride; ++x, ++at) {
        middles[at] = static_cast<float>(x) + 0.5f;
        middles[at + static_cast<size_t>(cells())] = static_cast<float>(y) + 0.5f;
        strides.push_back(static_cast<float>(stride));
      }
  const std::string apart = draft_.view(dfl, bins, {Draft::kDim, 4, kBins, cells()}, like);
  const std::string turned = draft_.transpose(dfl, apart, {0, 2, 1, 3});
  const std::string shares = draft_.node(dfl, "Softmax", {turned}, {{"axis", int64_t{1}}});
  const std::string weight = draft_.table(dfl + ".conv.weight", {1, kBins, 1, 1}, std::move(numbers));
  const std::string mean = draft_.node(dfl + ".conv", "Conv", {shares, weight},
                                       {{"dilations", std::vector<int64_t>{1, 1}},
                                        {"group", int64_t{1}},
                                        {"kernel_shape", std::vector<int64_t>{1, 1}},
                                        {"pads", std::vector<int64_t>{0, 0, 0, 0}},
                                        {"strides", std::vector<int64_t>{1, 1}}});
  const std::string distances = draft_.view(dfl, mean, {Draft::kDim, 4, cells()}, like);

  const auto sides = split(scope, {distances, 4}, 2);
  const std::string anchors = draft_.table(scope + ".anchors", {1, 2, cells()}, std::move(middles));
  const std::string low = draft_.node(scope, "Sub", {anchors, sides[0].name});
  const std::string high = draft_.node(scope, "Add", {anchors, sides[1].name});
  const std::string twice = draft_.node(scope, "Add", {low, high});
  const std::string centre = draft_.node(scope, "Div", {twice, draft_.number(scope, 2)});
  const std::string size = draft_.node(scope, "Sub", {high, low});
  const std::string box = draft_.node(scope, "Concat", {centre, size}, {{"axis", int64_t{1}}});
  return draft_.node(scope, "Mul", {box, draft_.table(scope + ".strides", {1, cells()}, std::move(strides))});
}

ZooModel Yolo::detect(const std::string& scope, const std::array<Signal, 3>& levels) {
  Draft::Names flat;
  for (size_t i = 0; i < levels.size(); ++i) {
    const auto branch = [&](std::string_view kind, int64_t width, int64_t out) {
      const std::string at = fmt::format("{}.{}.{}", scope, kind, i);
      const Signal y = block(at + ".1", block(at + ".0", levels[i], width, 3), width, 3);
      return draft_.conv(at + ".2", y, {.out = out});
    };
    const Signal box = branch("cv2", kBoxNumbers, kBoxNumbers), classes = branch("cv3", kClasses, kClasses);
    const Signal both = draft_.concat(scope, {box, classes});
    flat.push_back(draft_.view(scope, both.name, {Draft::kDim, both.channels, -1}, levels[0].name));
  }
  const std::string all = draft_.node(scope, "Concat", flat, {{"axis", int64_t{2}}});
  const auto parts = split(scope, {all, kBoxNumbers + kClasses}, kBoxNumbers);
  const std::string box = boxes(scope, parts[0].name, all);
  const std::string classes = draft_.node(scope, "Sigmoid", {parts[1].name});
  draft_.output("output0", draft_.node(scope, "Concat", {box, classes}, {{"axis", int64_t{1}}}),
                {"batch", 4 + kClasses, cells()});
  return std::move(draft_).take();
}

ZooModel Yolo::build() && {
  // Pixels between 0 and 1.
  Signal x{draft_.input("images", DType::kF32, {"batch", int64_t{3}, side_, side_}), 3, 0.5, 1.0 / 3};
  x = block(at(0), x, 16, 3, 2);
  x = block(at(1), x, 32, 3, 2);
  x = c2f(at(2), x, 32, 1, true);
  x = block(at(3), x, 64, 3, 2);
  const Signal eighth = x = c2f(at(4), x, 64, 2, true);
  x = block(at(5), x, 128, 3, 2);
  const Signal sixteenth = x = c2f(at(6), x, 128, 2, true);
  x = block(at(7), x, 256, 3, 2);
  x = c2f(at(8), x, 256, 1, true);
  const Signal deepest = sppf(at(9), x, 256);

  x = draft_.concat(at(11), {upsample(at(10), deepest), sixteenth});
  const Signal middle = c2f(at(12), x, 128, 1, false);
  x = draft_.concat(at(14), {upsample(at(13), middle), eighth});
  const Signal fine = c2f(at(15), x, 64, 1, false);
  x = draft_.concat(at(17), {block(at(16), fine, 64, 3, 2), middle});
  const Signal coarse = c2f(at(18), x, 128, 1, false);
  x = draft_.concat(at(20), {block(at(19), coarse, 128, 3, 2), deepest});
  const Signal coarsest = c2f(at(21), x, 256, 1, false);
  return std::move(*this).detect(at(22), {fine, coarse, coarsest});
}

}  // namespace

ZooModel build_yolo(std::string_view name, const ZooOptions& options) { return Yolo(name, options).build(); }

}  // namespace bolide
