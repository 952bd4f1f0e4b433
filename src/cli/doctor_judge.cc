#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "base/utf8.h"
#include "cli/doctor_facts.h"

namespace bolide::cli {
namespace {

using Findings = std::vector<Finding>;

std::string bytes_text(int64_t bytes) { return size_text(static_cast<size_t>(std::max<int64_t>(0, bytes))); }
std::string limit_text(uint64_t limit) { return limit == kNoLimit ? "unlimited" : size_text(limit); }
std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

void judge_processor(const MachineFacts& facts, Findings& out) {
  const CpuInfo& cpu = facts.cpu;
  const Isa isa = best_isa(cpu);
  Finding finding{Verdict::kOk, "processor", describe(cpu), "", ""};
  switch (isa) {
    case Isa::kScalar:
      finding.verdict = Verdict::kProblem;
      finding.meaning = "without AVX2 the slow reference kernels run: many times slower";
      finding.remedy = "use a processor with AVX2; in a virtual machine let it pass the host's processor through";
      break;
    case Isa::kAvx2: finding.meaning = "AVX2 kernels are used; AVX-512 with VNNI would be about twice as fast"; break;
    case Isa::kAvx512:
      finding.meaning = "AVX-512 kernels are used; there is no VNNI, so products of codes take more instructions";
      break;
    case Isa::kVnni: finding.meaning = "AVX-512 kernels with VNNI are used"; break;
    case Isa::kAmx: finding.meaning = "AMX tiles are used for prompts, AVX-512 with VNNI for single tokens"; break;
  }
  if (cpu.vendor == "GenuineIntel" && cpu.features.avx512_bf16 && !cpu.features.amx_tile) {
    finding.verdict = std::max(finding.verdict, Verdict::kNote);
    finding.meaning += "; this processor may have AMX tiles that this process is not given";
    finding.remedy = "a newer kernel (5.16), or a virtual machine that passes AMX through";
  }
  out.push_back(std::move(finding));
}

void judge_cores(const MachineFacts& facts, Findings& out) {
  const CpuInfo& cpu = facts.cpu;
  Finding finding{Verdict::kOk, "cores",
                  fmt::format("{} cores ({} logical) of the machine's {} logical", cpu.physical_cores, cpu.logical_cpus,
                              facts.machine_cpus),
                  fmt::format("{} threads are started", cpu.cores()), ""};
  if (cpu.quota_cpus) {
    finding.found += fmt::format(", a quota of {:g} processors", *cpu.quota_cpus);
    if (*cpu.quota_cpus < cpu.physical_cores) {
      finding.verdict = Verdict::kNote;
      finding.meaning += ": the control group pays for no more";
      finding.remedy = "a higher CPU limit, or cpusets (whole cores) in place of a quota, which stops threads in turns";
    }
    if (*cpu.quota_cpus < 1) {
      finding.verdict = Verdict::kProblem;
      finding.meaning = "less than one processor: each step stops for the rest of every period of 100 ms";
      finding.remedy = "a CPU limit of at least 1";
    }
  } else if (cpu.logical_cpus < facts.machine_cpus) {
    finding.meaning += ": the others are not for this process (affinity, cpuset)";
  }
  out.push_back(std::move(finding));
  if (facts.load > 0) {
    Finding load{Verdict::kOk, "load", fmt::format("{:.1f} busy processes", facts.load), "", ""};
    if (facts.load > 0.5 * facts.machine_cpus + 0.5) {
      load.verdict = Verdict::kNote;
      load.meaning = "neighbours want the same cores: speeds vary, and measurements say little";
      load.remedy = "measure on a quiet machine";
    } else {
      load.meaning = "the cores are mostly free";
    }
    out.push_back(std::move(load));
  }
  if (facts.governor == "powersave" || facts.governor == "conservative")
    out.push_back({Verdict::kNote, "clock", fmt::format("governor {}", facts.governor),
                   "the clock may rise late, so that short work is slower",
                   "cpupower frequency-set -g performance, if it matters"});
}

void judge_memory(const MachineFacts& facts, Findings& out) {
  if (facts.memory_bytes > 0) {
    Finding finding{
        Verdict::kOk, "memory",
        fmt::format("{}, {} available", bytes_text(facts.memory_bytes), bytes_text(facts.memory_available_bytes)), "",
        ""};
    if (facts.memory_limit_bytes && *facts.memory_limit_bytes < facts.memory_bytes) {
      finding.found += fmt::format(", the control group allows {}", bytes_text(*facts.memory_limit_bytes));
      finding.meaning =
          "what goes beyond the group's limit ends the process; mapped model files count, but can be given up";
    }
    const int64_t gibibyte = int64_t{1} << 30;
    if (facts.memory_available_bytes < gibibyte / 2) {
      finding.verdict = Verdict::kProblem;
      finding.meaning = "hardly a model fits";
      finding.remedy = "end what holds memory, or raise the limit";
    } else if (finding.meaning.empty()) {
      finding.meaning = "weights are mapped or packed into about the file's size, beside the KV cache";
    }
    out.push_back(std::move(finding));
  }
  if (!facts.huge_pages.empty()) {
    Finding finding{Verdict::kOk, "huge pages", fmt::format("transparent ones: {}", facts.huge_pages), "", ""};
    if (facts.huge_pages == "never") {
      finding.verdict = Verdict::kNote;
      finding.meaning = "weights lie in pages of 4 KiB: address translation costs some per cent of a step";
      finding.remedy = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root, on the host)";
    } else {
      finding.meaning = "packed weights get pages of 2 MiB";
    }
    out.push_back(std::move(finding));
  }
  if (facts.nodes.size() > 1) {
    std::string list;
    for (const NumaNode& node : facts.nodes)
      list += fmt::format("{}node {}: {} CPUs, {}", list.empty() ? "" : "; ", node.id, node.cpus,
                          bytes_text(node.memory_bytes));
    out.push_back({Verdict::kNote, "NUMA", list,
                   "threads of one node read weights that lie at another over the slower link between sockets",
                   "run one process a node: numactl --cpunodebind=0 --membind=0 bolide ..."});
  } else if (facts.nodes.size() == 1) {
    out.push_back({Verdict::kOk, "NUMA", "one node", "all memory is equally near", ""});
  }
}

void judge_limits(const MachineFacts& facts, Findings& out) {
  constexpr uint64_t kFilesFew = 4096, kFilesTooFew = 256;
  const auto number = [](uint64_t limit) {
    return limit == kNoLimit ? std::string("unlimited") : std::to_string(limit);
  };
  Finding files{Verdict::kOk, "open files", number(facts.open_files), "each connection of a server takes one", ""};
  if (facts.open_files_max > facts.open_files)
    files.found += fmt::format(" (may be raised: {})", number(facts.open_files_max));
  const uint64_t usable = std::max(facts.open_files, facts.open_files_max);
  if (usable < kFilesTooFew) {
    files.verdict = Verdict::kProblem;
    files.remedy = "ulimit -n 65536; for a service LimitNOFILE=65536";
  } else if (usable < kFilesFew) {
    files.verdict = Verdict::kNote;
    files.meaning = fmt::format("a server can hold about {} connections", usable - std::min<uint64_t>(usable, 64));
    files.remedy = "ulimit -n 65536; for a service LimitNOFILE=65536";
  }
  out.push_back(std::move(files));
  Finding locked{Verdict::kOk, "locked memory", limit_text(facts.locked_bytes), "Bolide locks none on a processor", ""};
  if (!facts.gpus.gpus.empty()) locked.meaning = "pinned buffers of a GPU are the driver's and do not count";
  out.push_back(std::move(locked));
  if (facts.address_space_bytes != kNoLimit)
    out.push_back({Verdict::kProblem, "address space", limit_text(facts.address_space_bytes),
                   "mapped model files and the reserved KV cache count, whether or not they are touched",
                   "ulimit -v unlimited; limit memory by a control group"});
}

void judge_ports(const MachineFacts& facts, Findings& out) {
  for (const PortFact& port : facts.ports) {
    if (port.said.empty())
      out.push_back({Verdict::kOk, "port", fmt::format("{} is free", port.port), "a server can listen there", ""});
    else
      out.push_back({Verdict::kProblem, "port", fmt::format("{}: {}", port.port, port.said),
                     "a server cannot listen there",
                     port.port < 1024
                         ? "a port from 1024 on, or the capability CAP_NET_BIND_SERVICE"
                         : fmt::format("end what listens there (ss -ltnp 'sport = :{}'), or another port", port.port)});
  }
}

// NVML's bits of what holds clocks down.
std::string throttle_text(uint64_t reasons) {
  constexpr uint64_t kPowerCap = 0x4, kHardware = 0x8, kSoftwareThermal = 0x20, kHardwareThermal = 0x40, kBrake = 0x80;
  std::string text;
  const auto add = [&](uint64_t bit, std::string_view name) {
    if ((reasons & bit) != 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  };
  add(kPowerCap, "power limit");
  add(kHardware, "hardware slowdown");
  add(kSoftwareThermal | kHardwareThermal, "heat");
  add(kBrake, "power brake");
  return text;
}

void judge_gpu(const SurveyedGpu& gpu, size_t gpus, Findings& out) {
  Finding finding{Verdict::kOk, "GPU",
                  fmt::format("{} at {}, compute capability {}.{}, {}, {} in use", gpu.name, gpu.pci_bus_id,
                              gpu.compute_capability / 10, gpu.compute_capability % 10, bytes_text(gpu.memory_bytes),
                              bytes_text(gpu.memory_used_bytes)),
                  "", ""};
  const auto note = [&](std::string meaning, std::string remedy) {
    finding.verdict = std::max(finding.verdict, Verdict::kNote);
    finding.meaning += (finding.meaning.empty() ? "" : "; ") + std::move(meaning);
    finding.remedy += (finding.remedy.empty() ? "" : "; ") + std::move(remedy);
  };
  if (gpu.compute_capability > 0 && gpu.compute_capability < 80) {
    finding.verdict = Verdict::kProblem;
    finding.meaning = "too old: compute capability 8.0 is the least that is supported";
    finding.remedy = "--device cpu, or a newer GPU";
  } else if (gpu.compute_capability == 90) {
    finding.meaning = "kernels made for it are used";
  } else {
    finding.meaning = "general kernels are used; the fastest are for compute capability 9.0";
  }
  if (gpu.mig)
    note("it is cut into MIG instances, of which one is used", "MIG off for the whole GPU, if nobody else needs it");
  if (const std::string reasons = throttle_text(gpu.throttle_reasons); !reasons.empty())
    note(fmt::format("its clocks are held down ({})", reasons), "cooling, or a higher power limit (nvidia-smi -pl)");
  constexpr int kHot = 85;
  if (gpu.temperature_celsius >= kHot) note(fmt::format("it is hot: {} C", gpu.temperature_celsius), "cooling");
  if (gpu.memory_bytes > 0 && gpu.memory_used_bytes > gpu.memory_bytes / 10)
    note("somebody else uses its memory", "nvidia-smi shows who");
  if (!gpu.persistence) note("the driver is unloaded when nobody uses it: starts take seconds", "nvidia-smi -pm 1");
  out.push_back(std::move(finding));
  if (gpus > 1)
    out.push_back({Verdict::kOk, "topology",
                   gpu.nvlinks > 0 ? fmt::format("{}: {} NVLinks up", gpu.pci_bus_id, gpu.nvlinks)
                                   : fmt::format("{}: no NVLink", gpu.pci_bus_id),
                   gpu.nvlinks > 0 ? "GPUs reach each other's memory directly" : "GPUs reach each other over PCIe",
                   ""});
}

void judge_libraries(const MachineFacts& facts, Findings& out) {
  for (const SurveyedLibrary& library : facts.gpus.libraries) {
    Finding finding{Verdict::kOk, "library", fmt::format("{}: {}", library.name, library.path), "", ""};
    const bool needed = library.name == "cuBLASLt";
    if (!library.path.empty()) {
      finding.meaning = needed ? "large products in bf16 and fp8 use it" : "found";
    } else {
      finding.found = fmt::format("{}: {}", library.name, library.said);
      finding.verdict = needed ? Verdict::kProblem : Verdict::kNote;
      finding.meaning = needed                   ? "prompts are slower: only Bolide's own kernels run"
                        : library.name == "NVML" ? "clocks, power and energy are not reported"
                        : library.name == "NCCL" ? "one GPU needs none; several would"
                                                 : "nothing needs it yet";
      finding.remedy = library.name == "NVML" ? "it comes with the driver (libnvidia-ml1)"
                                              : "install CUDA 13's libraries, or give their folder with --cuda-libs";
      if (!needed && library.name != "NVML") finding.verdict = Verdict::kOk, finding.remedy.clear();
    }
    out.push_back(std::move(finding));
  }
}

void judge_gpus(const MachineFacts& facts, Findings& out) {
  const bool seen = facts.nvidia_devices > 0 || !facts.gpus.gpus.empty();
  if (!seen) {
    out.push_back({Verdict::kOk, "GPU", "none", "models run on the processor", ""});
    return;
  }
  if (!facts.gpus.built) {
    out.push_back({Verdict::kProblem, "GPU", fmt::format("{} on the PCI bus", facts.nvidia_devices),
                   "this bolide was built without CUDA, so that none is used",
                   "build with nvcc 13.0 or newer (-DBOLIDE_CUDA=ON says what is missing)"});
    return;
  }
  if (facts.gpus.driver.empty()) {
    out.push_back({Verdict::kProblem, "driver", facts.gpus.said.empty() ? "does not answer" : facts.gpus.said,
                   fmt::format("{} NVIDIA device{} on the PCI bus, and no driver that answers", facts.nvidia_devices,
                               facts.nvidia_devices == 1 ? "" : "s"),
                   facts.nvidia_nodes ? "install libnvidia-ml1 of the driver's version"
                                      : "install the driver; in a container pass the GPU in (--gpus all)"});
  } else {
    constexpr int kCudaNeeded = 13000;
    Finding driver{Verdict::kOk, "driver",
                   fmt::format("{}, runs CUDA up to {}", facts.gpus.driver, cuda_text(facts.gpus.driver_cuda)),
                   "new enough", ""};
    if (facts.gpus.driver_cuda > 0 && facts.gpus.driver_cuda < kCudaNeeded) {
      driver.verdict = Verdict::kProblem;
      driver.meaning = "too old: this bolide needs CUDA 13.0";
      driver.remedy = "a driver of version 580 or newer";
    }
    out.push_back(std::move(driver));
  }
  for (const SurveyedGpu& gpu : facts.gpus.gpus) judge_gpu(gpu, facts.gpus.gpus.size(), out);
  judge_libraries(facts, out);
  if (!facts.gpu_problem.empty())
    out.push_back({Verdict::kProblem, "GPU", "--device cuda does not work", facts.gpu_problem, "see the lines above"});
}

void judge_models(const MachineFacts& facts, Findings& out) {
  for (const ModelFact& model : facts.models) {
    Finding finding{Verdict::kOk, "model", model.path, "", ""};
    if (!model.problem.empty()) {
      finding.verdict = Verdict::kProblem;
      finding.meaning = model.problem;  // which says what to do
      out.push_back(std::move(finding));
      continue;
    }
    finding.found += fmt::format(": {}, {}{}", model.format, bytes_text(model.bytes),
                                 model.file_system.empty() ? "" : fmt::format(", on {}", model.file_system));
    const int64_t available = facts.memory_available_bytes;
    if (available > 0 && model.bytes > available) {
      finding.verdict = Verdict::kProblem;
      finding.meaning = fmt::format("larger than the {} of memory that can be had", bytes_text(available));
      finding.remedy = "a smaller quantisation (Q4_K, 4 bits), or more memory";
    } else if (available > 0 && model.bytes > available / 10 * 8) {
      finding.verdict = Verdict::kNote;
      finding.meaning = "fits, with little room for the KV cache";
      finding.remedy = "a short --context, or a smaller quantisation";
    } else {
      finding.meaning = "readable, whole, and fits in memory";
    }
    for (const SurveyedGpu& gpu : facts.gpus.gpus)
      if (&gpu == &facts.gpus.gpus.front() && gpu.memory_bytes > 0 &&
          model.bytes > gpu.memory_bytes - gpu.memory_used_bytes) {
        finding.verdict = std::max(finding.verdict, Verdict::kNote);
        finding.meaning += "; larger than what is free on the GPU";
      }
    if (model.on_network) {
      finding.verdict = std::max(finding.verdict, Verdict::kNote);
      finding.meaning +=
          "; its pages come over a network: a first start is as slow as that, and an outage ends the process";
      finding.remedy += fmt::format("{}copy it to a local disk", finding.remedy.empty() ? "" : "; ");
    }
    out.push_back(std::move(finding));
  }
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kNote: return "note";
    case Verdict::kProblem: return "problem";
  }
  return "?";
}

std::vector<Finding> judge(const MachineFacts& facts) {
  Findings out;
  judge_processor(facts, out);
  judge_cores(facts, out);
  judge_memory(facts, out);
  judge_limits(facts, out);
  judge_ports(facts, out);
  judge_gpus(facts, out);
  judge_models(facts, out);
  return out;
}

std::string findings_text(std::span<const Finding> findings) {
  std::string text;
  int notes = 0, problems = 0;
  for (const Finding& finding : findings) {
    notes += finding.verdict == Verdict::kNote ? 1 : 0;
    problems += finding.verdict == Verdict::kProblem ? 1 : 0;
    text += fmt::format("{:<8} {:<14} {}\n", to_string(finding.verdict), finding.topic, printable(finding.found));
    if (!finding.meaning.empty()) text += fmt::format("{:<24}{}\n", "", printable(finding.meaning));
    if (!finding.remedy.empty()) text += fmt::format("{:<24}to change it: {}\n", "", printable(finding.remedy));
  }
  return text +
         fmt::format("{} problem{}, {} note{}\n", problems, problems == 1 ? "" : "s", notes, notes == 1 ? "" : "s");
}

std::string findings_json(std::span<const Finding> findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  int problems = 0;
  for (const Finding& finding : findings) {
    problems += finding.verdict == Verdict::kProblem ? 1 : 0;
    list.push_back({{"verdict", to_string(finding.verdict)},
                    {"topic", finding.topic},
                    {"found", finding.found},
                    {"meaning", finding.meaning},
                    {"remedy", finding.remedy}});
  }
  const nlohmann::ordered_json out = {{"problems", problems}, {"findings", list}};
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace bolide::cli
