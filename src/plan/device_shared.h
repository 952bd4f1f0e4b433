// DeviceShared: what all that run networks on one GPU have in common: constants, and which kernels were fastest.
//
// Thread rules: any thread. The device must outlive it, and it what runs with it.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>

#include "ops/device/device_op.h"

namespace bolide {

class DeviceShared {
 public:
  // `timings`: a file that keeps what was measured (tune/timing_cache.h); empty: none. What it has for this GPU is
  // read; a file that is not there, or of another GPU, is none.
  explicit DeviceShared(Device& device, std::filesystem::path timings = {});

  DeviceConstants& constants() { return constants_; }
  DevicePool& outputs() { return outputs_; }  // memory of what stays on the device behind a run
  const std::shared_ptr<ProductTimings>& timings() const { return timings_; }
  // Adds what was measured since to the file. One that cannot be written is logged once and left alone then.
  void save_timings();

 private:
  Device& device_;
  DeviceConstants constants_;
  DevicePool outputs_;
  std::shared_ptr<ProductTimings> timings_ = std::make_shared<ProductTimings>();
  std::mutex file_mutex_;
  std::filesystem::path file_;  // empty: none
};

}  // namespace bolide
