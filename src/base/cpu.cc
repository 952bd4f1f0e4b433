#include "base/cpu.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace bolide {
namespace {

constexpr std::array<std::string_view, 5> kIsaNames = {"scalar", "avx2", "avx512", "vnni", "amx"};

// Files of /proc and /sys have no size to ask for; these are a few lines.
std::string read_small(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text(16384, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\0')) text.pop_back();
  return text;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<int> usable_cpus() {
  for (size_t cpus = 1024; cpus <= 65536; cpus *= 4) {  // the kernel refuses a set smaller than its own
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    CPU_ZERO_S(bytes, set);
    std::vector<int> usable;
    if (::sched_getaffinity(0, bytes, set) == 0)
      for (size_t cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) usable.push_back(static_cast<int>(cpu));
    CPU_FREE(set);
    if (!usable.empty()) return usable;
  }
  return {0};
}

std::filesystem::path cpu_folder(int cpu) { return fmt::format("/sys/devices/system/cpu/cpu{}", cpu); }

int count_cores(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string siblings = read_small(cpu_folder(cpu) / "topology/thread_siblings_list");
    cores.insert(siblings.empty() ? fmt::format("cpu {}", cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

// "32K", "1024K", "32M".
int64_t parse_size(std::string_view text) {
  if (text.empty()) return 0;
  const int64_t unit = text.back() == 'K' ? 1 << 10 : text.back() == 'M' ? 1 << 20 : 1;
  if (unit != 1) text.remove_suffix(1);
  return parse_integer(text).value_or(0) * unit;
}

void read_caches(const std::vector<int>& cpus, CpuInfo& info) {
  std::set<std::string> shared;  // level-3 caches counted so far, by the processors that share them
  for (const int cpu : cpus) {
    for (int index = 0; index < 8; ++index) {
      const std::filesystem::path cache = cpu_folder(cpu) / fmt::format("cache/index{}", index);
      const std::string level = read_small(cache / "level");
      if (level.empty()) break;
      if (read_small(cache / "type") == "Instruction") continue;
      const int64_t bytes = parse_size(read_small(cache / "size"));
      if (level == "1") info.l1d_bytes = bytes;
      if (level == "2") info.l2_bytes = bytes;
      if (level == "3" && shared.insert(read_small(cache / "shared_cpu_list")).second) info.l3_bytes += bytes;
    }
  }
}

#if defined(__x86_64__)
struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros where the processor has no such leaf.
Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

uint64_t read_xcr0() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

constexpr bool bit(uint64_t word, int index) { return (word >> index & 1) != 0; }

void read_cpuid(CpuInfo& info) {
  const Registers vendor = cpuid(0);
  char name[49] = {};
  std::memcpy(name, &vendor.ebx, 4);
  std::memcpy(name + 4, &vendor.edx, 4);
  std::memcpy(name + 8, &vendor.ecx, 4);
  info.vendor = name;

  const Registers basic = cpuid(1);
  info.stepping = static_cast<int>(basic.eax & 0xf);
  info.model = static_cast<int>(basic.eax >> 4 & 0xf);
  info.family = static_cast<int>(basic.eax >> 8 & 0xf);
  if (info.family == 6 || info.family == 15) info.model += static_cast<int>(basic.eax >> 16 & 0xf) << 4;
  if (info.family == 15) info.family += static_cast<int>(basic.eax >> 20 & 0xff);

  if (cpuid(0x80000000).eax >= 0x80000004) {
    for (uint32_t part = 0; part < 3; ++part) {
      const Registers r = cpuid(0x80000002 + part);
      std::memcpy(name + 16 * part, &r, 16);
    }
    std::string_view brand(name);
    while (!brand.empty() && brand.front() == ' ') brand.remove_prefix(1);
    while (!brand.empty() && brand.back() == ' ') brand.remove_suffix(1);
    info.model_name = brand;
  }

  if (!bit(basic.ecx, 27)) return;  // OSXSAVE: without it the vector registers are off limits
  const uint64_t xcr0 = read_xcr0();
  const bool ymm = (xcr0 & 0x6) == 0x6;
  const bool zmm = (xcr0 & 0xe6) == 0xe6;
  const bool tiles = (xcr0 & 0x60000) == 0x60000;
  const Registers extended = cpuid(7);
  const Registers extended1 = extended.eax >= 1 ? cpuid(7, 1) : Registers{};
  CpuFeatures& f = info.features;
  f.fma = ymm && bit(basic.ecx, 12);
  f.f16c = ymm && bit(basic.ecx, 29);
  f.bmi = bit(extended.ebx, 3) && bit(extended.ebx, 8);
  f.avx2 = ymm && bit(extended.ebx, 5);
  f.avx512f = zmm && bit(extended.ebx, 16);
  f.avx512dq = f.avx512f && bit(extended.ebx, 17);
  f.avx512cd = f.avx512f && bit(extended.ebx, 28);
  f.avx512bw = f.avx512f && bit(extended.ebx, 30);
  f.avx512vl = f.avx512f && bit(extended.ebx, 31);
  f.avx512_vbmi = f.avx512f && bit(extended.ecx, 1);
  f.avx512_vnni = f.avx512f && bit(extended.ecx, 11);
  f.avx512_bf16 = f.avx512f && bit(extended1.eax, 5);
  if (tiles && bit(extended.edx, 24) && request_amx_permission()) {
    f.amx_tile = true;
    f.amx_bf16 = bit(extended.edx, 22);
    f.amx_int8 = bit(extended.edx, 25);
  }
}
#else
void read_cpuid(CpuInfo& info) {
#if defined(__aarch64__)
  info.vendor = "aarch64";
#else
  info.vendor = "unknown";
#endif
}
#endif

// The limits of `group` and of every group above it, below the mount point `mount`.
template <class Limit>
void tighten(const std::filesystem::path& mount, std::string_view group, std::optional<double>& quota, Limit limit) {
  while (true) {
    const std::string_view relative = group.starts_with('/') ? group.substr(1) : group;
    if (const std::optional<double> cpus = limit(mount / relative)) quota = std::min(quota.value_or(*cpus), *cpus);
    if (relative.empty()) return;
    const size_t slash = group.rfind('/');
    group = slash == std::string_view::npos ? std::string_view() : group.substr(0, slash);
  }
}

std::optional<double> ratio(std::optional<int64_t> quota_us, std::optional<int64_t> period_us) {
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

std::optional<double> limit_v1(const std::filesystem::path& folder) {
  return ratio(parse_integer(read_small(folder / "cpu.cfs_quota_us")),
               parse_integer(read_small(folder / "cpu.cfs_period_us")));
}

std::optional<double> limit_v2(const std::filesystem::path& folder) {  // "max 100000" or "150000 100000"
  const std::string text = read_small(folder / "cpu.max");
  const size_t space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return ratio(parse_integer(std::string_view(text).substr(0, space)),
               parse_integer(std::string_view(text).substr(space + 1)));
}

std::string join_features(const CpuFeatures& f) {
  std::string text;
  const auto add = [&](bool has, std::string_view name) {
    if (!has) return;
    if (!text.empty()) text += '+';
    text += name;
  };
  add(f.avx2, "avx2");
  add(f.fma, "fma");
  add(f.f16c, "f16c");
  add(f.bmi, "bmi");
  add(f.avx512f, "avx512f");
  add(f.avx512bw, "avx512bw");
  add(f.avx512dq, "avx512dq");
  add(f.avx512vl, "avx512vl");
  add(f.avx512cd, "avx512cd");
  add(f.avx512_vnni, "avx512_vnni");
  add(f.avx512_vbmi, "avx512_vbmi");
  add(f.avx512_bf16, "avx512_bf16");
  add(f.amx_tile, "amx_tile");
  add(f.amx_int8, "amx_int8");
  add(f.amx_bf16, "amx_bf16");
  return text.empty() ? "scalar" : text;
}

}  // namespace

std::string_view to_string(Isa isa) { return kIsaNames[static_cast<size_t>(isa)]; }

Result<Isa> parse_isa(std::string_view text) {
  for (size_t i = 0; i < kIsaNames.size(); ++i)
    if (kIsaNames[i] == text) return static_cast<Isa>(i);
  return error(Code::kInvalid, fmt::format("\"{}\" is no instruction set; choose scalar, avx2, avx512, vnni or amx",
                                           text.substr(0, 40)));
}

int CpuInfo::cores() const {
  int count = physical_cores;
  if (quota_cpus && *quota_cpus < count) count = static_cast<int>(std::floor(*quota_cpus + 0.01));
  return std::max(1, count);
}

CpuInfo detect_cpu() {
  CpuInfo info;
  read_cpuid(info);
  const std::vector<int> cpus = usable_cpus();
  info.logical_cpus = static_cast<int>(cpus.size());
  info.physical_cores = count_cores(cpus);
  info.quota_cpus = read_cpu_quota();
  read_caches(cpus, info);
  return info;
}

bool supports(const CpuInfo& cpu, Isa isa) {
  const CpuFeatures& f = cpu.features;
  const bool avx2 = f.avx2 && f.fma && f.f16c && f.bmi;
  const bool avx512 = avx2 && f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl && f.avx512cd;
  const bool vnni = avx512 && f.avx512_vnni && f.avx512_vbmi;
  switch (isa) {
    case Isa::kScalar: return true;
    case Isa::kAvx2: return avx2;
    case Isa::kAvx512: return avx512;
    case Isa::kVnni: return vnni;
    case Isa::kAmx: return vnni && f.avx512_bf16 && f.amx_tile && f.amx_int8 && f.amx_bf16;
  }
  return false;
}

Isa best_isa(const CpuInfo& cpu) {
  for (const Isa isa : {Isa::kAmx, Isa::kVnni, Isa::kAvx512, Isa::kAvx2})
    if (supports(cpu, isa)) return isa;
  return Isa::kScalar;
}

std::string describe(const CpuInfo& cpu) {
  const Isa isa = best_isa(cpu);
  std::string isa_text(isa == Isa::kVnni ? "avx512_vnni" : to_string(isa));
  if (cpu.features.avx512_bf16) isa_text += "+bf16";
  const int cores = cpu.cores();
  return fmt::format("{} (family {} model {}), {}, {} core{}", cpu.model_name.empty() ? cpu.vendor : cpu.model_name,
                     cpu.family, cpu.model, isa_text, cores, cores == 1 ? "" : "s");
}

std::string fingerprint(const CpuInfo& cpu) {
  return fmt::format("{}/{}/{}/{}", cpu.vendor, cpu.family, cpu.model, join_features(cpu.features));
}

bool request_amx_permission() {
#if defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM  NOLINT(runtime/int)
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA   NOLINT(runtime/int)
  static const bool granted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

std::optional<double> read_cpu_quota(const std::filesystem::path& root) {
  std::optional<double> quota;
  std::istringstream groups(read_small(root / "proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/some/group", or "0::/some/group" for v2
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (group.find("..") != std::string::npos) continue;  // outside our control group namespace: not visible here
    const std::filesystem::path mounts = root / "sys/fs/cgroup";
    if (controllers.empty()) {
      tighten(mounts, group, quota, limit_v2);
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      tighten(mounts / controllers, group, quota, limit_v1);
      if (controllers != "cpu") tighten(mounts / "cpu", group, quota, limit_v1);
    }
  }
  return quota;
}

}  // namespace bolide
