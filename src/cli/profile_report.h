// What bolide profile says: rows of steps summed by step, layer, operator or kernel, a GPU's step as a whole, and what
// its kernels take.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "measure/kernel_use.h"

namespace bolide::cli {

// One step of a plan, over all its executions of one phase.
struct ProfileRow {
  std::string name, op, kernel, layer;
  std::vector<double> seconds;
  Cost cost;  // of one execution
};

// A step as a GPU runs it in production, and what it takes. All of one execution of the plan.
struct GpuStep {
  double device_seconds = 0;     // replayed, from the end of one execution to the end of the next
  int launches = 0;              // of the plan: one may run several steps, and several kernels
  double event_seconds = 0;      // what one mark between two kernels adds by itself
  double joules = 0, watts = 0;  // 0: the GPU does not tell
  int sm_mhz = 0;
  std::vector<KernelUse> kernels;
};

struct ProfilePhase {
  std::string name;
  std::vector<ProfileRow> rows;  // executions of one step of the phase
  double wall_seconds = 0;       // of one execution of all steps, in production
  std::optional<GpuStep> gpu;
};

// Seconds of all rows' medians.
double kernel_seconds(const ProfilePhase& phase);

// Between kernels: what the replayed step takes beyond its kernels, each timed between two marks and the marks' own
// time taken off. Above 0: gaps. Below: kernels that overlap (programmatic dependent launch), which marks keep from it.
double gap_seconds(const ProfilePhase& phase, const GpuStep& gpu);
// The share of wall time in which the GPU runs no kernel of the plan.
double idle_percent(const ProfilePhase& phase, const GpuStep& gpu);

// GB/s and Gop/s; 0: not known.
struct ProfileRoofs {
  double memory = 0, arithmetic = 0;
};

// `by`: step, layer, operator or kernel.
Table profile_table(const ProfilePhase& phase, const std::string& by, const ProfileRoofs& roofs);

struct GpuMemoryUse {
  int64_t weights = 0, kv_cache = 0, activations = 0, used = 0;  // bytes; used: of the whole GPU, by everything on it
};

nlohmann::ordered_json phase_json(const ProfilePhase& phase, const ProfileRoofs& roofs, const GpuInfo* gpu);
// Lines of at most `width` characters; 0: as long as they get.
std::string phase_text(const ProfilePhase& phase, const std::string& by, const ProfileRoofs& roofs, const GpuInfo* gpu,
                       size_t width);

}  // namespace bolide::cli
