#include "device/cuda/nvml.h"

#include <fmt/format.h>

namespace bolide {
namespace {

// Values of NVML's enums.
constexpr int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;

}  // namespace

Result<Nvml> Nvml::open(const CudaLibraries& where, const GpuInfo& gpu) {
  BOLIDE_TRY(const Library library, open_nvml(where));
  Nvml nvml;
  int (*init)() = nullptr;
  int (*by_pci)(const char*, Handle*) = nullptr;
  BOLIDE_TRY(library.find("nvmlInit_v2", &init));
  BOLIDE_TRY(library.find("nvmlDeviceGetHandleByPciBusId_v2", &by_pci));
  BOLIDE_TRY(library.find("nvmlSystemGetDriverVersion", &nvml.system_driver_));
  BOLIDE_TRY(library.find("nvmlDeviceGetTotalEnergyConsumption", &nvml.total_energy_));
  BOLIDE_TRY(library.find("nvmlDeviceGetPowerUsage", &nvml.power_));
  BOLIDE_TRY(library.find("nvmlDeviceGetEnforcedPowerLimit", &nvml.power_limit_));
  BOLIDE_TRY(library.find("nvmlDeviceGetClockInfo", &nvml.clock_));
  BOLIDE_TRY(library.find("nvmlDeviceGetTemperature", &nvml.temperature_));
  BOLIDE_TRY(library.find("nvmlDeviceGetCurrentClocksThrottleReasons", &nvml.throttle_));
  if (const int status = init(); status != 0)
    return error(Code::kUnavailable, fmt::format("{}: nvmlInit_v2 failed with {}", library.path(), status));
  if (const int status = by_pci(gpu.pci_bus_id.c_str(), &nvml.device_); status != 0)
    return error(Code::kUnavailable, fmt::format("{}: no GPU at {} ({})", library.path(), gpu.pci_bus_id, status));
  return nvml;
}

GpuReading Nvml::read() const {
  GpuReading reading;
  unsigned value = 0;
  unsigned long long wide = 0;
  if (total_energy_(device_, &wide) == 0) reading.energy_joules = static_cast<double>(wide) / 1e3;
  if (power_(device_, &value) == 0) reading.power_watts = value / 1e3;
  if (power_limit_(device_, &value) == 0) reading.power_limit_watts = value / 1e3;
  if (clock_(device_, kClockSm, &value) == 0) reading.sm_mhz = static_cast<int>(value);
  if (clock_(device_, kClockMemory, &value) == 0) reading.memory_mhz = static_cast<int>(value);
  if (temperature_(device_, kTemperatureGpu, &value) == 0) reading.temperature_celsius = static_cast<int>(value);
  if (throttle_(device_, &wide) == 0) reading.throttle_reasons = wide;
  return reading;
}

std::string Nvml::driver() const {
  char text[96] = {};
  return system_driver_(text, sizeof text) == 0 ? text : "";
}

}  // namespace bolide
