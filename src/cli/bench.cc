// bolide bench: prompt and decode speed, each by itself, against the machine's measured roofs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/network.h"
#include "app/workload.h"
#include "cli/cli.h"
#include "cli/device_report.h"
#include "cli/flags.h"
#include "cli/network.h"
#include "measure/gpu.h"
#include "measure/report.h"
#include "measure/statistics.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide bench model.gguf                                  512 prompt tokens, 128 decode steps, 5 times
  bolide bench model.gguf --prompt 0 --generate 64 --batch 16 --depth 512
  bolide bench model.gguf --threads 1 --json > result.json
  bolide bench network.onnx --shape x=1x3x224x224
  bolide bench bert.onnx --dim batch=1 --dim sequence=128
  bolide bench bert.onnx --first-calls sequence=17:384     do new shapes stall?
  bolide bench --machine                                   the roofs alone
  bolide bench serve http://127.0.0.1:8000                 load a server, see `bolide bench serve --help`)";

struct BenchFlags {
  ModelConfigFlags model;
  std::string path;
  int32_t prompt = 512, generate = 128, batch = 1, depth = 0, repeat = 5;
  bool machine = false, json = false, no_roofs = false;
  std::vector<std::string> shapes;  // of an ONNX model's inputs
  std::vector<std::string> dims;    // and sizes of the dims they leave open
  std::vector<std::string> inputs;  // their values; those that are not given are random
  std::vector<std::string> buckets;
  std::string first_calls;
  bool repeat_given = false;
};

constexpr Option<BenchFlags> kBenchOptions[] = {
    {"prompt", &BenchFlags::prompt, {.unit = "tokens", .min = 0, .max = 1 << 20}, "length of the prompt; 0: none"},
    {"generate",
     &BenchFlags::generate,
     {.unit = "tokens", .min = 0, .max = 1 << 20},
     "decode steps, from an empty context; 0: none"},
    {"batch", &BenchFlags::batch, {.unit = "sequences", .min = 1, .max = 4096}, "sequences that decode together"},
    {"depth", &BenchFlags::depth, {.unit = "tokens", .min = 0, .max = 1 << 20}, "tokens in the context beforehand"},
    {"repeat", &BenchFlags::repeat, {.min = 1, .max = 1000}, "measured runs after one that is not counted"},
    {"machine", &BenchFlags::machine, {}, "measure this machine's roofs and end"},
    {"no_roofs", &BenchFlags::no_roofs, {}, "do not measure the roofs (saves some seconds)"},
    {"first_calls",
     &BenchFlags::first_calls,
     {},
     "ONNX: NAME=LOW:HIGH: every size of this open dim once, in random order: does a new shape stall?"},
    {"json", &BenchFlags::json, {}, "one JSON object on standard output"},
};

nlohmann::ordered_json to_json(const Stat& stat) {
  return {{"median", stat.median}, {"min", stat.min}, {"max", stat.max}};
}

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

struct Measured {
  Stat prompt_tokens_per_s, decode_tokens_per_s, ttft_ms;
  double decode_step_ms = 0;
  WorkloadCost cost;
  int64_t peak_bytes = 0;  // 0: not known
  // Of a GPU that tells, if it worked long enough.
  std::optional<double> prompt_joules_per_token, decode_joules_per_token;
  std::optional<GpuReading> gpu;
  std::string driver;
};

struct Phase {
  std::vector<double> seconds;  // of each run
  std::optional<double> watts;  // of the GPU meanwhile
  std::optional<GpuReading> last;
  std::string driver;
};

// One run that is not counted, then --repeat of them; more where a GPU's power cannot be told yet.
Result<Phase> measure_phase(Model& model, const BenchFlags& flags, bool prompt) {
  const WorkloadOptions workload{flags.prompt, flags.generate, flags.batch, flags.depth, 1};
  Phase phase;
  GpuEnergy energy(*model.device);
  ProgressLine line;
  std::string stage;
  // Tokens beforehand are not part of what is measured: then the energy of each run counts by itself.
  const int64_t before = int64_t{flags.batch} * flags.depth;
  const auto see_tokens = [&](int64_t done, int64_t all) {
    if (done < all) line.show(fmt::format("{}, {}/{} tokens", stage, done, all));
    if (before > 0 && done == before) energy.begin();
  };
  const WorkloadProgress on_tokens(see_tokens);
  const auto unknown_yet = [&] {
    return energy.known() && before == 0 && energy.seconds() < GpuEnergy::kSpanSecondsLeast;
  };
  const std::string_view what = prompt ? "prompt" : "decode";
  for (int32_t i = 0; i <= flags.repeat || unknown_yet(); ++i) {
    stage = i == 0 ? fmt::format("{}: warming up", what)
                   : fmt::format("{} {}/{}", what, std::min(i, flags.repeat), flags.repeat);
    line.show(stage);
    BOLIDE_TRY(const double seconds, prompt ? run_prompt(model, workload, nullptr, &on_tokens)
                                            : run_decode(model, workload, nullptr, &on_tokens));
    if (before > 0 && i > 0 && energy.known()) phase.last = energy.end();
    if (i == 0 && before == 0) energy.begin();  // pages, plans and pools are there now
    if (i > 0 && i <= flags.repeat) phase.seconds.push_back(seconds);
  }
  if (before == 0 && energy.known()) phase.last = energy.end();
  phase.watts = energy.watts();
  phase.driver = energy.driver();
  return phase;
}

Result<Measured> measure(Model& model, const BenchFlags& flags) {
  Measured measured;
  const auto per_token = [&](const Phase& phase, int32_t tokens) -> std::optional<double> {
    if (!phase.watts.has_value()) return std::nullopt;
    return *phase.watts * median(phase.seconds) / (static_cast<double>(tokens) * flags.batch);
  };
  const auto rates = [&](const Phase& phase, int32_t tokens) {
    std::vector<double> all;
    for (const double seconds : phase.seconds) all.push_back(tokens * static_cast<double>(flags.batch) / seconds);
    return summarise(all);
  };
  if (flags.prompt > 0) {
    BOLIDE_TRY(Phase phase, measure_phase(model, flags, true));
    measured.gpu = phase.last, measured.driver = phase.driver;
    measured.prompt_tokens_per_s = rates(phase, flags.prompt);
    measured.prompt_joules_per_token = per_token(phase, flags.prompt);
    for (double& seconds : phase.seconds) seconds *= 1000;
    measured.ttft_ms = summarise(phase.seconds);
  }
  if (flags.generate > 0) {
    BOLIDE_TRY(const Phase phase, measure_phase(model, flags, false));
    measured.gpu = phase.last, measured.driver = phase.driver;
    measured.decode_tokens_per_s = rates(phase, flags.generate);
    measured.decode_joules_per_token = per_token(phase, flags.generate);
    measured.decode_step_ms = 1000. * flags.batch / measured.decode_tokens_per_s.median;
  }
  const WorkloadOptions workload{flags.prompt, flags.generate, flags.batch, flags.depth, 1};
  BOLIDE_TRY(measured.cost, cost_of_workload(model, workload));
  if (const auto memory = read_process_memory()) measured.peak_bytes = memory->peak_bytes;
  return measured;
}

// Achieved rates beside the roofs that bound them: a prompt by arithmetic, a decode by memory.
struct Rates {
  double prompt_gflops = 0, decode_gbytes = 0;
};
Rates rates_of(const Measured& m, const BenchFlags& flags) {
  Rates rates;
  if (m.ttft_ms.median > 0) rates.prompt_gflops = m.cost.prompt.flops * flags.batch / m.ttft_ms.median / 1e6;
  if (m.decode_step_ms > 0) rates.decode_gbytes = m.cost.decode.bytes / m.decode_step_ms / 1e6;
  return rates;
}

// The roofs that matter for a model: memory, and each kind of arithmetic, with the threads that ran.
nlohmann::ordered_json roofs_json(const MachineRoofs& roofs, int threads) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const Roof& roof : roofs.roofs)
    if (roof.threads == threads) out[roof.name] = {{"rate", roof.rate.median}, {"unit", roof.unit}};
  return out;
}

void print_json(const BenchFlags& flags, const Model& model, const Measured& m, const MachineRoofs* roofs,
                const Version& version) {
  const DeviceInfo& device = model.device->info();
  const Rates rates = rates_of(m, flags);
  nlohmann::ordered_json out = {{"model", model.name},
                                {"prompt", flags.prompt},
                                {"generate", flags.generate},
                                {"batch", flags.batch},
                                {"depth", flags.depth},
                                {"repeat", flags.repeat},
                                {"prompt_tokens_per_s", to_json(m.prompt_tokens_per_s)},
                                {"decode_tokens_per_s", to_json(m.decode_tokens_per_s)},
                                {"ttft_ms", to_json(m.ttft_ms)},
                                {"load_ms", model.times.total_ms},
                                {"peak_memory_bytes", m.peak_bytes},
                                {"prompt_flops", m.cost.prompt.flops},
                                {"prompt_bytes", m.cost.prompt.bytes},
                                {"prompt_gflop_per_s", rates.prompt_gflops},
                                {"decode_step_bytes", m.cost.decode.bytes},
                                {"decode_step_flops", m.cost.decode.flops},
                                {"decode_gb_per_s", rates.decode_gbytes},
                                {"threads", device.threads},
                                {"isa", to_string(device.isa)},
                                {"machine", device.name},
                                {"commit", version.commit}};
  if (m.peak_bytes == 0) out.erase("peak_memory_bytes");
  add_device(out, device);
  if (device.gpu.has_value())
    out["gpu_memory_bytes"] = {{"weights", model.runner->plans().weights().bytes()},
                               {"kv_cache", model.runner->kv_bytes()},
                               {"activations", model.runner->arena_bytes()}};
  if (m.gpu.has_value())
    out["gpu_state"] = {{"driver", m.driver},
                        {"prompt_joules_per_token", or_null(m.prompt_joules_per_token)},
                        {"decode_joules_per_token", or_null(m.decode_joules_per_token)},
                        {"power_watts", m.gpu->power_watts},
                        {"power_limit_watts", m.gpu->power_limit_watts},
                        {"sm_mhz", m.gpu->sm_mhz},
                        {"memory_mhz", m.gpu->memory_mhz},
                        {"temperature_celsius", m.gpu->temperature_celsius},
                        {"throttle_reasons", m.gpu->throttle_reasons}};
  if (roofs != nullptr) out["roofs"] = roofs_json(*roofs, device.threads);
  std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

// "; 64 % of int8 (...)", or nothing where the roof is not known.
std::string share(const MachineRoofs* roofs, std::string_view name, int threads, double rate) {
  const Roof* roof = roofs == nullptr ? nullptr : roofs->find(name, threads);
  if (roof == nullptr || roof->rate.median <= 0) return "";
  return fmt::format("; {:.0f} % of {} ({:.1f} {})", 100 * rate / roof->rate.median, name, roof->rate.median,
                     roof->unit);
}

// The roof of the arithmetic that most matrix products use. A processor without bf16 instructions computes in f32.
std::string_view arithmetic_of(const Graph& graph, const MachineRoofs* roofs, int threads) {
  std::array<int, enum_names(Compute{}).size()> counts{};
  for (const NodeId id : graph.order()) {
    if (const auto* linear = std::get_if<Linear>(&graph.node(id).op)) ++counts[static_cast<size_t>(linear->compute)];
    if (const auto* qkv = std::get_if<QkvRope>(&graph.node(id).op)) ++counts[static_cast<size_t>(qkv->linear.compute)];
    if (const auto* moe = std::get_if<MoeFfn>(&graph.node(id).op)) ++counts[static_cast<size_t>(moe->compute)];
  }
  const auto most = static_cast<Compute>(std::max_element(counts.begin(), counts.end()) - counts.begin());
  if (most == Compute::kInt8) return "int8";
  const bool has_bf16 = roofs != nullptr && roofs->find("bf16", threads) != nullptr;
  return most == Compute::kBF16 && has_bf16 ? "bf16" : "fp32";
}

void print_text(const BenchFlags& flags, const Model& model, const Measured& m, const MachineRoofs* roofs) {
  const DeviceInfo& device = model.device->info();
  const Rates rates = rates_of(m, flags);
  fmt::print("{}, {} threads, {}\n", device.name, device.threads, to_string(device.isa));
  const auto line = [](std::string_view what, const Stat& stat, std::string_view unit) {
    fmt::print("{:<22}{:>10.1f} {} ({:.1f} to {:.1f})\n", what, stat.median, unit, stat.min, stat.max);
  };
  if (flags.prompt > 0) {
    line(fmt::format("prompt {}", flags.prompt), m.prompt_tokens_per_s, "tokens/s");
    line("first token", m.ttft_ms, "ms");
    const std::string_view arithmetic = arithmetic_of(model.runner->plans().graph(), roofs, device.threads);
    fmt::print("{:<22}{:>10.1f} GFLOP/s{}\n", "", rates.prompt_gflops,
               share(roofs, arithmetic, device.threads, rates.prompt_gflops));
  }
  if (flags.generate > 0) {
    line(fmt::format("decode {}{}", flags.generate, flags.batch > 1 ? fmt::format(" x {}", flags.batch) : ""),
         m.decode_tokens_per_s, "tokens/s");
    fmt::print("{:<22}{:>10.1f} GB/s{}\n", "", rates.decode_gbytes,
               share(roofs, "memory_read", device.threads, rates.decode_gbytes));
    if (m.gpu.has_value())
      fmt::print("{:<22}{:>10} J/token; {:.0f} W of {:.0f}, {} MHz\n", "",
                 m.decode_joules_per_token ? fmt::format("{:.4f}", *m.decode_joules_per_token) : "?",
                 m.gpu->power_watts, m.gpu->power_limit_watts, m.gpu->sm_mhz);
  }
  fmt::print("{:<22}{:>10.1f} ms\n", "load", model.times.total_ms);
  if (m.peak_bytes > 0) fmt::print("{:<22}{:>10}\n", "peak memory", format_bytes(m.peak_bytes));
}

Result<> bench(const BenchFlags& flags, const Version& version) {
  const bool network = !flags.machine && is_network(flags.path);  // which has options of its own
  BOLIDE_TRY(ModelOptions options, to_model_options(network ? ModelConfigFlags() : flags.model));
  if (flags.machine) {
    BOLIDE_TRY(const auto device, make_device(options));
    Workers workers(device->info().threads);
    BOLIDE_TRY(const MachineRoofs roofs, roofs_of(*device, workers));
    fmt::print("{}\n", flags.json ? roofs.to_json() : roofs.to_text());
    return {};
  }
  if (flags.path.empty()) return error(Code::kInvalid, "bench needs a MODEL, or --machine");
  if (is_network(flags.path))
    return bench_network({.path = flags.path,
                          .inputs = flags.inputs,
                          .shapes = flags.shapes,
                          .dims = flags.dims,
                          .ranges = {},
                          .buckets = flags.buckets,
                          .output = {},
                          .threads = flags.model.threads,
                          .batch = flags.batch,
                          .repeat = flags.repeat_given ? flags.repeat : 0,
                          .first_calls = flags.first_calls,
                          .skip_passes = flags.model.skip_passes,
                          .device = flags.model.device,
                          .cuda_libs = flags.model.cuda_libs,
                          .tuning_cache = flags.model.tuning_cache,
                          .dtype = flags.model.dtype,
                          .isa = flags.model.isa,
                          .memory_limit = flags.model.memory_limit,
                          .json = flags.json});
  if (!flags.shapes.empty() || !flags.inputs.empty() || !flags.dims.empty() || !flags.first_calls.empty())
    return error(Code::kInvalid, "--shape, --dim, --input and --first-calls are for ONNX models");
  options.sequences = flags.batch;
  BOLIDE_TRY(size_context({flags.prompt, flags.generate, flags.batch, flags.depth, 1}, &options));
  BOLIDE_TRY(Model model, open_with_progress(flags.path, options));
  BOLIDE_TRY(const Measured measured, measure(model, flags));
  std::optional<MachineRoofs> roofs;
  if (!flags.no_roofs) {
    BOLIDE_TRY(roofs, roofs_of(*model.device, model.runner->stream().workers()));
  }
  if (flags.json)
    print_json(flags, model, measured, roofs ? &*roofs : nullptr, version);
  else
    print_text(flags, model, measured, roofs ? &*roofs : nullptr);
  return {};
}

}  // namespace

void add_bench(const Command& app, Outcome& outcome, const Version& version) {
  const Command command = app.add_command("bench", "Measure prompt and decode speed against this machine's roofs");
  auto flags = std::make_shared<BenchFlags>();
  command.footer(kFooter);
  command.add_option("model", flags->path, "a GGUF file, a Hugging Face folder, an engine or synth:NAME");
  const auto bench_options = bind_options(*flags, kBenchOptions);
  command.add_options(bench_options);
  command.add_option("--shape", flags->shapes, "ONNX: NAME=1x3x224x224 for inputs of other sizes (may be repeated)")
      .repeated();
  command.add_option("--dim", flags->dims, "ONNX: NAME=N for a dim that the inputs leave open (may be repeated)")
      .repeated();
  command
      .add_option("--bucket", flags->buckets,
                  "ONNX: NAME=SIZE,SIZE,...: an open dim is filled up with zeros to the next size, and outputs are cut "
                  "back: for models that a mask tells what is there (may be repeated)")
      .repeated();
  command.add_option("--input", flags->inputs, "ONNX: NAME=VALUE as run takes it (may be repeated); others are random")
      .repeated();
  const auto model = bind_options(flags->model, kModelOptions);
  command.add_options(model, "Model");
  add_bench_serve(command, outcome, version);
  command.callback([command, flags, &outcome, &version] {
    if (command.below_given()) return;
    flags->repeat_given = command.given("repeat");
    if (const auto done = bench(*flags, version); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
