// One graph with known input shapes, ready for a GPU: for device_network.cc.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/device/device_op.h"
#include "plan/device_network.h"

namespace bolide {

struct DeviceProgram {
  // Nodes behind a product that its kernel does too.
  struct Behind {
    ValueId bias = kNoValue, residual = kNoValue;
    Element then;
    ValueId last = kNoValue;  // what the last of them makes
    std::vector<NodeId> nodes;
  };
  struct Step {
    NodeId node = -1;
    const Generic* op = nullptr;
    const DeviceOp* row = nullptr;
    Behind behind;              // nodes empty: nothing
    int within = -1;            // the step whose kernel may do this one
    std::vector<ValueId> last;  // of values that nothing reads afterwards
    std::vector<bool> used;     // outputs that something reads
    double seconds = 0;         // that an observer is told with the last node behind
    bool on_host = false;       // its row has refused
    bool behind_refused = false;
    bool is_prepared = false;
    std::unique_ptr<PreparedOp> prepared;  // for the CPU
    std::vector<std::unique_ptr<Interpreter>> bodies;
  };

  // The graph anew for inputs of these types and shapes.
  static Result<std::unique_ptr<DeviceProgram>> make(const Graph& general, const std::vector<AnyValue>& inputs,
                                                     const std::set<std::string>& skip_passes, Workers& workers);

  // Makes a step ready for the CPU, once: its kernel and what runs its bodies.
  Result<> prepare_for_cpu(Step& step, const DeviceInfo& device, Workers& workers) const;

  Graph graph;
  std::string key;
  std::vector<ValueId> inputs;
  std::vector<Step> steps;
  std::vector<DeviceSlot> slots;  // by value; those of constants stay
  std::vector<DeviceTensor> input_memory, output_memory, captured_outputs;
  Buffer pinned_in, pinned_out;
  std::vector<size_t> in_at, out_at;  // offsets
  std::unique_ptr<Captured> captured;
  std::vector<Placement> placements;
  bool can_capture = true;  // of the last run
  int runs = 0;
  size_t pool_bytes = 0;  // when the last run began and ended alike; else 0
};

// The types and shapes of inputs as text; empty: not all of them are tensors.
std::string key_of(const std::vector<AnyValue>& inputs);

}  // namespace bolide
