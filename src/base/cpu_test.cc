#include "base/cpu.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace bolide {
namespace {

class QuotaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "bolide_quota_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(QuotaTest, NoneWithoutControlGroups) { EXPECT_FALSE(read_cpu_quota(root_).has_value()); }

TEST_F(QuotaTest, Version2TakesTheTightestOfTheGroupsAbove) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
  EXPECT_DOUBLE_EQ(read_cpu_quota(root_).value(), 2.5);
  write("sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(read_cpu_quota(root_).value(), 0.5);
}

TEST_F(QuotaTest, Version1WithJointControllersAndInsideANamespace) {
  write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");  // the group itself is not visible: only its root is
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(read_cpu_quota(root_).value(), 3.0);
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(read_cpu_quota(root_).has_value());
}

TEST_F(QuotaTest, NonsenseIsNoLimit) {
  write("proc/self/cgroup", "nonsense\n0::/../..\n:::\n0::/a\n");
  write("sys/fs/cgroup/a/cpu.max", "100000\n");
  write("sys/fs/cgroup/cpu.max", "many few\n");
  EXPECT_FALSE(read_cpu_quota(root_).has_value());
}

TEST(Cpu, CoresFollowTheQuota) {
  CpuInfo cpu;
  cpu.physical_cores = 8;
  EXPECT_EQ(cpu.cores(), 8);
  cpu.quota_cpus = 3.9;
  EXPECT_EQ(cpu.cores(), 3);
  cpu.quota_cpus = 0.2;
  EXPECT_EQ(cpu.cores(), 1);
  cpu.quota_cpus = 64;
  EXPECT_EQ(cpu.cores(), 8);
}

TEST(Cpu, IsaNamesRoundTrip) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx}) {
    const auto parsed = parse_isa(to_string(isa));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(*parsed, isa);
  }
  const auto wrong = parse_isa("sse9");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().text.find("avx512"), std::string::npos);
}

TEST(Cpu, EachIsaNeedsAllOfItsFeatures) {
  CpuInfo cpu;
  EXPECT_EQ(best_isa(cpu), Isa::kScalar);
  CpuFeatures& f = cpu.features;
  f.avx2 = f.fma = f.f16c = f.bmi = true;
  EXPECT_EQ(best_isa(cpu), Isa::kAvx2);
  f.avx512f = f.avx512bw = f.avx512dq = f.avx512vl = true;
  EXPECT_EQ(best_isa(cpu), Isa::kAvx2);  // CD is missing
  f.avx512cd = true;
  EXPECT_EQ(best_isa(cpu), Isa::kAvx512);
  f.avx512_vnni = f.avx512_vbmi = f.avx512_bf16 = true;
  EXPECT_EQ(best_isa(cpu), Isa::kVnni);
  f.amx_tile = f.amx_int8 = f.amx_bf16 = true;
  EXPECT_EQ(best_isa(cpu), Isa::kAmx);
  f.fma = false;
  EXPECT_EQ(best_isa(cpu), Isa::kScalar);
}

TEST(Cpu, DescribesAndFingerprints) {
  CpuInfo cpu;
  cpu.vendor = "AuthenticAMD";
  cpu.model_name = "AMD EPYC";
  cpu.family = 25;
  cpu.model = 17;
  cpu.physical_cores = 2;
  CpuFeatures& f = cpu.features;
  f.avx2 = f.fma = f.f16c = f.bmi = f.avx512f = f.avx512bw = f.avx512dq = f.avx512vl = f.avx512cd = true;
  f.avx512_vnni = f.avx512_vbmi = f.avx512_bf16 = true;
  EXPECT_EQ(describe(cpu), "AMD EPYC (family 25 model 17), avx512_vnni+bf16, 2 cores");
  const std::string before = fingerprint(cpu);
  EXPECT_EQ(before.substr(0, 31), "AuthenticAMD/25/17/avx2+fma+f16");
  f.avx512_bf16 = false;
  EXPECT_NE(fingerprint(cpu), before);
}

TEST(Cpu, ThisMachineMakesSense) {
  const CpuInfo cpu = detect_cpu();
  EXPECT_FALSE(cpu.vendor.empty());
  EXPECT_GE(cpu.logical_cpus, cpu.physical_cores);
  EXPECT_GE(cpu.cores(), 1);
#if defined(__x86_64__)
  // The compiler's own detection is an independent reference.
  EXPECT_EQ(cpu.features.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(cpu.features.fma, __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(cpu.features.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(cpu.features.avx512bw, __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(cpu.features.avx512_vnni, __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(cpu.features.avx512_vbmi, __builtin_cpu_supports("avx512vbmi") != 0);
  EXPECT_EQ(cpu.features.avx512_bf16, __builtin_cpu_supports("avx512bf16") != 0);
#endif
  std::printf("%s\n%s\nL1d %ld, L2 %ld, L3 %ld bytes\n", describe(cpu).c_str(), fingerprint(cpu).c_str(),
              static_cast<long>(cpu.l1d_bytes), static_cast<long>(cpu.l2_bytes), static_cast<long>(cpu.l3_bytes));
}

TEST(Cpu, AffinityLimitsTheProcessors) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(detect_cpu().logical_cpus, 1);
  ::sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace bolide
