#include "measure/gpu.h"

namespace bolide {

Result<MachineRoofs> measure_gpu(Device& device, double budget_s) {
  BOLIDE_TRY(const std::vector<GpuRate> rates, measure_gpu_rates(device, budget_s));
  const DeviceInfo& info = device.info();
  MachineRoofs roofs{.cpu = info.name, .fingerprint = info.name};
  if (info.gpu.has_value()) roofs.memory_bytes = info.gpu->memory_bytes;
  for (const GpuRate& rate : rates) {
    Roof roof{.name = rate.name, .unit = rate.unit, .method = rate.method, .threads = info.threads};
    roof.rate = summarise(rate.samples);
    roof.full_samples = static_cast<int64_t>(rate.samples.size());
    roofs.roofs.push_back(std::move(roof));
  }
  return roofs;
}

GpuEnergy::GpuEnergy(Device& device) {
  if (auto meter = make_gpu_meter(device)) meter_ = *std::move(meter);
}

void GpuEnergy::begin() {
  if (known()) first_ = meter_->read();
}

GpuSpent GpuEnergy::end() const {
  GpuSpent spent;
  if (!known()) return spent;
  spent.last = meter_->read();
  spent.joules = spent.last.energy_joules - first_.energy_joules;
  return spent;
}

}  // namespace bolide
