// What the passes on general graphs left as it was although it looks like what they rewrite, and why. For people:
// `bolide inspect MODEL.onnx --plan`.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/general/facts.h"

namespace bolide {

struct LeftOver {
  std::string node, op;
  std::string why;  // "Conv's result has 2 readers"
};

// Of the graph, without the bodies of its nodes; in running order. `inputs` as run_general_passes takes them.
std::vector<LeftOver> left_over(const Graph& graph, const std::vector<Facts>& inputs);

}  // namespace bolide
