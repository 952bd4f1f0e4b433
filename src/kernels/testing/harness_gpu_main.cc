// bolide_gpu_tests: every kernel of a GPU over the cases of the CPU's tests. GoogleTest's flags work.
//   bolide_gpu_tests [--device=N] [--gtest_filter=...] [--every=N] [--seconds=N]
// --every and --seconds check a sample of the cases (CaseSample), for tools such as compute-sanitizer.
// Exit code 77: there is no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/registry.h"
#include "kernels/testing/harness.h"

namespace {

void print_row(std::string_view name, const bolide::testing::KernelResult& result) {
  fmt::print("{:<32}{:>7}{:>8}{:>14.3g}{:>16.3g}\n", name, result.cases, result.failures, result.worst.relative_l2,
             result.worst.largest_error);
}

// Every kernel of the lists: those that no case reached are shown too, and count as a failure of the whole run. Then
// those that are in no list: chains.
int print_table(bool all) {
  int missing = 0;
  auto others = bolide::testing::results();
  fmt::print("\n{:<32}{:>7}{:>8}{:>14}{:>16}\n", "kernel", "cases", "failed", "relative L2", "largest / rms");
  for (const bolide::Kernel* kernel : bolide::cuda_kernels().all()) {
    const auto found = bolide::testing::results().find(kernel->name);
    const bool reached = found != bolide::testing::results().end();
    if (!reached && !all) continue;
    const auto result = reached ? found->second : bolide::testing::KernelResult{};
    print_row(kernel->name, result);
    missing += reached ? 0 : 1;
    others.erase(kernel->name);
  }
  for (const auto& [name, result] : others) print_row(name, result);
  if (missing > 0) fmt::print("{} kernels were reached by no case\n", missing);
  return missing;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  bolide::CudaOptions options;
  bolide::testing::CaseSample sample;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--device="))
      options.index = std::atoi(argv[i] + 9);
    else if (argument.starts_with("--every="))
      sample.every = std::max(1, std::atoi(argv[i] + 8));
    else if (argument.starts_with("--seconds="))
      sample.seconds = std::max(0, std::atoi(argv[i] + 10));
    else
      return fmt::print(stderr, "unknown argument {}\n", argument), 2;
  }
  const auto device = bolide::make_cuda_device(options);
  if (!device) {
    fmt::print("skipped: {}\n", device.error().text);
    return 77;
  }
  const bolide::DeviceInfo& info = (*device)->info();
  fmt::print("{} at {}, driver for CUDA {}.{}\n", info.name, info.gpu->pci_bus_id, info.gpu->driver_version / 1000,
             info.gpu->driver_version % 1000 / 10);
  bolide::testing::run_on(device->get());
  bolide::testing::run_sample(sample);
  const int code = RUN_ALL_TESTS();
  const bool all = ::testing::GTEST_FLAG(filter) == "*" && sample.every == 1 && sample.seconds == 0;
  const int missing = print_table(all);
  return code != 0 ? code : all && missing > 0 ? 1 : 0;
}
