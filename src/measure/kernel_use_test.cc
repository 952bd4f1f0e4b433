#include "measure/kernel_use.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace bolide {
namespace {

// What an H200 says of itself.
GpuInfo h200() {
  return {.multiprocessors = 132,
          .shared_bytes_block = 232448,
          .shared_bytes_multiprocessor = 233472,
          .threads_multiprocessor = 2048,
          .registers_multiprocessor = 65536,
          .blocks_multiprocessor = 32,
          .shared_bytes_reserved = 1024};
}

KernelLaunch launch(int64_t blocks, int threads, int registers, int64_t shared, int fit) {
  return {.name = "void bolide::cuda::(anonymous namespace)::rows<(int)4>(bolide::Task, int (*)(int))",
          .blocks = blocks,
          .threads = threads,
          .registers = registers,
          .static_shared_bytes = shared / 2,
          .dynamic_shared_bytes = shared - shared / 2,
          .blocks_multiprocessor = fit};
}

TEST(KernelUse, OccupancyAndItsLimit) {
  struct Expected {
    KernelLaunch launch;
    int blocks, warps;
    double percent;
    std::string_view limit;
  };
  const Expected all[] = {
      {launch(10000, 256, 32, 0, 8), 8, 64, 100, "threads"},
      {launch(10000, 256, 128, 0, 2), 2, 16, 25, "registers"},
      {launch(10000, 256, 64, 100000, 2), 2, 16, 25, "shared memory"},
      {launch(10000, 32, 32, 0, 32), 32, 32, 50, "blocks"},
      {launch(132, 256, 32, 0, 8), 1, 8, 12.5, "grid"},
      {launch(133, 256, 32, 0, 8), 2, 16, 25, "grid"},
      {launch(1, 1024, 32, 0, 2), 1, 32, 50, "grid"},
      {launch(264, 256, 128, 0, 2), 2, 16, 25, "registers"},
      {launch(264, 256, 128, 0, 0), 0, 0, 0, "?"},
  };
  for (const Expected& e : all) {
    const Occupancy o = occupancy_of(e.launch, h200());
    EXPECT_EQ(o.blocks, e.blocks) << e.limit;
    EXPECT_EQ(o.warps, e.warps) << e.limit;
    EXPECT_DOUBLE_EQ(o.percent, e.percent) << e.limit;
    EXPECT_EQ(o.limit, e.limit);
  }
  EXPECT_EQ(occupancy_of(all[0].launch, {}).limit, "?");
}

TEST(KernelUse, ShortNames) {
  EXPECT_EQ(short_kernel_name(launch(1, 1, 1, 0, 1).name), "rows<(int)4>");
  EXPECT_EQ(short_kernel_name("void bolide::cuda::<unnamed>::f<bolide::cuda::A, (B)1>(int)"), "f<A, (B)1>");
  EXPECT_EQ(short_kernel_name("plain"), "plain");
  EXPECT_EQ(short_kernel_name("odd)"), "odd)");
  EXPECT_EQ(short_kernel_name(""), "");
}

TEST(KernelUse, LikeLaunchesAreCounted) {
  std::vector<KernelUse> uses;
  for (int i = 0; i < 5; ++i) count_launch(uses, "linear_gemv_cuda", launch(264, 256, 128, 2048, 2));
  count_launch(uses, "linear_gemv_cuda", launch(132, 256, 128, 2048, 2));
  for (int i = 0; i < 3; ++i) add_use(uses, {"linear_cublaslt", {}, 2, false});
  ASSERT_EQ(uses.size(), 3u);
  EXPECT_EQ(uses[0].count, 5);
  EXPECT_EQ(uses[2].count, 6);

  const auto json = nlohmann::json::parse(kernel_use_table(uses, h200(), false).to_json());
  EXPECT_EQ(json[0]["function"], "rows<(int)4>");
  EXPECT_EQ(json[0]["shared_bytes"], 2048);
  EXPECT_EQ(json[0]["static_shared_bytes"], 1024);
  EXPECT_EQ(json[0]["occupancy_percent"], 25);
  EXPECT_EQ(json[1]["limit"], "grid");
  EXPECT_EQ(json[1]["name"], uses[1].launch.name);
  EXPECT_EQ(json[2]["count"], 6);
  EXPECT_EQ(json[2]["function"], "-");
  EXPECT_TRUE(json[2]["registers"].is_null());

  const std::string text = kernel_use_table(uses, h200(), true).to_text(100);
  EXPECT_NE(text.find("rows "), std::string::npos) << text;
  EXPECT_NE(text.find("  128  "), std::string::npos) << text;
  EXPECT_EQ(text.find('<'), std::string::npos) << text;
}

}  // namespace
}  // namespace bolide
