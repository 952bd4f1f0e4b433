#include "passes/general/general.h"

#include <array>

namespace bolide {
namespace {

constexpr std::array kPasses = {
    Pass{"remove_dead", remove_dead_general},
    Pass{"gather_first", gather_first},
    Pass{"fold_constants", fold_constants},
    Pass{"remove_identities", remove_identities},
    Pass{"merge_common", merge_common},
    Pass{"fuse_quantised", fuse_quantised},
    Pass{"fuse_dynamic", fuse_dynamic},
    Pass{"fold_affine", fold_affine},
    Pass{"move_transposes", move_transposes},
    Pass{"find_activations", find_activations},
    Pass{"find_layer_norms", find_layer_norms},
    Pass{"find_attention", find_attention},
    Pass{"merge_attention_inputs", merge_attention_inputs},
    Pass{"fuse_bias_gelu", fuse_bias_gelu},
    Pass{"fuse_skip_layer_norm", fuse_skip_layer_norm},
    Pass{"fuse_gemm", fuse_gemm},
    Pass{"fuse_dense", fuse_dense},
    Pass{"fuse_conv", fuse_conv},
    Pass{"remove_requantised", remove_requantised},
    Pass{"channels_last", channels_last},
    Pass{"move_transposes_after", move_transposes},
    Pass{"fold_constants_after", fold_constants},
    Pass{"merge_common_after", merge_common},
    Pass{"join_parts", join_parts},
    Pass{"remove_dead_after", remove_dead_general},
};

}  // namespace

std::span<const Pass> general_passes() { return kPasses; }

Result<std::vector<PassRecord>> run_general_passes(Graph& graph, const std::vector<Facts>& inputs, Workers& workers,
                                                   const std::set<std::string>& skip,
                                                   const FunctionRef<void(const PassRecord&, const Graph&)>* after) {
  PassContext context;
  context.workers = &workers;
  context.inputs = &inputs;
  return run_passes(graph, general_passes(), context, skip, after);
}

}  // namespace bolide
