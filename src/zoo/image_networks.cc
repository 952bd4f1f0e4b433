// ResNet (He et al. 2015, arXiv:1512.03385; v1.5: the 3x3 convolution of a bottleneck has the stride) and MobileNetV2
// (Sandler et al. 2018, arXiv:1801.04381), as torchvision has them.
#include <fmt/format.h>

#include <algorithm>

#include "zoo/draft.h"
#include "zoo/networks.h"

namespace bolide {
namespace {

constexpr int64_t kClasses = 1000, kSide = 224;

Signal image_input(Draft& draft, const std::string& name, const ZooOptions& options) {
  const int64_t side = options.image > 0 ? options.image : kSide;
  return {draft.input(name, DType::kF32, {"batch", int64_t{3}, side, side}), 3};
}

// The largest of 9 neighbours, which share most of what they see.
Signal max_pool(Draft& draft, const Signal& x) {
  Draft::Attributes attributes = {{"ceil_mode", int64_t{0}},
                                  {"kernel_shape", std::vector<int64_t>{3, 3}},
                                  {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                                  {"strides", std::vector<int64_t>{2, 2}}};
  constexpr double kMean = 1.2, kPower = 1.8;  // of rectified normal elements of variance 1
  return {draft.node("maxpool", "MaxPool", {x.name}, std::move(attributes)), x.channels, kMean, kPower};
}

// The last blocks' mean over the image, and the classes.
ZooModel classify(Draft& draft, const Signal& x, const std::string& pool_scope, const std::string& scope) {
  const std::string pooled = draft.node(pool_scope, "GlobalAveragePool", {x.name});
  const std::string flat = draft.node("", "Flatten", {pooled}, {{"axis", int64_t{1}}});
  draft.output("logits", draft.dense(scope, flat, x.channels, kClasses, x.power), {"batch", kClasses});
  return std::move(draft).take();
}

struct ResNetStage {
  int64_t width, blocks;
};

Signal resnet_block(Draft& draft, const std::string& scope, const Signal& x, int64_t width, int64_t stride,
                    bool bottleneck) {
  constexpr double kBranchGain = 0.5;  // the sum of many branches stays small, as in trained networks
  const int64_t out = bottleneck ? width * 4 : width;
  const auto layer = [&](int index, const Signal& in, const ConvSize& size, double gain) {
    return draft.conv_norm(fmt::format("{}.conv{}", scope, index), fmt::format("{}.bn{}", scope, index), in, size,
                           gain);
  };
  Signal y = x;
  if (bottleneck) {
    y = draft.relu(scope + ".relu", layer(1, y, {.out = width}, 1));
    y = draft.relu(scope + ".relu", layer(2, y, {.out = width, .kernel = 3, .stride = stride, .padding = 1}, 1));
    y = layer(3, y, {.out = out}, kBranchGain);
  } else {
    y = draft.relu(scope + ".relu", layer(1, y, {.out = width, .kernel = 3, .stride = stride, .padding = 1}, 1));
    y = layer(2, y, {.out = width, .kernel = 3, .padding = 1}, kBranchGain);
  }
  Signal shortcut = x;
  if (stride != 1 || x.channels != out)
    shortcut = draft.conv_norm(scope + ".downsample.0", scope + ".downsample.1", x, {.out = out, .stride = stride});
  return draft.relu(scope + ".relu", draft.add(scope, y, shortcut));
}

struct MobileNetStage {
  int64_t expansion, out, blocks, stride;
};
constexpr MobileNetStage kMobileNet[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                         {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

Signal mobilenet_block(Draft& draft, const std::string& scope, const Signal& x, int64_t expansion, int64_t out,
                       int64_t stride) {
  const int64_t width = x.channels * expansion;
  int part = 0;
  const auto layer = [&](const Signal& in, const ConvSize& size) {
    const std::string at = fmt::format("{}.conv.{}", scope, part++);
    return draft.relu6(at + ".2", draft.conv_norm(at + ".0", at + ".1", in, size));
  };
  Signal y = x;
  if (expansion != 1) y = layer(y, {.out = width});
  y = layer(y, {.out = width, .kernel = 3, .stride = stride, .padding = 1, .groups = width});
  y = draft.conv_norm(fmt::format("{}.conv.{}", scope, part), fmt::format("{}.conv.{}", scope, part + 1), y,
                      {.out = out});
  return stride == 1 && x.channels == out ? draft.add(scope, x, y) : y;
}

}  // namespace

ZooModel build_resnet(std::string_view name, const ZooOptions& options) {
  const bool bottleneck = name == "resnet-50";
  constexpr ResNetStage kSmall[] = {{64, 2}, {128, 2}, {256, 2}, {512, 2}};
  constexpr ResNetStage kLarge[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  Draft draft(name, options);
  Signal x = image_input(draft, "input", options);
  x = draft.relu("relu", draft.conv_norm("conv1", "bn1", x, {.out = 64, .kernel = 7, .stride = 2, .padding = 3}));
  x = max_pool(draft, x);
  int stage_number = 1;
  for (const ResNetStage& stage : bottleneck ? kLarge : kSmall) {
    for (int64_t block = 0; block < stage.blocks; ++block)
      x = resnet_block(draft, fmt::format("layer{}.{}", stage_number, block), x, stage.width,
                       block == 0 && stage_number > 1 ? 2 : 1, bottleneck);
    ++stage_number;
  }
  return classify(draft, x, "avgpool", "fc");
}

ZooModel build_mobilenet(std::string_view name, const ZooOptions& options) {
  constexpr int64_t kFirst = 32, kLast = 1280;
  Draft draft(name, options);
  Signal x = image_input(draft, "input", options);
  const auto edge = [&](int64_t index, const ConvSize& size) {
    const std::string at = fmt::format("features.{}", index);
    return draft.relu6(at + ".2", draft.conv_norm(at + ".0", at + ".1", x, size));
  };
  x = edge(0, {.out = kFirst, .kernel = 3, .stride = 2, .padding = 1});
  int64_t index = 1;
  for (const MobileNetStage& stage : kMobileNet)
    for (int64_t block = 0; block < stage.blocks; ++block)
      x = mobilenet_block(draft, fmt::format("features.{}", index++), x, stage.expansion, stage.out,
                          block == 0 ? stage.stride : 1);
  x = edge(index, {.out = kLast});
  return classify(draft, x, "", "classifier.1");
}

}  // namespace bolide
