// Any text: an error, or a graph whose text reads back as itself and whose sizes and costs are numbers.
#include <cmath>

#include "ir/graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  const auto graph = Graph::from_text(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!graph) return 0;
  const std::string once = graph->to_text();
  const auto again = Graph::from_text(once);
  BOLIDE_CHECK(again.has_value(), "its own text is refused: {}\n{}", again.error().text, once);
  const std::string twice = again->to_text();
  const auto third = Graph::from_text(twice);
  BOLIDE_CHECK(third.has_value() && third->to_text() == twice, "another text the second time:\n{}\n{}", once, twice);
  for (const SymbolValues& sizes : {SymbolValues{{1, 1, 1}}, SymbolValues{{1 << 20, 1 << 16, 1 << 20}}})
    for (const NodeId id : graph->order()) {
      const Node& node = graph->node(id);
      std::vector<ValueType> in, out;
      for (const ValueId value : node.in) in.push_back(graph->type(value));
      for (const ValueId value : node.out) out.push_back(graph->type(value));
      const Cost cost = cost_of(node.op, in, out, sizes, 1e6);
      BOLIDE_CHECK(cost.bytes >= 0 && cost.flops >= 0 && std::isfinite(cost.bytes) && std::isfinite(cost.flops),
                   "{} costs {} bytes, {} FLOPs", node.name, cost.bytes, cost.flops);
    }
  return 0;
}
