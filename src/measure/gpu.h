// The roofs of a GPU, and the energy that work on it takes.
//
// Thread rules: plain values; measure_gpu uses the device.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "device/gpu_meter.h"
#include "measure/machine.h"

namespace bolide {

// Roofs "memory_read", "memory_copy", "bf16", "fp8", "int8" as far as the GPU has them, with the device's name as `cpu`
// and its host threads as `threads`. Errors: the device is no GPU, or has failed.
Result<MachineRoofs> measure_gpu(Device& device, double budget_s = 3);

// Mean power of a GPU over spans of work. Its counter moves in steps of some 0.1 s, so what a span of less than
// kSpanSecondsLeast took cannot be told, and such spans do not count.
class GpuEnergy {
 public:
  static constexpr double kSpanSecondsLeast = 0.3;

  // Measures nothing where there is no NVML.
  explicit GpuEnergy(Device& device);
  explicit GpuEnergy(std::unique_ptr<GpuMeter> meter) : meter_(std::move(meter)) {}
  bool known() const { return meter_ != nullptr; }
  // A span begins; one that has begun and not ended is forgotten.
  void begin();
  double seconds() const;  // since begin
  // The span ends; what the GPU says then.
  GpuReading end();
  // Of all spans that counted; nothing if none did.
  std::optional<double> watts() const;
  std::string driver() const { return known() ? meter_->driver() : ""; }

 private:
  std::unique_ptr<GpuMeter> meter_;
  double first_joules_ = 0, joules_ = 0, counted_seconds_ = 0;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace bolide
