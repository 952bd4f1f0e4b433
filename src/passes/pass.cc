#include "passes/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace bolide {
namespace {

constexpr std::array kPasses = {
    Pass{"remove_dead", remove_dead},
    Pass{"merge_linears", merge_linears},
    Pass{"simplify_slices", simplify_slices},
    Pass{"fuse_gated_act", fuse_gated_act},
    Pass{"fuse_rope_kv_write", fuse_rope_kv_write},
    Pass{"fuse_gated_linear", fuse_gated_linear},
    Pass{"fuse_qkv_rope", fuse_qkv_rope},
    Pass{"fuse_norm_linear", fuse_norm_linear},
    Pass{"fuse_add_norm", fuse_add_norm},
    Pass{"fuse_linear_add", fuse_linear_add},
    Pass{"remove_dead_after", remove_dead},
};

}  // namespace

std::span<const Pass> default_passes() { return kPasses; }

Result<std::vector<PassRecord>> run_passes(Graph& graph, std::span<const Pass> passes, const PassContext& context,
                                           const std::set<std::string>& skip,
                                           const FunctionRef<void(const PassRecord&, const Graph&)>* after) {
  for (const std::string& name : skip) {
    const bool known = std::any_of(passes.begin(), passes.end(), [&](const Pass& pass) { return pass.name == name; });
    if (known) continue;
    std::string names;
    for (const Pass& pass : passes) names += fmt::format("{}{}", names.empty() ? "" : ", ", pass.name);
    return error(Code::kInvalid, fmt::format("'{}' is not a pass; there are {}", name, names));
  }
  std::vector<PassRecord> records;
  for (const Pass& pass : passes) {
    PassRecord record{pass.name, 0, 0, skip.contains(std::string(pass.name))};
    if (!record.skipped) {
      const auto start = std::chrono::steady_clock::now();
      auto rewrites = pass.run(graph, context).context(pass.name);
      BOLIDE_TRY(record.rewrites, std::move(rewrites));
      record.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      if (record.rewrites > 0) BOLIDE_TRY(graph.verify().context(pass.name));
    }
    if (after != nullptr) (*after)(record, graph);
    records.push_back(record);
  }
  return records;
}

bool is_output(const Graph& graph, ValueId value) {
  const auto outputs = graph.outputs();
  return std::any_of(outputs.begin(), outputs.end(), [&](const Output& output) { return output.value == value; });
}

bool kernel_exists(const PassContext& context, const Graph& graph, const Op& op, std::span<const ValueType> in) {
  const auto out = infer_types(op, in, graph.activations());
  if (!out) return false;
  constexpr int64_t kFew = 1, kMany = 4096;
  for (const int64_t size : {kFew, kMany}) {
    SymbolValues sizes;
    sizes.value.fill(size);
    if (context.kernels->candidates({&op, in, *out, sizes, context.device}).empty()) return false;
  }
  return true;
}

}  // namespace bolide
