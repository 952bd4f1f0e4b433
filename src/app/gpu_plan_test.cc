// Every golden model can be planned for a GPU, and wide ones with fast kernels. Planning needs no GPU: its kernels are
// only asked what they support.
#include <algorithm>
#include <cstdlib>
#include <map>

#include "app/engine.h"
#include "app/test_models.h"
#include "synth/architectures.h"

namespace bolide {
namespace {

constexpr int64_t kCublasLt = 130100;  // 0: where the library cannot be opened

DeviceInfo a_gpu(int64_t cublaslt_version) {
  DeviceInfo info = (*make_cpu_device(1, std::nullopt))->info();
  info.id = {DeviceKind::kCuda, 0};
  info.name = "a GPU of sm_90";
  info.gpu = GpuInfo{.name = "a GPU",
                     .compute_capability = 90,
                     .multiprocessors = 132,
                     .shared_bytes_block = 232448,
                     .shared_bytes_multiprocessor = 233472,
                     .l2_bytes = 50 << 20,
                     .memory_bytes = int64_t{80} << 30,
                     .cublaslt_version = cublaslt_version};
  return info;
}

bool has_kernels() {
  const auto& all = cuda_kernels().all();
  return std::any_of(all.begin(), all.end(), [](const Kernel* kernel) { return kernel->name.starts_with("sample"); });
}

// The plans of a checkpoint as `options` opens it, a bucket each; none if the path is no checkpoint.
void plan_each(const std::filesystem::path& path, const ModelOptions& options, std::span<const SymbolValues> buckets,
               FunctionRef<void(const Prepared&, const Plan&)> see, int64_t cublaslt_version = kCublasLt) {
  SCOPED_TRACE(path.string());
  const DeviceInfo gpu = a_gpu(cublaslt_version);
  Workers workers(1);
  auto prepared = prepare_checkpoint(path, options, gpu);
  if (!prepared) return;
  const auto uses = choose_packings(prepared->graph, kernels_for(options), gpu, buckets.back());
  ASSERT_TRUE(uses.has_value()) << uses.error().text;
  auto weights = WeightStore::pack(prepared->graph, *uses, *prepared->loaded.weights, workers);
  ASSERT_TRUE(weights.has_value()) << weights.error().text;
  for (const SymbolValues& bucket : buckets) {
    const auto plan = make_plan(prepared->graph, *weights, kernels_for(options), gpu, bucket);
    ASSERT_TRUE(plan.has_value()) << plan.error().text;
    see(*prepared, *plan);
  }
}

TEST(GpuPlans, EveryGoldenModelHasKernels) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  const auto models = std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models";
  int planned = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const std::filesystem::path path = test::golden_model(entry.path().filename().string());
    constexpr std::pair<ComputeMode, int64_t> kSetups[] = {
        {ComputeMode::kAuto, kCublasLt}, {ComputeMode::kAuto, 0}, {ComputeMode::kF32, kCublasLt}};
    for (const auto& [mode, cublaslt_version] : kSetups) {
      ModelOptions options;
      options.device = DeviceKind::kCuda;
      options.dtype = mode;
      const SymbolValues buckets[] = {{{1, 1, 1}}, {{16, 16, 16}}, {{512, 16, 16}}};
      const auto see = [&](const Prepared& prepared, const Plan& plan) {
        EXPECT_EQ(prepared.graph.activations(), mode == ComputeMode::kF32 ? DType::kF32 : DType::kBF16);
        for (const Step& step : plan.steps) {
          EXPECT_EQ(step.kernel->device, DeviceKind::kCuda);
          for (const Operand& operand : step.out) EXPECT_EQ(operand.offset % 256, 0u);
        }
        ++planned;
      };
      plan_each(path, options, buckets, see, cublaslt_version);
    }
  }
  EXPECT_GT(planned, 10);
}

// A matrix of f32 that a checkpoint has in fewer bits.
bool is_expanded(const Step& step) {
  const auto is_wide = [](const Operand& operand) {
    return operand.kind == Operand::Kind::kWeight && operand.type.dims.size() > 1 && operand.type.quant == nullptr &&
           operand.type.dtype == DType::kF32;
  };
  return std::any_of(step.in.begin(), step.in.end(), is_wide);
}

// "decode Linear f16", "prompt PagedAttention 64".
std::string what_runs(const Graph& graph, const Step& step, const SymbolValues& bucket) {
  const Node& node = graph.node(step.node);
  std::string on = "?";
  for (const Operand& operand : step.in)
    if (operand.kind == Operand::Kind::kWeight && operand.type.dims.size() > 1) {
      on = operand.type.quant != nullptr ? operand.type.quant->name : to_string(operand.type.dtype);
      break;
    }
  if (const auto* attention = std::get_if<PagedAttention>(&node.op)) on = std::to_string(attention->head_dim);
  return fmt::format("{} {} {}", bucket[Symbol::kTokens] > bucket[Symbol::kSequences] ? "prompt" : "decode",
                     op_name(node.op), on);
}

TEST(GpuPlans, WideModelsHaveFastKernels) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  const char* models = std::getenv("BOLIDE_FAST_MODELS");
  if (models == nullptr || !std::filesystem::exists(models))
    GTEST_SKIP()
        << "no checkpoints: tools/golden/make_fast_models.py OUT makes them, BOLIDE_FAST_MODELS=OUT names them";
  int planned = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const auto file = entry.path() / "model.gguf";
    ModelOptions options;
    options.device = DeviceKind::kCuda;
    const SymbolValues buckets[] = {{{1, 1, 1}},  {{8, 8, 8}},   {{16, 16, 16}},
                                    {{64, 1, 1}}, {{512, 1, 1}}, {{512, 16, 16}}};
    const auto see = [&](const Prepared& prepared, const Plan& plan) {
      ++planned;
      for (const Step& step : plan.steps) {
        if (!step.kernel->reference && !is_expanded(step)) continue;
        ADD_FAILURE() << what_runs(prepared.graph, step, plan.bucket) << ": " << entry.path().filename() << " "
                      << prepared.graph.node(step.node).name << " runs " << step.kernel->name << " in a bucket of "
                      << plan.bucket[Symbol::kTokens] << " tokens";
      }
    };
    plan_each(std::filesystem::exists(file) ? file : entry.path(), options, buckets, see);
  }
  EXPECT_GE(planned, 6 * 18);
}

// Published shapes too: from names alone, without their weights.
TEST(GpuPlans, EveryGeneratedModelHasKernels) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  const DeviceInfo gpu = a_gpu(kCublasLt);
  ModelOptions options;
  options.device = DeviceKind::kCuda;
  for (const Architecture& architecture : architectures())
    for (const SynthType& type : synth_types()) {
      SynthRequest request{&architecture, &type};
      request.layers = 1;
      SCOPED_TRACE(to_string(request));
      auto prepared = prepare_checkpoint(to_string(request), options, gpu);
      ASSERT_TRUE(prepared.has_value()) << prepared.error().text;
      const SymbolValues largest{{512, 16, 16}};
      const auto uses = choose_packings(prepared->graph, kernels_for(options), gpu, largest);
      ASSERT_TRUE(uses.has_value()) << uses.error().text;
      const WeightStore weights = WeightStore::outline(prepared->graph, *uses);
      for (const SymbolValues& bucket : {SymbolValues{{1, 1, 1}}, largest}) {
        const auto plan = make_plan(prepared->graph, weights, kernels_for(options), gpu, bucket);
        ASSERT_TRUE(plan.has_value()) << plan.error().text;
      }
    }
}

// Norms, rotary embedding, the cache's rows, gates and sums belong to the products around them, for any number of
// tokens.
TEST(GpuPlans, ALayerIsFiveSteps) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  const DeviceInfo gpu = a_gpu(kCublasLt);
  ModelOptions options;
  options.device = DeviceKind::kCuda;
  for (const char* name : {"synth:llama-3-8b:layers=2", "synth:qwen2-1.5b:layers=2", "synth:phi-3-mini:layers=2"}) {
    SCOPED_TRACE(name);
    auto prepared = prepare_checkpoint(name, options, gpu);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().text;
    const auto uses = choose_packings(prepared->graph, kernels_for(options), gpu, {{512, 16, 16}});
    ASSERT_TRUE(uses.has_value()) << uses.error().text;
    const WeightStore weights = WeightStore::outline(prepared->graph, *uses);
    for (const SymbolValues& bucket : {SymbolValues{{1, 1, 1}}, SymbolValues{{512, 16, 16}}}) {
      const auto plan = make_plan(prepared->graph, weights, kernels_for(options), gpu, bucket);
      ASSERT_TRUE(plan.has_value()) << plan.error().text;
      std::string steps;
      for (const Step& step : plan->steps) steps += prepared->graph.node(step.node).name + " ";
      EXPECT_EQ(plan->steps.size(), 2u * 5 + 5) << steps;  // embed, rows twice, head and sample
    }
  }
}

// What was measured for a product reaches every step that is one, and no other.
TEST(GpuPlans, TacticsAreThoseThatWereMeasured) {
  if (!has_kernels()) GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  const DeviceInfo gpu = a_gpu(kCublasLt);
  ModelOptions options;
  options.device = DeviceKind::kCuda;
  const SymbolValues largest{{512, 1, 512}};  // as many rows, so that the last layer's products are the others'
  for (const char* name : {"synth:llama-3-8b:fp8:layers=2", "synth:llama-3-8b:bf16:layers=2"}) {
    SCOPED_TRACE(name);
    auto prepared = prepare_checkpoint(name, options, gpu);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().text;
    const auto uses = choose_packings(prepared->graph, kernels_for(options), gpu, largest);
    ASSERT_TRUE(uses.has_value()) << uses.error().text;
    const WeightStore weights = WeightStore::outline(prepared->graph, *uses);
    const auto key_of_step = [&](const Step& step, const SymbolValues& bucket) {
      std::vector<ValueType> in, out;
      for (const Operand& operand : step.in) in.push_back(operand.type);
      for (const Operand& operand : step.out) out.push_back(operand.type);
      const Problem problem{&prepared->graph.node(step.node).op, in, out, bucket, &gpu};
      return step.kernel->tuning_key == nullptr ? std::string() : step.kernel->tuning_key(problem);
    };
    const auto plan = make_plan(prepared->graph, weights, kernels_for(options), gpu, largest);
    ASSERT_TRUE(plan.has_value()) << plan.error().text;
    std::map<std::string, int> keys;
    for (const Step& step : plan->steps)
      if (const std::string key = key_of_step(step, largest); !key.empty()) ++keys[key];
    EXPECT_EQ(keys.size(), 5u);  // q|k|v, out, gate|up, down, head
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto measured = std::max_element(keys.begin(), keys.end(), fewer);
    TimingCache timings("a machine");
    TimingCache::Entry entry;
    entry.tactic.bytes[5] = std::byte{9};
    timings.put(measured->first, entry);
    const auto tuned = make_plan(prepared->graph, weights, kernels_for(options), gpu, largest, &timings);
    ASSERT_TRUE(tuned.has_value()) << tuned.error().text;
    int found = 0;
    for (const Step& step : tuned->steps) {
      const bool is = key_of_step(step, largest) == measured->first;
      EXPECT_EQ(step.tactic.bytes, is ? entry.tactic.bytes : Tactic{}.bytes);
      found += is ? 1 : 0;
    }
    EXPECT_EQ(found, 2);  // a layer each
  }
}

// A plan that is only looked at is the one that runs.
TEST(OutlinePlans, AreThoseOfTheOpenedModel) {
  for (const char* name : {"synth:smollm2-135m:layers=1", "synth:smollm2-135m:q4_0:layers=1"}) {
    ModelOptions options;
    options.threads = 1;
    options.context = 64;
    options.tokens_per_step = 32;
    Model model = test::open_path(name, options);
    auto plans = outline_plans(name, options);
    ASSERT_TRUE(plans.has_value()) << plans.error().text;
    EXPECT_EQ(plans->weights().bytes(), model.runner->plans().weights().bytes());
    const auto plan = plans->select({{1, 1, 1}});
    ASSERT_TRUE(plan.has_value()) << plan.error().text;
    const auto run = make_plan(model.runner->plans().graph(), model.runner->plans().weights(), kernels_for(options),
                               model.device->info(), {{1, 1, 1}});
    ASSERT_TRUE(run.has_value()) << run.error().text;
    ASSERT_EQ((*plan)->steps.size(), run->steps.size());
    for (size_t i = 0; i < run->steps.size(); ++i) {
      EXPECT_EQ((*plan)->steps[i].kernel, run->steps[i].kernel);
      ASSERT_EQ((*plan)->steps[i].in.size(), run->steps[i].in.size());
      for (size_t j = 0; j < run->steps[i].in.size(); ++j)
        EXPECT_EQ((*plan)->steps[i].in[j].packing, run->steps[i].in[j].packing);
    }
  }
}

}  // namespace
}  // namespace bolide
