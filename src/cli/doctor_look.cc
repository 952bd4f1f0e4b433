#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "app/engine.h"
#include "app/network.h"
#include "base/memory.h"
#include "cli/doctor_facts.h"
#include "device/device.h"
#include "load/load.h"
#include "onnx/import.h"

namespace bolide::cli {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, 4096);
}

// "MemTotal:       24684084 kB", in bytes; 0: not there.
int64_t kib_of(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(key);
    if (at == std::string::npos) continue;
    const size_t digits = line.find_first_of("0123456789", at + key.size());
    int64_t kib = 0;
    if (digits != std::string::npos) std::from_chars(line.data() + digits, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return 0;
}

// "0-3,8": how many.
int count_list(std::string_view list) {
  int count = 0;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    int first = 0, last = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), first);
    if (parsed.ec != std::errc()) continue;
    last = first;
    if (parsed.ptr != part.data() + part.size() && *parsed.ptr == '-')
      std::from_chars(parsed.ptr + 1, part.data() + part.size(), last);
    count += std::max(0, last - first + 1);
  }
  return count;
}

// The tightest limit of memory of the control groups (v1 and v2) that this process is in.
std::optional<int64_t> memory_limit() {
  std::optional<int64_t> limit;
  const auto take = [&](const fs::path& file) {
    const std::string text = first_line(file);
    int64_t value = 0;
    // v1 says "no limit" by a number near 2^63.
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc() && value > 0 &&
        value < INT64_MAX / 2)
      limit = std::min(limit.value_or(value), value);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const bool second = line.starts_with("0::/");
    const size_t first_at = line.find(":memory:/");
    if ((!second && first_at == std::string::npos) || line.find("..") != std::string::npos) continue;
    const fs::path mount = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* name = second ? "memory.max" : "memory.limit_in_bytes";
    for (fs::path group = line.substr(second ? 4 : first_at + 9);; group = group.parent_path()) {
      take(group.empty() ? mount / name : mount / group / name);
      if (group.empty()) break;
    }
  }
  return limit;
}

void look_at_processor(MachineFacts* facts) {
  facts->cpu = detect_cpu();
  facts->machine_cpus = std::max(facts->cpu.logical_cpus, count_list(first_line("/sys/devices/system/cpu/online")));
  facts->governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  double load = 0;
  if (::getloadavg(&load, 1) == 1) facts->load = load;
}

void look_at_memory(MachineFacts* facts) {
  facts->memory_bytes = kib_of("/proc/meminfo", "MemTotal:");
  facts->swap_bytes = kib_of("/proc/meminfo", "SwapTotal:");
  const size_t available = available_memory_bytes();
  facts->memory_available_bytes = available == SIZE_MAX ? 0 : static_cast<int64_t>(available);
  facts->memory_limit_bytes = memory_limit();
  const std::string pages = first_line("/sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  const size_t open = pages.find('['), close = pages.find(']');
  if (open != std::string::npos && close != std::string::npos && close > open)
    facts->huge_pages = pages.substr(open + 1, close - open - 1);
  constexpr int kNodesMax = 1024;
  std::error_code ignored;
  for (int id = 0; id < kNodesMax; ++id) {
    const fs::path folder = fmt::format("/sys/devices/system/node/node{}", id);
    if (!fs::exists(folder, ignored)) {
      if (id > 64) break;
      continue;
    }
    facts->nodes.push_back({id, count_list(first_line(folder / "cpulist")), kib_of(folder / "meminfo", "MemTotal:")});
  }
}

uint64_t limit_of(int resource, bool hard) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return kNoLimit;
  const rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  return value == RLIM_INFINITY ? kNoLimit : value;
}

PortFact look_at_port(int port) {
  PortFact fact{port, ""};
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return {port, std::strerror(errno)};
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  // Two may bind with SO_REUSEADDR; only one may listen.
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(socket, 1) != 0)
    fact.said = std::strerror(errno);
  ::close(socket);
  return fact;
}

int count_nvidia_devices() {
  int count = 0;
  std::error_code ignored;
  for (fs::directory_iterator it("/sys/bus/pci/devices", ignored), end; !ignored && it != end; it.increment(ignored))
    // 0x03....: a display controller or an accelerator without a display.
    count +=
        first_line(it->path() / "vendor") == "0x10de" && first_line(it->path() / "class").starts_with("0x03") ? 1 : 0;
  return count;
}

void look_at_file_system(const fs::path& path, ModelFact* fact) {
  struct Row {
    uint64_t magic;
    const char* name;
    bool network;
  };
  static constexpr Row kRows[] = {
      {0xEF53, "ext4", false},         {0x58465342, "xfs", false},   {0x9123683E, "btrfs", false},
      {0x794C7630, "overlay", false},  {0x01021994, "tmpfs", false}, {0x2FC12FC1, "zfs", false},
      {0x73717368, "squashfs", false}, {0xE0F5E1E2, "erofs", false}, {0xF2F52010, "f2fs", false},
      {0x6969, "nfs", true},           {0xFF534D42, "cifs", true},   {0xFE534D42, "smb", true},
      {0x01021997, "9p", true},        {0x65735546, "fuse", true},   {0x00C36400, "ceph", true},
      {0x0BD00BD0, "lustre", true},
  };
  struct statfs info{};
  if (::statfs(path.c_str(), &info) != 0) return;
  const auto magic = static_cast<uint64_t>(info.f_type) & 0xffffffffu;
  for (const Row& row : kRows)
    if (row.magic == magic) {
      fact->file_system = row.name;
      fact->on_network = row.network;
    }
}

int64_t bytes_at(const fs::path& path) {
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) {
    const auto size = fs::file_size(path, failed);
    return failed ? 0 : static_cast<int64_t>(size);
  }
  int64_t bytes = 0;
  for (fs::directory_iterator it(path, failed), end; !failed && it != end; it.increment(failed))
    if (it->is_regular_file(failed) && it->path().extension() == ".safetensors") bytes += bytes_at(it->path());
  return bytes;
}

ModelFact look_at_model(const std::string& path) {
  ModelFact fact;
  fact.path = path;
  look_at_file_system(path, &fact);
  fact.bytes = bytes_at(path);
  if (is_network(path)) {
    fact.format = "onnx";
    if (const auto opened = open_onnx(path); !opened) fact.problem = opened.error().text;
  } else if (is_engine(path)) {
    fact.format = "engine";
    if (const auto opened = read_engine(path, {}); !opened) fact.problem = opened.error().text;
  } else if (const auto loaded = load_model(path, {.any_family = true}); !loaded) {
    fact.problem = loaded.error().text;
  } else {
    fact.format = loaded->format;
    int64_t weights = 0;
    if (loaded->weights != nullptr)
      for (const std::string& name : loaded->weights->names())
        weights += static_cast<int64_t>(loaded->weights->find(name)->byte_size());
    fact.bytes = std::max(fact.bytes, weights);  // of all shards
  }
  return fact;
}

}  // namespace

MachineFacts look_at_machine(const LookOptions& options) {
  MachineFacts facts;
  look_at_processor(&facts);
  look_at_memory(&facts);
  facts.open_files = limit_of(RLIMIT_NOFILE, false);
  facts.open_files_max = limit_of(RLIMIT_NOFILE, true);
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK, false);
  facts.address_space_bytes = limit_of(RLIMIT_AS, false);
  for (const int port : options.ports) facts.ports.push_back(look_at_port(port));
  facts.nvidia_devices = count_nvidia_devices();
  facts.nvidia_nodes = ::access("/dev/nvidiactl", R_OK | W_OK) == 0;
  facts.gpus = survey_gpus(options.cuda_libs);
  if (facts.gpus.built && (facts.nvidia_devices > 0 || !facts.gpus.gpus.empty())) {
    CudaOptions cuda;
    cuda.libraries = options.cuda_libs;
    if (const auto device = make_cuda_device(cuda); !device) facts.gpu_problem = device.error().text;
  }
  for (const std::string& model : options.models) facts.models.push_back(look_at_model(model));
  return facts;
}

}  // namespace bolide::cli
