#include "device/gpu_survey.h"

#include <fmt/format.h>

#include "device/cuda/library.h"

namespace bolide {
namespace {

using Handle = struct NvmlDevice*;

// Values of NVML's enums, and its structs as far as they are read.
constexpr int kTemperatureGpu = 0;
constexpr unsigned kNvlinksMax = 18;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlPci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

template <class Function>
Function* function(const Library& library, const char* name) {
  Function* found = nullptr;
  return library.find(name, &found) ? found : nullptr;
}

// `name` of `handle` into `value`; false if there is no such function, or it does not answer.
template <class T>
bool ask(const Library& library, const char* name, Handle handle, T* value) {
  auto* call = function<int(Handle, T*)>(library, name);
  return call != nullptr && call(handle, value) == 0;
}

SurveyedGpu survey(const Library& library, Handle handle) {
  SurveyedGpu gpu;
  char text[96] = {};
  if (auto* call = function<int(Handle, char*, unsigned)>(library, "nvmlDeviceGetName");
      call != nullptr && call(handle, text, sizeof text) == 0)
    gpu.name = text;
  NvmlPci pci{};
  if (ask(library, "nvmlDeviceGetPciInfo_v3", handle, &pci)) {
    pci.bus_id[sizeof pci.bus_id - 1] = 0;
    gpu.pci_bus_id = pci.bus_id;
  }
  int major = 0, minor = 0;
  if (auto* call = function<int(Handle, int*, int*)>(library, "nvmlDeviceGetCudaComputeCapability");
      call != nullptr && call(handle, &major, &minor) == 0)
    gpu.compute_capability = 10 * major + minor;
  if (NvmlMemory memory{}; ask(library, "nvmlDeviceGetMemoryInfo", handle, &memory)) {
    gpu.memory_bytes = static_cast<int64_t>(memory.total);
    gpu.memory_used_bytes = static_cast<int64_t>(memory.used);
  }
  unsigned value = 0;
  if (ask(library, "nvmlDeviceGetEnforcedPowerLimit", handle, &value)) gpu.power_limit_watts = value / 1e3;
  if (unsigned long long reasons = 0; ask(library, "nvmlDeviceGetCurrentClocksThrottleReasons", handle, &reasons))
    gpu.throttle_reasons = reasons;
  if (auto* call = function<int(Handle, int, unsigned*)>(library, "nvmlDeviceGetTemperature");
      call != nullptr && call(handle, kTemperatureGpu, &value) == 0)
    gpu.temperature_celsius = static_cast<int>(value);
  if (int on = 0; ask(library, "nvmlDeviceGetPersistenceMode", handle, &on)) gpu.persistence = on != 0;
  unsigned pending = 0;
  if (auto* call = function<int(Handle, unsigned*, unsigned*)>(library, "nvmlDeviceGetMigMode");
      call != nullptr && call(handle, &value, &pending) == 0)
    gpu.mig = value != 0;
  if (auto* call = function<int(Handle, unsigned, int*)>(library, "nvmlDeviceGetNvLinkState"); call != nullptr)
    for (unsigned link = 0; link < kNvlinksMax; ++link)
      if (int active = 0; call(handle, link, &active) == 0 && active != 0) ++gpu.nvlinks;
  return gpu;
}

void survey_driver(const Library& library, GpuSurvey* out) {
  auto* init = function<int()>(library, "nvmlInit_v2");
  auto* count = function<int(unsigned*)>(library, "nvmlDeviceGetCount_v2");
  auto* by_index = function<int(unsigned, Handle*)>(library, "nvmlDeviceGetHandleByIndex_v2");
  if (init == nullptr || count == nullptr || by_index == nullptr) {
    out->said = fmt::format("{} is too old", library.path());
    return;
  }
  if (const int status = init(); status != 0) {
    out->said = fmt::format("{}: nvmlInit_v2 failed with {}", library.path(), status);
    return;
  }
  char text[96] = {};
  auto* driver = function<int(char*, unsigned)>(library, "nvmlSystemGetDriverVersion");
  if (driver != nullptr && driver(text, sizeof text) == 0) out->driver = text;
  int cuda = 0;
  auto* cuda_version = function<int(int*)>(library, "nvmlSystemGetCudaDriverVersion_v2");
  if (cuda_version != nullptr && cuda_version(&cuda) == 0) out->driver_cuda = cuda;
  unsigned devices = 0;
  if (count(&devices) != 0) return;
  for (unsigned i = 0; i < devices; ++i)
    if (Handle handle = nullptr; by_index(i, &handle) == 0) out->gpus.push_back(survey(library, handle));
}

}  // namespace

GpuSurvey survey_gpus(const std::filesystem::path& libraries) {
  const CudaLibraries where = find_cuda_libraries(libraries);
  GpuSurvey out;
  out.built = true;
  const auto look = [&](const char* name, const Result<Library>& library) {
    out.libraries.push_back({name, library ? library->path() : "", library ? "" : library.error().text});
  };
  const Result<Library> nvml = open_nvml(where);
  look("NVML", nvml);
  look("cuBLASLt", open_cublaslt(where));
  look("cuDNN", open_cudnn(where));
  look("NCCL", open_nccl(where));
  if (nvml)
    survey_driver(*nvml, &out);
  else
    out.said = nvml.error().text;
  return out;
}

}  // namespace bolide
