// Steps of real (tiny) checkpoints: how tokens are cut into steps, which block they lie in and what runs beside them
// must not show.
#include <gtest/gtest.h>

#include "app/test_models.h"

namespace bolide {
namespace {

using namespace test;

// float32 sums in another order; the models' depth multiplies it a little.
constexpr double kRounding = 2e-6;

const char* const kModels[] = {"llama-bias",         "qwen3",           "mistral-window",   "mixtral", "phi3-longrope",
                               "llama-rope-dynamic", "llama-gguf-q4_0", "llama-fp8-channel"};

TEST(Runner, ChunksOfAPromptGiveTheLogitsOfOneStep) {
  for (const char* name : kModels) {
    ModelOptions options = exact_options();
    options.round_inputs = false;  // rounding to f8 is a step function: a last bit may move a code
    Model model = open(name, options);
    const auto tokens = random_tokens(model, 90, 1);
    const auto want = logits_of(model, tokens);
    for (const std::vector<int32_t>& chunks :
         std::vector<std::vector<int32_t>>{{1}, {7}, {16}, {33, 1, 2, 17}, {89, 1}})
      EXPECT_LT(relative(logits_of(model, tokens, chunks), want), kRounding) << name << ", chunks of " << chunks[0];
  }
}

TEST(Runner, AllLogitsAreThoseOfEachPrefix) {
  ModelOptions options = exact_options();
  options.rows_max = 128;
  Model model = open("llama-bias", options);
  const auto tokens = random_tokens(model, 40, 2);
  Sequence sequence;
  sequence.tokens = tokens;
  const Work work{&sequence, 40, /*all_logits=*/true};
  must(model.runner->step(std::span(&work, 1)));
  std::vector<std::vector<float>> rows;
  for (int64_t r = 0; r < 40; ++r) rows.push_back(row_of(model, r));
  model.runner->truncate(sequence, 0);
  for (const size_t count : {1, 2, 15, 16, 17, 40})
    EXPECT_LT(
        relative(rows[count - 1], logits_of(model, {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)})),
        kRounding);
}

TEST(Runner, PagedAndContiguousCachesGiveTheSame) {
  for (const char* name : {"llama-bias", "mistral-window"}) {
    std::vector<float> want;
    for (const int32_t block : {160, 16, 1, 7, 64}) {
      ModelOptions options = exact_options();
      options.block_tokens = block;
      Model model = open(name, options);
      const auto got = logits_of(model, random_tokens(model, 75, 3), {13});
      if (want.empty()) want = got;
      EXPECT_LT(relative(got, want), kRounding) << name << ", blocks of " << block;
    }
  }
}

// One step of prompts, parts of prompts and decodes equals each sequence alone.
TEST(Runner, RaggedBatchEqualsEachAlone) {
  for (const char* name : kModels) {
    ModelOptions options = exact_options();
    options.sequences = 5;
    options.round_inputs = false;
    Model model = open(name, options);
    const std::vector<int32_t> before = {30, 0, 17, 44, 63}, now = {1, 33, 5, 1, 16};
    std::vector<Sequence> sequences(5);
    std::vector<Work> work;
    for (size_t s = 0; s < 5; ++s) {
      sequences[s].tokens =
          random_tokens(model, static_cast<size_t>(before[s] + now[s]), static_cast<uint32_t>(10 + s));
      if (before[s] > 0) {
        const Work first{&sequences[s], before[s]};
        must(model.runner->step(std::span(&first, 1)));
      }
      work.push_back({&sequences[s], now[s]});
    }
    must(model.runner->step(work));
    std::vector<std::vector<float>> got;
    for (int64_t s = 0; s < 5; ++s) got.push_back(row_of(model, s));
    for (Sequence& sequence : sequences) {
      EXPECT_EQ(sequence.computed, sequence.size());
      model.runner->truncate(sequence, 0);
    }
    for (size_t s = 0; s < 5; ++s) {
      const auto tokens = random_tokens(model, static_cast<size_t>(before[s] + now[s]), static_cast<uint32_t>(10 + s));
      EXPECT_LT(relative(got[s], logits_of(model, tokens)), kRounding) << name << ", sequence " << s;
    }
  }
}

TEST(Runner, WhatFollowsATruncationIsAsIfTheRestHadNeverBeen) {
  Model model = open("qwen3", exact_options());
  for (const int32_t keep : {0, 1, 15, 16, 17, 39}) {
    Sequence sequence;
    sequence.tokens = random_tokens(model, 40, 4);
    ASSERT_FALSE(finish(model, sequence, {128}).empty());
    model.runner->truncate(sequence, keep);
    EXPECT_EQ(sequence.computed, keep);
    EXPECT_EQ(sequence.blocks.size(), static_cast<size_t>((keep + 15) / 16));
    const auto more = random_tokens(model, 20, 5);
    sequence.tokens.insert(sequence.tokens.end(), more.begin(), more.end());
    const auto tokens = sequence.tokens;
    const auto got = finish(model, sequence, {128});
    model.runner->truncate(sequence, 0);
    EXPECT_LT(relative(got, logits_of(model, tokens)), kRounding) << keep;
  }
}

TEST(Runner, AFullContextAndAFullCacheAreErrors) {
  ModelOptions options = exact_options();
  options.context = 32;
  Model model = open("llama-bias", options);
  Sequence sequence;
  sequence.tokens = random_tokens(model, 33, 6);
  Work work{&sequence, 33};
  auto done = model.runner->step(std::span(&work, 1));
  ASSERT_FALSE(done.has_value());
  for (const char* part : {"32 tokens", "--context"}) EXPECT_NE(done.error().text.find(part), std::string::npos);
  EXPECT_EQ(sequence.computed, 0);
  work.tokens = 32;
  must(model.runner->step(std::span(&work, 1)));
  Sequence other;  // the cache has room for one sequence
  other.tokens = {1};
  const Work one{&other, 1};
  done = model.runner->step(std::span(&one, 1));
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Code::kOutOfMemory);
  model.runner->truncate(sequence, 0);
  must(model.runner->step(std::span(&one, 1)));
}

TEST(Runner, OptionsThatCannotBeAreRefused) {
  const auto refused = [](auto change) {
    ModelOptions options = exact_options();
    change(options);
    const auto model = open_model(golden_model("llama-bias"), options);
    EXPECT_FALSE(model.has_value());
    return model.has_value() ? "" : model.error().text;
  };
  refused([](ModelOptions& o) { o.context = -1, o.block_tokens = -1; });
  refused([](ModelOptions& o) { o.sequences = 0; });
  refused([](ModelOptions& o) { o.tokens_per_step = INT32_MAX; });
  refused([](ModelOptions& o) { o.sequences = INT32_MAX; });
  EXPECT_NE(refused([](ModelOptions& o) { o.context = INT32_MAX, o.sequences = 1000; }).find("--context"),
            std::string::npos);
  EXPECT_NE(refused([](ModelOptions& o) { o.skip_passes = {"no_such"}; }).find("merge_linears"), std::string::npos);
}

// With the same logits the draw depends on (seed, request, position) alone.
TEST(Runner, DrawsDoNotDependOnWhatElseRuns) {
  ModelOptions options = exact_options();
  options.sequences = 4;
  Model model = open("llama-bias", options);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const auto make = [&](uint32_t which) {
      Sequence sequence;
      sequence.tokens = random_tokens(model, 5 + which, which);
      sequence.sampling.temperature = 1;
      sequence.sampling.seed = seed;
      sequence.request = which;
      return sequence;
    };
    std::vector<int32_t> alone;
    for (uint32_t s = 0; s < 4; ++s) {
      Sequence sequence = make(s);
      const Work work{&sequence, sequence.size()};
      must(model.runner->step(std::span(&work, 1)));
      alone.push_back(model.runner->next()[0]);
      model.runner->truncate(sequence, 0);
    }
    for (const std::vector<uint32_t>& together : {std::vector<uint32_t>{0, 1, 2, 3}, {3, 1}, {2, 0, 1}}) {
      std::vector<Sequence> sequences;
      for (const uint32_t s : together) sequences.push_back(make(s));
      std::vector<Work> work;
      for (Sequence& sequence : sequences) work.push_back({&sequence, sequence.size()});
      must(model.runner->step(work));
      for (size_t i = 0; i < together.size(); ++i) EXPECT_EQ(model.runner->next()[i], alone[together[i]]);
      for (Sequence& sequence : sequences) model.runner->truncate(sequence, 0);
    }
  }
}

// Operators per decoder layer after the passes: a fusion that stops firing shows here.
TEST(Passes, NodesPerLayerOfRealCheckpoints) {
  // norm, qkv, rope and write, attention, out, norm, gate|up, act, down; a mixture is one op. In the last layer the
  // rows that go on are gathered of what attention made and of the residual stream.
  const std::map<std::string, std::vector<int>> want = {
      {"llama-bias", {9, 11}}, {"phi3-longrope", {9, 11}}, {"mixtral", {7, 9}}, {"qwen3", {11, 13}}};
  for (const auto& [name, counts] : want) {
    Model model = open(name, exact_options());
    const Graph& graph = model.runner->plans().graph();
    std::map<std::string, int> per_layer;
    std::string names;
    for (const NodeId id : graph.order()) {
      const Node& node = graph.node(id);
      if (std::holds_alternative<Slice>(node.op)) continue;
      if (node.name.starts_with("layers.")) ++per_layer[node.name.substr(0, node.name.find('.', 7))];
      names += node.name + ' ';
    }
    std::vector<int> got;
    for (const auto& [layer, count] : per_layer) got.push_back(count);
    EXPECT_EQ(got, counts) << name << ": " << names;
  }
}

}  // namespace
}  // namespace bolide
