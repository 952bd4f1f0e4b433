// bolide profile: where the time of a prompt and of a decode step goes, a row per step of the plan.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/network.h"
#include "app/workload.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/device_report.h"
#include "cli/flags.h"
#include "cli/network.h"
#include "cli/profile_report.h"
#include "measure/gpu.h"
#include "measure/machine.h"
#include "measure/report.h"
#include "measure/statistics.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide profile model.gguf                          a prompt of 512 tokens and 32 decode steps
  bolide profile model.gguf --prompt 0 --by operator
  bolide profile network.onnx --shape x=1x3x224x224 --by node
  bolide profile model.gguf --trace trace.json       open it in a Chrome trace viewer
  bolide profile model.gguf --device cuda --by kernel    also registers, shared memory, occupancy
On a GPU a row's time is between two marks in the stream: no kernel overlaps its neighbours then, so rows may add up to
more than the step takes, which is timed by itself as it runs in production.)";

struct ProfileFlags {
  ModelConfigFlags model;
  std::string path, trace, by = "step";
  std::vector<std::string> inputs, shapes, dims;  // of an ONNX model
  int32_t prompt = 512, generate = 32, batch = 1, depth = 0, repeat = 3;
  bool json = false;
};

constexpr Option<ProfileFlags> kProfileOptions[] = {
    {"prompt", &ProfileFlags::prompt, {.unit = "tokens", .min = 0, .max = 1 << 20}, "length of the prompt; 0: none"},
    {"generate", &ProfileFlags::generate, {.unit = "tokens", .min = 0, .max = 1 << 20}, "decode steps; 0: none"},
    {"batch", &ProfileFlags::batch, {.unit = "sequences", .min = 1, .max = 4096}, "sequences that decode together"},
    {"depth", &ProfileFlags::depth, {.unit = "tokens", .min = 0, .max = 1 << 20}, "tokens in the context beforehand"},
    {"repeat", &ProfileFlags::repeat, {.min = 1, .max = 1000}, "runs; each step's median counts"},
    {"by", &ProfileFlags::by, {.choices = "step|node|layer|operator|kernel"}, "what a row of the table is"},
    {"trace", &ProfileFlags::trace, {}, "write a Chrome trace of the last run to this file"},
    {"json", &ProfileFlags::json, {}, "one JSON object on standard output"},
};

struct TraceEvent {
  std::string name;
  double begin_us, duration_us;
};

const StepGroup& group_of(const Plan& plan, size_t step) {
  return *std::prev(std::upper_bound(plan.groups.begin(), plan.groups.end(), step,
                                     [](size_t at, const StepGroup& group) { return at < group.first; }));
}
// What runs the step, by itself or with others.
std::string kernel_of(const Plan& plan, size_t step) {
  const ChainKernel* chain = group_of(plan, step).chain;
  return std::string(chain != nullptr ? chain->name : plan.steps[step].kernel->name);
}

// Collects what the executor reports.
class Recorder {
 public:
  Recorder(const Graph& graph, double context) : graph_(graph), context_(context) {}

  // The steps of one launch share its time by their bytes.
  void record(const Plan& plan, size_t step, const Launch& launch, double seconds) {
    const Step& s = plan.steps[step];
    ProfileRow& row = rows_[s.node];
    if (row.name.empty()) {
      const Node& node = graph_.node(s.node);
      row.name = node.name;
      row.op = op_name(node.op);
      const size_t second_dot = node.name.find('.', 7);
      row.layer = node.name.starts_with("layers.") ? node.name.substr(0, second_dot) : "outside layers";
      row.cost = cost(s, launch);
    }
    row.kernel = kernel_of(plan, step);
    const StepGroup& group = group_of(plan, step);
    if (group.chain != nullptr) {
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
  std::vector<ProfileRow> rows() const {
    std::vector<ProfileRow> rows;
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
  std::map<NodeId, ProfileRow> rows_;
  std::vector<TraceEvent>* trace_ = nullptr;
};

double rate_of(const MachineRoofs& roofs, std::string_view name, int threads) {
  const Roof* roof = roofs.find(name, threads);
  return roof == nullptr ? 0 : roof->rate.median;
}

constexpr int kMarks = 64;

// What a mark in a stream takes while the device is busy: seconds.
Result<double> time_of_mark(Device& device, Stream& stream) {
  constexpr size_t kBytes = 64 << 20;
  constexpr int kFills = 32;  // about half a millisecond in which the host is ahead
  BOLIDE_TRY(Buffer buffer, device.allocate(kBytes, Memory::kDevice));
  std::vector<std::unique_ptr<Event>> marks(kMarks);
  for (auto& mark : marks) {
    BOLIDE_TRY(mark, device.make_event());
  }
  for (int i = 0; i < kFills; ++i) BOLIDE_TRY(stream.fill(buffer.bytes(), std::byte{0}));
  for (const auto& mark : marks) BOLIDE_TRY(stream.record(*mark));
  BOLIDE_TRY(stream.synchronize());
  BOLIDE_TRY(const double seconds, marks.back()->seconds_since(*marks.front()));
  return seconds / (kMarks - 1);
}

// A phase, run again and again in several ways.
class PhaseProfile {
 public:
  PhaseProfile(Model& model, const ProfileFlags& flags, bool prompt)
      : model_(model),
        flags_(flags),
        prompt_(prompt),
        workload_{prompt ? flags.prompt : 0, prompt ? 0 : flags.generate, flags.batch, flags.depth, 1} {}

  Result<ProfilePhase> run(std::vector<TraceEvent>* trace) {
    ProfilePhase phase{prompt_ ? fmt::format("prompt of {} tokens", flags_.prompt) : "one decode step"};
    BOLIDE_TRY(once(workload_, nullptr));  // warm-up: pages, plans, the pool
    const bool gpu = model_.device->info().gpu.has_value();
    GpuStep step;
    if (gpu) BOLIDE_TRY(run_gpu(step, phase.wall_seconds));
    const double context = flags_.depth + (prompt_ ? flags_.prompt : flags_.generate) / 2.;
    Recorder recorder(model_.runner->plans().graph(), context);
    const auto see = [&](const Plan& plan, size_t at, const Launch& launch, double seconds) {
      recorder.record(plan, at, launch, seconds);
    };
    const StepObserver observer(see);
    std::vector<double> walls;
    for (int32_t i = 0; i < flags_.repeat; ++i) {
      if (i + 1 == flags_.repeat) recorder.set_trace(trace);
      BOLIDE_TRY(const double seconds, once(workload_, &observer));
      walls.push_back(seconds);
    }
    phase.rows = recorder.rows();
    // A run executes the plan several times: a decode does, and a prompt that is longer than a step.
    const double executions =
        phase.rows.empty() ? 1 : static_cast<double>(phase.rows[0].seconds.size()) / flags_.repeat;
    if (prompt_ && executions > 1) phase.name += fmt::format(" x {}, one of {:.0f} steps", flags_.batch, executions);
    phase.wall_seconds = (gpu ? phase.wall_seconds : median(walls)) / executions;
    step.joules /= executions;
    if (gpu) phase.gpu = std::move(step);
    return phase;
  }

 private:
  Result<double> once(const WorkloadOptions& workload, const StepObserver* observer,
                      const WorkloadProgress* progress = nullptr) {
    return prompt_ ? run_prompt(model_, workload, observer, progress)
                   : run_decode(model_, workload, observer, progress);
  }

  // As in production, then the whole plan between two marks, then once with every launch looked at.
  Result<> run_gpu(GpuStep& step, double& wall_seconds) {
    BOLIDE_TRY(measure_energy(step, wall_seconds));
    std::vector<double> whole;
    const auto see_whole = [&](const Plan&, size_t, const Launch&, double seconds) { whole.push_back(seconds); };
    BOLIDE_TRY(once(workload_, nullptr));
    const StepObserver whole_observer(see_whole, StepObserver::Sees::kWhole);
    BOLIDE_TRY(once(workload_, &whole_observer));
    if (!whole.empty()) step.device_seconds = median(whole);
    BOLIDE_TRY(step.event_seconds, time_of_mark(*model_.device, model_.runner->stream()));
    return see_launches(step);
  }

  // Runs until the GPU's power can be told; what comes before the phase is not counted, and then every run must be long
  // enough by itself.
  Result<> measure_energy(GpuStep& step, double& wall_seconds) {
    GpuEnergy energy(*model_.device);
    const int64_t before = int64_t{flags_.batch} * flags_.depth;
    const auto begin = [&](int64_t done, int64_t) {
      if (done == before) energy.begin();
    };
    const WorkloadProgress after_depth(begin);
    const bool run_by_run = before > 0;
    std::vector<double> walls;
    energy.begin();
    for (int run = 0;
         run < flags_.repeat || (energy.known() && !run_by_run && energy.seconds() < GpuEnergy::kSpanSecondsLeast);
         ++run) {
      BOLIDE_TRY(const double wall, once(workload_, nullptr, run_by_run ? &after_depth : nullptr));
      walls.push_back(wall);
      if (run_by_run) step.sm_mhz = energy.end().sm_mhz;
    }
    if (!run_by_run) step.sm_mhz = energy.end().sm_mhz;
    wall_seconds = median(walls);
    if (const std::optional<double> watts = energy.watts()) {
      step.watts = *watts;
      step.joules = *watts * wall_seconds;
    }
    return {};
  }

  // Of the last execution of each of the plan's steps.
  Result<> see_launches(GpuStep& step) {
    std::map<size_t, std::vector<KernelUse>> by_step;
    std::vector<KernelLaunch> launches;
    const auto see = [&](const Plan& plan, size_t at, const Launch&, double) {
      const std::string kernel = kernel_of(plan, at);
      std::vector<KernelUse>& uses = by_step[at];
      uses.clear();
      for (const KernelLaunch& launch : launches) count_launch(uses, kernel, launch);
      launches.clear();
      if (kernel.find("cublaslt") != std::string::npos) uses.push_back({kernel, {}, 1, false});
    };
    const StepObserver observer(see, StepObserver::Sees::kLaunches);
    WorkloadOptions one = workload_;
    one.generate = std::min(one.generate, 1);
    one.batch = prompt_ ? 1 : one.batch;
    model_.runner->stream().watch(&launches);
    // What is computed beforehand is not observed, and its launches are seen all the same.
    const auto forget = [&](int64_t, int64_t) { launches.clear(); };
    const WorkloadProgress progress(forget);
    const auto done = once(one, &observer, &progress);
    model_.runner->stream().watch(nullptr);
    BOLIDE_TRY(done);
    step.launches = static_cast<int>(by_step.size());
    for (const auto& [at, uses] : by_step)
      for (const KernelUse& use : uses) add_use(step.kernels, use);
    return {};
  }

  Model& model_;
  const ProfileFlags& flags_;
  const bool prompt_;
  const WorkloadOptions workload_;
};

// Characters of a line of the terminal; 0: standard output is none.
size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
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

void print_json(Model& model, const std::vector<ProfilePhase>& phases, const MachineRoofs& measured,
                const ProfileRoofs& roofs, const std::optional<GpuMemoryUse>& memory, const Version& version) {
  const DeviceInfo& device = model.device->info();
  nlohmann::ordered_json out = {{"model", model.name},
                                {"machine", device.name},
                                {"threads", device.threads},
                                {"isa", to_string(device.isa)},
                                {"roofs", nlohmann::ordered_json::parse(measured.to_json())}};
  add_device(out, device);
  out["commit"] = version.commit;
  if (const std::string driver = GpuEnergy(*model.device).driver(); !driver.empty()) out["driver"] = driver;
  if (memory.has_value())
    out["gpu_memory_bytes"] = {{"weights", memory->weights},
                               {"kv_cache", memory->kv_cache},
                               {"activations", memory->activations},
                               {"used", memory->used}};
  for (const ProfilePhase& phase : phases)
    out["phases"].push_back(phase_json(phase, roofs, device.gpu.has_value() ? &*device.gpu : nullptr));
  std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

Result<GpuMemoryUse> memory_of(Model& model, const GpuInfo& gpu) {
  BOLIDE_TRY(const size_t free, model.device->free_memory());
  return GpuMemoryUse{static_cast<int64_t>(model.runner->plans().weights().bytes()),
                      static_cast<int64_t>(model.runner->kv_bytes()), static_cast<int64_t>(model.runner->arena_bytes()),
                      gpu.memory_bytes - static_cast<int64_t>(free)};
}

Result<> profile(const ProfileFlags& flags, bool by_given, bool repeat_given, const Version& version) {
  if (is_network(flags.path)) {
    if (flags.by == "layer" || (by_given && flags.by == "step"))
      return error(Code::kInvalid, fmt::format("--by {}: an ONNX model has nodes, operators and kernels", flags.by));
    return profile_network({.path = flags.path,
                            .inputs = flags.inputs,
                            .shapes = flags.shapes,
                            .dims = flags.dims,
                            .ranges = {},
                            .buckets = {},
                            .output = {},
                            .threads = flags.model.threads,
                            .batch = flags.batch,
                            .repeat = repeat_given ? flags.repeat : 0,
                            .by = by_given ? flags.by : "operator",
                            .skip_passes = flags.model.skip_passes,
                            .device = flags.model.device,
                            .cuda_libs = flags.model.cuda_libs,
                            .tuning_cache = flags.model.tuning_cache,
                            .dtype = flags.model.dtype,
                            .isa = flags.model.isa,
                            .memory_limit = flags.model.memory_limit,
                            .json = flags.json});
  }
  if (!flags.shapes.empty() || !flags.inputs.empty() || !flags.dims.empty())
    return error(Code::kInvalid, "--shape, --dim and --input are for ONNX models");
  if (flags.by == "node") return error(Code::kInvalid, "--by node: is for ONNX models; a language model has steps");
  if (!flags.trace.empty()) BOLIDE_TRY(may_write_trace(flags.trace));
  BOLIDE_TRY(ModelOptions options, to_model_options(flags.model));
  options.sequences = flags.batch;
  BOLIDE_TRY(size_context({flags.prompt, flags.generate, flags.batch, flags.depth, 1}, &options));
  BOLIDE_TRY(Model model, open_with_progress(flags.path, options));
  const DeviceInfo& device = model.device->info();
  std::vector<ProfilePhase> phases;
  std::vector<TraceEvent> trace;
  for (const bool prompt : {true, false}) {
    if ((prompt ? flags.prompt : flags.generate) == 0) continue;
    BOLIDE_TRY(ProfilePhase phase, PhaseProfile(model, flags, prompt).run(flags.trace.empty() ? nullptr : &trace));
    phases.push_back(std::move(phase));
  }
  if (!flags.trace.empty()) BOLIDE_TRY(write_trace(flags.trace, trace));
  std::optional<GpuMemoryUse> memory;
  if (device.gpu.has_value()) {
    BOLIDE_TRY(memory, memory_of(model, *device.gpu));
  }
  BOLIDE_TRY(const MachineRoofs measured, roofs_of(*model.device, model.runner->stream().workers()));
  ProfileRoofs roofs{rate_of(measured, "memory_read", device.threads), 0};
  for (const char* name : {"fp32", "bf16", "int8", "amx_bf16", "amx_int8"})
    if (!device.gpu.has_value() || name == std::string_view("bf16"))
      roofs.arithmetic = std::max(roofs.arithmetic, rate_of(measured, name, device.threads));

  if (flags.json) {
    print_json(model, phases, measured, roofs, memory, version);
    return {};
  }
  fmt::print("{}, {} threads; memory {:.1f} GB/s, arithmetic {:.0f} Gop/s\n", device.name, device.threads, roofs.memory,
             roofs.arithmetic);
  if (memory.has_value())
    fmt::print("GPU memory: weights {}, KV cache {}, activations {}; {} in use\n", format_bytes(memory->weights),
               format_bytes(memory->kv_cache), format_bytes(memory->activations), format_bytes(memory->used));
  for (const ProfilePhase& phase : phases)
    fmt::print("\n{}",
               phase_text(phase, flags.by, roofs, device.gpu.has_value() ? &*device.gpu : nullptr, terminal_width()));
  return {};
}

}  // namespace

void add_profile(const Command& app, Outcome& outcome, const Version& version) {
  const Command command = app.add_command("profile", "Show where the time goes, step by step");
  auto flags = std::make_shared<ProfileFlags>();
  command.footer(kFooter);
  command.add_option("model", flags->path, "a GGUF file, a Hugging Face folder, an engine or synth:NAME").required();
  const auto own = bind_options(*flags, kProfileOptions);
  command.add_options(own);
  const auto model = bind_options(flags->model, kModelOptions);
  command.add_options(model, "Model");
  command.add_option("--shape", flags->shapes, "ONNX: NAME=1x3x224x224 for inputs of other sizes (may be repeated)")
      .repeated();
  command.add_option("--dim", flags->dims, "ONNX: NAME=N for a dim that the inputs leave open (may be repeated)")
      .repeated();
  command.add_option("--input", flags->inputs, "ONNX: NAME=VALUE as run takes it (may be repeated); others are random")
      .repeated();
  command.callback([command, flags, &outcome, &version] {
    if (const auto done = profile(*flags, command.given("by"), command.given("repeat"), version); !done)
      outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
