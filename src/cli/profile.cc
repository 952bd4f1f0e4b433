// bolide profile: where the time of a prompt and of a decode step goes, a row per step of the plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/workload.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/device_report.h"
#include "cli/flags.h"
#include "measure/machine.h"
#include "measure/report.h"
#include "measure/statistics.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide profile model.gguf                          a prompt of 512 tokens and 32 decode steps
  bolide profile model.gguf --prompt 0 --by operator
  bolide profile model.gguf --trace trace.json       open it in a Chrome trace viewer)";

struct ProfileFlags {
  ModelConfigFlags model;
  std::string path, trace, by = "step";
  int32_t prompt = 512, generate = 32, batch = 1, depth = 0, repeat = 3;
  bool json = false;
};

constexpr Option<ProfileFlags> kProfileOptions[] = {
    {"prompt", &ProfileFlags::prompt, {.unit = "tokens", .min = 0, .max = 1 << 20}, "length of the prompt; 0: none"},
    {"generate", &ProfileFlags::generate, {.unit = "tokens", .min = 0, .max = 1 << 20}, "decode steps; 0: none"},
    {"batch", &ProfileFlags::batch, {.unit = "sequences", .min = 1, .max = 4096}, "sequences that decode together"},
    {"depth", &ProfileFlags::depth, {.unit = "tokens", .min = 0, .max = 1 << 20}, "tokens in the context beforehand"},
    {"repeat", &ProfileFlags::repeat, {.min = 1, .max = 1000}, "runs; each step's median counts"},
    {"by", &ProfileFlags::by, {.choices = "step|layer|operator|kernel"}, "what a row of the table is"},
    {"trace", &ProfileFlags::trace, {}, "write a Chrome trace of the last run to this file"},
    {"json", &ProfileFlags::json, {}, "one JSON object on standard output"},
};

// One step of a plan, over all its executions of one phase.
struct Row {
  std::string name, op, kernel, layer;
  std::vector<double> seconds;
  Cost cost;  // of one execution
  double median_seconds() const { return median(seconds); }
};

struct TraceEvent {
  std::string name;
  double begin_us, duration_us;
};

// Collects what the executor reports.
class Recorder {
 public:
  Recorder(const Graph& graph, double context) : graph_(graph), context_(context) {}

  // The steps of one launch share its time by their bytes.
  void record(const Plan& plan, size_t step, const Launch& launch, double seconds) {
    const Step& s = plan.steps[step];
    Row& row = rows_[s.node];
    if (row.name.empty()) {
      const Node& node = graph_.node(s.node);
      row.name = node.name;
      row.op = op_name(node.op);
      const size_t second_dot = node.name.find('.', 7);
      row.layer = node.name.starts_with("layers.") ? node.name.substr(0, second_dot) : "outside layers";
      row.cost = cost(s, launch);
    }
    row.kernel = s.kernel->name;
    const StepGroup& group = *std::prev(std::upper_bound(plan.groups.begin(), plan.groups.end(), step,
                                                         [](size_t at, const StepGroup& g) { return at < g.first; }));
    if (group.chain != nullptr) {
      row.kernel = group.chain->name;
      if (step == group.first) {
        launch_seconds_ = seconds, launch_bytes_ = 0;
        for (size_t i = 0; i < group.count; ++i) launch_bytes_ += cost(plan.steps[step + i], launch).bytes;
      }
      seconds = launch_seconds_ * row.cost.bytes / launch_bytes_;
    }
    row.seconds.push_back(seconds);
    clock_us_ += seconds * 1e6;
    if (trace_ != nullptr)
      trace_->push_back({fmt::format("{} ({})", row.name, row.kernel), clock_us_ - seconds * 1e6, seconds * 1e6});
  }

  void set_trace(std::vector<TraceEvent>* trace) { trace_ = trace; }
  std::vector<Row> rows() const {
    std::vector<Row> rows;
    for (const NodeId id : graph_.order())
      if (const auto it = rows_.find(id); it != rows_.end()) rows.push_back(it->second);
    return rows;
  }

 private:
  Cost cost(const Step& step, const Launch& launch) const {
    std::vector<ValueType> in, out;
    for (const Operand& operand : step.in) in.push_back(operand.type);
    for (const Operand& operand : step.out) out.push_back(operand.type);
    return cost_of(graph_.node(step.node).op, in, out, launch.batch->sizes, context_);
  }

  const Graph& graph_;
  double context_;
  double clock_us_ = 0;
  double launch_seconds_ = 0, launch_bytes_ = 0;  // of the group that is being recorded
  std::map<NodeId, Row> rows_;
  std::vector<TraceEvent>* trace_ = nullptr;
};

struct Phase {
  std::string name;
  std::vector<Row> rows;    // executions of one step of the phase
  double wall_seconds = 0;  // of one execution of all steps
};

struct Sum {
  std::string key, detail;
  double seconds = 0;
  Cost cost;
  int count = 0;
};

std::vector<Sum> sums(const Phase& phase, const std::string& by) {
  std::vector<Sum> out;
  std::map<std::string, size_t> index;
  for (const Row& row : phase.rows) {
    const std::string key = by == "step"       ? row.name
                            : by == "layer"    ? row.layer
                            : by == "operator" ? row.op
                                               : row.kernel;
    const auto [it, fresh] = index.try_emplace(key, out.size());
    if (fresh) out.push_back({key, by == "step" ? row.kernel : "", 0, {}, 0});
    Sum& sum = out[it->second];
    sum.seconds += row.median_seconds();
    sum.cost.bytes += row.cost.bytes;
    sum.cost.flops += row.cost.flops;
    ++sum.count;
  }
  if (by == "operator" || by == "kernel")
    std::stable_sort(out.begin(), out.end(), [](const Sum& a, const Sum& b) { return a.seconds > b.seconds; });
  return out;
}

double rate_of(const MachineRoofs& roofs, std::string_view name, int threads) {
  const Roof* roof = roofs.find(name, threads);
  return roof == nullptr ? 0 : roof->rate.median;
}

// The least time the roofs allow over the time it took: whichever of memory and the fastest arithmetic binds.
double percent_of_roof(const Sum& sum, double memory_gbs, double gops) {
  if (sum.seconds <= 0 || memory_gbs <= 0 || gops <= 0) return 0;
  return 100 * std::max(sum.cost.bytes / memory_gbs, sum.cost.flops / gops) / 1e9 / sum.seconds;
}

struct Roofs {
  double memory = 0, arithmetic = 0;
};

Table table_of(const Phase& phase, const std::string& by, const Roofs& roofs) {
  Table table({{by},
               {"kernel"},
               {"count", 0},
               {"us", 2},
               {"share_percent", 1},
               {"gb_per_s", 1},
               {"gflop_per_s", 1},
               {"roof_percent", 0}});
  double total = 0;
  for (const Sum& sum : sums(phase, by)) total += sum.seconds;
  for (const Sum& sum : sums(phase, by))
    table.add({sum.key, sum.detail, static_cast<double>(sum.count), sum.seconds * 1e6, 100 * sum.seconds / total,
               sum.cost.bytes / sum.seconds / 1e9, sum.cost.flops / sum.seconds / 1e9,
               percent_of_roof(sum, roofs.memory, roofs.arithmetic)});
  return table;
}

Result<Phase> profile_phase(Model& model, const ProfileFlags& flags, bool prompt, std::vector<TraceEvent>* trace) {
  const WorkloadOptions workload{prompt ? flags.prompt : 0, prompt ? 0 : flags.generate, flags.batch, flags.depth, 1};
  const double context = flags.depth + (prompt ? flags.prompt : flags.generate) / 2.;
  Recorder recorder(model.runner->plans().graph(), context);
  const auto observe = [&](const Plan& plan, size_t step, const Launch& launch, double seconds) {
    recorder.record(plan, step, launch, seconds);
  };
  const StepObserver observer(observe);
  std::vector<double> walls;
  const auto once = [&](const StepObserver* o) {
    return prompt ? run_prompt(model, workload, o) : run_decode(model, workload, o);
  };
  BOLIDE_TRY(once(nullptr));
  for (int32_t i = 0; i < flags.repeat; ++i) {
    if (i + 1 == flags.repeat) recorder.set_trace(trace);
    BOLIDE_TRY(const double seconds, once(&observer));
    walls.push_back(prompt ? seconds : seconds / flags.generate);
  }
  return Phase{prompt ? fmt::format("prompt of {} tokens", flags.prompt) : "one decode step", recorder.rows(),
               median(walls)};
}

constexpr std::string_view kTraceBeginning = R"({"traceEvents":)";

// An earlier trace can be made again; what else lies there (the model itself, perhaps) cannot.
Result<> may_write_trace(const std::string& path) {
  BOLIDE_TRY(check_output_file(path));
  std::error_code failure;
  if (!std::filesystem::exists(path, failure) || std::filesystem::file_size(path, failure) == 0) return {};
  std::string beginning(kTraceBeginning.size(), '\0');
  std::ifstream(path, std::ios::binary).read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  if (beginning == kTraceBeginning) return {};
  return error(Code::kInvalid, fmt::format("--trace {}: is there already and is no trace; choose another name", path));
}

Result<> write_trace(const std::string& path, const std::vector<TraceEvent>& events) {
  nlohmann::json list = nlohmann::json::array();
  for (const TraceEvent& event : events)
    list.push_back({{"name", event.name},
                    {"ph", "X"},
                    {"ts", event.begin_us},
                    {"dur", event.duration_us},
                    {"pid", 1},
                    {"tid", 1}});
  const std::string text =
      nlohmann::json{{"traceEvents", list}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return write_file_atomically(path, as_bytes(text));
}

Result<> profile(const ProfileFlags& flags) {
  if (!flags.trace.empty()) BOLIDE_TRY(may_write_trace(flags.trace));
  BOLIDE_TRY(ModelOptions options, to_model_options(flags.model));
  options.sequences = flags.batch;
  BOLIDE_TRY(size_context({flags.prompt, flags.generate, flags.batch, flags.depth, 1}, &options));
  BOLIDE_TRY(Model model, open_with_progress(flags.path, options));
  std::vector<Phase> phases;
  std::vector<TraceEvent> trace;
  for (const bool prompt : {true, false}) {
    if ((prompt ? flags.prompt : flags.generate) == 0) continue;
    BOLIDE_TRY(Phase phase, profile_phase(model, flags, prompt, flags.trace.empty() ? nullptr : &trace));
    phases.push_back(std::move(phase));
  }
  if (!flags.trace.empty()) BOLIDE_TRY(write_trace(flags.trace, trace));
  const DeviceInfo& device = model.device->info();
  BOLIDE_TRY(const MachineRoofs measured, roofs_of(*model.device, model.runner->stream().workers()));
  Roofs roofs{rate_of(measured, "memory_read", device.threads), 0};
  for (const char* name : {"fp32", "bf16", "int8", "amx_bf16", "amx_int8"})
    if (!device.gpu.has_value() || name == std::string_view("bf16"))
      roofs.arithmetic = std::max(roofs.arithmetic, rate_of(measured, name, device.threads));

  if (flags.json) {
    nlohmann::ordered_json out = {{"machine", device.name},
                                  {"threads", device.threads},
                                  {"isa", to_string(device.isa)},
                                  {"roofs", nlohmann::ordered_json::parse(measured.to_json())}};
    add_device(out, device);
    for (const Phase& phase : phases) {
      nlohmann::ordered_json entry = {{"phase", phase.name}, {"wall_us", phase.wall_seconds * 1e6}};
      for (const char* by : {"step", "layer", "operator", "kernel"})
        entry[fmt::format("by_{}", by)] = nlohmann::ordered_json::parse(table_of(phase, by, roofs).to_json());
      out["phases"].push_back(std::move(entry));
    }
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("{}, {} threads; memory {:.1f} GB/s, arithmetic {:.0f} Gop/s\n", device.name, device.threads, roofs.memory,
             roofs.arithmetic);
  for (const Phase& phase : phases) {
    double kernels = 0;
    for (const Row& row : phase.rows) kernels += row.median_seconds();
    fmt::print("\n{}: {:.1f} us, {:.1f} us of it in kernels\n{}", phase.name, phase.wall_seconds * 1e6, kernels * 1e6,
               table_of(phase, flags.by, roofs).to_text());
  }
  return {};
}

}  // namespace

void add_profile(CLI::App& app, Outcome& outcome) {
  CLI::App* command = app.add_subcommand("profile", "Show where the time goes, step by step");
  auto flags = std::make_shared<ProfileFlags>();
  command->footer(kFooter);
  command->add_option("model", flags->path, "a GGUF file, a Hugging Face folder, an engine or synth:NAME")->required();
  const auto own = bind_options(*flags, kProfileOptions);
  add_options(*command, own);
  const auto model = bind_options(flags->model, kModelOptions);
  add_options(*command, model, "Model");
  command->callback([flags, &outcome] {
    if (const auto done = profile(*flags); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
