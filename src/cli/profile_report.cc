#include "cli/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "measure/statistics.h"

namespace bolide::cli {
namespace {

struct Sum {
  std::string key, detail;
  double seconds = 0;
  Cost cost;
  int count = 0;
};

std::vector<Sum> sums(const ProfilePhase& phase, const std::string& by) {
  std::vector<Sum> out;
  std::map<std::string, size_t> index;
  for (const ProfileRow& row : phase.rows) {
    const std::string key = by == "step"       ? row.name
                            : by == "layer"    ? row.layer
                            : by == "operator" ? row.op
                                               : row.kernel;
    const auto [it, fresh] = index.try_emplace(key, out.size());
    if (fresh) out.push_back({key, by == "step" ? row.kernel : "", 0, {}, 0});
    Sum& sum = out[it->second];
    sum.seconds += median(row.seconds);
    sum.cost.bytes += row.cost.bytes;
    sum.cost.flops += row.cost.flops;
    ++sum.count;
  }
  if (by == "operator" || by == "kernel")
    std::stable_sort(out.begin(), out.end(), [](const Sum& a, const Sum& b) { return a.seconds > b.seconds; });
  return out;
}

// The least time the roofs allow over the time it took: whichever of memory and the fastest arithmetic binds.
double percent_of_roof(const Sum& sum, const ProfileRoofs& roofs) {
  if (sum.seconds <= 0 || roofs.memory <= 0 || roofs.arithmetic <= 0) return 0;
  return 100 * std::max(sum.cost.bytes / roofs.memory, sum.cost.flops / roofs.arithmetic) / 1e9 / sum.seconds;
}

}  // namespace

double kernel_seconds(const ProfilePhase& phase) {
  double seconds = 0;
  for (const ProfileRow& row : phase.rows) seconds += median(row.seconds);
  return seconds;
}

double gap_seconds(const ProfilePhase& phase, const GpuStep& gpu) {
  return gpu.device_seconds - kernel_seconds(phase) + gpu.launches * gpu.event_seconds;
}

double idle_percent(const ProfilePhase& phase, const GpuStep& gpu) {
  if (phase.wall_seconds <= 0) return 0;
  return 100 * std::max(0., 1 - gpu.device_seconds / phase.wall_seconds);
}

Table profile_table(const ProfilePhase& phase, const std::string& by, const ProfileRoofs& roofs) {
  const bool has_kernel = by == "step";
  std::vector<Table::Column> columns = {{by}};
  if (has_kernel) columns.push_back({"kernel"});
  for (const Table::Column& column : {Table::Column{"count", 0},
                                      {"us", 2},
                                      {"share_percent", 1, "%"},
                                      {"gb_per_s", 1, "GB/s"},
                                      {"gflop_per_s", 1, "GFLOP/s"},
                                      {"roof_percent", 0, "roof %"}})
    columns.push_back(column);
  Table table(columns);
  const std::vector<Sum> all = sums(phase, by);
  double total = 0;
  for (const Sum& sum : all) total += sum.seconds;
  for (const Sum& sum : all) {
    std::vector<Table::Cell> row = {sum.key};
    if (has_kernel) row.emplace_back(sum.detail);
    for (const double number :
         {static_cast<double>(sum.count), sum.seconds * 1e6, 100 * sum.seconds / total,
          sum.cost.bytes / sum.seconds / 1e9, sum.cost.flops / sum.seconds / 1e9, percent_of_roof(sum, roofs)})
      row.emplace_back(number);
    table.add(std::move(row));
  }
  return table;
}

nlohmann::ordered_json phase_json(const ProfilePhase& phase, const ProfileRoofs& roofs, const GpuInfo* gpu) {
  nlohmann::ordered_json out = {
      {"phase", phase.name}, {"wall_us", phase.wall_seconds * 1e6}, {"kernels_us", kernel_seconds(phase) * 1e6}};
  if (phase.gpu.has_value() && gpu != nullptr) {
    const GpuStep& step = *phase.gpu;
    out["gpu"] = {{"device_us", step.device_seconds * 1e6},
                  {"plan_launches", step.launches},
                  {"event_us", step.event_seconds * 1e6},
                  {"gaps_us", gap_seconds(phase, step) * 1e6},
                  {"idle_percent", idle_percent(phase, step)},
                  {"joules", step.joules},
                  {"watts", step.watts},
                  {"sm_mhz", step.sm_mhz},
                  {"launches", nlohmann::ordered_json::parse(kernel_use_table(step.kernels, *gpu, false).to_json())}};
    if (step.watts <= 0)
      for (const char* unknown : {"joules", "watts", "sm_mhz"}) out["gpu"][unknown] = nullptr;
  }
  for (const char* by : {"step", "layer", "operator", "kernel"})
    out[fmt::format("by_{}", by)] = nlohmann::ordered_json::parse(profile_table(phase, by, roofs).to_json());
  return out;
}

std::string phase_text(const ProfilePhase& phase, const std::string& by, const ProfileRoofs& roofs, const GpuInfo* gpu,
                       size_t width) {
  const double kernels = kernel_seconds(phase);
  std::string text;
  if (!phase.gpu.has_value() || gpu == nullptr)
    return fmt::format("{}: {:.1f} us, {:.1f} us of it in kernels\n{}", phase.name, phase.wall_seconds * 1e6,
                       kernels * 1e6, profile_table(phase, by, roofs).to_text(width));
  const GpuStep& step = *phase.gpu;
  const double gaps = gap_seconds(phase, step);
  text = fmt::format("{}: {:.1f} us, {:.1f} us of it on the GPU, which is idle for {:.1f} %\n", phase.name,
                     phase.wall_seconds * 1e6, step.device_seconds * 1e6, idle_percent(phase, step));
  text += fmt::format("kernels one by one {:.1f} us, marks between them {:.2f} us each;\n{:.1f} us {}\n", kernels * 1e6,
                      step.event_seconds * 1e6, std::abs(gaps) * 1e6,
                      gaps < 0 ? "are saved by kernels that overlap" : "are gaps between kernels");
  if (step.watts > 0) text += fmt::format("{:.4g} J, {:.0f} W, {} MHz\n", step.joules, step.watts, step.sm_mhz);
  text += profile_table(phase, by, roofs).to_text(width);
  if (by == "kernel" && !step.kernels.empty()) {
    text += fmt::format("\nWhat kernels take of a multiprocessor (SM; shared memory in bytes):\n{}",
                        kernel_use_table(step.kernels, *gpu, true).to_text(width));
    if (std::any_of(step.kernels.begin(), step.kernels.end(), [](const KernelUse& use) { return !use.ours; }))
      text += "-: the kernels are cuBLASLt's and do not say\n";
  }
  return text;
}

}  // namespace bolide::cli
