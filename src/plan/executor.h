// Executor: runs plans over one arena. Outside kernels a step costs a pointer read and a call.
#pragma once

#include "base/function_ref.h"
#include "plan/plan.h"

namespace bolide {

// Sees each step after it ran: profile, dumps, calibration. Null in production.
using StepObserver = FunctionRef<void(const Plan&, size_t step, const Launch&, double seconds)>;

class Executor {
 public:
  // One execution of the plan for this batch. Grows the arena if the plan needs more than any before; binds operands
  // again only when plan or sizes changed. `batch` must stay valid during the call.
  Result<> run(const Plan& plan, const Graph& graph, const BatchInputs& batch, Stream& stream,
               const StepObserver* observer = nullptr);

  // An output of the last run, valid until the next. The name must be one of the graph's outputs.
  TensorView output(std::string_view name) const;
  size_t arena_bytes() const { return arena_.size(); }

 private:
  Result<> bind(const Plan& plan, const Graph& graph, const SymbolValues& sizes);
  TensorView view(const Operand& operand, const SymbolValues& sizes) const;

  struct InputView {
    size_t index;  // into views_
    const int32_t* BatchInputs::* field;
  };

  Buffer arena_;
  const Plan* bound_ = nullptr;
  SymbolValues sizes_;
  BatchInputs batch_;
  std::vector<TensorView> views_;
  std::vector<InputView> inputs_;
  std::vector<Launch> launches_;
};

}  // namespace bolide
