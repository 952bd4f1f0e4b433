#include "plan/device_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "plan/device_program.h"

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr size_t kAlign = 256;
size_t rounded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Large copies are made by all workers: one thread does not fill a bus.
void copy_on(Workers& workers, std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kPart = 1 << 20;
  const auto parts = static_cast<int64_t>((bytes + kPart - 1) / kPart);
  workers.run(parts, [&](int64_t part, int) {
    const size_t begin = static_cast<size_t>(part) * kPart;
    std::memcpy(to + begin, from + begin, std::min(kPart, bytes - begin));
  });
}

}  // namespace

struct DeviceNetwork::State {
  State(const Graph& general, Device& on, DeviceNetworkSettings given, std::shared_ptr<DeviceShared> with)
      : graph(general),
        device(on),
        settings(std::move(given)),
        shared(with != nullptr ? std::move(with) : std::make_shared<DeviceShared>(on)),
        pool(on),
        choices(shared->timings()) {}

  const Graph& graph;
  Device& device;
  DeviceNetworkSettings settings;
  std::shared_ptr<DeviceShared> shared;
  std::unique_ptr<Stream> stream;
  DevicePool pool;
  ProductChoices choices;
  std::shared_ptr<std::byte> fault;
  Buffer pinned_fault;
  std::unique_ptr<Event> begin, end, step_begin, step_end;
  std::list<std::unique_ptr<DeviceProgram>> programs;  // the last used first
  std::vector<Placement> placements;
  bool was_captured = false;
  double device_seconds = 0;

  DeviceMachine machine(bool capturing) {
    return {.device = device,
            .stream = *stream,
            .pool = pool,
            .constants = shared->constants(),
            .choices = choices,
            .compute = settings.compute,
            .fault = reinterpret_cast<uint32_t*>(fault.get()),
            .capturing = capturing,
            .tf32 = settings.tf32};
  }

  // The slot's value on the host.
  Result<> fetch(DeviceProgram& program, DeviceMachine& machine, DeviceSlot& slot, TensorPool& host_pool,
                 Placement* placement) {
    if (slot.on_host) return {};
    if (machine.capturing) return error(Code::kInternal, "a copy to the host while capturing");
    if (!slot.device) return error(Code::kInternal, "a value is nowhere");
    BOLIDE_TRY(const DeviceTensor plain, machine.converted(slot.device, slot.dtype, false));
    BOLIDE_TRY(Tensor tensor, Tensor::make(slot.dtype, slot.shape, host_pool));
    BOLIDE_TRY(stream->synchronize());  // what made it is no part of the copy's time
    const auto start = Clock::now();
    BOLIDE_TRY(copy_bytes(*stream, {tensor.mutable_data(), tensor.bytes()}, {plain.memory.get(), tensor.bytes()}));
    BOLIDE_TRY(stream->synchronize());
    if (placement != nullptr)
      placement->bytes_to_host += static_cast<int64_t>(tensor.bytes()), placement->copy_seconds += seconds_since(start);
    slot.host = std::move(tensor);
    slot.on_host = true;
    static_cast<void>(program);
    return {};
  }

  static void put(DeviceSlot& slot, DeviceTensor tensor) {
    slot.dtype = tensor.declared, slot.shape = tensor.shape;
    slot.device = std::move(tensor);
    slot.on_host = slot.is_known = false, slot.is_made_there = true;
    slot.host = {};
  }
  static void put(DeviceSlot& slot, AnyValue value, bool known) {
    slot.device = {}, slot.is_made_there = false;
    if (const Tensor* tensor = value.tensor()) slot.dtype = tensor->dtype(), slot.shape = tensor->shape();
    slot.host = std::move(value);
    slot.on_host = true, slot.is_known = known;
  }

  // True: it ran on the device.
  Result<bool> run_on_device(DeviceProgram& program, DeviceMachine& machine, DeviceProgram::Step& step, size_t index,
                             bool with_behind, Placement& placement) {
    const Node& node = program.graph.node(step.node);
    std::vector<DeviceSlot*> in;
    for (const ValueId id : node.in) {
      DeviceSlot* slot = id == kNoValue ? nullptr : &program.slots[static_cast<size_t>(id)];
      if (slot != nullptr && slot->on_host && (slot->host.tensor() == nullptr || slot->host.tensor()->is_string()))
        return false;
      in.push_back(slot);
    }
    if (in.empty() || in[0] == nullptr) return false;
    DeviceContext::Node what{.def = *step.op->def,
                             .attributes = *step.op->attributes,
                             .version = step.op->version,
                             .inputs = in,
                             .outputs = node.out.size(),
                             .mark = static_cast<uint32_t>(index + 1),
                             .used = step.used};
    if (with_behind) {
      const auto slot = [&](ValueId id) { return id == kNoValue ? nullptr : &program.slots[static_cast<size_t>(id)]; };
      what.bias = slot(step.behind.bias), what.residual = slot(step.behind.residual), what.then = step.behind.then;
      if (what.residual != nullptr && !what.residual->device && !what.residual->on_host) return false;
    }
    DeviceContext context(machine, what, stream->workers());
    BOLIDE_TRY(const bool ran, step.row->run(context));
    placement.bytes_to_device += context.bytes_in(), placement.copy_seconds += context.seconds_in();
    if (!ran) return false;
    if (with_behind) {
      put(program.slots[static_cast<size_t>(step.behind.last)], std::move(context.made()[0]));
      return true;
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      DeviceSlot& slot = program.slots[static_cast<size_t>(node.out[i])];
      if (context.made()[i])
        put(slot, std::move(context.made()[i]));
      else if (context.made_on_host()[i])
        put(slot, std::move(context.made_on_host()[i]), true);
      else if (step.used[i])
        return error(Code::kInternal, fmt::format("output {} was not made", i));
    }
    return true;
  }

  Result<> run_on_host(DeviceProgram& program, DeviceMachine& machine, DeviceProgram::Step& step, TensorPool& host_pool,
                       Placement& placement) {
    const Node& node = program.graph.node(step.node);
    bool known = step.op->def->pure && node.bodies.empty();
    std::vector<const AnyValue*> in;
    const auto bring = [&](ValueId id) -> Result<const AnyValue*> {
      if (id == kNoValue) return nullptr;
      DeviceSlot& slot = program.slots[static_cast<size_t>(id)];
      BOLIDE_TRY(fetch(program, machine, slot, host_pool, &placement));
      known = known && slot.is_known;
      return &slot.host;
    };
    for (const ValueId id : node.in) {
      BOLIDE_TRY(const AnyValue* value, bring(id));
      in.push_back(value);
    }
    for (const Body& body : node.bodies)
      for (const ValueId id : body.captures) BOLIDE_TRY(bring(id));
    if (!known) {
      if (machine.capturing) return error(Code::kInternal, "a node of the CPU while capturing");
      program.can_capture = false;
    }
    BOLIDE_TRY(program.prepare_for_cpu(step, device.info(), stream->workers()));
    std::vector<AnyValue> out(node.out.size());
    const auto run_body = [&](std::string_view attribute,
                              std::vector<AnyValue> values) -> Result<std::vector<AnyValue>> {
      for (size_t i = 0; i < node.bodies.size(); ++i) {
        if (node.bodies[i].attribute != attribute) continue;
        for (const ValueId id : node.bodies[i].captures) values.push_back(program.slots[static_cast<size_t>(id)].host);
        return step.bodies[i]->run(std::move(values), stream->workers(), host_pool);
      }
      return error(Code::kNotFound, fmt::format("has no graph {}", attribute));
    };
    RunContext context(*step.op->attributes, step.op->version, in, out, stream->workers(), host_pool, run_body,
                       step.op->def->state);
    bool ran = false;
    if (step.prepared != nullptr) {
      BOLIDE_TRY(ran, step.prepared->run(context));
    }
    if (!ran) BOLIDE_TRY(step.op->def->run(context));
    for (size_t i = 0; i < out.size(); ++i)
      put(program.slots[static_cast<size_t>(node.out[i])], std::move(out[i]), known);
    return {};
  }

  // Inputs that are the same whatever the contents of the network's: shapes and what is computed from them.
  static bool is_of_shapes(const DeviceProgram& program, const Node& node) {
    return std::all_of(node.in.begin(), node.in.end(), [&](ValueId id) {
      return id == kNoValue ||
             (program.slots[static_cast<size_t>(id)].on_host && program.slots[static_cast<size_t>(id)].is_known);
    });
  }

  Result<> run_step(DeviceProgram& program, DeviceMachine& machine, size_t index, TensorPool& host_pool) {
    DeviceProgram::Step& step = program.steps[index];
    Placement& placement = program.placements[index];
    if (step.within >= 0) {
      const DeviceProgram::Step& first = program.steps[static_cast<size_t>(step.within)];
      if (!first.behind_refused) {
        placement.where = Placement::Where::kWithin;
        placement.within = program.graph.node(first.node).name;
        return {};
      }
    }
    placement.bytes_to_host = placement.bytes_to_device = 0, placement.copy_seconds = 0;
    if (step.row != nullptr && !step.on_host && !is_of_shapes(program, program.graph.node(step.node))) {
      placement.where = Placement::Where::kDevice;
      if (!step.behind.nodes.empty() && !step.behind_refused) {
        BOLIDE_TRY(const bool ran, run_on_device(program, machine, step, index, true, placement));
        if (ran) return {};
        step.behind_refused = true;
      }
      BOLIDE_TRY(const bool ran, run_on_device(program, machine, step, index, false, placement));
      if (ran) return {};
      step.on_host = true;
    } else if (!step.behind.nodes.empty()) {
      step.behind_refused = true;
    }
    placement.where = Placement::Where::kHost;
    return run_on_host(program, machine, step, host_pool, placement);
  }

  // Enqueues (and on the host, runs) all nodes; then the outputs as they are to be copied out.
  Result<> run_steps(DeviceProgram& program, DeviceMachine& machine, TensorPool& host_pool,
                     const GeneralObserver* observer) {
    program.can_capture = true;
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      DeviceSlot& slot = program.slots[static_cast<size_t>(program.inputs[i])];
      slot.device = program.input_memory[i];
    }
    for (size_t i = 0; i < program.steps.size(); ++i) {
      DeviceProgram::Step& step = program.steps[i];
      const Node& node = program.graph.node(step.node);
      if (observer != nullptr) BOLIDE_TRY(stream->record(*step_begin));
      const auto start = Clock::now();
      if (auto done = run_step(program, machine, i, host_pool); !done)
        return std::move(done).error().context(fmt::format("node {:.200} ({})", node.name, step.op->def->name));
      if (observer != nullptr) BOLIDE_TRY(observe(program, machine, i, host_pool, *observer, start));
      if (machine.capturing && !program.can_capture) return error(Code::kInternal, "what was captured cannot be");
      for (const ValueId id : step.last) {
        DeviceSlot& slot = program.slots[static_cast<size_t>(id)];
        slot.device = {}, slot.host = {}, slot.on_host = false;
      }
    }
    program.output_memory.clear();
    for (const Output& output : program.graph.outputs()) {
      DeviceSlot& slot = program.slots[static_cast<size_t>(output.value)];
      DeviceTensor plain;
      if (slot.device && (!slot.on_host || slot.is_made_there)) {
        BOLIDE_TRY(plain, machine.converted(slot.device, slot.dtype, false));
      } else if (!slot.is_known) {
        program.can_capture = false;  // the input itself, or made by the CPU
      }
      program.output_memory.push_back(std::move(plain));
    }
    return {};
  }

  Result<> observe(DeviceProgram& program, DeviceMachine& machine, size_t index, TensorPool& host_pool,
                   const GeneralObserver& observer, Clock::time_point start) {
    const DeviceProgram::Step& step = program.steps[index];
    const Node& node = program.graph.node(step.node);
    const auto where = program.placements[index].where;
    if (where == Placement::Where::kWithin &&
        node.out[0] != program.steps[static_cast<size_t>(step.within)].behind.last)
      return {};
    BOLIDE_TRY(stream->record(*step_end));
    BOLIDE_TRY(stream->synchronize());
    double seconds = seconds_since(start);
    if (where == Placement::Where::kDevice) {
      BOLIDE_TRY(seconds, step_end->seconds_since(*step_begin));
    }
    // A product with what follows is seen with the last of its nodes, whose value it makes.
    if (where == Placement::Where::kWithin) seconds = program.steps[static_cast<size_t>(step.within)].seconds;
    if (where == Placement::Where::kDevice && !step.behind.nodes.empty() && !step.behind_refused) {
      program.steps[index].seconds = seconds;
      return {};
    }
    std::vector<AnyValue> out;
    for (size_t i = 0; i < node.out.size(); ++i) {
      DeviceSlot& slot = program.slots[static_cast<size_t>(node.out[i])];
      const bool was_on_host = slot.on_host;
      if (!slot.on_host && slot.device) BOLIDE_TRY(fetch(program, machine, slot, host_pool, nullptr));
      out.push_back(slot.on_host ? slot.host : AnyValue());
      if (!was_on_host) slot.on_host = false, slot.host = {};  // as it was
    }
    std::vector<const AnyValue*> in(node.in.size(), nullptr);
    if (out[0].has_value() || where == Placement::Where::kHost) observer(program.graph, step.node, in, out, seconds);
    return {};
  }

  Result<> copy_in(DeviceProgram& program, const std::vector<AnyValue>& given, const DeviceArrays* arrays) {
    if (program.in_at.empty() && !given.empty()) {
      size_t at = 0;
      for (size_t i = 0; i < given.size(); ++i) {
        const Tensor& tensor = *given[i].tensor();
        program.in_at.push_back(at);
        at += rounded(tensor.bytes());
        BOLIDE_TRY(auto memory, pool.take(tensor.bytes()));
        program.input_memory.push_back({std::move(memory), tensor.dtype(), tensor.dtype(), tensor.shape(), false});
      }
      BOLIDE_TRY(program.pinned_in, device.allocate(std::max<size_t>(at, kAlign), Memory::kPinned));
    }
    for (size_t i = 0; i < given.size(); ++i) {
      const Tensor& tensor = *given[i].tensor();
      DeviceSlot& slot = program.slots[static_cast<size_t>(program.inputs[i])];
      slot.dtype = tensor.dtype(), slot.shape = tensor.shape();
      slot.is_known = slot.is_made_there = false;
      const DeviceTensor* there = arrays != nullptr && i < arrays->inputs.size() ? &arrays->inputs[i] : nullptr;
      if (there != nullptr && *there) {
        if (there->dtype != tensor.dtype() || there->shape != tensor.shape() || there->channels_last)
          return error(Code::kInternal, "an input on the device is not what it is given as");
        if (tensor.bytes() > 0)
          BOLIDE_TRY(copy_bytes(*stream, {program.input_memory[i].memory.get(), tensor.bytes()},
                                {there->memory.get(), tensor.bytes()}));
        slot.host = {}, slot.on_host = false;
        continue;
      }
      std::byte* const staged = program.pinned_in.data() + program.in_at[i];
      copy_on(stream->workers(), staged, tensor.data(), tensor.bytes());
      if (tensor.bytes() > 0)
        BOLIDE_TRY(
            copy_bytes(*stream, {program.input_memory[i].memory.get(), tensor.bytes()}, {staged, tensor.bytes()}));
      slot.host = given[i], slot.on_host = true;
    }
    return {};
  }

  Result<std::vector<AnyValue>> copy_out(DeviceProgram& program, TensorPool& host_pool,
                                         std::span<const OutputMemory> memories, DeviceArrays* arrays) {
    size_t at = 0;
    const std::vector<DeviceTensor>& made = was_captured ? program.captured_outputs : program.output_memory;
    const auto stays = [&](size_t i) { return arrays != nullptr && i < arrays->stays.size() && arrays->stays[i]; };
    if (arrays != nullptr) arrays->outputs.assign(made.size(), {});
    program.out_at.clear();
    for (const DeviceTensor& tensor : made) {
      program.out_at.push_back(at);
      if (tensor && !stays(program.out_at.size() - 1))
        at += rounded(static_cast<size_t>(tensor.elements()) * element_bytes(tensor.dtype));
    }
    if (program.pinned_out.size() < at + kAlign) {
      BOLIDE_TRY(program.pinned_out, device.allocate(at + kAlign, Memory::kPinned));
    }
    for (size_t i = 0; i < made.size(); ++i) {
      const DeviceTensor& tensor = made[i];
      const size_t bytes = static_cast<size_t>(tensor.shape.elements()) * element_bytes(tensor.dtype);
      if (tensor && stays(i)) {  // the next run writes where it lies
        BOLIDE_TRY(auto memory, shared->outputs().take(bytes));
        if (bytes > 0) BOLIDE_TRY(copy_bytes(*stream, {memory.get(), bytes}, {tensor.memory.get(), bytes}));
        arrays->outputs[i] = {std::move(memory), tensor.dtype, tensor.declared, tensor.shape, false};
        continue;
      }
      if (!tensor || bytes == 0) continue;
      BOLIDE_TRY(
          copy_bytes(*stream, {program.pinned_out.data() + program.out_at[i], bytes}, {tensor.memory.get(), bytes}));
    }
    BOLIDE_TRY(copy_bytes(*stream, {pinned_fault.data(), sizeof(uint32_t)}, {fault.get(), sizeof(uint32_t)}));
    BOLIDE_TRY(stream->synchronize());
    uint32_t mark = 0;
    std::memcpy(&mark, pinned_fault.data(), sizeof mark);
    if (mark != 0) {
      const Node& node = program.graph.node(program.steps[std::min<size_t>(mark, program.steps.size()) - 1].node);
      return error(Code::kInvalid, fmt::format("node {:.200}: an index lies outside its axis", node.name));
    }
    std::vector<AnyValue> results;
    for (size_t i = 0; i < made.size(); ++i) {
      const DeviceTensor& from = made[i];
      if (!from) {
        results.push_back(program.slots[static_cast<size_t>(program.graph.outputs()[i].value)].host);
        continue;
      }
      if (stays(i)) {
        results.emplace_back(Tensor::over({}, nullptr, from.dtype, from.shape));
        continue;
      }
      Tensor tensor;
      const size_t bytes = static_cast<size_t>(from.elements()) * element_bytes(from.dtype);
      if (i < memories.size() && memories[i].data != nullptr && memories[i].dtype == from.dtype &&
          memories[i].bytes >= bytes) {
        tensor = Tensor::over({}, memories[i].data, from.dtype, from.shape);
      } else {
        BOLIDE_TRY(tensor, Tensor::make(from.dtype, from.shape, host_pool));
      }
      copy_on(stream->workers(), tensor.mutable_data(), program.pinned_out.data() + program.out_at[i], bytes);
      results.emplace_back(std::move(tensor));
    }
    return results;
  }

  Result<DeviceProgram*> program_for(const std::vector<AnyValue>& given, std::string_view key) {
    const auto found = std::find_if(programs.begin(), programs.end(), [&](const auto& p) { return p->key == key; });
    if (found != programs.end()) {
      programs.splice(programs.begin(), programs, found);
    } else {
      BOLIDE_TRY(auto made, DeviceProgram::make(graph, given, settings.skip_passes, stream->workers()));
      programs.push_front(std::move(made));
      if (programs.size() > std::max<size_t>(settings.shapes_max, 1)) {
        BOLIDE_TRY(stream->synchronize());
        programs.pop_back();
      }
    }
    return programs.front().get();
  }

  Result<std::vector<AnyValue>> run(const std::vector<AnyValue>& given, TensorPool& host_pool,
                                    const GeneralObserver* observer, std::span<const OutputMemory> memories,
                                    DeviceArrays* arrays) {
    const std::string key = key_of(given);
    BOLIDE_TRY(DeviceProgram * program, program_for(given, key));
    BOLIDE_TRY(copy_in(*program, given, arrays));
    BOLIDE_TRY(stream->fill({fault.get(), sizeof(uint32_t)}, std::byte{0}));
    BOLIDE_TRY(stream->record(*begin));
    was_captured = program->captured != nullptr && observer == nullptr;
    if (was_captured) {
      BOLIDE_TRY(program->captured->launch(*stream));
    } else {
      DeviceMachine machine = this->machine(false);
      const size_t before = pool.bytes();
      BOLIDE_TRY(run_steps(*program, machine, host_pool, observer));
      program->pool_bytes = pool.bytes() == before ? before : 0;
    }
    BOLIDE_TRY(stream->record(*end));
    BOLIDE_TRY(auto results, copy_out(*program, host_pool, memories, arrays));
    BOLIDE_TRY(device_seconds, end->seconds_since(*begin));
    placements = program->placements;
    if (program->runs++ == 0) shared->save_timings();
    if (observer == nullptr && program->captured == nullptr && program->runs >= 2 && settings.capture)
      BOLIDE_TRY(try_capture(*program, host_pool));
    return results;
  }

  // Only after a run that found all its memory in the pool: the same run will find it again.
  Result<> try_capture(DeviceProgram& program, TensorPool& host_pool) {
    if (!program.can_capture || program.captured != nullptr || program.pool_bytes != pool.bytes()) return {};
    DeviceMachine machine = this->machine(true);
    auto made = stream->capture([&](Stream&) { return run_steps(program, machine, host_pool, nullptr); });
    if (made) {
      program.captured = *std::move(made);
      program.captured_outputs = std::move(program.output_memory);
      return {};
    }
    log::warning("a network could not be captured and runs node by node",
                 {{"why", std::string_view(made.error().text)}});
    program.can_capture = false;
    settings.capture = false;
    return {};
  }
};

std::set<std::string> without_cpu_passes(std::set<std::string> skip) {
  for (const char* name : {"fuse_dense", "channels_last"}) skip.emplace(name);
  return skip;
}

DeviceNetwork::DeviceNetwork(std::unique_ptr<State> state) : state_(std::move(state)) {}
DeviceNetwork::~DeviceNetwork() {
  if (state_->stream != nullptr) static_cast<void>(state_->stream->synchronize());
}

Result<std::unique_ptr<DeviceNetwork>> DeviceNetwork::make(const Graph& graph, Device& device,
                                                           DeviceNetworkSettings settings,
                                                           std::shared_ptr<DeviceShared> shared) {
  auto state = std::make_unique<State>(graph, device, std::move(settings), std::move(shared));
  BOLIDE_TRY(state->stream, device.make_stream());
  BOLIDE_TRY(state->fault, state->pool.take(sizeof(uint32_t)));
  BOLIDE_TRY(state->pinned_fault, device.allocate(kAlign, Memory::kPinned));
  for (auto* event : {&state->begin, &state->end, &state->step_begin, &state->step_end}) {
    BOLIDE_TRY(*event, device.make_event());
  }
  return std::unique_ptr<DeviceNetwork>(new DeviceNetwork(std::move(state)));
}

bool DeviceNetwork::can_run(const std::vector<AnyValue>& inputs) { return !key_of(inputs).empty(); }

Result<std::vector<AnyValue>> DeviceNetwork::run(const std::vector<AnyValue>& inputs, TensorPool& pool,
                                                 const GeneralObserver* observer,
                                                 std::span<const OutputMemory> memories, DeviceArrays* arrays) {
  return state_->run(inputs, pool, observer, memories, arrays);
}

Result<DeviceTensor> DeviceNetwork::to_device(const Tensor& tensor) {
  BOLIDE_TRY(auto memory, state_->shared->outputs().take(tensor.bytes()));
  if (tensor.bytes() > 0)
    BOLIDE_TRY(copy_bytes(*state_->stream, {memory.get(), tensor.bytes()}, {tensor.data(), tensor.bytes()}));
  BOLIDE_TRY(state_->stream->synchronize());
  return DeviceTensor{std::move(memory), tensor.dtype(), tensor.dtype(), tensor.shape(), false};
}

Result<Tensor> DeviceNetwork::to_host(const DeviceTensor& tensor, TensorPool& pool) {
  BOLIDE_TRY(Tensor to, Tensor::make(tensor.dtype, tensor.shape, pool));
  if (to.bytes() > 0)
    BOLIDE_TRY(copy_bytes(*state_->stream, {to.mutable_data(), to.bytes()}, {tensor.memory.get(), to.bytes()}));
  BOLIDE_TRY(state_->stream->synchronize());
  return to;
}

std::string DeviceNetwork::where(NodeId node) const {
  if (state_->programs.empty()) return "cpu";
  const DeviceProgram& program = *state_->programs.front();
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].node != node) continue;
    const Placement& placement = program.placements[i];
    if (placement.where == Placement::Where::kWithin) return "gpu with " + placement.within;
    return placement.where == Placement::Where::kDevice ? "gpu" : "cpu";
  }
  return "cpu";
}

const std::vector<Placement>& DeviceNetwork::placements() const { return state_->placements; }
bool DeviceNetwork::was_captured() const { return state_->was_captured; }
double DeviceNetwork::device_seconds() const { return state_->device_seconds; }
size_t DeviceNetwork::constant_bytes() const { return state_->shared->constants().bytes(); }
size_t DeviceNetwork::activation_bytes() const { return state_->pool.bytes(); }

}  // namespace bolide
