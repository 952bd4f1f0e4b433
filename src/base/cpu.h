// What processor this process runs on, and how much of it it may use.
//
// Thread rules: CpuInfo is a plain value; detect_cpu reads the machine (well under a millisecond) and may be called
// from any thread. Make one at start-up and pass it on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace bolide {

// The instruction set families that kernels are written for, each a superset of the one before. They match the file
// suffixes of cmake/BolideFolder.cmake: kVnni is AVX-512 F/BW/DQ/VL/CD with VNNI and VBMI; kAmx adds AVX-512 BF16 and
// the AMX tiles with int8 and bf16. bf16 dot products without tiles are a feature beside them:
// CpuFeatures::avx512_bf16.
enum class Isa : uint8_t { kScalar, kAvx2, kAvx512, kVnni, kAmx };

std::string_view to_string(Isa isa);           // "scalar", "avx2", "avx512", "vnni", "amx"
Result<Isa> parse_isa(std::string_view text);  // kInvalid names the choices

// Usable now: in CPUID, with the registers enabled by the operating system.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false, bmi = false;  // bmi: BMI1 and BMI2
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512cd = false;
  bool avx512_vnni = false, avx512_vbmi = false, avx512_bf16 = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;  // false too if the kernel refuses the tile registers
  bool operator==(const CpuFeatures&) const = default;
};

struct CpuInfo {
  std::string vendor;      // "AuthenticAMD", "GenuineIntel"; the architecture's name where there is no CPUID
  std::string model_name;  // "AMD EPYC"; may be empty
  int family = 0, model = 0, stepping = 0;
  CpuFeatures features;
  int logical_cpus = 1;              // those this process may run on
  int physical_cores = 1;            // distinct cores among them
  std::optional<double> quota_cpus;  // the control group's limit of processor time, if there is one
  int64_t l1d_bytes = 0;             // per core; 0: unknown
  int64_t l2_bytes = 0;              // per core
  int64_t l3_bytes = 0;              // all level-3 caches that the usable processors can reach, together

  // Threads worth starting: one per physical core, no more than the quota pays for; at least 1.
  int cores() const;
};

CpuInfo detect_cpu();

bool supports(const CpuInfo& cpu, Isa isa);
Isa best_isa(const CpuInfo& cpu);

// For results and logs: "AMD EPYC (family 25 model 17), avx512_vnni+bf16, 2 cores".
std::string describe(const CpuInfo& cpu);
// Equal for machines on which the same kernels are valid and tuned choices carry over:
// "AuthenticAMD/25/17/avx2+fma+f16c+...".
std::string fingerprint(const CpuInfo& cpu);

// Asks the kernel once for the AMX tile registers; false if it refuses or there are none. detect_cpu has called it.
bool request_amx_permission();

// The tightest processor-time limit, in processors, of the control groups (v1 or v2) that this process is in. `root`
// stands for "/" and exists for tests.
std::optional<double> read_cpu_quota(const std::filesystem::path& root = "/");

}  // namespace bolide
