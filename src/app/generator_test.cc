#include "engine/generator.h"

#include <gtest/gtest.h>

#include "app/test_models.h"

namespace bolide {
namespace {

using namespace test;

GenerateRequest request(std::vector<int32_t> prompt, int32_t tokens_max) {
  GenerateRequest made;
  made.prompt = std::move(prompt);
  made.tokens_max = tokens_max;
  return made;
}

GenerateResult generate(Generator& generator, const GenerateRequest& request) {
  std::string shown;
  auto result = generator.generate(request, [&](std::string_view text) { shown += text; });
  if (!result) {
    ADD_FAILURE() << result.error().text;
    return {};
  }
  EXPECT_EQ(shown, result->text);
  EXPECT_EQ(result->logprobs.size(), result->tokens.size());
  return std::move(*result);
}

GenerateResult fresh(Model& model, const GenerateRequest& request) {
  Generator generator(*model.runner, model.tokenizer);
  return generate(generator, request);
}

// Greedy tokens, each from the whole sequence computed at once.
std::vector<int32_t> greedy_from_scratch(Model& model, std::vector<int32_t> tokens, int count) {
  std::vector<int32_t> made;
  for (int i = 0; i < count; ++i) {
    const auto logits = logits_of(model, tokens);
    made.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    tokens.push_back(made.back());
  }
  return made;
}

TEST(Generator, GreedyTokensAreThoseOfWholeSequences) {
  // phi3's longrope changes its frequencies after 48 tokens, amid the answer: every key is computed again.
  for (const char* name : {"llama-bias", "phi3-longrope", "mistral-window", "mixtral"}) {
    Model model = open(name, exact_options());
    for (const size_t length : {1, 40, 47, 48, 49, 60}) {
      const auto prompt = random_tokens(model, length, static_cast<uint32_t>(length));
      const auto got = fresh(model, request(prompt, 12));
      EXPECT_EQ(got.tokens, greedy_from_scratch(model, prompt, 12)) << name << ", prompt of " << length;
      EXPECT_EQ(got.finish, FinishReason::kLength);
      EXPECT_EQ(got.timings.generated_tokens, 12);
      EXPECT_EQ(got.timings.computed_tokens, static_cast<int32_t>(length));
    }
  }
}

// A flag that is set amid a step of many tokens, which takes long on a slow machine.
TEST(Generator, ACancellationIsSeenWithinAStep) {
  ModelOptions options = exact_options();
  options.threads = 1;
  Model model = open("llama-bias", options);
  const auto tokens = random_tokens(model, 100, 5);
  const auto want = logits_of(model, tokens, {60, 40});
  Sequence sequence;
  sequence.tokens = tokens;
  const Work first{&sequence, 60}, second{&sequence, 40};
  must(model.runner->step(std::span(&first, 1)));
  const std::atomic<bool> cancel = true;
  for (int i = 0; i < 3; ++i) {
    const auto done = model.runner->step(std::span(&second, 1), nullptr, &cancel);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, Code::kCancelled);
    EXPECT_EQ(sequence.computed, 60);
    EXPECT_EQ(sequence.tokens, tokens);
  }
  must(model.runner->step(std::span(&second, 1)));
  EXPECT_EQ(row_of(model, 0), want);  // to the bit
  model.runner->truncate(sequence, 0);
}

TEST(Generator, APromptsSharedBeginningIsNotComputedAgain) {
  Model model = open("qwen3", exact_options());
  Generator generator(*model.runner, model.tokenizer);
  auto prompt = random_tokens(model, 30, 1);
  const auto first = generate(generator, request(prompt, 6));
  EXPECT_EQ(first.timings.computed_tokens, 30);
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  const auto more = random_tokens(model, 9, 2);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const auto second = generate(generator, request(prompt, 6));
  EXPECT_EQ(second.timings.prompt_tokens, 45);
  EXPECT_LE(second.timings.computed_tokens, 10);  // the answer's last token was never computed
  EXPECT_EQ(second.timings.computed_tokens, 10);
  // The same prompt again: only its last token.
  const auto third = generate(generator, request(prompt, 6));
  EXPECT_EQ(third.timings.computed_tokens, 1);
  EXPECT_EQ(third.tokens, second.tokens);
  // Another one that differs early.
  prompt[4] ^= 1;
  EXPECT_EQ(generate(generator, request(prompt, 6)).timings.computed_tokens, 41);
  Model other = open("qwen3", exact_options());
  prompt[4] ^= 1;
  EXPECT_EQ(fresh(other, request(prompt, 6)).tokens, second.tokens);
}

// Keys rotated for one length never serve another: what was asked before must not show.
TEST(Generator, ReuseNeverMixesRotations) {
  for (const char* name : {"phi3-longrope", "llama-rope-dynamic"}) {
    Model model = open(name, exact_options()), other = open(name, exact_options());
    const auto tokens = random_tokens(model, 90, 3);
    const auto first = [&](size_t count) {
      return std::vector(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count));
    };
    Generator generator(*model.runner, model.tokenizer);
    for (const size_t length : {90, 30, 44, 39, 60, 20, 47, 70, 80}) {
      const auto got = generate(generator, request(first(length), 5));
      const auto want = fresh(other, request(first(length), 5));
      EXPECT_EQ(got.tokens, want.tokens) << name << ", prompt of " << length;
      for (size_t i = 0; i < std::min(got.logprobs.size(), want.logprobs.size()); ++i)
        EXPECT_NEAR(got.logprobs[i], want.logprobs[i], 1e-4) << name << ", prompt of " << length;
    }
    // A cancelled long prompt leaves keys of the long rotation behind.
    std::atomic<bool> cancel = true;
    GenerateRequest stopped = request(first(90), 5);
    stopped.cancel = &cancel;
    EXPECT_EQ(generate(generator, stopped).finish, FinishReason::kCancelled);
    EXPECT_EQ(generate(generator, request(first(33), 5)).tokens, fresh(other, request(first(33), 5)).tokens);
  }
}

TEST(Generator, TellsHowMuchOfThePromptIsDone) {
  ModelOptions options = exact_options();
  options.tokens_per_step = 32;
  Model model = open("llama-bias", options);
  Generator generator(*model.runner, model.tokenizer);
  std::vector<int32_t> done;
  const auto see = [&](int32_t tokens, int32_t all) {
    EXPECT_EQ(all, 90);
    done.push_back(tokens);
  };
  const FunctionRef<void(int32_t, int32_t)> on_prompt(see);
  GenerateRequest whole = request(random_tokens(model, 90, 1), 1);
  whole.on_prompt = &on_prompt;
  generate(generator, whole);
  EXPECT_EQ(done, (std::vector<int32_t>{32, 64, 90}));
}

TEST(Generator, AFullContextEndsTheAnswerAndATooLongPromptIsRefused) {
  ModelOptions options = exact_options();
  options.context = 32;
  Model model = open("llama-bias", options);
  Generator generator(*model.runner, model.tokenizer);
  const auto full = generate(generator, request(random_tokens(model, 30, 1), -1));
  EXPECT_EQ(full.finish, FinishReason::kLength);
  EXPECT_EQ(full.tokens.size(), 2u);
  EXPECT_TRUE(full.context_full);
  EXPECT_FALSE(generate(generator, request(random_tokens(model, 30, 1), 1)).context_full);
  EXPECT_FALSE(generate(generator, request(random_tokens(model, 30, 1), 2)).context_full);
  EXPECT_EQ(generate(generator, request(random_tokens(model, 31, 1), -1)).tokens.size(), 1u);
  for (const size_t length : {32, 33, 5000}) {
    const auto refused = generator.generate(request(random_tokens(model, length, 1), 1), [](std::string_view) {});
    ASSERT_FALSE(refused.has_value());
    for (const std::string& part : {std::to_string(length), std::string("32"), std::string("--context")})
      EXPECT_NE(refused.error().text.find(part), std::string::npos) << refused.error().text;
  }
  const auto none = generator.generate(request({}, 1), [](std::string_view) {});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(generate(generator, request(random_tokens(model, 3, 1), 4)).tokens.size(), 4u);  // still of use
}

TEST(Generator, IdsThatDoNotExistAreRefused) {
  Model model = open("llama-bias", exact_options());
  Generator generator(*model.runner, model.tokenizer);
  for (const int32_t id : {-1, 272, INT32_MAX}) {
    const auto refused = generator.generate(request({1, id, 2}, 1), [](std::string_view) {});
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().text.find(std::to_string(id)), std::string::npos) << refused.error().text;
  }
}

TEST(Generator, CancelEndsTheAnswerAfterTheRunningStep) {
  Model model = open("llama-bias", exact_options());
  Generator generator(*model.runner, model.tokenizer);
  std::atomic<bool> cancel = false;
  GenerateRequest wanted = request(random_tokens(model, 8, 1), 20);
  const auto all = generate(generator, wanted);
  wanted.cancel = &cancel;
  int pieces = 0;
  const auto result = generator.generate(wanted, [&](std::string_view) {
    if (++pieces == 3) cancel = true;
  });
  ASSERT_TRUE(result.has_value()) << result.error().text;
  EXPECT_EQ(result->finish, FinishReason::kCancelled);
  EXPECT_LT(result->tokens.size(), 20u);
  EXPECT_TRUE(std::equal(result->tokens.begin(), result->tokens.end(), all.tokens.begin()));
  // Before the first step: nothing, and nothing is said to have been computed.
  const auto nothing = generate(generator, wanted);
  EXPECT_TRUE(nothing.tokens.empty());
  EXPECT_EQ(nothing.timings.prompt_tokens, 8);
  EXPECT_EQ(nothing.timings.computed_tokens, 0);
  cancel = false;
  EXPECT_EQ(generate(generator, wanted).tokens, all.tokens);
}

TEST(Generator, StopIdsEndTheAnswerAndAreNotPartOfIt) {
  Model model = open("llama-bias", exact_options());
  GenerateRequest wanted = request(random_tokens(model, 8, 1), 10);
  const auto all = fresh(model, wanted);
  for (const size_t at : {0, 3}) {
    wanted.stop_ids = {-5, all.tokens[at]};
    const auto first =
        static_cast<size_t>(std::find(all.tokens.begin(), all.tokens.end(), all.tokens[at]) - all.tokens.begin());
    const auto stopped = fresh(model, wanted);
    EXPECT_EQ(stopped.finish, FinishReason::kStop);
    EXPECT_EQ(stopped.tokens, std::vector(all.tokens.begin(), all.tokens.begin() + static_cast<ptrdiff_t>(first)));
    EXPECT_EQ(stopped.timings.generated_tokens, static_cast<int32_t>(first) + 1);
  }
}

TEST(Generator, StopStringsCutTheTextWhereverTokensEnd) {
  Model model = open("llama-bias", exact_options());
  GenerateRequest wanted = request(random_tokens(model, 8, 1), 24);
  wanted.sampling.temperature = 1;
  const std::string text = fresh(model, wanted).text;
  ASSERT_GT(text.size(), 8u);
  for (size_t begin = 0; begin + 3 <= text.size(); ++begin) {
    const std::string stop = text.substr(begin, 3);
    wanted.stop = {stop, "never in it"};
    const auto stopped = fresh(model, wanted);
    EXPECT_EQ(stopped.finish, FinishReason::kStop);
    EXPECT_EQ(stopped.text, text.substr(0, text.find(stop)));
  }
}

TEST(Generator, TokensMaxIsExact) {
  Model model = open("llama-bias", exact_options());
  for (const int32_t most : {0, 1, 2, 7}) {
    const auto result = fresh(model, request(random_tokens(model, 4, 1), most));
    EXPECT_EQ(result.tokens.size(), static_cast<size_t>(most));
    EXPECT_EQ(result.finish, FinishReason::kLength);
  }
}

TEST(Generator, SeedsReproduceAndRequestsDiffer) {
  Model model = open("llama-bias", exact_options());
  GenerateRequest wanted = request(random_tokens(model, 8, 1), 16);
  wanted.sampling.temperature = 1;
  wanted.sampling.seed = 42;
  const auto first = fresh(model, wanted).tokens;
  EXPECT_EQ(fresh(model, wanted).tokens, first);
  wanted.request = 1;
  EXPECT_NE(fresh(model, wanted).tokens, first);
  wanted.request = 0;
  wanted.sampling.seed = 43;
  EXPECT_NE(fresh(model, wanted).tokens, first);
}

// A generator gives its blocks back: the next one has the whole cache.
TEST(Generator, OneAfterTheOtherOnOneRunner) {
  Model model = open("llama-bias", exact_options());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fresh(model, request(random_tokens(model, 150, 1), 3)).tokens.size(), 3u);
}

}  // namespace
}  // namespace bolide
