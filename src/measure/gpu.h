// The roofs of a GPU, and the energy that work on it takes.
//
// Thread rules: plain values; measure_gpu uses the device.
#pragma once

#include "device/gpu_meter.h"
#include "measure/machine.h"

namespace bolide {

// Roofs "memory_read", "memory_copy", "bf16", "fp8", "int8" as far as the GPU has them, with the device's name as `cpu`
// and its host threads as `threads`. Errors: the device is no GPU, or has failed.
Result<MachineRoofs> measure_gpu(Device& device, double budget_s = 3);

// What a GPU spent between two moments.
struct GpuSpent {
  double joules = 0;
  GpuReading last;
};
class GpuEnergy {
 public:
  // Measures nothing where there is no NVML.
  explicit GpuEnergy(Device& device);
  bool known() const { return meter_ != nullptr; }
  void begin();
  GpuSpent end() const;
  std::string driver() const { return known() ? meter_->driver() : ""; }

 private:
  std::unique_ptr<GpuMeter> meter_;
  GpuReading first_;
};

}  // namespace bolide
