// What NVIDIA's driver and libraries say of this machine, whether or not a GPU can be used: for `bolide doctor`,
// without CUDA's headers.
//
// Thread rules: plain values; survey_gpus from any thread, it may take some tenths of a second.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace bolide {

struct SurveyedLibrary {
  std::string name;  // "cuBLASLt"
  std::string path;  // empty: not found,
  std::string said;  // and why
};

struct SurveyedGpu {
  std::string name;
  std::string pci_bus_id;
  int compute_capability = 0;  // 90 for 9.0
  int64_t memory_bytes = 0, memory_used_bytes = 0;
  double power_limit_watts = 0;
  int temperature_celsius = 0;
  uint64_t throttle_reasons = 0;  // NVML's bits
  int nvlinks = 0;                // that are up
  bool persistence = true;
  bool mig = false;
};

struct GpuSurvey {
  bool built = false;   // this program was built with CUDA
  std::string driver;   // "580.159.03"; empty: no NVML, or it does not answer
  std::string said;     // why there is none
  int driver_cuda = 0;  // newest CUDA that the driver runs: 13000 is 13.0
  std::vector<SurveyedLibrary> libraries;
  std::vector<SurveyedGpu> gpus;
};

// `libraries`: where to look first, may be empty.
GpuSurvey survey_gpus(const std::filesystem::path& libraries);

}  // namespace bolide
