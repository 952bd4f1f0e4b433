// Interpreter: runs a graph of general ops node by node. Shapes are known when an op runs, so there is nothing to plan
// for a new one; values are freed behind their last use.
//
// Thread rules: immutable once made; runs on several threads at once each need their own Workers and pool.
#pragma once

#include <memory>
#include <vector>

#include "ir/graph.h"
#include "ir/op_def.h"
#include "ops/prepared_op.h"

namespace bolide {

// Sees each node that has run: its graph, inputs, outputs and seconds. Bodies' nodes come before the node they are in.
using GeneralObserver = FunctionRef<void(const Graph&, NodeId, std::span<const AnyValue* const> in,
                                         std::span<const AnyValue> out, double seconds)>;

// What ops are made ready for.
struct PrepareSettings {
  const DeviceInfo& device;
  Workers& workers;
  DType compute = DType::kF32;  // PrepareContext::compute
};

class Interpreter {
 public:
  // The graph has general ops alone and must outlive the interpreter. Without settings every node runs its reference
  // kernel.
  static Result<Interpreter> make(const Graph& graph, const PrepareSettings* settings = nullptr);
  // The same, and what of the graph's constants no node reads any more, since each has packed it or nobody did, is
  // dropped as soon as that is so.
  static Result<Interpreter> make_and_drop(Graph& graph, const PrepareSettings& settings);
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;
  ~Interpreter();

  // Inputs in the graph's order, outputs as well. Errors name the node. `memories`: none, or one for each output, which
  // the op that makes it writes to if it fits; what else comes out (a view of an input, a constant) lies elsewhere.
  // `text_bytes_max`: of the texts of all values of a graph at a time, which lie in no pool; 0: what the system has.
  Result<std::vector<AnyValue>> run(std::vector<AnyValue> inputs, Workers& workers, TensorPool& pool = heap_pool(),
                                    const GeneralObserver* observer = nullptr,
                                    std::span<const OutputMemory> memories = {}, size_t text_bytes_max = 0) const;

  // What a node of the graph or of a body was made into; null: nothing.
  const PreparedOp* prepared(const Graph& graph, NodeId node) const;

 private:
  struct Program;
  explicit Interpreter(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace bolide
