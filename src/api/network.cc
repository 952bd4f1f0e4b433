// Network and Session over src/app: arrays become tensors and back, names become places.
#include "bolide/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "api/array.h"
#include "api/convert.h"
#include "api/user_operator.h"
#include "app/model_flags.h"
#include "app/network.h"

namespace bolide {
namespace {

// Memory of the caller's.
struct Range {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
  size_t input = SIZE_MAX;  // whose elements these are
  bool overlaps(const Range& other) const {
    return bytes > 0 && other.bytes > 0 && begin < other.begin + other.bytes && other.begin < begin + bytes;
  }
  bool is(const Range& other) const { return begin == other.begin && bytes == other.bytes; }
};

Range range_of(const Array& array) {
  const size_t bytes = array.type() == ElementType::kString ? sizeof(std::string) : element_bytes(array.type());
  return {.begin = static_cast<const std::byte*>(array.data()), .bytes = array.size() * bytes};
}

// What an array on a GPU keeps: the memory belongs to the model's device.
struct OnDevice {
  std::shared_ptr<const NetworkModel> model;
  DeviceTensor tensor;  // goes first
};

Array to_array(std::shared_ptr<const NetworkModel> model, DeviceTensor tensor) {
  const auto dims = tensor.shape.span();
  const std::vector<int64_t> copied(dims.begin(), dims.end());
  const auto size = static_cast<size_t>(tensor.elements());
  const ElementType type = to_element_type(tensor.dtype);
  const void* data = tensor.data();
  auto owner = std::make_shared<const OnDevice>(OnDevice{std::move(model), std::move(tensor)});
  Array array = ArrayAccess::make(std::move(owner), data, copied, size, type, false);
  ArrayAccess::mark_on_device(array);
  return array;
}

// Of an array that is on a device.
Result<const DeviceTensor*> tensor_on(const NetworkModel& model, const Array& array) {
  const auto& there = *static_cast<const OnDevice*>(ArrayAccess::owner(array).get());
  if (model.gpu() == nullptr || model.gpu()->info().id.index != there.model->gpu()->info().id.index)
    return error(Code::kInvalid, "the array is on another device than the network: Session::to_host copies it");
  return &there.tensor;
}

Port to_port(const OnnxProgram::Port& from) {
  Port port{.name = from.name, .type = ElementType::kNone, .dims = std::nullopt, .text = to_string(from.type)};
  if (from.type.kind != OnnxType::Kind::kTensor) return port;
  if (const auto dtype = onnx_dtype(from.type.element)) port.type = to_element_type(*dtype);
  if (!from.type.dims.has_value()) return port;
  port.dims.emplace();
  for (const OnnxDim& dim : *from.type.dims) port.dims->push_back({dim.value.value_or(-1), std::string(dim.symbol)});
  return port;
}

Result<size_t> place_of(const std::vector<Port>& ports, const std::string& name, std::string_view what) {
  const auto found = std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.name == name; });
  if (found != ports.end()) return static_cast<size_t>(found - ports.begin());
  std::string names;
  for (const Port& port : ports) names += fmt::format("{}{} {}", names.empty() ? "" : ", ", port.name, port.text);
  return error(Code::kNotFound, fmt::format("the network has no {} {:.200}; it has {:.1000}", what, name,
                                            names.empty() ? "none" : names));
}

// One run: what the caller gave, in the network's order.
class Run {
 public:
  Run(const std::vector<Port>& inputs, const std::vector<Port>& outputs) : inputs_(inputs), outputs_(outputs) {}

  Result<NamedArrays> run(NetworkSession& session, const NamedArrays& inputs, const NamedArrays& memories) {
    BOLIDE_TRY(std::vector<AnyValue> values, take_inputs(*session.shared_model(), inputs));
    BOLIDE_TRY(const std::vector<OutputMemory> wanted, take_memories(memories, *session.shared_model()));
    const bool with_arrays = uses_arrays_ && session.shared_model()->gpu() != nullptr;
    BOLIDE_TRY(const std::vector<AnyValue> results,
               session.run(std::move(values), nullptr, wanted, with_arrays ? &arrays_ : nullptr));
    NamedArrays arrays;
    for (size_t i = 0; i < results.size(); ++i)
      if (i < arrays_.outputs.size() && arrays_.outputs[i])
        arrays.push_back({outputs_[i].name, to_array(session.shared_model(), std::move(arrays_.outputs[i]))});
      else
        BOLIDE_TRY(give(i, results[i], session.pool(), arrays).context(fmt::format("output {}", outputs_[i].name)));
    return arrays;
  }

 private:
  Result<std::vector<AnyValue>> take_inputs(const NetworkModel& model, const NamedArrays& given) {
    std::vector<AnyValue> values(inputs_.size());
    arrays_.inputs.resize(inputs_.size());
    for (const NamedArray& input : given) {
      BOLIDE_TRY(const size_t place, place_of(inputs_, input.name, "input"));
      if (values[place].has_value()) return error(Code::kInvalid, fmt::format("input {} is given twice", input.name));
      if (input.array.on_device()) {
        auto there = tensor_on(model, input.array).context(fmt::format("input {}", input.name));
        if (!there) return std::move(there).error();
        arrays_.inputs[place] = **there, uses_arrays_ = true;
        values[place] = Tensor::over({}, nullptr, (*there)->dtype, (*there)->shape);
        continue;
      }
      auto tensor = to_tensor(input.array).context(fmt::format("input {}", input.name));
      if (!tensor) return std::move(tensor).error();
      values[place] = *std::move(tensor);
      if (ArrayAccess::is_callers(input.array))
        callers_.push_back(range_of(input.array)), callers_.back().input = place;
    }
    for (size_t i = 0; i < values.size(); ++i)
      if (!values[i].has_value() && !inputs_[i].text.starts_with("optional"))
        return error(Code::kInvalid, fmt::format("input {} ({}) is missing", inputs_[i].name, inputs_[i].text));
    return values;
  }

  Result<std::vector<OutputMemory>> take_memories(const NamedArrays& given, const NetworkModel& model) {
    std::vector<OutputMemory> wanted(given.empty() ? 0 : outputs_.size());
    memories_.resize(outputs_.size());
    arrays_.stays.assign(outputs_.size(), false);
    for (const NamedArray& memory : given) {
      BOLIDE_TRY(const size_t place, place_of(outputs_, memory.name, "output"));
      const auto refuse = [&](std::string_view what) {
        return error(Code::kInvalid, fmt::format("memory for output {} {}", memory.name, what));
      };
      if (memories_[place] || arrays_.stays[place]) return refuse("is given twice");
      if (ArrayAccess::is_left(memory.array)) {
        arrays_.stays[place] = uses_arrays_ = true;
        continue;
      }
      if (!ArrayAccess::is_writable(memory.array))
        return refuse("is read only: Array::memory makes what can be written");
      if (auto fine = to_tensor(memory.array); !fine) return refuse(fine.error().text);
      const Port& port = outputs_[place];
      if (port.type != ElementType::kNone && port.type != memory.array.type())
        return refuse(fmt::format("is of {}, expected {}", to_string(memory.array.type()), port.text));
      const Range range = range_of(memory.array);
      const auto grown = model.grown_input(place);
      for (const Range& other : callers_)
        if (range.overlaps(other) && !(grown && other.input == *grown && range.is(other)))
          return refuse("overlaps an input or other memory");
      callers_.push_back(range);
      memories_[place] = memory.array;
      if (memory.array.type() != ElementType::kString)
        wanted[place] = {const_cast<std::byte*>(range.begin), range.bytes, to_dtype(memory.array.type())};
    }
    return wanted;
  }

  Result<> give(size_t i, const AnyValue& value, TensorPool& pool, NamedArrays& to) const {
    const std::string& name = outputs_[i].name;
    if (const Tensor* tensor = value.tensor()) {
      BOLIDE_TRY(Array array, memories_[i] ? fill(memories_[i], *tensor) : keep(*tensor, pool));
      to.push_back({name, std::move(array)});
      return {};
    }
    if (memories_[i]) return error(Code::kUnsupported, "is no tensor: memory can be given for tensors alone");
    const ValueSequence* sequence = value.sequence();
    if (sequence == nullptr) {
      to.push_back({name, {}});
      return {};
    }
    for (size_t k = 0; k < sequence->items.size(); ++k) {
      const Tensor* item = sequence->items[k].tensor();
      if (item == nullptr) return error(Code::kUnsupported, "is a sequence of what are no tensors");
      BOLIDE_TRY(Array array, keep(*item, pool));
      to.push_back({fmt::format("{}.{}", name, k), std::move(array)});
    }
    return {};
  }

  // In the session's memory, or the model's: never the caller's.
  Result<Array> keep(const Tensor& tensor, TensorPool& pool) const {
    const Range range{.begin = tensor.data(), .bytes = tensor.is_string() ? 0 : tensor.bytes()};
    if (std::none_of(callers_.begin(), callers_.end(), [&](const Range& other) { return range.overlaps(other); }))
      return to_array(tensor);
    BOLIDE_TRY(Tensor copy, Tensor::make(tensor.dtype(), tensor.shape(), pool));
    std::memcpy(copy.mutable_data(), tensor.data(), tensor.bytes());
    return to_array(copy);
  }

  static Result<Array> fill(Array memory, const Tensor& tensor) {
    const auto elements = static_cast<size_t>(tensor.elements());
    if (to_dtype(memory.type()) != tensor.dtype() || elements > memory.size())
      return error(Code::kInvalid,
                   fmt::format("is {}{}, which memory for {} elements of {} cannot hold", to_string(tensor.dtype()),
                               to_string(tensor.shape()), memory.size(), to_string(memory.type())));
    if (tensor.is_string()) {
      const auto texts = tensor.as<std::string>();
      std::copy(texts.begin(), texts.end(), memory.mutate<std::string>().begin());
    } else if (elements > 0 && tensor.data() != memory.data()) {
      std::memmove(const_cast<void*>(memory.data()), tensor.data(), tensor.bytes());
    }
    const auto dims = tensor.shape().span();
    return ArrayAccess::make(ArrayAccess::owner(memory), memory.data(), {dims.begin(), dims.end()}, elements,
                             memory.type(), true);
  }

  const std::vector<Port>& inputs_;
  const std::vector<Port>& outputs_;
  std::vector<Range> callers_;   // inputs of the caller's, and memories
  std::vector<Array> memories_;  // by output; none: in the session's memory
  DeviceArrays arrays_;
  bool uses_arrays_ = false;
};

}  // namespace

struct Network::Impl {
  UserOperators operators;  // the model points into it
  std::shared_ptr<const NetworkModel> model;
  std::vector<Port> inputs, outputs;
  int threads = 0;
  std::mutex mutex;
  std::vector<NetworkSession> idle;  // of Network::run

  Result<NamedArrays> run(const NamedArrays& given, const NamedArrays& memories) {
    std::optional<NetworkSession> session;
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        session = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (!session) {
      BOLIDE_TRY(session, NetworkSession::make(model, threads));
    }
    auto arrays = Run(inputs, outputs).run(*session, given, memories);
    const std::lock_guard lock(mutex);
    idle.push_back(*std::move(session));
    return arrays;
  }
};

struct Session::Impl {
  std::shared_ptr<Network::Impl> network;
  NetworkSession session;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Expected<NamedArrays> Session::run(const NamedArrays& inputs, const NamedArrays& memories) {
  return to_expected(Run(impl_->network->inputs, impl_->network->outputs).run(impl_->session, inputs, memories));
}

Expected<Array> Session::to_device(const Array& array) {
  if (array.on_device() || impl_->session.shared_model()->gpu() == nullptr) return array;
  const auto copied = [&]() -> Result<Array> {
    BOLIDE_TRY(const Tensor tensor, to_tensor(array));
    BOLIDE_TRY(DeviceTensor there, impl_->session.to_device(tensor));
    return to_array(impl_->session.shared_model(), std::move(there));
  };
  return to_expected(copied());
}

Expected<Array> Session::to_host(const Array& array) {
  if (!array.on_device()) return array;
  const auto copied = [&]() -> Result<Array> {
    BOLIDE_TRY(const DeviceTensor* there, tensor_on(*impl_->session.shared_model(), array));
    BOLIDE_TRY(const Tensor tensor, impl_->session.to_host(*there));
    return to_array(tensor);
  };
  return to_expected(copied());
}

Network::Network(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Expected<Network> Network::open(const std::filesystem::path& path, const NetworkOptions& options) {
  const auto opened = [&]() -> Result<std::shared_ptr<Impl>> {
    if (options.threads < 0) return error(Code::kInvalid, "threads must be at least 0");
    auto impl = std::make_shared<Impl>();
    impl->threads = options.threads;
    BOLIDE_TRY(impl->operators, UserOperators::make(options.operators));
    ModelConfigFlags flags;
    flags.device = options.device, flags.dtype = options.dtype.empty() ? "auto" : options.dtype;
    flags.cuda_libs = options.cuda_libraries, flags.tuning_cache = options.tuning_cache;
    BOLIDE_TRY(NetworkSettings settings, to_network_settings(flags));
    settings.threads = options.threads;
    settings.memory_limit = options.memory_limit, settings.added = impl->operators.rows();
    BOLIDE_TRY(impl->model, NetworkModel::open(path, settings));
    for (const auto& port : impl->model->inputs()) impl->inputs.push_back(to_port(port));
    for (const auto& port : impl->model->outputs()) impl->outputs.push_back(to_port(port));
    return impl;
  };
  auto impl = opened();
  if (!impl) return to_status(std::move(impl).error());
  return Network(*std::move(impl));
}

const std::vector<Port>& Network::inputs() const { return impl_->inputs; }
const std::vector<Port>& Network::outputs() const { return impl_->outputs; }

Expected<Session> Network::session(int threads) const {
  if (threads < 0) return Status{StatusCode::kInvalid, "threads must be at least 0"};
  auto session = NetworkSession::make(impl_->model, threads > 0 ? threads : impl_->threads);
  if (!session) return to_status(std::move(session).error());
  return Session(std::make_unique<Session::Impl>(Session::Impl{impl_, *std::move(session)}));
}

Expected<NamedArrays> Network::run(const NamedArrays& inputs, const NamedArrays& memories) const {
  return to_expected(impl_->run(inputs, memories));
}

}  // namespace bolide
