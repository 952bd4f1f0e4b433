// Passes on graphs of general ops (ONNX). A rewrite fires only where it keeps the meaning for all readers of a value;
// what is not known of a type or a dim is no reason to guess.
#pragma once

#include <vector>

#include "passes/general/facts.h"
#include "passes/pass.h"

namespace bolide {

// All of them in the order in which they run.
std::span<const Pass> general_passes();

// Runs general_passes() on the graph and the bodies of its nodes. `inputs`: what is declared of the graph's inputs, in
// order; unknown dims are Facts::kUnknown. Errors as in run_passes.
Result<std::vector<PassRecord>> run_general_passes(
    Graph& graph, const std::vector<Facts>& inputs, Workers& workers, const std::set<std::string>& skip = {},
    const FunctionRef<void(const PassRecord&, const Graph&)>* after = nullptr);

// The passes; each file's head comment says what it rewrites.
Result<int> gather_first(Graph&, const PassContext&);
Result<int> fold_constants(Graph&, const PassContext&);
Result<int> remove_identities(Graph&, const PassContext&);
Result<int> merge_common(Graph&, const PassContext&);
Result<int> remove_dead_general(Graph&, const PassContext&);
Result<int> fold_affine(Graph&, const PassContext&);
Result<int> find_activations(Graph&, const PassContext&);
Result<int> find_layer_norms(Graph&, const PassContext&);
Result<int> move_transposes(Graph&, const PassContext&);
Result<int> find_attention(Graph&, const PassContext&);
Result<int> merge_attention_inputs(Graph&, const PassContext&);
Result<int> fuse_dense(Graph&, const PassContext&);
Result<int> fuse_gemm(Graph&, const PassContext&);
Result<int> fuse_bias_gelu(Graph&, const PassContext&);
Result<int> fuse_skip_layer_norm(Graph&, const PassContext&);
Result<int> fuse_conv(Graph&, const PassContext&);
Result<int> fuse_quantised(Graph&, const PassContext&);
Result<int> fuse_dynamic(Graph&, const PassContext&);
Result<int> remove_requantised(Graph&, const PassContext&);
Result<int> channels_last(Graph&, const PassContext&);
Result<int> join_parts(Graph&, const PassContext&);

}  // namespace bolide
