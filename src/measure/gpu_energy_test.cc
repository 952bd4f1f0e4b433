#include <gtest/gtest.h>

#include <thread>

#include "measure/gpu.h"

namespace bolide {
namespace {

// A GPU that draws 100 W from the moment it is made on.
class SteadyGpu final : public GpuMeter {
 public:
  GpuReading read() const override {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    return {.energy_joules = 100 * passed.count(), .sm_mhz = 1980};
  }
  std::string driver() const override { return "1"; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void wait(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(GpuEnergy, LongSpansCountShortOnesDoNot) {
  GpuEnergy energy(std::make_unique<SteadyGpu>());
  energy.begin();
  wait(0.01);
  EXPECT_EQ(energy.end().sm_mhz, 1980);
  if (energy.seconds() >= GpuEnergy::kSpanSecondsLeast) GTEST_SKIP() << "the machine paused";
  EXPECT_FALSE(energy.watts().has_value());
  energy.begin();
  wait(GpuEnergy::kSpanSecondsLeast + 0.01);
  energy.end();
  ASSERT_TRUE(energy.watts().has_value());
  EXPECT_GT(*energy.watts(), 50);  // a busy machine may pause between two clocks
  EXPECT_LT(*energy.watts(), 200);
}

TEST(GpuEnergy, AnotherBeginForgetsWhatWasBefore) {
  GpuEnergy energy(std::make_unique<SteadyGpu>());
  energy.begin();
  wait(GpuEnergy::kSpanSecondsLeast);
  energy.begin();
  energy.end();
  if (energy.seconds() >= GpuEnergy::kSpanSecondsLeast) GTEST_SKIP() << "the machine paused";
  EXPECT_FALSE(energy.watts().has_value());
}

}  // namespace
}  // namespace bolide
