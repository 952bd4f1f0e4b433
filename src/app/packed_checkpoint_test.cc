// Which form the matrices of the committed checkpoints have on their way to the kernels.
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "app/engine.h"
#include "app/test_models.h"
#include "formats/test_files.h"
#include "load/load.h"

namespace bolide {
namespace {

using namespace test;

// Types of the weights of Linears in layers, and of the embedding.
struct Types {
  std::map<std::string, int> linear;
  int with_scale = 0;
  std::string embedding, router;
};

std::string element_type(const ValueType& type) {
  return std::string(type.quant != nullptr ? type.quant->name : to_string(type.dtype));
}

Types types_in(const Graph& graph) {
  Types types;
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (std::holds_alternative<Embed>(node.op)) types.embedding = element_type(graph.type(node.in[1]));
    if (std::holds_alternative<MoeFfn>(node.op)) types.router = element_type(graph.type(node.in[1]));
    const auto* linear = std::get_if<Linear>(&node.op);
    if (linear == nullptr || !node.name.starts_with("layers.")) continue;
    ++types.linear[element_type(graph.type(node.in[1]))];
    types.with_scale += linear->has_scale ? 1 : 0;
  }
  return types;
}

std::set<std::string> kinds_of(const Types& types) {
  std::set<std::string> kinds;
  for (const auto& [type, count] : types.linear) kinds.insert(type);
  return kinds;
}

Graph prepared_graph(const std::string& name, const ModelOptions& options) {
  auto device = make_cpu_device(1, std::nullopt);
  DeviceInfo info = (*device)->info();
  info.id.kind = options.device;
  auto prepared = prepare_checkpoint(golden_model(name), options, info);
  EXPECT_TRUE(prepared.has_value()) << prepared.error().text;
  return std::move(prepared->graph);
}

TEST(PackedCheckpoint, CodesReachTheGraph) {
  const std::pair<const char*, const char*> models[] = {{"llama-gptq", "w4_g32"},
                                                        {"llama-awq", "w4_g32"},
                                                        {"llama-gptq-actorder", "f32"},
                                                        {"llama-fp8-channel", "f8e4m3"}};
  for (const auto& [name, type] : models) {
    const Types types = types_in(prepared_graph(name, {}));
    int linears = 0;
    for (const auto& [each, count] : types.linear) linears += count;
    EXPECT_GT(linears, 0) << name;
    EXPECT_EQ(types.linear.size(), 1u) << name;
    EXPECT_EQ(types.linear.begin()->first, type) << name;
    EXPECT_EQ(types.with_scale, std::string_view(type) == "f8e4m3" ? linears : 0) << name;
  }
}

// On a GPU matrices of f32 and f16 are bf16, but where f32 is asked for; the router stays.
TEST(PackedCheckpoint, GpusReadBF16) {
  for (const char* name : {"llama-bias", "gpt2", "mixtral", "qwen3", "llama-gptq-actorder", "llama-fp8-channel"})
    for (const ComputeMode mode : {ComputeMode::kAuto, ComputeMode::kBF16, ComputeMode::kF32}) {
      ModelOptions options;
      const Types there = types_in(prepared_graph(name, options));
      options.device = DeviceKind::kCuda;
      options.dtype = mode;
      const Graph graph = prepared_graph(name, options);
      const Types types = types_in(graph);
      if (mode == ComputeMode::kF32) {
        EXPECT_EQ(kinds_of(types), kinds_of(there)) << name;
        EXPECT_EQ(types.embedding, there.embedding) << name;
        continue;
      }
      EXPECT_EQ(types.embedding, "bf16") << name;
      EXPECT_FALSE(types.linear.contains("f32") || types.linear.contains("f16")) << name;
      EXPECT_EQ(types.router, there.router) << name;
      for (const NodeId id : graph.order())
        if (const auto* linear = std::get_if<Linear>(&graph.node(id).op)) {
          EXPECT_EQ(linear->compute, Compute::kBF16) << name;
        }
    }
}

// Codes take their own size in an engine, whatever layout they have there.
TEST(PackedCheckpoint, EnginesStoreCodes) {
  const TemporaryFolder folder;
  for (const char* name : {"llama-gptq", "llama-awq", "llama-fp8-channel"})
    for (const ComputeMode mode : {ComputeMode::kAuto, ComputeMode::kF32}) {
      ModelOptions options;
      options.threads = 1;
      options.dtype = mode;
      const auto path = folder.path() / (std::string(name) + ".engine");
      const auto report = build_engine(golden_model(name), path, options);
      ASSERT_TRUE(report.has_value()) << report.error().text;
      const auto engine = read_engine(path, options);
      ASSERT_TRUE(engine.has_value()) << engine.error().text;
      size_t codes = 0, elements = 0;
      for (const StoredWeight& weight : engine->packed)
        if (weight.view.shape.rank == 2 && (weight.view.quant != nullptr || weight.view.dtype == DType::kF8E4M3)) {
          codes += weight.bytes;
          elements += static_cast<size_t>(weight.view.shape.elements());
        }
      EXPECT_GT(elements, 0u);
      const bool blocks = std::string_view(name) != "llama-fp8-channel";
      // A scale and a zero point for each 32; rows are padded to 16, regions to 64 bytes.
      EXPECT_LE(static_cast<double>(codes), static_cast<double>(elements) * (blocks ? 4.75 / 8 * 1.35 : 1.1)) << name;
    }
}

// The checkpoint's projections as int8 codes with a scale a row, or multiplied out.
class Int8Projections final : public WeightSource {
 public:
  Int8Projections(std::shared_ptr<const WeightSource> inner, bool expanded) : inner_(std::move(inner)) {
    for (const std::string& name : inner_->names()) {
      const WeightInfo* info = inner_->find(name);
      if (info->shape.rank != 2 || !name.ends_with("_proj.weight")) continue;
      const std::vector<float> values = *read_floats(*inner_, name);
      const auto k = static_cast<size_t>(info->shape[1]);
      std::vector<float> scales, products;
      std::vector<int8_t> codes;
      for (size_t row = 0; row < values.size(); row += k) {
        float largest = 0;
        for (size_t i = row; i < row + k; ++i) largest = std::max(largest, std::abs(values[i]));
        scales.push_back(largest / 127);
        for (size_t i = row; i < row + k; ++i) {
          codes.push_back(static_cast<int8_t>(std::nearbyint(values[i] / scales.back())));
          products.push_back(static_cast<float>(codes.back()) * scales.back());
        }
      }
      WeightInfo made = *info;
      made.dtype = expanded ? DType::kF32 : DType::kI8;
      if (!expanded) {
        made.scale = name + "_scale";
        put({.name = made.scale, .dtype = DType::kF32, .shape = {info->shape[0]}}, scales);
        put(made, codes);
      } else {
        put(made, products);
      }
    }
  }
  const WeightInfo* find(std::string_view name) const override {
    const auto it = made_.find(name);
    return it == made_.end() ? inner_->find(name) : &it->second.info;
  }
  Result<WeightData> open(std::string_view name) const override {
    const auto it = made_.find(name);
    if (it == made_.end()) return inner_->open(name);
    return WeightData{it->second.info, it->second.bytes, nullptr};
  }
  std::vector<std::string> names() const override { return inner_->names(); }
  const std::string& label() const override { return inner_->label(); }

 private:
  struct Made {
    WeightInfo info;
    std::vector<std::byte> bytes;
  };
  template <class T>
  void put(WeightInfo info, const std::vector<T>& values) {
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    std::string name = info.name;
    made_[std::move(name)] = {std::move(info), {begin, begin + values.size() * sizeof(T)}};
  }

  std::shared_ptr<const WeightSource> inner_;
  std::map<std::string, Made, std::less<>> made_;
};

std::vector<float> logits_of_graph(Graph graph, const WeightSource& source, const std::vector<int32_t>& ids) {
  auto device = *make_cpu_device(2, std::nullopt);
  const DeviceInfo& info = device->info();
  EXPECT_TRUE(run_passes(graph, default_passes(), {&cpu_kernels(), &info}, {}).has_value());
  Workers workers(2);
  const SymbolValues largest{{64, 1, 64}};
  const auto uses = choose_packings(graph, cpu_kernels(), info, largest);
  EXPECT_TRUE(uses.has_value()) << uses.error().text;
  auto packed = WeightStore::pack(graph, *uses, source, workers);
  EXPECT_TRUE(packed.has_value()) << packed.error().text;
  auto plans = PlanSet::make(std::move(graph), *std::move(packed), cpu_kernels(), info, {largest});
  EXPECT_TRUE(plans.has_value()) << plans.error().text;
  RunnerOptions options;
  options.context = options.tokens_per_step = 64;
  options.kv_dtype = DType::kF32;
  auto runner = Runner::make(std::move(*plans), options, *device);
  EXPECT_TRUE(runner.has_value()) << runner.error().text;
  Sequence sequence;
  sequence.tokens = ids;
  sequence.prompt_count = sequence.size();
  const Work work{&sequence, sequence.size(), true};
  EXPECT_TRUE(runner->step(std::span(&work, 1)).has_value());
  const TensorView logits = runner->logits().value();
  return {logits.row<float>(0), logits.row<float>(0) + logits.rows() * logits.row_stride};
}

TEST(PackedCheckpoint, Int8CodesComputeAsTheirProducts) {
  for (const char* name : {"llama-bias", "qwen2", "phi3-longrope"}) {
    auto loaded = load_model(golden_model(name), {});
    ASSERT_TRUE(loaded.has_value()) << loaded.error().text;
    const auto inner = loaded->weights;
    std::mt19937 random(std::random_device{}());
    std::vector<int32_t> ids(30);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 200);
    std::vector<float> of[2];
    for (const bool expanded : {false, true}) {
      loaded->weights = std::make_shared<Int8Projections>(inner, expanded);
      auto graph = build_graph(*loaded, ComputeMode::kF32);
      ASSERT_TRUE(graph.has_value()) << graph.error().text;
      EXPECT_EQ(types_in(*graph).with_scale > 0, !expanded);
      of[expanded ? 1 : 0] = logits_of_graph(*std::move(graph), *loaded->weights, ids);
    }
    ASSERT_EQ(of[0].size(), of[1].size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < of[0].size(); ++i) {
      error += std::pow(static_cast<double>(of[0][i]) - static_cast<double>(of[1][i]), 2);
      norm += std::pow(static_cast<double>(of[1][i]), 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 2e-5) << name;
  }
}

// As if that tensor had no scales.
class WithoutScale final : public WeightSource {
 public:
  explicit WithoutScale(std::shared_ptr<const WeightSource> inner) : inner_(std::move(inner)) {
    info_ = *inner_->find(kName);
    info_.scale.clear();
  }
  const WeightInfo* find(std::string_view name) const override { return name == kName ? &info_ : inner_->find(name); }
  Result<WeightData> open(std::string_view name) const override { return inner_->open(name); }
  std::vector<std::string> names() const override { return inner_->names(); }
  const std::string& label() const override { return inner_->label(); }
  static constexpr const char* kName = "model.layers.1.self_attn.o_proj.weight";

 private:
  std::shared_ptr<const WeightSource> inner_;
  WeightInfo info_;
};

// Integers are codes only beside a scale a row.
TEST(PackedCheckpoint, IntegersAreNoWeights) {
  auto loaded = load_model(golden_model("llama-bias"), {});
  ASSERT_TRUE(loaded.has_value()) << loaded.error().text;
  loaded->weights = std::make_shared<WithoutScale>(std::make_shared<Int8Projections>(loaded->weights, false));
  const auto graph = build_graph(*loaded, ComputeMode::kF32);
  ASSERT_FALSE(graph.has_value());
  EXPECT_NE(graph.error().text.find(std::string(WithoutScale::kName) + " is i8"), std::string::npos)
      << graph.error().text;
}

}  // namespace
}  // namespace bolide
