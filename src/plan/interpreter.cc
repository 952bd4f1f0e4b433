#include "plan/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/memory.h"
#include "tensor/texts.h"

namespace bolide {

// A graph, which values each node is the last to read, and the programs of its bodies.
struct Interpreter::Program {
  struct Step {
    NodeId node = -1;
    const Generic* op = nullptr;
    std::unique_ptr<PreparedOp> prepared;
    std::vector<ValueId> last;    // of values that nothing reads afterwards
    std::vector<size_t> results;  // of each of the node's outputs: which of the graph's it is; empty: none is
    std::vector<std::unique_ptr<Program>> bodies;
  };
  const Graph* graph = nullptr;
  std::vector<ValueId> inputs;
  std::vector<Step> steps;
  // Where a run keeps a value that is no constant; -1: nowhere, nothing makes it any more.
  std::vector<int32_t> slots;
  size_t slot_count = 0;

  // How many readers of each constant need it.
  class Constants {
   public:
    explicit Constants(Graph* graph) : graph_(graph) {
      if (graph == nullptr) return;
      needed_.resize(graph->value_count());
      const auto need = [&](ValueId value) {
        if (value != kNoValue) ++needed_[static_cast<size_t>(value)];
      };
      for (const NodeId id : graph->order()) {
        for (const ValueId value : graph->node(id).in) need(value);
        for (const Body& body : graph->node(id).bodies)
          for (const ValueId value : body.captures) need(value);
      }
      for (const Output& output : graph->outputs()) need(output.value);
      for (size_t i = 0; i < needed_.size(); ++i) drop_if_free(static_cast<ValueId>(i));
    }
    void give_up(const Node& node, const PreparedOp& prepared) {
      if (graph_ == nullptr) return;
      for (size_t i = 0; i < node.in.size(); ++i) {
        if (node.in[i] == kNoValue || !prepared.holds(i)) continue;
        --needed_[static_cast<size_t>(node.in[i])];
        drop_if_free(node.in[i]);
      }
    }

   private:
    void drop_if_free(ValueId id) {
      const Value& value = graph_->value(id);
      if (value.kind != ValueKind::kConstant || needed_[static_cast<size_t>(id)] > 0) return;
      if (const Tensor* tensor = value.constant->tensor(); tensor != nullptr && !tensor->is_string())
        release_mapped({tensor->data(), tensor->bytes()});
      graph_->drop_constant(id);
    }
    Graph* graph_;
    std::vector<int> needed_;
  };

  static Result<std::unique_ptr<PreparedOp>> prepare(const Node& node, const Generic& op,
                                                     std::span<const AnyValue* const> known,
                                                     const PrepareSettings& settings) {
    if (op.def->prepare == nullptr) return std::unique_ptr<PreparedOp>();
    std::vector<const AnyValue*> constants;
    uint64_t present = 0;
    for (size_t i = 0; i < node.in.size() && i < 64; ++i)
      if (node.in[i] != kNoValue) present |= uint64_t{1} << i;
    for (const ValueId id : node.in) constants.push_back(id == kNoValue ? nullptr : known[static_cast<size_t>(id)]);
    return op.def->prepare({.attributes = *op.attributes,
                            .version = op.version,
                            .constants = constants,
                            .outputs = node.out.size(),
                            .device = settings.device,
                            .workers = settings.workers,
                            .compute = settings.compute,
                            .present = present});
  }

  // `captured`: of a body's captures, those that are constants; else null.
  static Result<std::unique_ptr<Program>> make(const Graph& graph, const PrepareSettings* settings,
                                               Graph* dropping = nullptr,
                                               std::span<const AnyValue* const> captured = {}) {
    auto program = std::make_unique<Program>();
    program->graph = &graph;
    Constants constants(dropping);
    std::vector<const AnyValue*> known(graph.value_count());  // constants, by value
    std::vector<size_t> last(graph.value_count(), SIZE_MAX);
    for (size_t i = 0; i < graph.value_count(); ++i)
      if (graph.value(static_cast<ValueId>(i)).kind == ValueKind::kInput)
        program->inputs.push_back(static_cast<ValueId>(i));
    for (size_t i = 0; i < known.size(); ++i) known[i] = graph.value(static_cast<ValueId>(i)).constant.get();
    const size_t own = program->inputs.size() - std::min(program->inputs.size(), captured.size());
    for (size_t i = 0; i < captured.size() && own + i < program->inputs.size(); ++i)
      known[static_cast<size_t>(program->inputs[own + i])] = captured[i];
    for (const NodeId id : graph.order()) {
      const Node& node = graph.node(id);
      Step step;
      step.node = id;
      step.op = std::get_if<Generic>(&node.op);
      if (step.op == nullptr)
        return error(Code::kInternal, fmt::format("{}: {} is no general op", node.name, op_name(node.op)));
      if (settings != nullptr) {
        auto prepared = prepare(node, *step.op, known, *settings);
        if (!prepared) return std::move(prepared).error().context(named(node, *step.op));
        step.prepared = *std::move(prepared);
        if (step.prepared != nullptr) constants.give_up(node, *step.prepared);
      }
      const auto use = [&](ValueId value) {
        if (value != kNoValue) last[static_cast<size_t>(value)] = program->steps.size();
      };
      for (const ValueId value : node.in) use(value);
      for (const ValueId value : node.out) use(value);
      for (const Body& body : node.bodies) {
        for (const ValueId value : body.captures) use(value);
        std::vector<const AnyValue*> outer;
        for (const ValueId value : body.captures)
          outer.push_back(value == kNoValue ? nullptr : known[static_cast<size_t>(value)]);
        BOLIDE_TRY(auto inside, make(*body.graph, settings, nullptr, outer));
        step.bodies.push_back(std::move(inside));
      }
      program->steps.push_back(std::move(step));
    }
    program->slots.assign(graph.value_count(), -1);
    const auto place = [&](ValueId value) {
      program->slots[static_cast<size_t>(value)] = static_cast<int32_t>(program->slot_count++);
    };
    for (const ValueId value : program->inputs) place(value);
    for (const Step& step : program->steps)
      for (const ValueId value : graph.node(step.node).out) place(value);
    for (const Output& output : graph.outputs()) last[static_cast<size_t>(output.value)] = SIZE_MAX;
    for (size_t i = 0; i < last.size(); ++i)
      if (last[i] != SIZE_MAX && program->slots[i] >= 0)
        program->steps[last[i]].last.push_back(static_cast<ValueId>(i));
    std::unordered_map<ValueId, size_t> results;
    for (size_t i = 0; i < graph.outputs().size(); ++i) results.emplace(graph.outputs()[i].value, i);
    for (Step& step : program->steps) {
      const std::vector<ValueId>& out = graph.node(step.node).out;
      for (size_t i = 0; i < out.size(); ++i) {
        const auto it = results.find(out[i]);
        if (it == results.end()) continue;
        step.results.resize(out.size(), SIZE_MAX);
        step.results[i] = it->second;
      }
    }
    return program;
  }

  static Result<> run_step(const Step& step, RunContext& context) {
    return catching_bad_alloc([&]() -> Result<> {
      if (step.prepared != nullptr) {
        BOLIDE_TRY(const bool ran, step.prepared->run(context));
        if (ran) return {};
      }
      return step.op->def->run(context);
    });
  }

  static std::string named(const Node& node, const Generic& op) {
    return fmt::format("node {:.200} ({})", node.name, op.def->name);
  }

  // Of a node of this program's graph or of a body's; null: nothing, or no such node.
  const PreparedOp* prepared(const Graph& of, NodeId node) const {
    for (const Step& step : steps) {
      if (graph == &of && step.node == node) return step.prepared.get();
      for (const auto& body : step.bodies)
        if (const PreparedOp* found = body->prepared(of, node)) return found;
    }
    return nullptr;
  }

  struct Machine {
    Workers& workers;
    TensorPool& pool;
    const GeneralObserver* observer;
    size_t text_bytes_max;
  };

  // The texts of a run's values, by slot.
  class Texts {
   public:
    Texts(size_t slots, size_t most) : slots_(slots), most_(most) {}
    void drop(size_t slot) {
      if (!of_.empty()) sum_ -= std::exchange(of_[slot], 0);
    }
    Result<> keep(size_t slot, const AnyValue& value) {
      const size_t bytes = most_ > 0 ? text_bytes(value) : 0;
      if (bytes == 0) return {};
      of_.resize(slots_);
      of_[slot] = bytes, sum_ += bytes;
      if (sum_ <= most_) return {};
      return error(Code::kOutOfMemory, fmt::format("{} of texts are beyond the limit of {}, with {} of others",
                                                   size_text(bytes), size_text(most_), size_text(sum_ - bytes)));
    }

   private:
    size_t slots_, most_, sum_ = 0;
    std::vector<size_t> of_;  // empty: no value has texts
  };

  Result<std::vector<AnyValue>> run(std::vector<AnyValue> given, const Machine& machine,
                                    std::span<const OutputMemory> memories) const {
    if (given.size() != inputs.size())
      return error(Code::kInvalid, fmt::format("{} inputs for a graph of {}", given.size(), inputs.size()));
    std::vector<AnyValue> values(slot_count);
    const auto slot = [&](ValueId id) { return static_cast<size_t>(slots[static_cast<size_t>(id)]); };
    const auto slot_of = [&](ValueId id) -> AnyValue& { return values[slot(id)]; };
    for (size_t i = 0; i < given.size(); ++i) slot_of(inputs[i]) = std::move(given[i]);
    const auto value_of = [&](ValueId id) -> const AnyValue* {
      const Value& value = graph->value(id);
      return value.kind == ValueKind::kConstant ? value.constant.get() : &slot_of(id);
    };
    std::vector<const AnyValue*> in;
    std::vector<AnyValue> out;
    std::vector<OutputMemory> wanted;
    Texts texts(slot_count, machine.text_bytes_max);
    for (const Step& step : steps) {
      const Node& node = graph->node(step.node);
      in.clear();
      for (const ValueId id : node.in) in.push_back(id == kNoValue ? nullptr : value_of(id));
      out.assign(node.out.size(), {});
      const auto run_body = [&](std::string_view attribute,
                                std::vector<AnyValue> body_inputs) -> Result<std::vector<AnyValue>> {
        for (size_t i = 0; i < node.bodies.size(); ++i) {
          if (node.bodies[i].attribute != attribute) continue;
          for (const ValueId id : node.bodies[i].captures) body_inputs.push_back(*value_of(id));
          return step.bodies[i]->run(std::move(body_inputs), machine, {});
        }
        return error(Code::kNotFound, fmt::format("has no graph {}", attribute));
      };
      wanted.clear();
      if (!memories.empty())
        for (const size_t result : step.results)
          wanted.push_back(result == SIZE_MAX ? OutputMemory{} : memories[result]);
      RunContext context(*step.op->attributes, step.op->version, in, out, machine.workers, machine.pool, run_body,
                         step.op->def->state, wanted);
      const auto start = std::chrono::steady_clock::now();
      if (auto done = run_step(step, context); !done) return std::move(done).error().context(named(node, *step.op));
      if (machine.observer != nullptr)
        (*machine.observer)(*graph, step.node, in, out,
                            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      for (size_t i = 0; i < out.size(); ++i) {
        if (auto kept = texts.keep(slot(node.out[i]), out[i]); !kept)
          return std::move(kept).error().context(named(node, *step.op));
        slot_of(node.out[i]) = std::move(out[i]);
      }
      for (const ValueId id : step.last) {
        slot_of(id) = {};
        texts.drop(slot(id));
      }
    }
    std::vector<AnyValue> results;
    for (const Output& output : graph->outputs()) results.push_back(*value_of(output.value));
    return results;
  }
};

Interpreter::Interpreter(std::unique_ptr<Program> program) : program_(std::move(program)) {}
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&&) noexcept = default;
Interpreter::~Interpreter() = default;

Result<Interpreter> Interpreter::make(const Graph& graph, const PrepareSettings* settings) {
  BOLIDE_TRY(auto program, Program::make(graph, settings));
  return Interpreter(std::move(program));
}

Result<Interpreter> Interpreter::make_and_drop(Graph& graph, const PrepareSettings& settings) {
  BOLIDE_TRY(auto program, Program::make(graph, &settings, &graph));
  return Interpreter(std::move(program));
}

Result<std::vector<AnyValue>> Interpreter::run(std::vector<AnyValue> inputs, Workers& workers, TensorPool& pool,
                                               const GeneralObserver* observer, std::span<const OutputMemory> memories,
                                               size_t text_bytes_max) const {
  BOLIDE_CHECK(memories.empty() || memories.size() == program_->graph->outputs().size(), "{} memories",
               memories.size());
  return program_->run(std::move(inputs), {workers, pool, observer, text_bytes_max}, memories);
}

const PreparedOp* Interpreter::prepared(const Graph& graph, NodeId node) const {
  return program_->prepared(graph, node);
}

}  // namespace bolide
