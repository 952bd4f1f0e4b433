// What `bolide doctor` has found on this machine, and what it says about it. Looking and judging are apart, so that
// judging can be tested with machines that nobody has.
//
// Thread rules: plain values, pure functions; look_at_machine reads files of the system and asks the driver.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "device/gpu_survey.h"

namespace bolide::cli {

struct NumaNode {
  int id = 0;
  int cpus = 0;
  int64_t memory_bytes = 0;
};

struct PortFact {
  int port = 0;
  std::string said;  // empty: free; else why it cannot be listened on
};

struct ModelFact {
  std::string path;
  std::string problem;      // why it cannot be opened; empty: it can
  std::string format;       // "gguf", "safetensors", "onnx", "engine"
  int64_t bytes = 0;        // of all its files
  std::string file_system;  // "ext4", "nfs", ...; empty: unknown
  bool on_network = false;  // its files come over one
};

constexpr uint64_t kNoLimit = UINT64_MAX;

struct MachineFacts {
  CpuInfo cpu;
  int machine_cpus = 1;  // that are switched on
  std::string governor;  // of the clock; empty: unknown
  double load = 0;       // processes that want a processor, mean of a minute

  int64_t memory_bytes = 0, memory_available_bytes = 0, swap_bytes = 0;  // 0: unknown
  std::optional<int64_t> memory_limit_bytes;                             // of the control groups
  std::string huge_pages;                                                // "always", "madvise", "never"; empty: unknown
  std::vector<NumaNode> nodes;

  uint64_t open_files = kNoLimit, open_files_max = kNoLimit;  // soft and hard
  uint64_t locked_bytes = kNoLimit;
  uint64_t address_space_bytes = kNoLimit;

  std::vector<PortFact> ports;

  int nvidia_devices = 0;     // that the PCI bus shows
  bool nvidia_nodes = false;  // /dev/nvidiactl can be opened
  GpuSurvey gpus;
  std::string gpu_problem;  // why --device cuda does not work; empty: it does, or there is no GPU

  std::vector<ModelFact> models;
};

enum class Verdict : uint8_t { kOk, kNote, kProblem };
std::string_view to_string(Verdict verdict);  // "ok", "note", "problem"

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string topic;    // "processor"
  std::string found;    // what is there
  std::string meaning;  // what follows from it
  std::string remedy;   // what to change; empty where there is nothing
};
std::vector<Finding> judge(const MachineFacts& facts);

std::string findings_text(std::span<const Finding> findings);
std::string findings_json(std::span<const Finding> findings);

struct LookOptions {
  std::vector<int> ports;
  std::vector<std::string> models;
  std::string cuda_libs;
};
MachineFacts look_at_machine(const LookOptions& options);

}  // namespace bolide::cli
