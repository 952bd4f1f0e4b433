// Steps as a device whose work runs later gets them, on the CPU: the same tokens and logits as steps that are run at
// once. CPU kernels know no padding, so batches here are powers of two.
#include "app/test_models.h"

namespace bolide {
namespace {

using test::exact_options;
using test::must;
using test::random_tokens;

ModelOptions options_of(bool deferred) {
  ModelOptions options = exact_options();
  options.sequences = 4;
  options.rows_max = 32;
  options.deferred = deferred;
  return options;
}

struct Said {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs, logits;
};

// A random course: prompts of several sequences in chunks, decodes of 1, 2 and 4 of them, a sequence begun anew, with
// penalties for some. What it draws and, now and then, all logits.
Said course(Model& model, uint32_t seed) {
  std::mt19937 random(seed);
  Said said;
  Runner& runner = *model.runner;
  std::vector<Sequence> sequences(4);
  const auto begin = [&](uint32_t s) {
    Sequence& sequence = sequences[s];
    runner.truncate(sequence, 0);
    sequence.tokens = random_tokens(model, 3 + random() % 20, seed * 16 + s);
    sequence.prompt_count = sequence.size();
    sequence.request = s;
    sequence.sampling.temperature = s % 2 == 0 ? 0 : 0.9f;
    sequence.sampling.seed = seed;
    sequence.sampling.repetition_penalty = s == 1 ? 1.3f : 1;
    sequence.sampling.presence_penalty = s == 2 ? 0.7f : 0;
    const std::vector<TokenBias> biases = {{static_cast<int32_t>(s), 8}, {40, -100}};
    const std::vector<int32_t> ends = {3, 4, 5};
    if (s > 1) sequence.sampling.biases = *make_logit_biases(biases, ends, static_cast<int32_t>(random() % 9), 41);
  };
  for (uint32_t s = 0; s < 4; ++s) begin(s);
  for (int round = 0; round < 40; ++round) {
    std::vector<uint32_t> who = {0, 1, 2, 3};
    std::shuffle(who.begin(), who.end(), random);
    who.resize(size_t{1} << random() % 3);
    std::vector<Work> work;
    std::vector<uint32_t> drawn;
    const bool all = random() % 4 == 0;
    int32_t rows = 0;
    for (const uint32_t s : who) {
      Sequence& sequence = sequences[s];
      const int32_t left = sequence.size() - sequence.computed;
      const int32_t tokens = std::min<int32_t>(left, 1 + static_cast<int32_t>(random() % 8));
      work.push_back({&sequence, tokens, all});
      rows += all ? tokens : 1;
    }
    const auto done = runner.step(work);
    EXPECT_TRUE(done.has_value()) << done.error().text;
    if (!done) return said;
    if (random() % 2 == 0) {
      const TensorView logits = runner.logits().value();
      EXPECT_EQ(logits.rows(), rows);
      said.logits.insert(said.logits.end(), logits.as<float>(), logits.as<float>() + rows * logits.cols());
    }
    int32_t row = 0;
    for (const Work& w : work) {
      row += all ? w.tokens : 1;
      said.tokens.push_back(runner.next()[row - 1]);
      said.logprobs.push_back(runner.logprobs()[row - 1]);
      if (w.sequence->computed == w.sequence->size()) w.sequence->tokens.push_back(said.tokens.back());
    }
    if (random() % 8 == 0) begin(who[0]);
  }
  for (Sequence& sequence : sequences) runner.truncate(sequence, 0);
  return said;
}

TEST(Deferred, DrawsWhatStepsAtOnceDraw) {
  for (const char* name : {"llama-bias", "qwen3", "mixtral"}) {
    Model at_once = test::open(name, options_of(false)), deferred = test::open(name, options_of(true));
    for (uint32_t seed = 0; seed < 6; ++seed) {
      const Said want = course(at_once, seed), got = course(deferred, seed);
      EXPECT_EQ(got.tokens, want.tokens) << name;
      EXPECT_EQ(got.logprobs, want.logprobs) << name;
      EXPECT_EQ(got.logits, want.logits) << name;
    }
    EXPECT_EQ(at_once.runner->captured_count(), 0);
    EXPECT_EQ(deferred.runner->captured_count(), 3) << "batches of 1, 2 and 4";
  }
}

// A step is submitted before the one before it is read; its ids are what that one draws.
TEST(Deferred, ChainedStepsContinueEachOther) {
  Model model = test::open("llama-bias", options_of(true));
  Runner& runner = *model.runner;
  for (const size_t count : {1, 2, 4}) {
    const auto begin = [&](std::vector<Sequence>& sequences, std::vector<Work>& work) {
      for (size_t s = 0; s < count; ++s) {
        sequences[s].tokens = random_tokens(model, 5, static_cast<uint32_t>(s));
        sequences[s].request = s;
        sequences[s].sampling.temperature = s == 1 ? 0.8f : 0;
        work.push_back({&sequences[s], 5});
      }
    };
    std::vector<std::vector<int32_t>> want(count);
    {
      std::vector<Sequence> sequences(count);
      std::vector<Work> work;
      begin(sequences, work);
      for (int step = 0; step < 20; ++step) {
        must(runner.step(work));
        for (size_t s = 0; s < count; ++s) {
          sequences[s].tokens.push_back(runner.next()[s]);
          work[s].tokens = 1;
        }
      }
      for (size_t s = 0; s < count; ++s) want[s] = sequences[s].tokens;
      for (Sequence& sequence : sequences) runner.truncate(sequence, 0);
    }
    std::vector<Sequence> sequences(count);
    std::vector<Work> work;
    begin(sequences, work);
    auto ticket = runner.submit(work);
    ASSERT_TRUE(ticket.has_value());
    for (int step = 0; step < 20; ++step) {
      Runner::Ticket now = *ticket;
      for (size_t s = 0; s < count; ++s) {
        sequences[s].tokens.push_back(0);  // not known yet
        work[s].tokens = 1;
      }
      if (step < 19) {
        ticket = runner.submit(work, true);
        ASSERT_TRUE(ticket.has_value()) << ticket.error().text;
      }
      must(runner.wait(now));
      for (size_t s = 0; s < count; ++s) sequences[s].tokens[static_cast<size_t>(5 + step)] = runner.next()[s];
    }
    for (size_t s = 0; s < count; ++s) EXPECT_EQ(sequences[s].tokens, want[s]) << count;
    for (Sequence& sequence : sequences) runner.truncate(sequence, 0);
  }
}

// Answers one after the other, whose prompts share beginnings, ended by ids, by length, by the context.
TEST(Deferred, GeneratorsGiveTheSameAnswers) {
  for (const char* name : {"llama-bias", "phi3-longrope"}) {
    std::vector<std::vector<GenerateResult>> answers;
    for (const bool deferred : {false, true}) {
      Model model = test::open(name, options_of(deferred));
      Generator generator(*model.runner, model.tokenizer);
      std::mt19937 random(7);
      std::vector<GenerateResult>& got = answers.emplace_back();
      std::vector<int32_t> prompt = random_tokens(model, 20, 1);
      for (int turn = 0; turn < 24; ++turn) {
        if (random() % 3 == 0) prompt.resize(1 + random() % prompt.size());
        GenerateRequest request;
        request.prompt = prompt;
        request.request = static_cast<uint64_t>(turn);
        request.tokens_max = turn % 6 == 5 ? -1 : static_cast<int32_t>(random() % 30);
        request.sampling.temperature = turn % 2 == 0 ? 0 : 1.1f;
        request.sampling.repetition_penalty = turn % 4 == 3 ? 1.2f : 1;
        for (int stop = 0; stop < 12; ++stop)
          request.stop_ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(model.runner->vocab())));
        const auto done = generator.generate(request, [](std::string_view) {});
        ASSERT_TRUE(done.has_value()) << done.error().text;
        got.push_back(*done);
        prompt.insert(prompt.end(), done->tokens.begin(), done->tokens.end());
        if (prompt.size() > 100) prompt = random_tokens(model, 20, static_cast<uint32_t>(turn));
      }
    }
    for (size_t i = 0; i < answers[0].size(); ++i) {
      EXPECT_EQ(answers[1][i].tokens, answers[0][i].tokens) << name << " " << i;
      EXPECT_EQ(answers[1][i].logprobs, answers[0][i].logprobs) << name << " " << i;
      EXPECT_EQ(answers[1][i].text, answers[0][i].text);
      EXPECT_EQ(answers[1][i].finish, answers[0][i].finish);
      EXPECT_EQ(answers[1][i].timings.computed_tokens, answers[0][i].timings.computed_tokens) << name << " " << i;
      EXPECT_EQ(answers[1][i].timings.generated_tokens, answers[0][i].timings.generated_tokens);
    }
  }
}

TEST(Deferred, ObserversSeeEveryStep) {
  Model model = test::open("llama-bias", options_of(true));
  for (const auto sees : {StepObserver::Sees::kTimes, StepObserver::Sees::kValues}) {
    Sequence sequence;
    sequence.tokens = random_tokens(model, 6, 3);
    const Work work{&sequence, 6};
    size_t steps = 0;
    std::vector<float> logits;
    const auto see = [&](const Plan& plan, size_t step, const Launch& launch, double seconds) {
      EXPECT_EQ(step, steps++);
      EXPECT_GE(seconds, 0);
      if (!std::holds_alternative<Sample>(*launch.op)) return;
      EXPECT_EQ(steps, plan.steps.size());
      logits = model.runner->read(launch.in[0]).value();
    };
    const StepObserver observer(see, sees);
    must(model.runner->step(std::span(&work, 1), &observer));
    EXPECT_GT(steps, 5u);
    EXPECT_EQ(logits, test::row_of(model, 0));
    model.runner->truncate(sequence, 0);
  }
}

}  // namespace
}  // namespace bolide
