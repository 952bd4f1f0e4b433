#include "ir/graph.h"

#include <gtest/gtest.h>

namespace bolide {
namespace {

// ids -> embed -> norm -> linear -> rope, with a symbolic T.
Graph small_graph() {
  Graph g;
  const ValueId ids = g.add_input("ids", i32({Symbol::kTokens}));
  const ValueId positions = g.add_input("positions", i32({Symbol::kTokens}));
  const ValueId table = g.add_weight({{"embed", 0, 10}}, f32({10, 8}));
  const ValueId weight = g.add_weight({{"q", 0, 8}, {"k", 2, 8}}, {DType::kBF16, nullptr, {16, 8}});
  const ValueId gain = g.add_weight({{"norm", 0, 8}}, f32({8}));
  auto last = [&](Result<NodeId> id) { return g.node(id.value()).out[0]; };
  const ValueId x = last(g.add(Embed{}, std::vector{ids, table}, "embed"));
  const ValueId y = last(g.add(RmsNorm{1e-6f}, std::vector{x, gain}, "norm"));
  const ValueId z = last(g.add(Linear{Compute::kBF16}, std::vector{y, weight}, "qk"));
  Rope rope{8, {}};
  rope.rope.rotary_dim = 4;
  rope.rope.inv_freq = {1.f, 0.1f};
  const ValueId r = last(g.add(rope, std::vector{z, positions}, "rope"));
  g.add_output("out", r);
  return g;
}

TEST(Graph, VerifiesAndInfersSymbolicTypes) {
  const Graph g = small_graph();
  ASSERT_TRUE(g.verify().has_value()) << g.verify().error().text;
  EXPECT_EQ(to_string(g.type(g.output("out"))), "f32[T,16]");
}

TEST(Graph, TextRoundTrips) {
  const Graph g = small_graph();
  const std::string text = g.to_text();
  auto again = Graph::from_text(text);
  ASSERT_TRUE(again.has_value()) << again.error().text << "\n" << text;
  // Ids are renumbered by the parse; a second trip is the fixed point.
  const std::string once = again->to_text();
  auto twice = Graph::from_text(once);
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(twice->to_text(), once);
  EXPECT_NE(once.find("q[0:8] + k[2:10]"), std::string::npos);
  EXPECT_EQ(std::get<Rope>(again->node(again->order()[3]).op), std::get<Rope>(g.node(g.order()[3]).op));
}

TEST(Graph, RefusesMisfits) {
  Graph g;
  const ValueId x = g.add_input("x", f32({Symbol::kTokens, 8}));
  const ValueId w = g.add_weight({{"w", 0, 4}}, f32({4, 9}));
  const auto bad = g.add(Linear{}, std::vector{x, w}, "proj");
  ASSERT_FALSE(bad.has_value());
  EXPECT_NE(bad.error().text.find("proj (Linear)"), std::string::npos) << bad.error().text;
}

TEST(Graph, ParserRefusesBrokenText) {
  const char* broken[] = {
      "%0 = input x : f32[T,8]\n%1 = Activate(%7) {act=silu} : f32[T,8]  # a\n",   // undefined
      "%0 = input x : f32[T,8]\n%1 = Activate(%0) {act=swish} : f32[T,8]  # a\n",  // enum
      "%0 = input x : f32[T,8]\n%1 = Activate(%0) {} : f32[T,8]  # a\n",           // missing attribute
      "%0 = input x : f32[Q]\n",
      "%0 = weight f32[2,2] w[1:0]\n",
      "nonsense\n",
  };
  for (const char* text : broken) EXPECT_FALSE(Graph::from_text(text).has_value()) << text;
}

TEST(Graph, RemoveAndReplaceUses) {
  Graph g = small_graph();
  const NodeId norm = g.order()[1];
  const ValueId x = g.node(norm).in[0];
  g.replace_uses(g.node(norm).out[0], x);
  g.remove(norm);
  EXPECT_TRUE(g.verify().has_value());
  EXPECT_EQ(g.order().size(), 3u);
}

}  // namespace
}  // namespace bolide
