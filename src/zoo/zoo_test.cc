#include "zoo/zoo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/file.h"
#include "formats/test_files.h"

namespace bolide {
namespace {

ZooModel model_of(std::string_view name, const ZooOptions& options = {}) {
  auto model = make_zoo_model(name, options);
  if (!model) {
    ADD_FAILURE() << model.error().text;
    std::abort();
  }
  return *std::move(model);
}

std::string bytes_of(const OnnxDraftTensor& tensor) {
  if (!tensor.fill) return tensor.bytes;
  std::string bytes(tensor.byte_size(), '\0');
  tensor.fill(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// FNV-1a of all weights.
uint64_t hash_of(const ZooModel& model) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const OnnxDraftTensor& tensor : model.file.initializers)
    for (const char byte : bytes_of(tensor)) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return hash;
}

// As torchvision, timm, transformers and Ultralytics count them; YOLO's with folded normalisation.
TEST(Zoo, ParameterCountsAreThoseOfThePublishedModels) {
  const std::map<std::string_view, int64_t> published = {
      {"resnet-18", 11'689'512},   {"resnet-50", 25'557'032},
      {"mobilenet-v2", 3'504'872}, {"bert-base", 109'482'240},
      {"bert-large", 335'141'888}, {"minilm-l6", 22'713'216},
      {"vit-b-16", 86'567'656},    {"whisper-base-encoder", 20'590'592},
      {"yolov8n", 3'151'904 - 16},
  };
  EXPECT_EQ(zoo().size(), published.size());
  for (const ZooEntry& entry : zoo())
    EXPECT_EQ(model_of(entry.name).parameters, published.at(entry.name)) << entry.name;
}

TEST(Zoo, SeedsDecideTheBytes) {
  const uint64_t a = hash_of(model_of("mobilenet-v2")), b = hash_of(model_of("mobilenet-v2"));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a, 0x7f0384084097e1au);  // the same everywhere
  EXPECT_NE(a, hash_of(model_of("mobilenet-v2", {.seed = 1})));
}

// Pieces of a tensor, wherever they begin, are those of the whole.
TEST(Zoo, WeightsAreTheSameInPieces) {
  const ZooModel model = model_of("mobilenet-v2", {.seed = 5});
  for (const OnnxDraftTensor& tensor : model.file.initializers) {
    if (!tensor.fill) continue;
    const std::string whole = bytes_of(tensor);
    const uint64_t at = whole.size() / 2 / 16 * 16;
    std::string half(whole.size() - at, '\0');
    tensor.fill(at, std::as_writable_bytes(std::span(half)));
    ASSERT_TRUE(whole.substr(at) == half) << tensor.name;
  }
}

TEST(Zoo, FilesOfOneRequestAreEqual) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.onnx", "b.onnx"})
    ASSERT_TRUE(write_onnx(model_of("yolov8n", {.seed = 3, .image = 64}).file, folder.path() / name).has_value());
  const auto a = read_file(folder.path() / "a.onnx"), b = read_file(folder.path() / "b.onnx");
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_TRUE(*a == *b);
}

TEST(Zoo, WrongRequestsAreAnswered) {
  struct Wrong {
    const char* name;
    ZooOptions options;
    const char* part;
  };
  const Wrong wrong[] = {
      {"resnet-5", {}, "did you mean resnet-"},
      {"", {}, "known are resnet-18"},
      {"resnet-50", {.layers = 2}, "no number of layers"},
      {"bert-base", {.layers = 13}, "has 12 layers"},
      {"bert-base", {.image = 32}, "no image size"},
      {"resnet-50", {.image = 33}, "multiple of 32"},
      {"yolov8n", {.image = 1 << 20}, "up to 4096"},
      {"vit-b-16", {.image = 24}, "multiple of 16"},
      {"vit-b-16", {.frames = 24}, "no number of frames"},
      {"whisper-base-encoder", {.frames = 25}, "even number"},
      {"whisper-base-encoder", {.vocab = 25}, "no vocabulary"},
      {"minilm-l6", {.opset = 12}, "13 to"},
      {"minilm-l6", {.opset = 99}, "13 to"},
  };
  for (const Wrong& each : wrong) {
    const auto model = make_zoo_model(each.name, each.options);
    ASSERT_FALSE(model.has_value()) << each.part;
    EXPECT_NE(model.error().text.find(each.part), std::string::npos) << model.error().text;
  }
}

}  // namespace
}  // namespace bolide
