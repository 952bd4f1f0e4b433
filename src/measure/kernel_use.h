// What kernels take of a GPU: their registers, shared memory and occupancy, and what limits it.
//
// Pure functions of what the device said of each launch (Stream::watch).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "measure/report.h"

namespace bolide {

struct Occupancy {
  int blocks = 0, warps = 0;  // of this launch on one multiprocessor at a time
  double percent = 0;         // warps, of what a multiprocessor can hold
  // What holds it there: "registers", "shared memory", "threads", "blocks" (of a multiprocessor), or "grid": the launch
  // has fewer blocks than would fit. "?": the device does not say.
  std::string_view limit = "?";
};
Occupancy occupancy_of(const KernelLaunch& launch, const GpuInfo& gpu);

// "void bolide::cuda::(anonymous namespace)::gemv<Bf16, 4>(bolide::GemvTask)" is "gemv<Bf16, 4>".
std::string short_kernel_name(std::string_view name);

// The launches of one of the plan's kernels that are alike.
struct KernelUse {
  std::string kernel;  // of the plan
  KernelLaunch launch;
  int count = 0;     // in one execution of all steps
  bool ours = true;  // false: a library's, of which nothing is known
};
// Adds uses to those like them, or a launch of `kernel`.
void add_use(std::vector<KernelUse>& uses, const KernelUse& more);
void count_launch(std::vector<KernelUse>& uses, const std::string& kernel, const KernelLaunch& launch);

// A row a use. JSON has "name", the function in full; text has "function" without its template's arguments.
Table kernel_use_table(std::span<const KernelUse> uses, const GpuInfo& gpu, bool for_text);

}  // namespace bolide
