#include "cli/profile_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace bolide::cli {
namespace {

GpuInfo gpu() {
  return {.multiprocessors = 132,
          .shared_bytes_multiprocessor = 233472,
          .threads_multiprocessor = 2048,
          .registers_multiprocessor = 65536,
          .blocks_multiprocessor = 32,
          .shared_bytes_reserved = 1024};
}

// Two layers of a product and an attention: 40 us and 10 us each, in medians.
ProfilePhase a_phase() {
  ProfilePhase phase{.name = "one decode step", .wall_seconds = 100e-6};
  for (const char* layer : {"layers.0", "layers.1"}) {
    phase.rows.push_back({std::string(layer) + ".mlp.down",
                          "Linear",
                          "linear_gemv_cuda",
                          layer,
                          {39e-6, 40e-6, 80e-6},
                          {.bytes = 80e3, .flops = 1e6}});
    phase.rows.push_back({std::string(layer) + ".attn.attention",
                          "PagedAttention",
                          "attention_decode_cuda",
                          layer,
                          {10e-6},
                          {.bytes = 10e3, .flops = 1e3}});
  }
  return phase;
}

GpuStep a_step() {
  GpuStep step{
      .device_seconds = 90e-6, .launches = 4, .event_seconds = 1e-6, .joules = 0.05, .watts = 500, .sm_mhz = 1980};
  KernelLaunch launch{.name = "void bolide::cuda::gemv<4>(int)",
                      .blocks = 132,
                      .threads = 256,
                      .registers = 64,
                      .static_shared_bytes = 16,
                      .dynamic_shared_bytes = 4096,
                      .blocks_multiprocessor = 4};
  for (int i = 0; i < 2; ++i) count_launch(step.kernels, "linear_gemv_cuda", launch);
  step.kernels.push_back({"linear_cublaslt", {}, 1, false});
  return step;
}

constexpr ProfileRoofs kRoofs{.memory = 4, .arithmetic = 1000};

void expect_lines_within(const std::string& text, size_t width) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const auto count = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
    EXPECT_LE(static_cast<size_t>(count), width) << line;
    at = end + 1;
  }
}

TEST(ProfileReport, OnAProcessor) {
  const ProfilePhase phase = a_phase();
  EXPECT_DOUBLE_EQ(kernel_seconds(phase), 100e-6);
  const std::string text = phase_text(phase, "operator", kRoofs, nullptr, 0);
  EXPECT_EQ(text,
            "one decode step: 100.0 us, 100.0 us of it in kernels\n"
            "operator        count     us     %  GB/s  GFLOP/s  roof %\n"
            "Linear              2  80.00  80.0   2.0     25.0      50\n"
            "PagedAttention      2  20.00  20.0   1.0      0.1      25\n");
  const auto json = phase_json(phase, kRoofs, nullptr);
  EXPECT_FALSE(json.contains("gpu"));
  EXPECT_EQ(json["by_layer"].size(), 2u);
  EXPECT_DOUBLE_EQ(json["by_kernel"][0]["share_percent"].get<double>(), 80);
}

TEST(ProfileReport, OnAGpu) {
  ProfilePhase phase = a_phase();
  phase.gpu = a_step();
  const GpuInfo info = gpu();
  // 90 us replayed, 100 us one by one of which 4 are marks: 6 us overlap.
  EXPECT_NEAR(gap_seconds(phase, *phase.gpu), -6e-6, 1e-12);
  EXPECT_NEAR(idle_percent(phase, *phase.gpu), 10, 1e-9);
  const auto json = phase_json(phase, kRoofs, &info);
  EXPECT_NEAR(json["gpu"]["gaps_us"].get<double>(), -6, 1e-6);
  EXPECT_NEAR(json["gpu"]["joules"].get<double>(), 0.05, 1e-9);
  EXPECT_EQ(json["gpu"]["launches"][0]["shared_bytes"], 4112);
  EXPECT_EQ(json["gpu"]["launches"][0]["limit"], "grid");
  EXPECT_EQ(json["gpu"]["launches"][0]["count"], 2);
  EXPECT_TRUE(json["gpu"]["launches"][1]["threads"].is_null());

  const std::string text = phase_text(phase, "kernel", kRoofs, &info, 80);
  for (const char* part : {"90.0 us of it on the GPU", "idle for 10.0 %", "6.0 us are saved by kernels that overlap",
                           "0.05 J, 500 W, 1980 MHz", "cuBLASLt's", "grid"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  for (const char* by : {"step", "layer", "operator", "kernel"})
    expect_lines_within(phase_text(phase, by, kRoofs, &info, 80), 80);
  EXPECT_EQ(phase_text(phase, "step", kRoofs, &info, 80).find("multiprocessor"), std::string::npos);

  phase.gpu->watts = 0, phase.gpu->device_seconds = 110e-6;
  EXPECT_TRUE(phase_json(phase, kRoofs, &info)["gpu"]["watts"].is_null());
  EXPECT_EQ(idle_percent(phase, *phase.gpu), 0);
  EXPECT_NE(phase_text(phase, "step", kRoofs, &info, 0).find("14.0 us are gaps between kernels"), std::string::npos);
}

}  // namespace
}  // namespace bolide::cli
