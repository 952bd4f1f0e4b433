#include "measure/machine.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace bolide {
namespace {

TEST(Machine, MeasuresEveryRoofThisMachineHas) {
  const CpuInfo cpu = detect_cpu();
  Workers workers(2);
  const MachineRoofs machine = measure_machine(workers, cpu, 0.2);
  std::printf("%s", machine.to_text().c_str());
  for (const int threads : {1, 2}) {
    for (const char* name : {"memory_read", "l2_read", "fp32"}) {
      const Roof* roof = machine.find(name, threads);
      ASSERT_NE(roof, nullptr) << name;
      EXPECT_GT(roof->rate.min, 0);
      EXPECT_LE(roof->rate.min, roof->rate.median);
      EXPECT_LE(roof->rate.median, roof->rate.max);
      EXPECT_GE(roof->rate.samples, 1);
    }
    EXPECT_EQ(machine.find("int8", threads) != nullptr, supports(cpu, Isa::kVnni));
    EXPECT_EQ(machine.find("amx_int8", threads) != nullptr, supports(cpu, Isa::kAmx));
  }
  EXPECT_EQ(machine.find("memory_read", 3), nullptr);
  EXPECT_EQ(machine.find("nonsense", 1), nullptr);
}

TEST(Machine, ScalarMachinesAreMeasuredToo) {
  CpuInfo cpu;
  cpu.vendor = "plain";
  Workers workers(1);
  const MachineRoofs machine = measure_machine(workers, cpu, 0.05);
  ASSERT_EQ(machine.roofs.size(), 3u);
  for (const Roof& roof : machine.roofs) {
    EXPECT_GT(roof.rate.median, 0) << roof.name;
    EXPECT_TRUE(roof.method.starts_with("scalar")) << roof.method;
  }
  const auto json = nlohmann::json::parse(machine.to_json());
  ASSERT_EQ(json["roofs"].size(), 3u);
  EXPECT_EQ(json["roofs"][2]["name"], "fp32");
  EXPECT_DOUBLE_EQ(json["roofs"][2]["median"].get<double>(), machine.roofs[2].rate.median);
  EXPECT_EQ(json["cpu"], machine.cpu);
}

}  // namespace
}  // namespace bolide
