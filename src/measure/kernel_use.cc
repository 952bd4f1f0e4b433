#include "measure/kernel_use.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace bolide {
namespace {

constexpr int kWarp = 32;
// What is given out at a time (CUDA's occupancy calculator, compute capability 8 and 9): registers of a warp, bytes of
// shared memory.
constexpr int kRegisterUnit = 256, kSharedUnit = 128;

int64_t up_to(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The end of a name's last balanced (...), if it ends with one: parameters.
size_t before_parameters(std::string_view name) {
  if (!name.ends_with(')')) return name.size();
  int depth = 0;
  for (size_t i = name.size(); i-- > 0;) {
    depth += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
    if (depth == 0) return i;
  }
  return name.size();
}

}  // namespace

Occupancy occupancy_of(const KernelLaunch& launch, const GpuInfo& gpu) {
  Occupancy out;
  if (launch.threads <= 0 || launch.blocks_multiprocessor <= 0 || gpu.multiprocessors <= 0 ||
      gpu.threads_multiprocessor <= 0)
    return out;
  const int64_t warps = up_to(launch.threads, kWarp) / kWarp;
  const int64_t of_grid = (launch.blocks + gpu.multiprocessors - 1) / gpu.multiprocessors;
  out.blocks = static_cast<int>(std::min<int64_t>(of_grid, launch.blocks_multiprocessor));
  out.warps = static_cast<int>(out.blocks * warps);
  out.percent = 100. * out.warps * kWarp / gpu.threads_multiprocessor;
  if (of_grid < launch.blocks_multiprocessor) {
    out.limit = "grid";
    return out;
  }
  struct Limit {
    std::string_view name;
    int64_t blocks;
  };
  const int64_t registers = up_to(int64_t{launch.registers} * kWarp, kRegisterUnit) * warps;
  const int64_t shared =
      up_to(launch.static_shared_bytes + launch.dynamic_shared_bytes + gpu.shared_bytes_reserved, kSharedUnit);
  const std::array limits = {Limit{"threads", gpu.threads_multiprocessor / (warps * kWarp)},
                             Limit{"registers", registers > 0 ? gpu.registers_multiprocessor / registers : INT64_MAX},
                             Limit{"shared memory", shared > 0 ? gpu.shared_bytes_multiprocessor / shared : INT64_MAX},
                             Limit{"blocks", gpu.blocks_multiprocessor}};
  out.limit = std::min_element(limits.begin(), limits.end(), [](const Limit& a, const Limit& b) {
                return a.blocks < b.blocks;
              })->name;
  return out;
}

std::string short_kernel_name(std::string_view name) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  std::string text(name.substr(0, before_parameters(name)));
  for (const std::string_view noise : {"bolide::", "cuda::", "(anonymous namespace)::", "<unnamed>::"})
    for (size_t at = text.find(noise); at != std::string::npos; at = text.find(noise, at)) text.erase(at, noise.size());
  return text;
}

void add_use(std::vector<KernelUse>& uses, const KernelUse& more) {
  const KernelLaunch& launch = more.launch;
  const auto like = [&](const KernelUse& use) {
    return use.kernel == more.kernel && use.ours == more.ours && use.launch.name == launch.name &&
           use.launch.blocks == launch.blocks && use.launch.threads == launch.threads &&
           use.launch.cluster == launch.cluster && use.launch.dynamic_shared_bytes == launch.dynamic_shared_bytes;
  };
  const auto found = std::find_if(uses.begin(), uses.end(), like);
  if (found != uses.end()) {
    found->count += more.count;
  } else {
    uses.push_back(more);
  }
}

void count_launch(std::vector<KernelUse>& uses, const std::string& kernel, const KernelLaunch& launch) {
  add_use(uses, {kernel, launch, 1});
}

Table kernel_use_table(std::span<const KernelUse> uses, const GpuInfo& gpu, bool for_text) {
  std::vector<Table::Column> columns = {{"kernel"},
                                        {"function"},
                                        {"count", 0, "runs"},
                                        {"registers", 0, "regs"},
                                        {"shared_bytes", 0, "shared"},
                                        {"threads", 0},
                                        {"blocks", 0},
                                        {"blocks_multiprocessor", 0, "an SM"},
                                        {"warps_multiprocessor", 0, "warps"},
                                        {"occupancy_percent", 0, "%"},
                                        {"limit"}};
  if (!for_text)
    for (const char* more :
         {"static_shared_bytes", "dynamic_shared_bytes", "local_bytes", "cluster", "blocks_multiprocessor_fit", "name"})
      columns.push_back({more, 0});
  Table table(columns);
  for (const KernelUse& use : uses) {
    const KernelLaunch& launch = use.launch;
    std::vector<Table::Cell> row = {use.kernel};
    if (!use.ours) {
      row.resize(columns.size(), std::nan(""));
      row[1] = row[10] = "-";
      row[2] = static_cast<double>(use.count);
      if (!for_text) row.back() = "-";
      table.add(std::move(row));
      continue;
    }
    const Occupancy occupancy = occupancy_of(launch, gpu);
    const std::string function = short_kernel_name(launch.name);
    row.emplace_back(for_text ? function.substr(0, function.find('<')) : function);
    const auto add = [&](auto number) { row.emplace_back(static_cast<double>(number)); };
    add(use.count), add(launch.registers), add(launch.static_shared_bytes + launch.dynamic_shared_bytes);
    add(launch.threads), add(launch.blocks), add(occupancy.blocks), add(occupancy.warps), add(occupancy.percent);
    row.emplace_back(std::string(occupancy.limit));
    if (!for_text) {
      add(launch.static_shared_bytes), add(launch.dynamic_shared_bytes), add(launch.local_bytes), add(launch.cluster);
      add(launch.blocks_multiprocessor);
      row.emplace_back(launch.name);
    }
    table.add(std::move(row));
  }
  return table;
}

}  // namespace bolide
