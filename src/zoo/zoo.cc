#include "zoo/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/options.h"
#include "zoo/networks.h"

namespace bolide {
namespace {

constexpr int64_t kImageMax = 4096, kFramesMax = 3000;

// Networks that halve their image five times see a multiple of 32; ViT's patches have 16 pixels.
constexpr ZooEntry kZoo[] = {
    {"resnet-18", "ResNet-18, image classifier", false, true, false, false, 0, 32, build_resnet},
    {"resnet-50", "ResNet-50 v1.5, image classifier", false, true, false, false, 0, 32, build_resnet},
    {"mobilenet-v2", "MobileNetV2, image classifier for telephones", false, true, false, false, 0, 32, build_mobilenet},
    {"bert-base", "BERT-base, encoder of text", true, false, false, true, 12, 0, build_bert},
    {"bert-large", "BERT-large, encoder of text", true, false, false, true, 24, 0, build_bert},
    {"minilm-l6", "MiniLM-L6, sentence embeddings", true, false, false, true, 6, 0, build_bert},
    {"vit-b-16", "ViT-B/16, image classifier", true, true, false, false, 12, 16, build_vit},
    {"yolov8n", "YOLOv8n, object detector", false, true, false, false, 0, 32, build_yolo},
    {"whisper-base-encoder", "Whisper-base, encoder of speech", true, false, true, false, 6, 0, build_whisper},
};

Result<> check(const ZooEntry& entry, const ZooOptions& options) {
  const auto refuse = [&](std::string what) {
    return error(Code::kInvalid, fmt::format("zoo {}: {}", entry.name, what));
  };
  const auto none = [&](std::string_view option) { return refuse(fmt::format("has no {} to choose", option)); };
  if (options.opset < kZooOpsetMin || options.opset > kZooOpsetMax)
    return refuse(fmt::format("opset {}: expected {} to {}", options.opset, kZooOpsetMin, kZooOpsetMax));
  if (options.layers < 0 || options.image < 0 || options.frames < 0 || options.vocab < 0)
    return refuse("a size is negative");
  if (options.layers > 0 && !entry.has_layers) return none("number of layers");
  if (options.layers > entry.layers_max)
    return refuse(fmt::format("has {} layers, {} were asked for", entry.layers_max, options.layers));
  if (options.image > 0 && !entry.has_image) return none("image size");
  if (options.image > 0 && (options.image % entry.image_step != 0 || options.image > kImageMax))
    return refuse(
        fmt::format("image {}: expected a multiple of {} up to {}", options.image, entry.image_step, kImageMax));
  if (options.frames > 0 && !entry.has_frames) return none("number of frames");
  if (options.frames % 2 != 0 || options.frames > kFramesMax)
    return refuse(fmt::format("frames {}: expected an even number up to {}", options.frames, kFramesMax));
  if (options.vocab > 0 && !entry.has_vocab) return none("vocabulary");
  return {};
}

}  // namespace

std::span<const ZooEntry> zoo() { return kZoo; }

Result<const ZooEntry*> find_zoo_entry(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ZooEntry& entry : kZoo) {
    if (entry.name == name) return &entry;
    names.push_back(entry.name);
  }
  const std::string_view near = nearest_name(name.substr(0, 80), names);
  return error(Code::kNotFound,
               fmt::format("{:.80}: no such network{}; known are {}", name,
                           near.empty() ? "" : fmt::format(", did you mean {}?", near), fmt::join(names, ", ")));
}

Result<ZooModel> make_zoo_model(std::string_view name, const ZooOptions& options) {
  BOLIDE_TRY(const ZooEntry* entry, find_zoo_entry(name));
  BOLIDE_TRY(check(*entry, options));
  return entry->build(entry->name, options);
}

}  // namespace bolide
