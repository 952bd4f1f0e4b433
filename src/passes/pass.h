// Passes: Graph > Graph, one file each, named, timed, verified after each, and each can be left out by name.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "ir/graph.h"
#include "kernels/registry.h"

namespace bolide {

class Workers;
struct Facts;
struct PassContext {
  const KernelRegistry* kernels = nullptr;
  const DeviceInfo* device = nullptr;
  // Of general graphs alone (general/general.h): what folds constants, and what is declared of the graph's inputs.
  Workers* workers = nullptr;
  const std::vector<Facts>* inputs = nullptr;
};

struct Pass {
  std::string_view name;
  Result<int> (*run)(Graph&, const PassContext&);  // number of rewrites
};

struct PassRecord {
  std::string_view name;
  int rewrites = 0;
  double ms = 0;
  bool skipped = false;
};

// All passes in the order in which they run.
std::span<const Pass> default_passes();

// Runs `passes`, verifying the graph after each that changed it. `after` (may be null) sees the graph after each pass.
// An unknown name in `skip` is an error that lists the known ones.
Result<std::vector<PassRecord>> run_passes(Graph& graph, std::span<const Pass> passes, const PassContext& context,
                                           const std::set<std::string>& skip,
                                           const FunctionRef<void(const PassRecord&, const Graph&)>* after = nullptr);

// True if `value` is one of the graph's outputs: it has a reader that users() does not list.
bool is_output(const Graph& graph, ValueId value);

// True if kernels of this device compute the op in this graph on inputs of these types, for few tokens and for many: a
// fusion fires only then.
bool kernel_exists(const PassContext& context, const Graph& graph, const Op& op, std::span<const ValueType> in);

// The passes; each file's head comment says what it rewrites.
Result<int> merge_linears(Graph&, const PassContext&);
Result<int> fuse_gated_act(Graph&, const PassContext&);
Result<int> fuse_rope_kv_write(Graph&, const PassContext&);
Result<int> fuse_add_norm(Graph&, const PassContext&);
Result<int> fuse_linear_add(Graph&, const PassContext&);
Result<int> fuse_norm_linear(Graph&, const PassContext&);
Result<int> fuse_gated_linear(Graph&, const PassContext&);
Result<int> fuse_qkv_rope(Graph&, const PassContext&);
Result<int> simplify_slices(Graph&, const PassContext&);
Result<int> remove_dead(Graph&, const PassContext&);

}  // namespace bolide
