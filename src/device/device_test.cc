#include "device/device.h"

#include <gtest/gtest.h>

#include <random>

namespace bolide {
namespace {

TEST(CpuDevice, FillsCopiesAndMeasures) {
  auto device = make_cpu_device(1, std::nullopt);
  ASSERT_TRUE(device.has_value());
  auto stream = (*device)->make_stream();
  auto first = (*device)->make_event(), second = (*device)->make_event();
  ASSERT_TRUE(stream.has_value() && first.has_value() && second.has_value());
  const size_t bytes = 1 + std::random_device{}() % 5000;
  auto a = (*device)->allocate(bytes, Memory::kDevice), b = (*device)->allocate(bytes, Memory::kPinned);
  ASSERT_TRUE(a.has_value() && b.has_value());
  ASSERT_TRUE((*stream)->record(**first).has_value());
  ASSERT_TRUE((*stream)->fill(a->bytes(), std::byte{7}).has_value());
  ASSERT_TRUE(copy_bytes(**stream, b->bytes(), a->bytes()).has_value());
  ASSERT_TRUE((*stream)->record(**second).has_value());
  ASSERT_TRUE((*stream)->wait(**second).has_value());
  ASSERT_TRUE((*second)->synchronize().has_value());
  for (const std::byte value : b->bytes()) ASSERT_EQ(value, std::byte{7});
  EXPECT_GE(*(*second)->seconds_since(**first), 0);
  EXPECT_GT(*(*device)->free_memory(), 0u);
}

// Nothing runs at capture; a launch runs the body as it is then; errors of the body come out of the launch.
TEST(CpuDevice, CapturedRunsWhenLaunched) {
  auto device = make_cpu_device(1, std::nullopt);
  auto stream = (*device)->make_stream();
  int runs = 0;
  auto captured = (*stream)->capture([&](Stream&) -> Result<> {
    if (++runs == 3) return error(Code::kInternal, "the third");
    return {};
  });
  ASSERT_TRUE(captured.has_value());
  EXPECT_EQ(runs, 0);
  EXPECT_TRUE((*captured)->launch(**stream).has_value());
  EXPECT_TRUE((*captured)->launch(**stream).has_value());
  EXPECT_EQ(runs, 2);
  EXPECT_FALSE((*captured)->launch(**stream).has_value());
}

// With a GPU, without one and without CUDA: a sentence that says what to do, or a device.
TEST(Device, AutoTakesAGpuThatCanBeUsed) {
  const bool usable = make_cuda_device({}).has_value();
  EXPECT_EQ(auto_device(), usable ? DeviceKind::kCuda : DeviceKind::kCpu);
}

TEST(CudaDevice, SaysWhyThereIsNone) {
  const auto device = make_cuda_device({.index = 1000});
  ASSERT_FALSE(device.has_value());
  EXPECT_TRUE(device.error().code == Code::kUnavailable || device.error().code == Code::kNotFound);
  EXPECT_NE(device.error().text.find("--device cuda"), std::string::npos) << device.error().text;
}

}  // namespace
}  // namespace bolide
