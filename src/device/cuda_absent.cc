// The third implementation of Device: none. Linked in place of device/cuda in builds without CUDA.
#include "device/device.h"

namespace bolide {

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions&) {
  return error(Code::kUnavailable, "--device cuda: this bolide was built without CUDA; use --device cpu");
}

DeviceKind auto_device() { return DeviceKind::kCpu; }

}  // namespace bolide
