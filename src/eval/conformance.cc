#include "eval/conformance.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <set>

#include "app/network.h"
#include "onnx/import.h"
#include "ops/number.h"
#include "plan/device_network.h"
#include "plan/interpreter.h"

namespace bolide {
namespace {

namespace fs = std::filesystem;

// The suite's own tolerances (onnx/backend/test/case/test_case.py).
constexpr double kRelative = 1e-3, kAbsolute = 1e-7;

using Case = ConformanceCase;

struct Found {
  Case of;
  fs::path model, folder;  // folder: empty for the light nets
};

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> list;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) list.push_back(entry.path());
  std::sort(list.begin(), list.end());
  return list;
}

// No exceptions: a suite may have links that lead nowhere, or to themselves.
bool is_folder(const fs::path& path) {
  std::error_code failure;
  return fs::is_directory(path, failure);
}
bool is_there(const fs::path& path) {
  std::error_code failure;
  return fs::exists(path, failure);
}

void find_cases(const fs::path& folder, std::vector<Found>& to) {
  for (const fs::path& path : entries(folder)) {
    const std::string name = path.filename();
    if (is_folder(path) && is_there(path / "model.onnx"))
      to.push_back({{folder.filename(), name, 0, {}, {}, "", 0}, path / "model.onnx", path});
    if (name.starts_with("light_") && path.extension() == ".onnx")
      to.push_back({{folder.filename(), path.stem(), 0, {}, {}, "", 0}, path, {}});
  }
}

std::string describe(const AnyValue& value) {
  if (const Tensor* tensor = value.tensor())
    return fmt::format("{}{}", to_string(tensor->dtype()), to_string(tensor->shape()));
  if (const ValueSequence* sequence = value.sequence()) return fmt::format("a sequence of {}", sequence->items.size());
  return "an empty optional";
}

// Bits as numbers, where a type has no arithmetic of ours; equal bits are equal.
template <class T>
double number_of(T value) {
  if constexpr (requires { widen(value); })
    return static_cast<double>(widen(value));
  else
    return static_cast<double>(value.bits);
}

Result<> same_tensor(const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype() || got.shape() != want.shape())
    return error(Code::kInvalid, fmt::format("is {}, expected {}", describe(got), describe(want)));
  if (got.is_string()) {
    for (size_t i = 0; i < static_cast<size_t>(want.elements()); ++i)
      if (got.as<std::string>()[i] != want.as<std::string>()[i])
        return error(Code::kInvalid, fmt::format("[{}] is '{:.60}', expected '{:.60}'", i, got.as<std::string>()[i],
                                                 want.as<std::string>()[i]));
    return {};
  }
  constexpr auto kAll =
      kNumbers + Types<Bool, I4, U4, I2, U2, F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E8M0, F4E2M1>{};
  return dispatch(kAll, want.dtype(), "an output", [&]<class T>() -> Result<> {
    const auto a = got.as<T>(), b = want.as<T>();
    for (size_t i = 0; i < b.size(); ++i) {
      const double x = number_of(a[i]), y = number_of(b[i]);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      if (!(std::abs(x - y) <= kAbsolute + kRelative * std::abs(y)))
        return error(Code::kInvalid, fmt::format("[{}] is {:g}, expected {:g}", i, x, y));
    }
    return {};
  });
}

Result<> same_value(const AnyValue& got, const AnyValue& want) {
  if (const Tensor* tensor = want.tensor()) {
    if (got.tensor() == nullptr)
      return error(Code::kInvalid, fmt::format("is {}, expected {}", describe(got), describe(want)));
    return same_tensor(*got.tensor(), *tensor);
  }
  if (const ValueSequence* sequence = want.sequence()) {
    if (got.sequence() == nullptr || got.sequence()->items.size() != sequence->items.size())
      return error(Code::kInvalid, fmt::format("is {}, expected {}", describe(got), describe(want)));
    for (size_t i = 0; i < sequence->items.size(); ++i)
      BOLIDE_TRY(same_value(got.sequence()->items[i], sequence->items[i]).context(fmt::format("item {}", i)));
    return {};
  }
  if (got.has_value()) return error(Code::kInvalid, fmt::format("is {}, expected an empty optional", describe(got)));
  return {};
}

Result<AnyValue> read_value(const fs::path& path, const OnnxType& type) {
  BOLIDE_TRY(const MappedFile file, MappedFile::open(path));
  return parse_onnx_value(file.bytes(), type, path.string());
}

// The light nets have one input each, a ramp, and one output (onnx/backend/test/runner/__init__.py).
Result<std::vector<AnyValue>> ramp_of(const OnnxProgram& program) {
  std::vector<AnyValue> inputs;
  for (const auto& port : program.inputs) {
    Shape shape;
    for (const OnnxDim& dim : port.type.dims.value_or(std::vector<OnnxDim>{}))
      shape.dims[static_cast<size_t>(shape.rank++)] = dim.value.value_or(1);
    BOLIDE_TRY(Tensor ramp, Tensor::make(DType::kF32, shape));
    const auto to = ramp.mutate<float>();
    for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(i) / static_cast<float>(to.size());
    inputs.emplace_back(std::move(ramp));
  }
  return inputs;
}

void note_ops(const Graph& graph, std::set<std::string>& ops) {
  for (const NodeId id : graph.order()) {
    ops.emplace(op_name(graph.node(id).op));
    for (const Body& body : graph.node(id).bodies) note_ops(*body.graph, ops);
  }
}

// Runs a model: on the CPU, or on a GPU, twice there, so that what is captured is checked too.
struct Runner {
  const Interpreter& interpreter;
  DeviceNetwork* gpu = nullptr;

  Result<std::vector<AnyValue>> run(const std::vector<AnyValue>& inputs, Workers& workers) const {
    if (gpu == nullptr || !DeviceNetwork::can_run(inputs)) return interpreter.run(inputs, workers);
    constexpr int kRuns = 3;
    for (int i = 1; i < kRuns; ++i) BOLIDE_TRY(gpu->run(inputs, heap_pool(), nullptr, {}));
    return gpu->run(inputs, heap_pool(), nullptr, {});
  }
};

Result<> run_set(const Runner& runner, const OnnxProgram& program, const fs::path& folder, std::vector<AnyValue> inputs,
                 const std::vector<fs::path>& wanted, Workers& workers) {
  BOLIDE_TRY(const std::vector<AnyValue> got, runner.run(inputs, workers));
  if (got.size() < wanted.size())
    return error(Code::kInvalid,
                 fmt::format("{}: {} outputs, expected {}", folder.filename().string(), got.size(), wanted.size()));
  for (size_t i = 0; i < wanted.size(); ++i) {
    BOLIDE_TRY(const AnyValue want, read_value(wanted[i], program.outputs[i].type));
    BOLIDE_TRY(same_value(got[i], want).context(fmt::format("output {}", program.outputs[i].name)));
  }
  return {};
}

Result<> run_case(Found& found, Workers& workers, const std::set<std::string>& skip, Device* device) {
  BOLIDE_TRY(const MappedFile mapped, MappedFile::open(found.model));
  BOLIDE_TRY(const OnnxModel model, OnnxModel::parse(mapped.bytes(), found.of.name));
  for (const OnnxOpset& opset : model.opsets)
    if (found.of.opset == 0 || opset.domain.empty()) found.of.opset = opset.version;
  std::set<std::string> named;
  for (const OnnxNode& node : model.graph.nodes) named.emplace(node.op);
  found.of.ops.assign(named.begin(), named.end());
  BOLIDE_TRY(OnnxProgram program, open_onnx(found.model));
  std::set<std::string> ops(named);
  note_ops(program.graph, ops);
  found.of.ops.assign(ops.begin(), ops.end());
  BOLIDE_TRY(run_passes(program, workers, device == nullptr ? skip : without_cpu_passes(skip)));
  BOLIDE_TRY(const auto cpu, make_cpu_device(1, std::nullopt));
  const PrepareSettings settings{.device = cpu->info(), .workers = workers};
  // A GPU's network reads the constants that prepared nodes would drop.
  BOLIDE_TRY(const Interpreter interpreter, device == nullptr ? Interpreter::make_and_drop(program.graph, settings)
                                                              : Interpreter::make(program.graph));
  std::unique_ptr<DeviceNetwork> gpu;
  if (device != nullptr) {
    BOLIDE_TRY(gpu, DeviceNetwork::make(program.graph, *device, {.skip_passes = without_cpu_passes(skip)}));
  }
  const Runner runner{interpreter, gpu.get()};
  if (found.folder.empty()) {
    BOLIDE_TRY(std::vector<AnyValue> inputs, ramp_of(program));
    const fs::path output = found.model.parent_path() / (found.model.stem().string() + "_output_0.pb");
    return run_set(runner, program, found.folder, std::move(inputs), {output}, workers);
  }
  for (const fs::path& set : entries(found.folder)) {
    if (!is_folder(set)) continue;
    std::vector<AnyValue> inputs;
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      const fs::path file = set / fmt::format("input_{}.pb", i);
      BOLIDE_TRY(AnyValue value, read_value(file, program.inputs[i].type));
      inputs.push_back(std::move(value));
    }
    std::vector<fs::path> wanted;
    for (size_t i = 0; i < program.outputs.size(); ++i)
      if (const fs::path file = set / fmt::format("output_{}.pb", i); is_there(file)) wanted.push_back(file);
    BOLIDE_TRY(run_set(runner, program, set, std::move(inputs), wanted, workers));
    if (gpu != nullptr)
      found.of.on_gpu = static_cast<int>(std::ranges::count_if(
          gpu->placements(), [](const Placement& one) { return one.where != Placement::Where::kHost; }));
  }
  return {};
}

Result<std::map<std::string, std::string>> read_exclusions(const fs::path& path) {
  std::map<std::string, std::string> excluded;
  if (path.empty()) return excluded;
  BOLIDE_TRY(const std::string text, read_file(path));
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1, ++number;
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos)
      return error(Code::kInvalid, fmt::format("{}:{}: expected 'CASE reason'", path.string(), number));
    excluded[std::string(line.substr(0, space))] = line.substr(line.find_first_not_of(' ', space));
  }
  return excluded;
}

}  // namespace

Result<std::vector<ConformanceCase>> run_conformance(const fs::path& suite, const ConformanceOptions& options,
                                                     Workers& workers, FunctionRef<void(size_t, size_t)> progress) {
  std::vector<Found> all;
  find_cases(suite, all);
  for (const fs::path& folder : entries(suite))
    if (is_folder(folder) && !is_there(folder / "model.onnx")) find_cases(folder, all);
  if (all.empty())
    return error(Code::kNotFound,
                 fmt::format("{}: has no cases (NAME/model.onnx, or node/NAME/model.onnx)", suite.string()));
  std::set<std::string> skipped = options.skip_passes;
  skipped.erase("all");
  Graph nothing;  // names are checked before the first case
  BOLIDE_TRY(run_general_passes(nothing, {}, workers, skipped).context("--skip-passes"));
  BOLIDE_TRY(auto excluded, read_exclusions(options.exclusions));
  for (const auto& [name, why] : excluded)
    if (std::none_of(all.begin(), all.end(), [&](const Found& found) { return found.of.name == name; }))
      return error(Code::kInvalid, fmt::format("{}: there is no case {}", options.exclusions.string(), name));
  std::erase_if(all, [&](const Found& found) { return found.of.name.find(options.filter) == std::string::npos; });
  std::vector<Case> cases;
  for (Found& found : all) {
    progress(cases.size(), all.size());
    const auto start = std::chrono::steady_clock::now();
    const auto done = run_case(found, workers, options.skip_passes, options.gpu);
    found.of.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto exclusion = excluded.find(found.of.name);
    found.of.outcome = done                          ? Case::Outcome::kPassed
                       : exclusion != excluded.end() ? Case::Outcome::kExcluded
                                                     : Case::Outcome::kFailed;
    if (!done) found.of.why = exclusion != excluded.end() ? exclusion->second : done.error().text;
    cases.push_back(std::move(found.of));
  }
  return cases;
}

}  // namespace bolide
