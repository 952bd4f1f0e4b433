// Graph text comes from files: sizes that overflow, types that lie and attributes from nowhere are errors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/graph.h"

namespace bolide {
namespace {

std::string refusal(const std::string& text) {
  const auto graph = Graph::from_text(text);
  return graph ? "" : graph.error().text;
}

TEST(HostileText, Types) {
  for (const char* good : {"f32[T,8]", "i32[R]", "bf16[1099511627776]", "q4_0[3,64]", "f32[4*T]", "none",
                           "w4_g32[1,32]", "w4_g64[5,192]", "w4_g128[3,256]", "i8[2,5]"})
    EXPECT_TRUE(parse_value_type(good).has_value()) << good;
  for (const char* bad : {"",
                          "f32",
                          "f32[]",
                          "f32[0]",
                          "f32[-1]",
                          "f32[T,0]",
                          "f32[T,T]",
                          "f32[R,S]",
                          "f32[1099511627777]",
                          "none[3]",
                          "f32[4294967296,4294967296]",
                          "f32[9223372036854775807,9223372036854775807,9]",
                          "f32[9223372036854775808]",
                          "f32[9223372036854775807*T]",
                          "q4_0[3,33]",
                          "q4_0[T,64]",
                          "q6_k[1,128]",
                          "w4_g128[3,64]",
                          "w4_g64[3,32]",
                          "w4_g16[3,32]",
                          "f32[1,1,1,1,1,1,1,1,1]",
                          "f32[ 1]",
                          "f32[0x10]",
                          "f33[1]",
                          "f32[1",
                          "f32[*T]",
                          "f32[2T]",
                          "f32[1e3]"})
    EXPECT_FALSE(parse_value_type(bad).has_value()) << bad;
}

TEST(HostileText, Attributes) {
  const std::string head =
      "%0 = input q : f32[T,8]\n%1 = input positions : i32[T]\n%2 = input rows : i32[R]\n%3 = weight f32[8] n[0:8]\n"
      "%4 = weight bf16[8,8] w[0:8]\n%5 = KvWrite(%0, %0) {layer=0, kv_heads=2, head_dim=4} : none  # write\n"
      "%6 = weight bf16[8] v[0:8]\n%7 = input r : f32[R,8]\n%8 = weight bf16[2,16,8] g[0:32]\n"
      "%9 = weight bf16[2,8,8] d[0:16]\n%10 = weight bf16[2,8] router[0:2]\n";
  const auto line = [&](const std::string& op, const std::string& types = "f32[T,8]") {
    return refusal(head + "%11 = " + op + " : " + types + "  # x\n");
  };
  const std::string most = "9223372036854775807", least = "-9223372036854775808";
  const std::string attention =
      "PagedAttention(%0, %5) {{layer={}, heads={}, kv_heads={}, head_dim={}, scale=1, window=0, softcap=0}}";
  EXPECT_EQ(line(fmt::format(fmt::runtime(attention), 0, 2, 2, 4)), "");
  for (const std::string& n :
       {most, least, std::string("-1"), std::string("1048576"), std::string("9223372036854775808")})
    EXPECT_NE(line(fmt::format(fmt::runtime(attention), n, 2, 2, 4)), "") << n;
  for (const std::string& n : {most, least, std::string("0"), std::string("-2"), std::string("4611686018427387906")}) {
    EXPECT_NE(line(fmt::format(fmt::runtime(attention), 0, n, 2, 4)), "") << n;
    EXPECT_NE(line(fmt::format(fmt::runtime(attention), 0, 2, n, 4)), "") << n;
    EXPECT_NE(line(fmt::format(fmt::runtime(attention), 0, 2, 2, n)), "") << n;
    EXPECT_NE(line(fmt::format("KvWrite(%0, %0) {{layer=0, kv_heads={}, head_dim=4}}", n), "none"), "") << n;
    EXPECT_NE(line(fmt::format("Slice(%0) {{begin={}, count=4}}", n == "0" ? "9" : n), "f32[T,4]"), "") << n;
    EXPECT_NE(line(fmt::format("Slice(%0) {{begin=4, count={}}}", n), fmt::format("f32[T,{}]", n)), "") << n;
    EXPECT_NE(line(fmt::format(
                  "MoeFfn(%0, %10, %8, %9) {{experts={}, top_k=1, renormalise=true, act=silu, compute=f32}}", n)),
              "");
    EXPECT_NE(line(fmt::format(
                  "MoeFfn(%0, %10, %8, %9) {{experts=2, top_k={}, renormalise=true, act=silu, compute=f32}}", n)),
              "");
    if (n != "0") {
      EXPECT_NE(line(fmt::format("RmsNorm(%0, %3) {{eps=1e-5, group={}}}", n)), "") << n;
    }
  }
  const std::string rope =
      "Rope(%0, %1) {{head_dim={}, kind={}, rotary_dim={}, inv_freq=[{}], inv_freq_long=[], attention_factor=1, "
      "theta=1, factor=1, "
      "original_context=0}}";
  EXPECT_EQ(line(fmt::format(fmt::runtime(rope), 4, "fixed", 4, "1 0.5")), "");
  EXPECT_NE(line(fmt::format(fmt::runtime(rope), 4, "fixed", 4, "1")), "");
  EXPECT_NE(line(fmt::format(fmt::runtime(rope), 4, "long", 4, "1 0.5")), "");
  EXPECT_NE(line(fmt::format(fmt::runtime(rope), 4, "fixed", 6, "1 1 1")), "");
  EXPECT_NE(line(fmt::format(fmt::runtime(rope), 0, "fixed", 0, "")), "");
  EXPECT_NE(line(fmt::format(fmt::runtime(rope), least, "fixed", least, "")), "");
  EXPECT_NE(line(fmt::format(fmt::runtime(rope), 3, "fixed", 2, "1")), "");

  // Operands of another kind than the op reads.
  EXPECT_EQ(line("RmsNorm(%0, %3) {eps=1e-5, group=0}"), "");
  EXPECT_NE(line("RmsNorm(%0, %6) {eps=1e-5, group=0}"), "");   // bf16 read as f32
  EXPECT_NE(line("Embed(%3, %4) {}"), "");                      // floats as ids
  EXPECT_NE(line("Embed(%1, %0) {}"), "");                      // activations as a table
  EXPECT_NE(line("Activate(%4) {act=silu}", "bf16[8,8]"), "");  // a weight as activations
  EXPECT_NE(line("PagedAttention(%7, %5) {layer=0, heads=2, kv_heads=2, head_dim=4, scale=1, window=0, softcap=0}",
                 "f32[R,8]"),
            "");
  EXPECT_NE(line("Add(%0, %7) {}"), "");
  EXPECT_NE(line("Sample(%0) {}", "i32[T], f32[T]"), "");
  EXPECT_NE(line("GatherRows(%0, %3) {}", "f32[R,8]"), "");
  EXPECT_NE(line("Activate(%0) {act=silu, act=relu}"), "");
  EXPECT_NE(line("Activate(%0) {act=silu}", "f32[T,9]"), "");
}

TEST(HostileText, WeightsAndNames) {
  EXPECT_EQ(refusal("%0 = weight f32[4,8] a[0:1] + b[7:10]\n"), "");
  constexpr const char* kTwoOfOneName =
      "%0 = input x : f32[T,8]\n%1 = Activate(%0) {act=silu} : f32[T,8]  # a\n"
      "%2 = Activate(%0) {act=relu} : f32[T,8]  # a\n";
  for (const char* bad :
       {"%0 = weight f32[4,8] a[0:1] + b[7:9]\n", "%0 = weight f32[T,8] a[0:4]\n", "%0 = weight f32[4,8] a[0:-4]\n",
        "%0 = weight f32[4,8] a[-4:0]\n", "%0 = weight f32[8] a[0:9]\n", "%0 = weight none a[0:1]\n",
        "%0 = weight f32[4,8] a[0:9223372036854775807] + a[0:9223372036854775807] + a[0:6]\n",
        "%0 = weight f32[1] a[0:1]\n%0 = weight f32[2] a[0:2]\n", "%0 = input x : f32[T,8]\n%1 = input x : f32[T,8]\n",
        "%0 = input x : f32[T,8]\noutput y = %0\noutput y = %0\n", "output y = %0\n", "output y = \n", "%0 = \n", "%",
        kTwoOfOneName, "%0 = input x : f32[T,8]\n%1, %1 = Sample(%0) {} : i32[T], f32[T]  # a\n"})
    EXPECT_NE(refusal(bad), "") << bad;
}

// Many weights: no step of reading is quadratic in their number.
TEST(HostileText, ManyWeightsTakeNoTime) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += fmt::format("%{} = weight f32[1] a[{}:{}]\n", i, i, i + 1);
  EXPECT_EQ(refusal(text), "");
}

TEST(Graph, TheSameWeightIsOneValue) {
  Graph graph;
  const ValueId a = graph.add_weight({{"w", 0, 4}}, f32({4, 8}));
  EXPECT_EQ(graph.add_weight({{"w", 0, 4}}, f32({4, 8})), a);
  EXPECT_NE(graph.add_weight({{"w", 0, 4}}, {DType::kBF16, nullptr, {4, 8}}), a);
  EXPECT_NE(graph.add_weight({{"w", 4, 4}}, f32({4, 8})), a);
}

}  // namespace
}  // namespace bolide
