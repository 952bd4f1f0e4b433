// The scheduler with a FakeRunner, step by step. Whatever is shared, copied, evicted, preempted or cancelled, every
// answer must be the one that the request gets alone.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "engine/testing/fake_runner.h"

namespace bolide {
namespace {

struct Simulation {
  explicit Simulation(const SchedulerOptions& options) : scheduler(options), device(options, 2) {}

  void add(Request request) {
    request.id = ++ids;
    auto shared = std::make_shared<const Request>(std::move(request));
    requests[shared->id] = shared;
    ASSERT_TRUE(scheduler.add(shared).has_value());
  }
  // One step is scheduled; of `depth` under way the oldest is committed.
  void step(int32_t budget, size_t depth) {
    std::vector<Progress> progress;
    StepBatch batch = scheduler.schedule({budget, now_us}, &progress);
    scheduler.check_integrity();
    const bool any = !batch.items.empty();
    if (any) {
      tokens += batch.tokens;
      largest = std::max(largest, batch.tokens);
      EXPECT_TRUE(device.submit(batch).has_value());
      underway.push_back(std::move(batch));
    }
    if (underway.size() >= depth || (!any && !underway.empty())) {
      const StepResult result = *device.wait();
      scheduler.commit(underway.front(), result.ids, result.logprobs, &progress, result.tops, result.scored);
      underway.pop_front();
      scheduler.check_integrity();
    }
    ASSERT_TRUE(any || !underway.empty() || !progress.empty() || scheduler.idle() || budget == 0) << "it stands still";
    for (const Progress& p : progress) see(p);
  }
  void see(const Progress& p) {
    for (const ScoredToken& token : p.prompt) {
      EXPECT_EQ(p.choice, 0);
      scores[p.request].push_back(token);
    }
    std::vector<int32_t>& answer = answers[{p.request, p.choice}];
    if (p.token >= 0 && answer.empty()) expect_scores(*requests.at(p.request));
    if (p.token >= 0) answer.push_back(p.token);
    if (p.ended == Ended::kNot) return;
    EXPECT_TRUE(ended.emplace(std::pair(p.request, p.choice), p.ended).second) << "an answer ended twice";
    if (p.request_over) ++over;
    if (p.ended == Ended::kDeadline) return;
    EXPECT_EQ(answer, FakeRunner::answer(scheduler.options(), *requests.at(p.request), p.choice));
  }

  // With an answer's first token all that was wanted of the prompt is there.
  void expect_scores(const Request& request) {
    const std::vector<ScoredToken>& got = scores[request.id];
    std::vector<ScoredToken> want;
    if (request.prompt_logprobs) want = FakeRunner::prompt_scores(scheduler.options(), request);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].logprob, want[i].logprob) << "token " << i + 1 << " of " << want.size() + 1;
      ASSERT_EQ(got[i].top.size(), static_cast<size_t>(request.top_logprobs));
    }
  }

  Scheduler scheduler;
  FakeRunner device;
  RequestId ids = 0;
  std::map<RequestId, std::shared_ptr<const Request>> requests;
  std::map<std::pair<RequestId, int32_t>, std::vector<int32_t>> answers;
  std::map<RequestId, std::vector<ScoredToken>> scores;
  std::map<std::pair<RequestId, int32_t>, Ended> ended;
  std::deque<StepBatch> underway;
  int64_t now_us = 0, tokens = 0;
  int32_t largest = 0;
  size_t over = 0;
};

std::vector<int32_t> random_tokens(std::mt19937& random, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % FakeRunner::kVocab);
  return tokens;
}

// Biases of some tokens, bans among them, and, half of the time, an answer that must not end early.
void add_biases(Request& request, std::mt19937& random) {
  std::vector<TokenBias> wanted;
  for (int32_t id = static_cast<int32_t>(random() % 50); id < FakeRunner::kVocab; id += 1 + random() % 100)
    wanted.push_back({id, static_cast<float>(random() % 201) - 100});
  const int32_t tokens_min =
      random() % 2 == 0 ? 0 : static_cast<int32_t>(1 + random() % static_cast<uint32_t>(request.tokens_max));
  request.sampling.biases = *make_logit_biases(wanted, request.stop_ids, tokens_min, FakeRunner::kVocab);
}

SchedulerOptions small() {
  SchedulerOptions options;
  options.blocks = 64;
  options.block_tokens = 4;
  options.context = 128;
  options.sequences_max = 8;
  options.tokens_per_step = 32;
  options.secret = 42;
  return options;
}

// answers.alone, answers.prompt, blocks.owner
TEST(Scheduler, AnswersAreThoseOfEachRequestAlone) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SchedulerOptions options = small();
    options.block_tokens = static_cast<int32_t>(1 + random() % 8);
    options.blocks = 128 / options.block_tokens + 1 + static_cast<int32_t>(random() % 100);
    options.sequences_max = static_cast<int32_t>(1 + random() % 12);
    options.tokens_per_step = options.sequences_max + static_cast<int32_t>(random() % 64);
    options.rows_max = static_cast<int32_t>(random() % 40);
    options.prefix_cache = random() % 4 != 0;
    if (random() % 4 == 0) options.rope_switch = 20 + static_cast<int64_t>(random() % 60);
    if (random() % 4 == 0) options.rope_dynamic = 20 + static_cast<int64_t>(random() % 60);
    Simulation simulation(options);
    const size_t depth = 1 + seed % 2;
    const std::vector<int32_t> shared = random_tokens(random, 40);
    std::vector<RequestId> cancelled;
    for (int turn = 0; turn < 600; ++turn) {
      if (random() % 4 == 0 && simulation.ids < 80) {
        Request request;
        const auto common = static_cast<size_t>(random() % 40);
        request.prompt.assign(shared.begin(), shared.begin() + static_cast<ptrdiff_t>(common));
        const auto rest = random_tokens(random, static_cast<int32_t>(1 + random() % 60));
        request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
        request.tokens_max = static_cast<int32_t>(1 + random() % 40);
        request.choices = static_cast<int32_t>(random() % 5 == 0 ? 1 + random() % 4 : 1);
        request.priority = static_cast<int32_t>(random() % 3);
        request.key = random() % 3;
        if (random() % 3 == 0) request.stop_ids = random_tokens(random, 30);
        if (random() % 3 == 0) request.sampling.repetition_penalty = 1.1f;
        if (random() % 3 == 0) add_biases(request, random);
        request.prompt_logprobs = random() % 4 == 0;
        request.top_logprobs = static_cast<int32_t>(random() % 3);
        if (random() % 10 == 0) request.deadline_us = simulation.now_us + static_cast<int64_t>(random() % 50);
        simulation.add(std::move(request));
      }
      if (random() % 40 == 0 && simulation.ids > 0) {
        const RequestId id = 1 + random() % simulation.ids;
        simulation.scheduler.cancel(id);
        cancelled.push_back(id);
        simulation.scheduler.check_integrity();
      }
      ++simulation.now_us;
      simulation.step(static_cast<int32_t>(random() % 64), depth);
    }
    int turns = 0;
    while (!simulation.scheduler.idle()) {
      simulation.step(options.tokens_per_step, depth);
      ASSERT_LT(++turns, 20000) << "it never ends";
    }
    EXPECT_EQ(simulation.scheduler.stats().blocks_used, 0);
    for (const auto& [id, request] : simulation.requests) {
      if (std::find(cancelled.begin(), cancelled.end(), id) != cancelled.end()) continue;
      for (int32_t choice = 0; choice < request->choices; ++choice)
        EXPECT_TRUE(simulation.ended.contains({id, choice})) << "request " << id << " was lost";
    }
    EXPECT_LE(simulation.largest, options.tokens_per_step);
  }
}

Request simple(std::mt19937& random, int32_t prompt, int32_t tokens_max) {
  Request request;
  request.prompt = random_tokens(random, prompt);
  request.tokens_max = tokens_max;
  return request;
}

// scheduling.decode_first
TEST(Scheduler, ALongPromptStallsNobody) {
  std::mt19937 random(1);
  SchedulerOptions options = small();
  options.blocks = 400;
  options.context = 1000;
  Simulation simulation(options);
  for (int i = 0; i < 4; ++i) simulation.add(simple(random, 3, 200));
  for (int i = 0; i < 3; ++i) simulation.step(32, 1);
  const auto drawn = [&] { return simulation.answers[{2, 0}].size(); };
  simulation.add(simple(random, 900, 4));
  size_t before = drawn();
  int steps = 0;
  for (; !simulation.answers.contains({5, 0}); ++steps) {
    simulation.step(16, 1);
    EXPECT_EQ(drawn(), ++before) << "a running answer got no token";
    EXPECT_LE(simulation.largest, 32);
  }
  EXPECT_EQ(steps, 75);  // 900 tokens, of 16 a step 12 are left by those that run
}

// scheduling.priority
TEST(Scheduler, TheUrgentGoFirstAndPushOthersOut) {
  std::mt19937 random(2);
  SchedulerOptions options = small();
  options.sequences_max = 2;
  Simulation simulation(options);
  for (int i = 0; i < 4; ++i) simulation.add(simple(random, 10, 30));
  for (int i = 0; i < 5; ++i) simulation.step(32, 1);
  EXPECT_EQ(simulation.scheduler.stats().running, 2);
  Request urgent = simple(random, 10, 5);
  urgent.priority = -1;
  simulation.add(urgent);
  for (int i = 0; i < 5; ++i) simulation.step(32, 1);
  EXPECT_TRUE(simulation.ended.contains({5, 0}));
  EXPECT_EQ(simulation.scheduler.stats().preemptions, 1);
  while (!simulation.scheduler.idle()) simulation.step(32, 1);
  EXPECT_EQ(simulation.over, 5u);
  EXPECT_GT(simulation.scheduler.stats().prefix_tokens_found, 0) << "the preempted one found what it had computed";
}

// scheduling.fairness
TEST(Scheduler, KeysThatWaitGetEqualShares) {
  std::mt19937 random(3);
  SchedulerOptions options = small();
  options.sequences_max = 2;
  options.prefix_cache = false;
  Simulation simulation(options);
  for (int i = 0; i < 60; ++i) {
    Request request = simple(random, 8, 8);
    request.key = i < 50 ? 1 : 2;  // one floods before the other comes
    simulation.add(std::move(request));
  }
  size_t others = 0;  // of the flood, when the last of the few has ended
  while (!simulation.ended.contains({60, 0})) simulation.step(32, 1);
  for (const auto& [answer, ended] : simulation.ended) others += answer.first <= 50 ? 1 : 0;
  EXPECT_LE(others, 13u);
  EXPECT_GE(others, 8u) << "nor do the few push the flood out";
}

// blocks.cancel
TEST(Scheduler, CancellingFreesBlocksAtOnceDuringAPromptToo) {
  std::mt19937 random(4);
  SchedulerOptions options = small();
  options.prefix_cache = false;
  Simulation simulation(options);
  simulation.add(simple(random, 100, 20));
  simulation.add(simple(random, 5, 20));
  simulation.step(32, 2);
  EXPECT_GT(simulation.scheduler.stats().blocks_used, 0);
  simulation.scheduler.cancel(1);
  simulation.scheduler.cancel(2);
  simulation.scheduler.cancel(2);
  simulation.scheduler.check_integrity();
  EXPECT_EQ(simulation.scheduler.stats().blocks_used, 0);
  EXPECT_FALSE(simulation.scheduler.idle()) << "a step is under way";
  simulation.step(32, 1);
  EXPECT_TRUE(simulation.scheduler.idle());
  EXPECT_EQ(simulation.scheduler.collect().size(), 2u);
  EXPECT_TRUE(simulation.answers.empty());
}

// blocks.prefix
TEST(Scheduler, AKnownPrefixIsNotComputedAgain) {
  std::mt19937 random(5);
  SchedulerOptions options = small();
  Simulation simulation(options);
  Request request = simple(random, 80, 3);
  simulation.add(request);
  while (!simulation.scheduler.idle()) simulation.step(32, 1);
  const int64_t first = simulation.tokens;
  simulation.add(request);
  while (!simulation.scheduler.idle()) simulation.step(32, 1);
  EXPECT_EQ(first, 82);
  EXPECT_EQ(simulation.tokens - first, 80 - 76 + 2);  // the last token of the prompt is always computed, with its block
  request.cache_salt = 9;
  const int64_t second = simulation.tokens;
  simulation.add(request);
  while (!simulation.scheduler.idle()) simulation.step(32, 1);
  EXPECT_EQ(simulation.tokens - second, 82) << "a prefix was found under another salt";
}

// blocks.copy_on_write
TEST(Scheduler, AnswersToOnePromptShareItsBlocks) {
  std::mt19937 random(6);
  SchedulerOptions options = small();
  options.prefix_cache = false;  // what is shared is shared by the fork
  Simulation simulation(options);
  Request request = simple(random, 42, 10);
  request.choices = 5;
  simulation.add(request);
  for (int i = 0; i < 4; ++i) simulation.step(32, 1);
  // 10 full blocks of the prompt once, and for each answer the block that prompt and answer share.
  EXPECT_EQ(simulation.scheduler.stats().blocks_used, 10 + 5);
  while (!simulation.scheduler.idle()) simulation.step(32, 1);
  EXPECT_EQ(simulation.ended.size(), 5u);
  EXPECT_EQ(simulation.over, 1u);
  EXPECT_LE(simulation.tokens, 42 + 4 + 5 * 9);
}

// steps.ahead: what is banned follows from counts.
TEST(Scheduler, AnswersDoNotEndBeforeTheirLeastTokens) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 20; ++round) {
    Simulation simulation(small());
    Request request = simple(random, 5, 40);
    // Whatever is drawn would end the answer, but for three tokens.
    for (int32_t id = 3; id < FakeRunner::kVocab; ++id) request.stop_ids.push_back(id);
    const int32_t least = static_cast<int32_t>(random() % 40);
    request.sampling.biases =
        *make_logit_biases(std::vector<TokenBias>{{1, -100}}, request.stop_ids, least, FakeRunner::kVocab);
    simulation.add(request);
    int32_t ahead = 0;
    while (!simulation.scheduler.idle()) {
      simulation.step(32, 2);
      ahead += simulation.underway.size() == 1 && simulation.underway.front().items[0].chained_item >= 0 ? 1 : 0;
    }
    const std::vector<int32_t>& answer = simulation.answers.at({1, 0});
    ASSERT_GT(static_cast<int32_t>(answer.size()), least);
    for (int32_t i = 0; i < least; ++i)
      EXPECT_TRUE(answer[static_cast<size_t>(i)] == 0 || answer[static_cast<size_t>(i)] == 2);
    EXPECT_GE(ahead, least - 1) << "a bias made the next step wait";
  }
}

// answers.no_token
TEST(Scheduler, LogitsWithoutATokenEndOneAnswer) {
  std::mt19937 random(8);
  Scheduler scheduler(small());
  for (RequestId id = 1; id <= 3; ++id) {
    Request request = simple(random, 5, 4);
    request.id = id;
    ASSERT_TRUE(scheduler.add(std::make_shared<const Request>(std::move(request))).has_value());
  }
  std::vector<Progress> progress;
  StepBatch batch = scheduler.schedule({32}, &progress);
  ASSERT_EQ(batch.items.size(), 3u);
  scheduler.commit(batch, std::vector<int32_t>{5, -1, 7}, std::vector<float>(3), &progress);
  scheduler.check_integrity();
  ASSERT_EQ(progress.size(), 3u);
  EXPECT_EQ(progress[1].ended, Ended::kNoToken);
  EXPECT_TRUE(progress[1].request_over);
  EXPECT_EQ(progress[0].ended, Ended::kNot);
  batch = scheduler.schedule({32}, &progress);
  EXPECT_EQ(batch.items.size(), 2u);
}

// scheduling.pure
TEST(Scheduler, TheSameCallsGiveTheSameSteps) {
  const auto course = [] {
    std::mt19937 random(9);
    Simulation simulation(small());
    std::vector<int32_t> seen;
    for (int turn = 0; turn < 200; ++turn) {
      if (turn % 4 == 0) simulation.add(simple(random, 1 + static_cast<int32_t>(random() % 60), 20));
      simulation.step(20, 2);
      seen.push_back(static_cast<int32_t>(simulation.tokens));
      const SchedulerStats stats = simulation.scheduler.stats();
      seen.insert(seen.end(), {stats.waiting, stats.running, stats.blocks_used, stats.blocks_kept});
    }
    return seen;
  };
  EXPECT_EQ(course(), course());
}

// scheduling.fits
TEST(Scheduler, WhatCanNeverFitIsRefused) {
  std::mt19937 random(7);
  SchedulerOptions options = small();
  options.context = 1000;  // more than the cache's 256
  Scheduler scheduler(options);
  const auto add = [&](RequestId id, int32_t prompt, int32_t tokens_max) {
    Request request = simple(random, prompt, tokens_max);
    request.id = id;
    return scheduler.add(std::make_shared<const Request>(std::move(request)));
  };
  for (const auto& [prompt, tokens_max] : {std::pair(1000, 1), std::pair(200, 57), std::pair(300, 1)}) {
    const auto added = add(1, prompt, tokens_max);
    ASSERT_FALSE(added.has_value()) << prompt;
    EXPECT_EQ(added.error().code, Code::kInvalid);
    EXPECT_NE(added.error().text.find(std::to_string(prompt > 999 ? prompt : prompt + tokens_max)), std::string::npos);
  }
  EXPECT_TRUE(add(1, 200, 56).has_value());
  EXPECT_FALSE(add(1, 10, 10).has_value()) << "the id is in use";
  scheduler.check_integrity();
}

}  // namespace
}  // namespace bolide
