// Which values are bf16 in a graph of bf16 activations.
#include <gtest/gtest.h>

#include <map>

#include "ir/graph.h"

namespace bolide {
namespace {

// One layer of a decoder with every op that a decoder's layers have.
Graph decoder() {
  Graph g;
  const ValueId ids = g.add_input("ids", i32({Symbol::kTokens}));
  const ValueId positions = g.add_input("positions", i32({Symbol::kTokens}));
  const ValueId rows = g.add_input("rows", i32({Symbol::kRows}));
  const auto weight = [&](const char* name, std::vector<int64_t> dims) {
    ValueType type{dims.size() == 1 ? DType::kF32 : DType::kBF16, nullptr, {}};
    int64_t count = dims[0];
    for (const int64_t dim : dims) type.dims.emplace_back(dim);
    for (size_t i = 1; i + 1 < dims.size(); ++i) count *= dims[i];
    return g.add_weight({{name, 0, count}}, type);
  };
  const auto add = [&](Op op, std::vector<ValueId> in, const char* name) {
    const auto id = g.add(std::move(op), in, name);
    EXPECT_TRUE(id.has_value()) << id.error().text;
    return g.node(*id).out;
  };
  RopeSpec rope;
  rope.rotary_dim = 4;
  rope.inv_freq = {1.f, 0.1f};
  const ValueId gain = weight("gain", {8}), square = weight("square", {8, 8}), wide = weight("wide", {16, 8});
  const ValueId x = add(Embed{}, {ids, weight("table", {10, 8})}, "embed")[0];
  const ValueId n = add(RmsNorm{}, {x, gain}, "norm")[0];
  const ValueId q = add(Linear{Compute::kBF16}, {n, square}, "q")[0];
  const ValueId q_norm = add(RmsNorm{1e-5f, 4}, {q, weight("head_gain", {4})}, "q_norm")[0];
  const ValueId k = add(Linear{Compute::kBF16}, {n, square}, "k")[0];
  const ValueId v = add(Slice{0, 8}, {add(Linear{Compute::kBF16}, {n, wide}, "v")[0]}, "v.slice")[0];
  const auto written = add(RopeKvWrite{0, 2, 2, 4, rope}, {q_norm, k, v, positions}, "rope");
  const ValueId o = add(PagedAttention{0, 2, 2, 4}, {written[0], written[1]}, "attention")[0];
  const ValueId sum = add(Linear{.compute = Compute::kBF16, .has_residual = true}, {o, square, x}, "o.add")[0];
  const auto both = add(AddRmsNorm{}, {sum, o, gain}, "mlp.norm.add");
  const ValueId act = add(GatedAct{}, {add(Linear{Compute::kBF16}, {both[1], wide}, "gate_up")[0]}, "act")[0];
  const ValueId act2 = add(Activate{}, {act}, "act2")[0];
  const ValueId down = add(Linear{Compute::kBF16}, {act2, square}, "down")[0];
  const ValueId next = add(Add{}, {both[0], down}, "add")[0];
  const ValueId moe = add(MoeFfn{2, 1},
                          {add(LayerNorm{}, {next, gain, gain}, "layer_norm")[0], weight("router", {2, 8}),
                           weight("experts_in", {2, 16, 8}), weight("experts_out", {2, 8, 8})},
                          "moe")[0];
  const ValueId last = add(RmsNorm{}, {add(GatherRows{}, {moe, rows}, "rows")[0], gain}, "final_norm")[0];
  const auto drawn = add(Sample{}, {add(Linear{Compute::kBF16}, {last, weight("head", {10, 8})}, "head")[0]}, "sample");
  g.add_output("next", drawn[0]);
  return g;
}

std::map<std::string, std::vector<DType>> types(const Graph& g) {
  std::map<std::string, std::vector<DType>> types;
  for (const NodeId id : g.order())
    for (const ValueId value : g.node(id).out) types[g.node(id).name].push_back(g.type(value).dtype);
  return types;
}

TEST(Activations, InputsOfProductsAreBf16AndSumsAreNot) {
  Graph g = decoder();
  for (const auto& [name, dtypes] : types(g))
    for (const DType dtype : dtypes) EXPECT_NE(dtype, DType::kBF16) << name;
  ASSERT_TRUE(g.set_activations(DType::kBF16).has_value());
  ASSERT_TRUE(g.verify().has_value()) << g.verify().error().text;
  constexpr DType kWide = DType::kF32, kNarrow = DType::kBF16;
  const std::map<std::string, std::vector<DType>> want = {{"embed", {kWide}},
                                                          {"norm", {kNarrow}},
                                                          {"q", {kNarrow}},
                                                          {"q_norm", {kNarrow}},
                                                          {"k", {kNarrow}},
                                                          {"v", {kNarrow}},
                                                          {"v.slice", {kNarrow}},
                                                          {"rope", {kNarrow, DType::kNone}},
                                                          {"attention", {kNarrow}},
                                                          {"o.add", {kWide}},
                                                          {"mlp.norm.add", {kWide, kNarrow}},
                                                          {"gate_up", {kNarrow}},
                                                          {"act", {kNarrow}},
                                                          {"act2", {kNarrow}},
                                                          {"down", {kNarrow}},
                                                          {"add", {kWide}},
                                                          {"layer_norm", {kNarrow}},
                                                          {"moe", {kWide}},
                                                          {"rows", {kWide}},
                                                          {"final_norm", {kNarrow}},
                                                          {"head", {kWide}},
                                                          {"sample", {DType::kI32, kWide}}};
  EXPECT_EQ(types(g), want);
}

TEST(Activations, TravelInTheText) {
  const std::string plain = decoder().to_text();
  EXPECT_EQ(plain.find("activations"), std::string::npos);
  Graph g = decoder();
  ASSERT_TRUE(g.set_activations(DType::kBF16).has_value());
  const std::string text = g.to_text();
  EXPECT_TRUE(text.starts_with("activations bf16\n"));
  auto again = Graph::from_text(text);
  ASSERT_TRUE(again.has_value()) << again.error().text;
  EXPECT_EQ(again->activations(), DType::kBF16);
  EXPECT_EQ(types(*again), types(g));
  // There and back again.
  ASSERT_TRUE(again->set_activations(DType::kF32).has_value());
  EXPECT_EQ(types(*again), types(decoder()));
  EXPECT_TRUE(again->verify().has_value());
}

TEST(Activations, OthersAreRefused) {
  Graph g = decoder();
  EXPECT_FALSE(g.set_activations(DType::kF16).has_value());
  const std::string text = g.to_text();
  for (const std::string& broken :
       {"activations f16\n" + text, "activations q4\n" + text, "activations \n" + text, text + "activations bf16\n",
        // bf16 among f32
        std::string("%0 = input x : bf16[T,8]\n%1 = Activate(%0) {act=silu} : f32[T,8]  # a\n")})
    EXPECT_FALSE(Graph::from_text(broken).has_value()) << broken.substr(0, 40);
}

}  // namespace
}  // namespace bolide
