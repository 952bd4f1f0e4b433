// Plan: one bucket's steps, in order, with every operand's place in the arena. PlanSet: a graph, its packed weights and
// the plans of its buckets. Executor: runs a plan; a loop over steps.
//
// Thread rules: a PlanSet is changed only by `select` (it plans a bucket on first use), so one thread at a time; an
// Executor belongs to one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "kernels/registry.h"
#include "plan/weights.h"
#include "tune/timing_cache.h"

namespace bolide {

struct Operand {
  enum class Kind : uint8_t { kNone, kArena, kWeight, kInput };
  Kind kind = Kind::kNone;
  ValueType type;
  size_t offset = 0;                 // kArena: bytes from the arena's start
  int64_t column = 0;                // kArena: first column, for slices
  int64_t row_stride = 0;            // kArena: elements between rows
  TensorView weight;                 // kWeight
  const Packing* packing = nullptr;  // kWeight: its layout; null: the checkpoint's
  ValueId value = kNoValue;
};

struct Step {
  const Kernel* kernel = nullptr;
  Tactic tactic;
  NodeId node = -1;
  std::vector<Operand> in, out;
};

// Steps [first, first + count) that run in one launch.
struct StepGroup {
  size_t first = 0, count = 1;
  const ChainKernel* chain = nullptr;  // null: one step, its kernel's launch
};

struct Plan {
  SymbolValues bucket;  // valid for every size up to these
  std::vector<Step> steps;
  std::vector<StepGroup> groups;  // of all steps, in order
  std::map<std::string, Operand, std::less<>> outputs;
  size_t values_bytes = 0;     // of the arena; the workspace follows
  size_t workspace_bytes = 0;  // the largest of any step
  size_t arena_bytes() const { return values_bytes + workspace_bytes; }
};

class PlanSet {
 public:
  struct Limits {
    SymbolValues sizes;  // the largest T, S and R that will be asked for
  };

  // `weights` are packed as choose_packings says for these limits. The graph has been through the passes.
  // `timings`: choices that were measured; null: none.
  static Result<PlanSet> make(Graph graph, WeightStore weights, const KernelRegistry& kernels, const DeviceInfo& device,
                              Limits limits, std::shared_ptr<const TimingCache> timings = nullptr);

  // The plan whose bucket holds these sizes; planned on first use. Errors: sizes beyond the limits.
  Result<const Plan*> select(const SymbolValues& sizes);

  const Graph& graph() const { return *graph_; }
  const WeightStore& weights() const { return weights_; }
  const Limits& limits() const { return limits_; }
  const DeviceInfo& device() const { return *device_; }

 private:
  PlanSet() = default;

  std::unique_ptr<Graph> graph_;  // problems point into it
  std::unique_ptr<DeviceInfo> device_;
  const KernelRegistry* kernels_ = nullptr;
  Limits limits_;
  WeightStore weights_;
  std::shared_ptr<const TimingCache> timings_;
  std::map<std::array<int64_t, kSymbols>, std::unique_ptr<Plan>> plans_;
};

// The operand's tensor at these sizes in an arena that begins at `arena`. Without data: inputs, and values of the arena
// if that is null.
TensorView view_of(const Operand& operand, const SymbolValues& sizes, std::byte* arena, DeviceId device);

// The bucket of a size: the next power of two, at most `limit`.
int64_t bucket_of(int64_t size, int64_t limit);

// Every (weight, packing) that the graph's kernels want: the packing of the fastest kernel that serves both the
// smallest and the largest bucket with it.
Result<std::vector<WeightStore::Use>> choose_packings(const Graph& graph, const KernelRegistry& kernels,
                                                      const DeviceInfo& device, const SymbolValues& largest);

// Plans one bucket: kernels, their tactics, arena offsets from lifetimes, workspace.
Result<Plan> make_plan(const Graph& graph, const WeightStore& weights, const KernelRegistry& kernels,
                       const DeviceInfo& device, const SymbolValues& bucket, const TimingCache* timings = nullptr);

}  // namespace bolide
