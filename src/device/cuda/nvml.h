// NVML, NVIDIA's management library, opened at run time: clocks, power, energy, temperature of one GPU. What is used is
// declared here; the toolkit need not have its header.
//
// Thread rules: const use from any thread.
#pragma once

#include "device/cuda/library.h"
#include "device/gpu_meter.h"

namespace bolide {

class Nvml final : public GpuMeter {
 public:
  // kUnavailable if there is no NVML, or it does not know the GPU.
  static Result<Nvml> open(const CudaLibraries& where, const GpuInfo& gpu);
  GpuReading read() const override;
  std::string driver() const override;

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
