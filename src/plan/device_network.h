// DeviceNetwork: runs a graph of general ops on a GPU. For each set of input shapes the graph is made anew with the
// dims as numbers, so that what only computes shapes is gone; nodes that a GPU has kernels for run there, others on the
// CPU, with copies between. A graph without such copies in its middle is captured the second time it runs and launched
// as a whole from then on.
//
// Thread rules: one thread at a time. Constants may be shared by networks that run on one thread at a time.
#pragma once

#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ops/device/device_op.h"
#include "plan/device_shared.h"
#include "plan/interpreter.h"

namespace bolide {

struct DeviceNetworkSettings {
  DType compute = DType::kF32;  // what floats of f32 are kept as on the device: f32, f16, bf16
  bool tf32 = false;            // with f32: products may round what they multiply to tf32
  std::set<std::string> skip_passes;
  bool capture = true;
  size_t shapes_max = 8;  // sets of shapes whose programs are kept
};

// Inputs and outputs that are on the device before and after a run. They are of types as the model declares them, and
// row-major. Any thread may keep and drop them; the device and DeviceShared must outlive them.
struct DeviceArrays {
  std::vector<DeviceTensor> inputs;   // by input; none: from the host. What `inputs` of run has there needs no contents
  std::vector<bool> stays;            // by output: it is not copied to the host
  std::vector<DeviceTensor> outputs;  // by output: those that stay; others, and those that the CPU made, are none
};

// The names to skip, and those of passes that make ops which only the CPU has.
std::set<std::string> without_cpu_passes(std::set<std::string> skip);

// Where a node ran, and the copies between host and device that it made necessary.
struct Placement {
  std::string node, op;
  enum class Where : uint8_t { kDevice, kHost, kWithin } where = Where::kHost;
  std::string within;  // kWithin: the node whose kernel does its work too
  int64_t bytes_to_host = 0, bytes_to_device = 0;
  double copy_seconds = 0;
};

class DeviceNetwork {
 public:
  // The graph, as passes for no particular shapes left it, must outlive the network; so must device.
  // `shared`: of this device; null: one for this network alone.
  static Result<std::unique_ptr<DeviceNetwork>> make(const Graph& graph, Device& device, DeviceNetworkSettings settings,
                                                     std::shared_ptr<DeviceShared> shared = nullptr);
  ~DeviceNetwork();

  // All of them are tensors that a GPU may have.
  static bool can_run(const std::vector<AnyValue>& inputs);

  // As Interpreter::run. With an observer nodes run one by one, and its values are those of the device, copied back.
  // Outputs that stay have no contents on the host: only their types and shapes are there.
  Result<std::vector<AnyValue>> run(const std::vector<AnyValue>& inputs, TensorPool& pool,
                                    const GeneralObserver* observer, std::span<const OutputMemory> memories,
                                    DeviceArrays* arrays = nullptr);

  // Copies, which wait until they are done.
  Result<DeviceTensor> to_device(const Tensor& tensor);
  Result<Tensor> to_host(const DeviceTensor& tensor, TensorPool& pool);

  // "gpu", "gpu with NODE" or "cpu": where a node of the graph that an observer sees has run.
  std::string where(NodeId node) const;
  // Of the last run.
  const std::vector<Placement>& placements() const;
  bool was_captured() const;
  double device_seconds() const;  // between the copies in and the copies out
  size_t constant_bytes() const;
  size_t activation_bytes() const;  // memory of the device that values of all shapes take in turn

 private:
  struct State;
  struct Program;
  explicit DeviceNetwork(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace bolide
