// Which form the matrices of the committed checkpoints have on their way to the kernels.
#include "app/engine.h"
#include "app/test_models.h"
#include "formats/test_files.h"

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
        EXPECT_EQ(types.linear, there.linear) << name;
        EXPECT_EQ(types.embedding, there.embedding) << name;
        continue;
      }
      EXPECT_EQ(types.embedding, "bf16") << name;
      EXPECT_FALSE(types.linear.contains("f32") || types.linear.contains("f16")) << name;
      EXPECT_EQ(types.router, there.router) << name;
      for (const NodeId id : graph.order())
        if (const auto* linear = std::get_if<Linear>(&graph.node(id).op)) EXPECT_EQ(linear->compute, Compute::kBF16);
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

}  // namespace
}  // namespace bolide
