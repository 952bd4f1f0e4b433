// Small networks of the zoo are imported and run: finite answers that depend on the input.
#include "zoo/zoo.h"

#include <gtest/gtest.h>

#include <cmath>

#include "app/network.h"
#include "formats/test_files.h"

namespace bolide {
namespace {

struct Small {
  const char* name;
  ZooOptions options;
  std::vector<std::string> inputs;
};

const std::vector<std::string> kText = {"random:2x9", "[[1, 1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0]]",
                                        "random:2x9"};

// Every network; 13 and 18 are where operators changed.
const std::vector<Small> kSmall = {
    {"resnet-18", {.image = 32}, {"random:2x3x32x32"}},
    {"resnet-50", {.opset = 13, .image = 32}, {"random:2x3x32x32"}},
    {"mobilenet-v2", {.opset = 18, .image = 32}, {"random:2x3x32x32"}},
    {"bert-base", {.layers = 1, .vocab = 40}, kText},
    {"bert-large", {.opset = 18, .layers = 1, .vocab = 40}, kText},
    {"minilm-l6", {.opset = 13, .layers = 2, .vocab = 40}, kText},
    {"vit-b-16", {.opset = 23, .layers = 1, .image = 32}, {"random:2x3x32x32"}},
    {"yolov8n", {.image = 64}, {"random:2x3x64x64"}},
    {"whisper-base-encoder", {.opset = 20, .layers = 1, .frames = 16}, {"random:2x80x16"}},
};

// Mean and standard deviation of an output's elements; NaN and infinite ones fail.
std::pair<double, double> moments_of(const Tensor& tensor) {
  double sum = 0, squares = 0;
  const auto values = tensor.as<float>();
  for (const float value : values) {
    EXPECT_TRUE(std::isfinite(value));
    sum += static_cast<double>(value), squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const double n = static_cast<double>(values.size()), mean = sum / n;
  return {mean, std::sqrt(std::max(squares / n - mean * mean, 0.0))};
}

TEST(ZooRuns, EveryNetworkIsImportedAndAnswers) {
  ASSERT_EQ(kSmall.size(), zoo().size());
  const test::TemporaryFolder folder;
  for (const Small& small : kSmall) {
    SCOPED_TRACE(small.name);
    const auto model = make_zoo_model(small.name, small.options);
    ASSERT_TRUE(model.has_value()) << model.error().text;
    const auto path = folder.path() / "model.onnx";
    ASSERT_TRUE(write_onnx(model->file, path).has_value());
    auto network = NetworkSession::open(path, {.threads = 1});
    ASSERT_TRUE(network.has_value()) << network.error().text;
    ASSERT_EQ(network->inputs().size(), small.inputs.size());
    std::vector<std::vector<AnyValue>> answers;
    for (const uint64_t seed : {1u, 2u}) {
      std::vector<AnyValue> inputs;
      for (size_t i = 0; i < small.inputs.size(); ++i) {
        auto input = network_input(network->inputs()[i], small.inputs[i], seed + 10 * i);
        ASSERT_TRUE(input.has_value()) << input.error().text;
        inputs.push_back(*std::move(input));
      }
      auto outputs = network->run(std::move(inputs));
      ASSERT_TRUE(outputs.has_value()) << outputs.error().text;
      ASSERT_EQ(outputs->size(), network->outputs().size());
      answers.push_back(*std::move(outputs));
    }
    for (size_t i = 0; i < answers[0].size(); ++i) {
      const Tensor& first = *answers[0][i].tensor();
      const Tensor& second = *answers[1][i].tensor();
      const auto [mean, deviation] = moments_of(first);
      EXPECT_GT(deviation, 0.05) << network->outputs()[i].name;
      // Detections are pixels of the image.
      EXPECT_LT(std::abs(mean) + deviation, 100) << network->outputs()[i].name;
      double difference = 0;
      for (size_t k = 0; k < first.as<float>().size(); ++k)
        difference = std::max(difference, std::abs(static_cast<double>(first.as<float>()[k] - second.as<float>()[k])));
      EXPECT_GT(difference, 0.01) << network->outputs()[i].name;
      // Symbolic dims apart, the file says what comes out.
      const auto& declared = *network->outputs()[i].type.dims;
      ASSERT_EQ(static_cast<int>(declared.size()), first.rank());
      for (size_t d = 0; d < declared.size(); ++d)
        if (declared[d].value.has_value()) {
          EXPECT_EQ(*declared[d].value, first.dim(static_cast<int>(d)));
        }
    }
  }
}

// The exporters' shape arithmetic and the inputs' common dims are seen through, so that a layer is some fused ops.
TEST(ZooRuns, LayersOfTransformersAreReducedToFusedOps) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.onnx";
  for (const char* name : {"bert-base", "vit-b-16", "whisper-base-encoder"}) {
    std::vector<size_t> nodes;
    for (const int64_t layers : {1, 3}) {
      const bool text = name == std::string_view("bert-base"), image = name == std::string_view("vit-b-16");
      const auto model = make_zoo_model(
          name, {.layers = layers, .image = image ? 32 : 0, .frames = image || text ? 0 : 16, .vocab = text ? 40 : 0});
      ASSERT_TRUE(model.has_value()) << model.error().text;
      ASSERT_TRUE(write_onnx(model->file, path).has_value());
      const auto network = NetworkModel::open(path, {.threads = 1});
      ASSERT_TRUE(network.has_value()) << network.error().text;
      nodes.push_back((*network)->program().graph.order().size());
    }
    EXPECT_LE((nodes[1] - nodes[0]) / 2, 9u) << name;
  }
}

TEST(ZooRuns, DimsOfOneNameMayDifferAllTheSame) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.onnx";
  const auto model = make_zoo_model("minilm-l6", {.layers = 1, .vocab = 40});
  ASSERT_TRUE(model.has_value());
  ASSERT_TRUE(write_onnx(model->file, path).has_value());
  std::vector<std::vector<float>> answers;
  for (const bool passes : {true, false}) {
    auto network = NetworkSession::open(
        path, {.threads = 1, .skip_passes = passes ? std::set<std::string>{} : std::set<std::string>{"all"}});
    ASSERT_TRUE(network.has_value());
    std::vector<AnyValue> inputs;
    for (const char* input : {"[[1, 2, 3], [4, 5, 6]]", "[[1, 1, 0]]", "[[0, 1, 0]]"}) {  // batches of 2, 1 and 1
      auto value = network_input(network->inputs()[inputs.size()], input, 0);
      ASSERT_TRUE(value.has_value());
      inputs.push_back(*std::move(value));
    }
    auto outputs = network->run(std::move(inputs));
    ASSERT_TRUE(outputs.has_value()) << outputs.error().text;
    const auto values = (*outputs)[0].tensor()->as<float>();
    answers.emplace_back(values.begin(), values.end());
  }
  ASSERT_EQ(answers[0].size(), answers[1].size());
  for (size_t i = 0; i < answers[0].size(); ++i) EXPECT_NEAR(answers[0][i], answers[1][i], 1e-4);
}

}  // namespace
}  // namespace bolide
