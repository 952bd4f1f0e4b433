// Every golden model can be planned for a GPU. Planning needs no GPU: its kernels are only asked what they support.
#include "app/engine.h"
#include "app/test_models.h"

namespace bolide {
namespace {

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

TEST(GpuPlans, EveryGoldenModelHasKernels) {
  const auto& all = cuda_kernels().all();
  if (std::none_of(all.begin(), all.end(), [](const Kernel* kernel) { return kernel->name.starts_with("sample"); }))
    GTEST_SKIP() << "this build has no kernels of GPUs, or not of every op";
  Workers workers(1);
  const auto models = std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests" / "golden" / "models";
  int planned = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const std::filesystem::path path = test::golden_model(entry.path().filename().string());
    // With the library, and where it cannot be opened.
    constexpr struct {
      ComputeMode mode;
      int64_t cublaslt_version;
    } kSetups[] = {{ComputeMode::kAuto, 130100}, {ComputeMode::kAuto, 0}, {ComputeMode::kF32, 130100}};
    for (const auto& [mode, cublaslt_version] : kSetups) {
      SCOPED_TRACE(path.string());
      const DeviceInfo gpu = a_gpu(cublaslt_version);
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
          EXPECT_FALSE(cublaslt_version == 0 && step.kernel->name.find("cublaslt") != std::string_view::npos);
          for (const Operand& operand : step.out) EXPECT_EQ(operand.offset % 256, 0u);
        }
      }
      ++planned;
    }
  }
  EXPECT_GT(planned, 10);
}

}  // namespace
}  // namespace bolide
