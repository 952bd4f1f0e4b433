#include "cli/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/model_flags.h"
#include "app/network.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/flags.h"
#include "formats/npy.h"
#include "measure/processor_time.h"
#include "measure/report.h"
#include "measure/statistics.h"
#include "ops/number.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

constexpr auto kShown = kNumbers + Types<Bool>{};

// The index of the input that a flag NAME=VALUE is about, and its VALUE. A model of one input needs no name.
Result<std::pair<size_t, std::string>> split_flag(const NetworkSession& network, const std::string& flag,
                                                  const char* what) {
  const auto& inputs = network.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (flag.starts_with(inputs[i].name + "=")) return std::pair{i, flag.substr(inputs[i].name.size() + 1)};
  if (inputs.size() == 1 && flag.find('=') == std::string::npos) return std::pair{size_t{0}, flag};
  std::string names;
  for (const auto& port : inputs)
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", port.name, to_string(port.type));
  return error(Code::kInvalid,
               fmt::format("--{} {:.80}: expected NAME=VALUE with an input of the model: {:.400}", what, flag, names));
}

// The first elements, and of numbers the range.
ordered_json summary(const Tensor& tensor) {
  constexpr size_t kFirst = 8;
  ordered_json out = {{"dtype", to_string(tensor.dtype())},
                      {"shape", std::vector<int64_t>(tensor.shape().span().begin(), tensor.shape().span().end())}};
  const size_t first = std::min<size_t>(kFirst, static_cast<size_t>(tensor.elements()));
  if (tensor.is_string()) {
    for (size_t i = 0; i < first; ++i) out["first"].push_back(tensor.as<std::string>()[i]);
    return out;
  }
  (void)dispatch(kShown, tensor.dtype(), "it", [&]<class T>() -> Result<> {
    double low = INFINITY, high = -INFINITY, sum = 0;
    size_t most = 0;
    const auto values = tensor.as<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(widen(values[i]));
      if (value > high) most = i;
      low = std::min(low, value), high = std::max(high, value), sum += value;
      if (i < first) out["first"].push_back(value);
    }
    if (!values.empty())
      out["min"] = low, out["max"] = high, out["mean"] = sum / static_cast<double>(values.size()), out["argmax"] = most;
    return {};
  });
  return out;
}

std::string short_text(const ordered_json& summary) {
  std::string text;
  if (summary.contains("min"))
    text = fmt::format("min {:.6g}, max {:.6g} at {}, mean {:.6g}; ", summary["min"].get<double>(),
                       summary["max"].get<double>(), summary["argmax"].get<size_t>(), summary["mean"].get<double>());
  if (summary.contains("first"))
    text += summary["first"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text;
}

// The size that --dim, or else --batch for a first dim, gives a dim that the model leaves open.
Result<int64_t> size_of(const OnnxDim& dim, bool first, const NetworkFlags& flags) {
  if (dim.value.has_value()) return *dim.value;
  for (const std::string& flag : flags.dims) {
    const size_t equals = flag.find('=');
    if (equals == std::string::npos || flag.substr(0, equals) != dim.symbol) continue;
    const auto size = parse_shape(flag.substr(equals + 1));
    if (!size || size->rank != 1)
      return error(Code::kInvalid, fmt::format("--dim {:.80}: expected NAME=N with a whole number", flag));
    return (*size)[0];
  }
  return first && flags.batch > 0 ? flags.batch : 1;
}

// Every --dim names a dim of an input.
Result<> check_dims(const NetworkSession& network, const NetworkFlags& flags) {
  std::set<std::string> symbols;
  for (const auto& port : network.inputs())
    if (port.type.dims.has_value())
      for (const OnnxDim& dim : *port.type.dims)
        if (!dim.value.has_value() && !dim.symbol.empty()) symbols.emplace(dim.symbol);
  for (const std::string& flag : flags.dims)
    if (!symbols.contains(flag.substr(0, flag.find('='))) || flag.find('=') == std::string::npos)
      return error(Code::kInvalid,
                   fmt::format("--dim {:.80}: expected NAME=N with a dim that the inputs leave open: {}", flag,
                               symbols.empty() ? "there is none" : fmt::format("{}", fmt::join(symbols, ", "))));
  return {};
}

}  // namespace

std::string shape_text(const AnyValue& value) {
  if (const Tensor* tensor = value.tensor())
    return fmt::format("{}{}", to_string(tensor->dtype()), to_string(tensor->shape()));
  if (const ValueSequence* sequence = value.sequence()) return fmt::format("sequence of {}", sequence->items.size());
  return "none";
}

Result<NetworkSettings> network_settings(const NetworkFlags& flags) {
  ModelConfigFlags config;
  config.threads = flags.threads, config.isa = flags.isa, config.dtype = flags.dtype;
  config.device = flags.device, config.cuda_libs = flags.cuda_libs, config.tuning_cache = flags.tuning_cache;
  config.skip_passes = flags.skip_passes, config.memory_limit = flags.memory_limit;
  return to_network_settings(config);
}

std::string shortened(std::string_view name) {
  constexpr size_t kMost = 56;
  if (name.size() <= kMost) return std::string(name);
  return "..." + std::string(name.substr(name.size() - kMost + 3));
}

Result<NetworkSession> open_network(const NetworkFlags& flags) {
  BOLIDE_TRY(const NetworkSettings settings, network_settings(flags));
  BOLIDE_TRY(NetworkSession network, NetworkSession::open(flags.path, settings));
  BOLIDE_TRY(check_dims(network, flags));
  std::vector<DimBuckets> buckets;
  for (const std::string& flag : flags.buckets) {
    BOLIDE_TRY(auto one, parse_dim_buckets(flag, network.inputs()));
    buckets.push_back(std::move(one));
  }
  network.set_buckets(std::move(buckets));
  if (flags.ranges.empty()) return network;
  std::vector<ShapeRange> ranges;
  for (const std::string& flag : flags.ranges) {
    BOLIDE_TRY(auto range, parse_shape_range(flag, network.inputs()));
    ranges.push_back(std::move(range));
  }
  for (const auto which : {&ShapeRange::max, &ShapeRange::opt}) {
    NetworkFlags warm = flags;
    warm.inputs.clear(), warm.shapes.clear();
    for (const ShapeRange& range : ranges)
      warm.shapes.push_back(fmt::format("{}={}", range.input, fmt::join(range.*which, "x")));
    BOLIDE_TRY(std::vector<AnyValue> values, network_inputs(network, warm, true));
    if (auto ran = network.run(std::move(values)); !ran)
      return std::move(ran).error().context("--profile-shape, warming up with random inputs");
  }
  network.set_ranges(std::move(ranges));
  return network;
}

Result<std::vector<AnyValue>> network_inputs(const NetworkSession& network, const NetworkFlags& flags, bool fill) {
  BOLIDE_TRY(check_dims(network, flags));
  const auto& ports = network.inputs();
  std::vector<AnyValue> values(ports.size());
  std::vector<std::string> shapes(ports.size());
  for (const std::string& flag : flags.shapes) {
    BOLIDE_TRY(const auto named, split_flag(network, flag, "shape"));
    if (!shapes[named.first].empty())
      return error(Code::kInvalid, fmt::format("--shape: {} is given twice", ports[named.first].name));
    shapes[named.first] = named.second;
  }
  for (const std::string& flag : flags.inputs) {
    BOLIDE_TRY(const auto named, split_flag(network, flag, "input"));
    if (values[named.first].has_value())
      return error(Code::kInvalid, fmt::format("--input: {} is given twice", ports[named.first].name));
    std::string note;
    BOLIDE_TRY(values[named.first], network_input(ports[named.first], named.second, flags.seed + named.first, &note));
    if (!note.empty())
      fmt::print(stderr, "input {}\n", printable(fmt::format("{}: {}", ports[named.first].name, note)));
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    if (values[i].has_value()) continue;
    if (!fill && shapes[i].empty())
      return error(Code::kInvalid, fmt::format("input {} ({}) is missing: --input {}=FILE.npy, a list, or random",
                                               ports[i].name, to_string(ports[i].type), ports[i].name));
    std::string text = "random";
    if (!shapes[i].empty()) {
      text += ":" + shapes[i];
    } else if (ports[i].type.dims.has_value() && !ports[i].type.dims->empty()) {
      std::string shape;
      for (size_t d = 0; d < ports[i].type.dims->size(); ++d) {
        BOLIDE_TRY(const int64_t size, size_of((*ports[i].type.dims)[d], d == 0, flags));
        shape += fmt::format("{}{}", shape.empty() ? "" : "x", size);
      }
      text += ":" + shape;
    }
    BOLIDE_TRY(values[i], network_input(ports[i], text, flags.seed + i));
  }
  return values;
}

void print_crossings(const NetworkSession& network) {
  if (network.on_gpu() == nullptr) return;
  int on_gpu = 0, on_cpu = 0, crossings = 0;
  int64_t bytes = 0;
  double seconds = 0;
  for (const Placement& one : network.on_gpu()->placements()) {
    ++(one.where == Placement::Where::kHost ? on_cpu : on_gpu);
    const int64_t moved = one.bytes_to_host + one.bytes_to_device;
    bytes += moved, seconds += one.copy_seconds, crossings += moved > 0 ? 1 : 0;
  }
  fmt::print("{} nodes on the GPU, {} on the CPU; {} of constants and {} of values there\n", on_gpu, on_cpu,
             format_bytes(static_cast<int64_t>(network.on_gpu()->constant_bytes())),
             format_bytes(static_cast<int64_t>(network.on_gpu()->activation_bytes())));
  if (crossings > 0)
    fmt::print("{} nodes had values copied between GPU and CPU: {}, {:.1f} us\n", crossings, format_bytes(bytes),
               seconds * 1e6);
  for (const Placement& one : network.on_gpu()->placements())
    if (one.bytes_to_host + one.bytes_to_device > 0)
      fmt::print("  {} ({}): {} to the CPU, {} to the GPU, {:.1f} us\n", printable(shortened(one.node)), one.op,
                 format_bytes(one.bytes_to_host), format_bytes(one.bytes_to_device), one.copy_seconds * 1e6);
}

ordered_json crossings_json(const NetworkSession& network) {
  ordered_json list = ordered_json::array();
  if (network.on_gpu() == nullptr) return list;
  for (const Placement& one : network.on_gpu()->placements())
    if (one.bytes_to_host + one.bytes_to_device > 0)
      list.push_back({{"node", one.node},
                      {"operator", one.op},
                      {"bytes_to_host", one.bytes_to_host},
                      {"bytes_to_device", one.bytes_to_device},
                      {"us", one.copy_seconds * 1e6}});
  return list;
}

Result<> run_network(const NetworkFlags& flags) {
  if (!flags.output.empty() && !flags.output.ends_with(".npz"))
    return error(Code::kInvalid, fmt::format("--output {}: expected a name that ends in .npz", flags.output));
  if (!flags.output.empty()) BOLIDE_TRY(check_output_file(flags.output));
  BOLIDE_TRY(NetworkSession network, open_network(flags));
  BOLIDE_TRY(std::vector<AnyValue> inputs, network_inputs(network, flags, false));
  const auto start = std::chrono::steady_clock::now();
  BOLIDE_TRY(const std::vector<AnyValue> outputs, network.run(std::move(inputs)));
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::vector<std::pair<std::string, Tensor>> arrays;
  ordered_json out = {{"outputs", ordered_json::object()}, {"ms", ms}, {"load_ms", network.load_ms()}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = network.outputs()[i].name;
    if (const Tensor* tensor = outputs[i].tensor()) {
      arrays.emplace_back(name, *tensor);
      out["outputs"][name] = summary(*tensor);
    } else if (const ValueSequence* sequence = outputs[i].sequence()) {
      for (size_t k = 0; k < sequence->items.size(); ++k)
        if (const Tensor* item = sequence->items[k].tensor()) arrays.emplace_back(fmt::format("{}.{}", name, k), *item);
      out["outputs"][name] = {{"sequence", sequence->items.size()}};
    }
  }
  if (!flags.output.empty()) {
    BOLIDE_TRY(const std::vector<std::byte> file, write_npz(arrays));
    BOLIDE_TRY(write_file_atomically(flags.output, file));
  }
  if (flags.json) {
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    fmt::print("{} {}: {}\n", printable(network.outputs()[i].name), shape_text(outputs[i]),
               printable(short_text(out["outputs"][network.outputs()[i].name])));
  fmt::print(stderr, "{:.2f} ms; load {:.1f} ms\n", ms, network.load_ms());
  return {};
}

Result<> bench_network(const NetworkFlags& flags) {
  if (!flags.first_calls.empty()) return bench_first_calls(flags);
  BOLIDE_TRY(NetworkSession network, open_network(flags));
  BOLIDE_TRY(const std::vector<AnyValue> inputs, network_inputs(network, flags, true));
  constexpr int kRepeat = 50;
  const int repeat = flags.repeat > 0 ? flags.repeat : kRepeat;
  std::vector<double> ms, cpu_ms, device_ms;
  double first_ms = 0;
  ProgressLine line;
  for (int i = -2; i < repeat; ++i) {
    line.show(i < 0 ? std::string("warming up") : fmt::format("{} of {} runs", i, repeat));
    const auto start = std::chrono::steady_clock::now();
    const double cpu = process_cpu_seconds();
    BOLIDE_TRY(network.run(inputs));
    const double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (i == -2) first_ms = took;
    if (i >= 0) ms.push_back(took), cpu_ms.push_back((process_cpu_seconds() - cpu) * 1e3);
    if (const DeviceNetwork* gpu = network.on_gpu(); i >= 0 && gpu != nullptr)
      device_ms.push_back(gpu->device_seconds() * 1e3);
  }
  line.clear();
  const Stat stat = summarise(ms);
  const double p99 = quantile(ms, 0.99);
  const auto memory = read_process_memory();
  const int64_t peak = memory ? memory->peak_bytes : 0;
  if (flags.json) {
    ordered_json shapes;
    for (size_t i = 0; i < inputs.size(); ++i) shapes[network.inputs()[i].name] = shape_text(inputs[i]);
    ordered_json out = {{"model", flags.path},
                        {"machine", network.device().name},
                        {"threads", network.device().threads},
                        {"isa", to_string(network.device().isa)},
                        {"inputs", shapes},
                        {"latency_ms", {{"median", stat.median}, {"min", stat.min}, {"max", stat.max}, {"p99", p99}}},
                        {"cpu_ms", {{"median", median(cpu_ms)}, {"min", quantile(cpu_ms, 0)}}},
                        {"first_ms", first_ms},
                        {"runs", repeat},
                        {"load_ms", network.load_ms()},
                        {"peak_memory_bytes", peak},
                        {"activation_bytes", network.pool().bytes_in_use_max()}};
    if (const DeviceNetwork* gpu = network.on_gpu(); gpu != nullptr)
      out["gpu"] = {{"dtype", to_string(network.shared_model()->settings().compute)},
                    {"device_ms", {{"median", summarise(device_ms).median}, {"min", summarise(device_ms).min}}},
                    {"captured", gpu->was_captured()},
                    {"constant_bytes", gpu->constant_bytes()},
                    {"activation_bytes", gpu->activation_bytes()}};
    std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("{}, {} threads, {}\n", network.device().name, network.device().threads, to_string(network.device().isa));
  for (size_t i = 0; i < inputs.size(); ++i)
    fmt::print("{:<14}{} {}\n", i == 0 ? "inputs" : "", printable(network.inputs()[i].name), shape_text(inputs[i]));
  fmt::print("{:<14}median {:.3f} ms, min {:.3f}, max {:.3f}, p99 {:.3f} of {} runs; first {:.3f}\n", "latency",
             stat.median, stat.min, stat.max, p99, repeat, first_ms);
  if (const DeviceNetwork* gpu = network.on_gpu(); gpu != nullptr)
    fmt::print("{:<14}median {:.3f} ms on the GPU without copies in and out{}; {} of constants as {}, {} of values\n",
               "", summarise(device_ms).median, gpu->was_captured() ? ", captured" : "",
               format_bytes(static_cast<int64_t>(gpu->constant_bytes())),
               to_string(network.shared_model()->settings().compute),
               format_bytes(static_cast<int64_t>(gpu->activation_bytes())));
  fmt::print("{:<14}{:.1f} ms\n", "load", network.load_ms());
  if (peak > 0)
    fmt::print("{:<14}{}, activations {}\n", "peak memory", format_bytes(peak),
               format_bytes(static_cast<int64_t>(network.pool().bytes_in_use_max())));
  return {};
}

}  // namespace bolide::cli
