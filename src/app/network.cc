#include "app/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "app/model.h"
#include "app/model_flags.h"
#include "base/log.h"
#include "base/memory.h"
#include "ops/group_attention.h"
#include "tune/timing_cache.h"

namespace bolide {
namespace {

Result<> check(const OnnxProgram::Port& port, const AnyValue& value) {
  const auto refuse = [&](std::string_view what) {
    return error(Code::kInvalid, fmt::format("input {}: {}, expected {}", port.name, what, to_string(port.type)));
  };
  if (port.type.kind != OnnxType::Kind::kTensor) return {};  // the ops check sequences and optionals
  const Tensor* tensor = value.tensor();
  if (tensor == nullptr) return refuse(value.has_value() ? "a sequence" : "no value");
  const auto given = [&] { return fmt::format("{}{}", to_string(tensor->dtype()), to_string(tensor->shape())); };
  if (const auto dtype = onnx_dtype(port.type.element); dtype.has_value() && *dtype != tensor->dtype())
    return refuse(given());
  if (!port.type.dims.has_value()) return {};
  const std::vector<OnnxDim>& dims = *port.type.dims;
  if (static_cast<int>(dims.size()) != tensor->rank()) return refuse(given());
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i].value.has_value() && *dims[i].value != tensor->dim(static_cast<int>(i))) return refuse(given());
  return {};
}

Result<> check_range(const ShapeRange& range, const Tensor& tensor) {
  for (size_t i = 0; i < range.min.size(); ++i) {
    const int64_t dim = tensor.dim(static_cast<int>(i));
    if (dim < range.min[i] || dim > range.max[i])
      return error(Code::kInvalid,
                   fmt::format("input {}: {}{}: dim {} is meant to be {} to {} (--profile-shape)", range.input,
                               to_string(tensor.dtype()), to_string(tensor.shape()), i, range.min[i], range.max[i]));
  }
  return {};
}

// Dims of one name have one size in all inputs.
bool names_hold(const std::vector<OnnxProgram::Port>& inputs, std::span<const AnyValue> given) {
  std::vector<std::pair<std::string_view, int64_t>> sizes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor* tensor = given[i].tensor();
    if (tensor == nullptr || !inputs[i].type.dims.has_value()) continue;
    for (size_t d = 0; d < inputs[i].type.dims->size(); ++d) {
      const OnnxDim& dim = (*inputs[i].type.dims)[d];
      if (dim.value.has_value() || dim.symbol.empty()) continue;
      const int64_t size = tensor->dim(static_cast<int>(d));
      const auto it =
          std::find_if(sizes.begin(), sizes.end(), [&](const auto& one) { return one.first == dim.symbol; });
      if (it == sizes.end())
        sizes.emplace_back(dim.symbol, size);
      else if (it->second != size)
        return false;
    }
  }
  return true;
}

}  // namespace

std::vector<Facts> declared_facts(const std::vector<OnnxProgram::Port>& inputs, bool trust_names) {
  std::vector<Facts> list;
  std::map<std::string, int64_t, std::less<>> symbols;
  for (const OnnxProgram::Port& port : inputs) {
    Facts& facts = list.emplace_back();
    const OnnxType& type = port.type;
    if (type.kind != OnnxType::Kind::kTensor) continue;
    if (const auto dtype = onnx_dtype(type.element); dtype.has_value()) facts.dtype = *dtype;
    if (!type.dims.has_value() || type.dims->size() > kRankMax) continue;
    facts.dims = Numbers{};
    for (const OnnxDim& dim : *type.dims) {
      const int64_t next = kSymbols0 - 1 - static_cast<int64_t>(symbols.size());
      facts.dims->push_back(dim.value.has_value() && *dim.value >= 0 ? *dim.value
                            : dim.symbol.empty() || !trust_names
                                ? Facts::kUnknown
                                : symbols.try_emplace(std::string(dim.symbol), next).first->second);
    }
  }
  return list;
}

Result<std::vector<PassRecord>> run_passes(OnnxProgram& program, Workers& workers, const std::set<std::string>& skip,
                                           const FunctionRef<void(const PassRecord&, const Graph&)>* after,
                                           bool trust_names) {
  const std::vector<Facts> inputs = declared_facts(program.inputs, trust_names);
  std::set<std::string> names = skip;
  if (names.erase("all") > 0)
    for (const Pass& pass : general_passes()) names.emplace(pass.name);
  return run_general_passes(program.graph, inputs, workers, names, after);
}

Result<NetworkSettings> to_network_settings(const ModelConfigFlags& flags) {
  NetworkSettings settings{.threads = flags.threads,
                           .tuning_cache = flags.tuning_cache,
                           .skip_passes = split_names(flags.skip_passes),
                           .memory_limit = static_cast<size_t>(std::max<int64_t>(flags.memory_limit, 0))};
  ModelConfigFlags where;
  where.device = flags.device, where.cuda_libs = flags.cuda_libs;
  BOLIDE_TRY(const ModelOptions options, to_model_options(where));
  settings.device = options.device, settings.cuda = options.cuda;
  const bool on_gpu = options.device == DeviceKind::kCuda;
  if (flags.dtype == "bf16")
    settings.compute = DType::kBF16;
  else if (flags.dtype == "f16" && on_gpu)
    settings.compute = DType::kF16;
  else if (flags.dtype == "tf32" && on_gpu)
    settings.tf32 = true;
  else if (flags.dtype != "auto" && flags.dtype != "f32")
    return error(Code::kInvalid,
                 fmt::format("--dtype {:.40}: an ONNX model is computed in f32 or bf16, on a GPU also in f16 or tf32",
                             flags.dtype));
  if (!flags.isa.empty()) {
    BOLIDE_TRY(settings.isa, parse_isa(flags.isa));
  }
  return settings;
}

bool is_network(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending == ".onnx";
}

std::string to_string(const OnnxType& type) {
  switch (type.kind) {
    case OnnxType::Kind::kSequence: return "sequence of " + (type.of.empty() ? "?" : to_string(type.of[0]));
    case OnnxType::Kind::kOptional: return "optional " + (type.of.empty() ? "?" : to_string(type.of[0]));
    case OnnxType::Kind::kMap: return "map";
    case OnnxType::Kind::kUnknown: return "?";
    default: break;
  }
  const auto dtype = onnx_dtype(type.element);
  std::string text(dtype ? to_string(*dtype) : std::string_view("?"));
  if (!type.dims.has_value()) return text;
  text += '[';
  for (const OnnxDim& dim : *type.dims) {
    if (text.back() != '[') text += ',';
    text += dim.value.has_value() ? fmt::format("{}", *dim.value) : dim.symbol.empty() ? "?" : std::string(dim.symbol);
  }
  return text + ']';
}

Result<std::shared_ptr<const NetworkModel>> NetworkModel::open(const std::filesystem::path& path,
                                                               const NetworkSettings& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::shared_ptr<NetworkModel> model(new NetworkModel);
  model->path_ = path, model->settings_ = options;
  BOLIDE_TRY(catching_bad_alloc([&] { return model->read(); }));
  model->load_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return std::shared_ptr<const NetworkModel>(model);
}

Result<> NetworkModel::read() {
  BOLIDE_TRY(program_, open_onnx(path_, settings_.added));
  BOLIDE_TRY(const auto device, make_cpu_device(settings_.threads, settings_.isa));
  BOLIDE_TRY(const auto stream, device->make_stream());
  const bool on_gpu = settings_.device == DeviceKind::kCuda;
  auto passes = run_passes(program_, stream->workers(),
                           on_gpu ? without_cpu_passes(settings_.skip_passes) : settings_.skip_passes, nullptr,
                           settings_.trust_names);
  if (!passes) return std::move(passes).error().context(path_.string());
  passes_ = *std::move(passes);
  if (on_gpu) {
    CudaOptions cuda = settings_.cuda;
    cuda.threads = settings_.threads;
    BOLIDE_TRY(std::unique_ptr<Device> gpu, make_cuda_device(cuda));
    gpu_ = std::move(gpu);
    if (!settings_.tuning_cache.empty()) BOLIDE_TRY(TimingCache::check_is_ours(settings_.tuning_cache));
    const ModelOptions where{.tuning_cache = settings_.tuning_cache};
    on_gpu_ = std::make_shared<DeviceShared>(*gpu_, tuning_file(where, gpu_->info()));
  }
  const PrepareSettings prepared{.device = device->info(), .workers = stream->workers(), .compute = settings_.compute};
  Graph& graph = program_.graph;
  // A GPU's network reads the graph's constants later.
  const bool prepare = settings_.prepare && gpu_ == nullptr;
  BOLIDE_TRY(Interpreter interpreter, prepare ? Interpreter::make_and_drop(graph, prepared) : Interpreter::make(graph));
  interpreter_ = std::make_unique<Interpreter>(std::move(interpreter));
  return {};
}

Result<ShapeRange> parse_shape_range(std::string_view text, std::span<const OnnxProgram::Port> inputs) {
  const auto refuse = [&](std::string_view what) {
    return error(Code::kInvalid, fmt::format("--profile-shape {:.100}: {}", text, what));
  };
  ShapeRange range;
  const OnnxProgram::Port* port = inputs.size() == 1 ? inputs.data() : nullptr;
  std::string_view shapes = text;
  if (const size_t equals = text.find('='); equals != std::string_view::npos) {
    shapes = text.substr(equals + 1), port = nullptr;
    for (const OnnxProgram::Port& one : inputs)
      if (one.name == text.substr(0, equals)) port = &one;
  }
  if (port == nullptr) return refuse("expected NAME=min,opt,max with an input of the model");
  range.input = port->name;
  for (std::vector<int64_t>* dims : {&range.min, &range.opt, &range.max}) {
    const size_t comma = shapes.find(',');
    if (shapes.empty()) return refuse("expected three shapes: NAME=min,opt,max");
    auto parsed = parse_shape(shapes.substr(0, comma)).context(fmt::format("--profile-shape {:.100}", text));
    BOLIDE_TRY(const Shape shape, std::move(parsed));
    dims->assign(shape.span().begin(), shape.span().end());
    shapes = comma == std::string_view::npos ? std::string_view() : shapes.substr(comma + 1);
  }
  if (!shapes.empty()) return refuse("expected three shapes: min,opt,max");
  if (port->type.dims.has_value() && port->type.dims->size() != range.min.size())
    return refuse(fmt::format("the input is {}", to_string(port->type)));
  for (size_t i = 0; i < range.min.size(); ++i) {
    if (range.opt.size() != range.min.size() || range.max.size() != range.min.size())
      return refuse("the three shapes have the same number of dims");
    if (range.min[i] > range.opt[i] || range.opt[i] > range.max[i])
      return refuse(
          fmt::format("dim {} is {}, {}, {}: expected min <= opt <= max", i, range.min[i], range.opt[i], range.max[i]));
    if (!port->type.dims.has_value()) continue;
    if (const auto declared = (*port->type.dims)[i].value;
        declared.has_value() && (*declared != range.min[i] || *declared != range.max[i]))
      return refuse(fmt::format("dim {} of the input is {}", i, *declared));
  }
  return range;
}

std::optional<size_t> NetworkModel::grown_input(size_t i) const {
  const Graph& graph = program_.graph;
  const ValueId made = graph.outputs()[i].value;
  const NodeId maker = graph.value(made).producer;
  if (maker < 0) return std::nullopt;
  const Node& node = graph.node(maker);
  const auto* op = std::get_if<Generic>(&node.op);
  const auto place = static_cast<size_t>(std::find(node.out.begin(), node.out.end(), made) - node.out.begin());
  const auto input = op != nullptr ? group_attention_past(*op->def, place) : std::nullopt;
  if (!input || *input >= node.in.size() || node.in[*input] == kNoValue) return std::nullopt;
  const ValueId past = node.in[*input];
  if (graph.value(past).kind != ValueKind::kInput) return std::nullopt;
  int reads = 0;
  for (const NodeId id : graph.order()) {
    reads += static_cast<int>(std::count(graph.node(id).in.begin(), graph.node(id).in.end(), past));
    for (const Body& body : graph.node(id).bodies)
      reads += static_cast<int>(std::count(body.captures.begin(), body.captures.end(), past));
  }
  for (const Output& output : graph.outputs()) reads += output.value == past ? 1 : 0;
  if (reads != 1) return std::nullopt;
  size_t before = 0;
  for (ValueId value = 0; value < past; ++value) before += graph.value(value).kind == ValueKind::kInput ? 1 : 0;
  return before;
}

Result<const NetworkModel*> NetworkModel::without_names() const {
  if (!settings_.trust_names) return this;
  const std::lock_guard lock(without_names_mutex_);
  if (without_names_ == nullptr) {
    log::warning("dims of one name have different sizes in the inputs: the model is opened again for such inputs",
                 {{"model", std::string_view(path_.native())}});
    NetworkSettings settings = settings_;
    settings.trust_names = false;
    BOLIDE_TRY(without_names_, open(path_, settings));
  }
  return without_names_.get();
}

Result<NetworkSession> NetworkSession::make(std::shared_ptr<const NetworkModel> model, int threads,
                                            std::optional<Isa> isa) {
  NetworkSession session;
  session.model_ = std::move(model);
  BOLIDE_TRY(session.device_, make_cpu_device(threads, isa));
  BOLIDE_TRY(session.stream_, session.device_->make_stream());
  session.pool_.set_limit(session.model_->settings().memory_limit);
  return session;
}

Result<NetworkSession> NetworkSession::open(const std::filesystem::path& path, const NetworkSettings& options) {
  BOLIDE_TRY(auto model, NetworkModel::open(path, options));
  return make(std::move(model), options.threads, options.isa);
}

Result<DeviceNetwork*> NetworkSession::network_on_gpu(const NetworkModel& model) {
  std::unique_ptr<DeviceNetwork>& network = on_gpu_[&model];
  if (network == nullptr) {
    const NetworkSettings& settings = model.settings();
    BOLIDE_TRY(network, DeviceNetwork::make(model.program().graph, *model.gpu(),
                                            {.compute = settings.compute,
                                             .tf32 = settings.tf32,
                                             .skip_passes = without_cpu_passes(settings.skip_passes)},
                                            model.on_gpu()));
  }
  return network.get();
}

Result<DeviceTensor> NetworkSession::to_device(const Tensor& tensor) {
  if (model_->gpu() == nullptr || tensor.is_string())
    return error(Code::kUnsupported, "only tensors of numbers of a network on a GPU can be put there");
  BOLIDE_TRY(DeviceNetwork * network, network_on_gpu(*model_));
  return network->to_device(tensor);
}
Result<Tensor> NetworkSession::to_host(const DeviceTensor& tensor) {
  if (model_->gpu() == nullptr) return error(Code::kUnsupported, "the network is on the CPU");
  BOLIDE_TRY(DeviceNetwork * network, network_on_gpu(*model_));
  return network->to_host(tensor, pool_);
}

Result<std::vector<AnyValue>> NetworkSession::run(std::vector<AnyValue> given, const GeneralObserver* observer,
                                                  std::span<const OutputMemory> memories, DeviceArrays* arrays) {
  auto results = catching_bad_alloc([&] { return run_checked(std::move(given), observer, memories, arrays); });
  if (!results) return std::move(results).error().context(model_->path().string());
  return results;
}

Result<std::vector<AnyValue>> NetworkSession::run_checked(std::vector<AnyValue> given, const GeneralObserver* observer,
                                                          std::span<const OutputMemory> memories,
                                                          DeviceArrays* arrays) {
  if (given.size() != inputs().size())
    return error(Code::kInvalid, fmt::format("{} values for a model of {} inputs", given.size(), inputs().size()));
  for (size_t i = 0; i < given.size(); ++i) {
    BOLIDE_TRY(check(inputs()[i], given[i]));
    for (const ShapeRange& range : ranges_)
      if (range.input == inputs()[i].name && given[i].tensor() != nullptr)
        BOLIDE_TRY(check_range(range, *given[i].tensor()));
  }
  BOLIDE_TRY(const std::vector<FilledDim> filled, fill_up(inputs(), buckets_, given, pool_));
  const NetworkModel* model = model_.get();
  if (!names_hold(inputs(), given)) {
    BOLIDE_TRY(model, model_->without_names());
  }
  // What is to be cut back is made elsewhere first.
  if (!filled.empty()) memories = {};
  last_on_gpu_ = nullptr;
  const auto run_model = [&]() -> Result<std::vector<AnyValue>> {
    const bool on_gpu = model->gpu() != nullptr && DeviceNetwork::can_run(given);
    if (arrays != nullptr && (!on_gpu || !filled.empty()))
      return error(Code::kUnsupported,
                   "inputs and outputs stay on a GPU only where the network runs there, with tensors alone and no "
                   "buckets");
    if (!on_gpu)
      return model->interpreter().run(std::move(given), stream_->workers(), pool_, observer, memories,
                                      model->settings().memory_limit);
    BOLIDE_TRY(DeviceNetwork * network, network_on_gpu(*model));
    last_on_gpu_ = network;
    return network->run(given, pool_, observer, memories, arrays);
  };
  BOLIDE_TRY(std::vector<AnyValue> results, run_model());
  BOLIDE_TRY(cut_back(outputs(), filled, results, pool_));
  return results;
}

}  // namespace bolide
