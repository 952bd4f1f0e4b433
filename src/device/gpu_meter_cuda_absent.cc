// No GPU to measure. Linked in place of device/cuda in builds without CUDA.
#include "device/gpu_meter.h"

namespace bolide {

Result<std::unique_ptr<GpuMeter>> make_gpu_meter(Device&) {
  return error(Code::kUnavailable, "this bolide was built without CUDA");
}

Result<std::vector<GpuRate>> measure_gpu_rates(Device&, double) {
  return error(Code::kUnavailable, "this bolide was built without CUDA");
}

}  // namespace bolide
