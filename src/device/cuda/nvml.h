// NVML, NVIDIA's management library, opened at run time: clocks, power, energy, temperature of one GPU. What is used is
// declared here; the toolkit need not have its header.
//
// Thread rules: const use from any thread.
#pragma once

#include "device/cuda/library.h"
#include "device/device.h"

namespace bolide {

struct GpuReading {
  double energy_joules = 0;  // since the driver was loaded
  double power_watts = 0, power_limit_watts = 0;
  int sm_mhz = 0, memory_mhz = 0, temperature_celsius = 0;
  uint64_t throttle_reasons = 0;  // NVML's bits; 0: none
};

class Nvml {
 public:
  // kUnavailable if there is no NVML, or it does not know the GPU.
  static Result<Nvml> open(const CudaLibraries& where, const GpuInfo& gpu);
  // A value that the GPU does not report stays 0.
  GpuReading read() const;
  std::string driver() const;  // "580.159.03"; empty if unknown

 private:
  using Handle = struct NvmlDevice*;
  int (*system_driver_)(char*, unsigned) = nullptr;
  int (*total_energy_)(Handle, unsigned long long*) = nullptr;
  int (*power_)(Handle, unsigned*) = nullptr;
  int (*power_limit_)(Handle, unsigned*) = nullptr;
  int (*clock_)(Handle, int, unsigned*) = nullptr;
  int (*temperature_)(Handle, int, unsigned*) = nullptr;
  int (*throttle_)(Handle, unsigned long long*) = nullptr;
  Handle device_ = nullptr;
};

}  // namespace bolide
