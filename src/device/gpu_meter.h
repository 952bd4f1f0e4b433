// What a GPU says of itself while it works, and how fast it is: for bench, without CUDA's headers.
//
// Thread rules: a GpuMeter from any thread; measure_gpu_rates uses the device for about its budget, and nothing else
// should.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace bolide {

struct GpuReading {
  double energy_joules = 0;  // since the driver was loaded
  double power_watts = 0, power_limit_watts = 0;
  int sm_mhz = 0, memory_mhz = 0, temperature_celsius = 0;
  uint64_t throttle_reasons = 0;  // NVML's bits; 0: none
};

class GpuMeter {
 public:
  virtual ~GpuMeter() = default;
  // A value that the GPU does not report stays 0.
  virtual GpuReading read() const = 0;
  virtual std::string driver() const = 0;  // "580.159.03"; empty if unknown
};
// kUnavailable if the device is no GPU, or there is no NVML.
Result<std::unique_ptr<GpuMeter>> make_gpu_meter(Device& device);

struct GpuRate {
  std::string name;             // "memory_read", "memory_copy", "bf16", "fp8", "int8"
  std::string unit;             // "GB/s" (1e9 bytes; a copy's count twice) or "Gop/s" (a multiply-add is two)
  std::string method;           // "cuBLASLt, 8192 x 8192 x 8192"
  std::vector<double> samples;  // each of several milliseconds
};
// Random data, larger than the caches. What the GPU or its libraries cannot do is left out. kUnavailable: no GPU.
Result<std::vector<GpuRate>> measure_gpu_rates(Device& device, double budget_s);

}  // namespace bolide
