// Every golden model can be planned for a GPU. Planning needs no GPU: its kernels are only asked what they support.
#include "app/engine.h"
#include "app/test_models.h"
#include "synth/architectures.h"

namespace bolide {
namespace {

DeviceInfo a_gpu() {
  DeviceInfo info = (*make_cpu_device(1, std::nullopt))->info();
  info.id = {DeviceKind::kCuda, 0};
  info.name = "a GPU of sm_90";
  info.gpu = GpuInfo{.name = "a GPU",
                     .compute_capability = 90,
                     .multiprocessors = 132,
                     .shared_bytes_block = 232448,
                     .shared_bytes_multiprocessor = 233472,
                     .l2_bytes = 50 << 20,
                     .memory_bytes = int64_t{80} << 30};
  return info;
}

TEST(GpuPlans, EveryGoldenModelHasKernels) {
  const auto& all = cuda_kernels().all();
  if (std::none_of(all.begin(), all.end(), [](const Kernel* kernel) { return kernel->name.starts_with("sample"); }))
    GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  const DeviceInfo gpu = a_gpu();
  Workers workers(1);
  const auto models = std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models";
  int planned = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const std::filesystem::path path = test::golden_model(entry.path().filename().string());
    for (const ComputeMode mode : {ComputeMode::kAuto, ComputeMode::kF32}) {
      SCOPED_TRACE(path.string());
      ModelOptions options;
      options.device = DeviceKind::kCuda;
      options.dtype = mode;
      auto prepared = prepare_checkpoint(path, options, gpu);
      if (!prepared) continue;  // a tokenizer alone
      EXPECT_EQ(prepared->graph.activations(), mode == ComputeMode::kF32 ? DType::kF32 : DType::kBF16);
      const SymbolValues largest{{512, 16, 16}};
      const auto uses = choose_packings(prepared->graph, kernels_for(options), gpu, largest);
      ASSERT_TRUE(uses.has_value()) << uses.error().text;
      auto weights = WeightStore::pack(prepared->graph, *uses, *prepared->loaded.weights, workers);
      ASSERT_TRUE(weights.has_value()) << weights.error().text;
      for (const SymbolValues& bucket : {SymbolValues{{1, 1, 1}}, SymbolValues{{16, 16, 16}}, largest}) {
        const auto plan = make_plan(prepared->graph, *weights, kernels_for(options), gpu, bucket);
        ASSERT_TRUE(plan.has_value()) << plan.error().text;
        for (const Step& step : plan->steps) {
          EXPECT_EQ(step.kernel->device, DeviceKind::kCuda);
          for (const Operand& operand : step.out) EXPECT_EQ(operand.offset % 256, 0u);
        }
      }
      ++planned;
    }
  }
  EXPECT_GT(planned, 10);
}

// Published shapes too: from names alone, without their weights.
TEST(GpuPlans, EveryGeneratedModelHasKernels) {
  const auto& all = cuda_kernels().all();
  if (std::none_of(all.begin(), all.end(), [](const Kernel* kernel) { return kernel->name.starts_with("sample"); }))
    GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  const DeviceInfo gpu = a_gpu();
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
