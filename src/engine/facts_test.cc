// A graph may come from a file: what a Runner cannot drive is refused before anything is sized by it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/runner.h"

namespace bolide {
namespace {

// One layer without weights but the embedding's: enough to state facts.
struct Text {
  std::string ids = "i32[T]", positions = "i32[T]", rows = "i32[R]", extra;
  std::string layer = "0", heads = "kv_heads=2, head_dim=4", attention_layer = "0";
  std::string outputs = "output logits = %8\noutput next = %9\noutput logprob = %10\n";

  std::string build() const {
    return fmt::format(
        "%0 = input ids : {}\n%1 = input positions : {}\n%2 = input rows : {}\n{}"
        "%3 = weight f32[16,8] e[0:16]\n"
        "%4 = Embed(%0, %3) {{}} : f32[T,8]  # embed\n"
        "%5 = KvWrite(%4, %4) {{layer={}, {}}} : none  # write\n"
        "%6 = PagedAttention(%4, %5) {{layer={}, heads=2, kv_heads=2, head_dim=4, scale=1, window=0, softcap=0}} : "
        "f32[T,8]  # attention\n"
        "%7 = GatherRows(%6, %2) {{}} : f32[R,8]  # rows\n"
        "%8 = Linear(%7, %3) {{compute=f32, rounding=none, has_scale=false, has_bias=false, has_residual=false, "
        "has_norm=false, eps=0, gated=false, act=silu}} : f32[R,16]  # head\n"
        "%9, %10 = Sample(%8) {{}} : i32[R], f32[R]  # sample\n{}",
        ids, positions, rows, extra, layer, heads, attention_layer, outputs);
  }
};

// The error of reading the text or of asking for its facts; "" if both work.
std::string refusal(const Text& text) {
  const auto graph = Graph::from_text(text.build());
  if (!graph) return graph.error().text;
  const auto facts = facts_of(*graph);
  return facts ? "" : facts.error().text;
}

TEST(Facts, OfADecoder) {
  const auto graph = Graph::from_text(Text{}.build());
  ASSERT_TRUE(graph.has_value()) << graph.error().text;
  const auto facts = facts_of(*graph);
  ASSERT_TRUE(facts.has_value()) << facts.error().text;
  EXPECT_EQ(facts->layers, 1);
  EXPECT_EQ(facts->kv_heads, 2);
  EXPECT_EQ(facts->head_dim, 4);
  EXPECT_EQ(facts->vocab, 16);
}

TEST(Facts, LearnedPositionsBoundTheContext) {
  std::string text = Text{}.build();
  EXPECT_EQ(facts_of(*Graph::from_text(text))->positions, 0);
  const std::string gather = "%7 = GatherRows(%6, %2)";
  text.replace(text.find(gather), gather.size(),
               "%20 = weight f32[24,8] p[2:26]\n%21 = Embed(%1, %20) {} : f32[T,8]  # positions\n"
               "%22 = Add(%6, %21) {} : f32[T,8]  # add\n%7 = GatherRows(%22, %2)");
  const auto graph = Graph::from_text(text);
  ASSERT_TRUE(graph.has_value()) << graph.error().text;
  const auto facts = facts_of(*graph);
  ASSERT_TRUE(facts.has_value()) << facts.error().text;
  EXPECT_EQ(facts->positions, 24);
}

TEST(Facts, WhatARunnerCannotDriveIsRefused) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.ids = "i32[R]"}), "");
  EXPECT_NE(refusal({.ids = "i32[7*T]"}), "");
  EXPECT_NE(refusal({.ids = "i32[4]"}), "");
  EXPECT_NE(refusal({.ids = "f32[T]"}), "");
  EXPECT_NE(refusal({.positions = "i32[S]"}), "");
  EXPECT_NE(refusal({.rows = "i32[T]"}), "");
  EXPECT_NE(refusal({.extra = "%11 = input mask : i32[T]\n"}).find("mask"), std::string::npos);
  EXPECT_NE(refusal({.extra = "%11 = input ids : i32[T]\n"}), "");
  EXPECT_NE(refusal({.layer = "1"}), "");
  EXPECT_NE(refusal({.layer = "-1"}), "");
  EXPECT_NE(refusal({.layer = "4294967296"}), "");
  EXPECT_NE(refusal({.attention_layer = "-1"}), "");
  EXPECT_NE(refusal({.attention_layer = "9223372036854775807"}), "");
  EXPECT_NE(refusal({.heads = "kv_heads=4, head_dim=2"}), "");
  EXPECT_NE(refusal({.outputs = "output logits = %8\n"}).find("next"), std::string::npos);
  EXPECT_NE(refusal({.outputs = "output logits = %6\noutput next = %9\noutput logprob = %10\n"}), "");
  EXPECT_NE(refusal({.outputs = "output logits = %8\noutput next = %0\noutput logprob = %10\n"}), "");
  EXPECT_NE(refusal({.outputs = "output logits = %3\noutput next = %9\noutput logprob = %10\n"}), "");
}

}  // namespace
}  // namespace bolide
