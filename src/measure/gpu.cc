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
  if (known()) first_joules_ = meter_->read().energy_joules;
  began_ = std::chrono::steady_clock::now();
}

double GpuEnergy::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

GpuReading GpuEnergy::end() {
  if (!known()) return {};
  const double span = seconds();
  const GpuReading last = meter_->read();
  const double joules = last.energy_joules - first_joules_;
  if (span >= kSpanSecondsLeast && joules > 0) joules_ += joules, counted_seconds_ += span;
  return last;
}

std::optional<double> GpuEnergy::watts() const {
  if (counted_seconds_ == 0) return std::nullopt;
  return joules_ / counted_seconds_;
}

}  // namespace bolide
