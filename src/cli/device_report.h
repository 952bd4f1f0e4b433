// The device in reports: its name in JSON, its roofs.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "measure/gpu.h"

namespace bolide::cli {

inline std::string device_name(DeviceId id) {
  return id.kind == DeviceKind::kCpu ? "cpu" : fmt::format("cuda:{}", id.index);
}

// Measured with these threads where the device is the host.
inline Result<MachineRoofs> roofs_of(Device& device, Workers& workers) {
  if (device.info().id.kind == DeviceKind::kCpu) return measure_machine(workers, device.info().cpu);
  return measure_gpu(device);
}

// Adds "device": "cuda:0" and for a GPU "gpu": {"name": ..., ...}.
inline void add_device(nlohmann::ordered_json& out, const DeviceInfo& device) {
  out["device"] = device_name(device.id);
  if (!device.gpu.has_value()) return;
  const GpuInfo& gpu = *device.gpu;
  out["gpu"] = {{"name", gpu.name},
                {"compute_capability", gpu.compute_capability},
                {"multiprocessors", gpu.multiprocessors},
                {"memory_bytes", gpu.memory_bytes},
                {"l2_bytes", gpu.l2_bytes},
                {"driver_cuda", gpu.driver_version},
                {"runtime_cuda", gpu.runtime_version},
                {"pci_bus_id", gpu.pci_bus_id}};
}

}  // namespace bolide::cli
