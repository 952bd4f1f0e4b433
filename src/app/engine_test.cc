// Many requests at once through the engine, with real models: every answer has the bits that it has alone, whatever the
// batch, the chunks of its prompt, what was cached and who was preempted (--deterministic).
#include <map>

#include "app/test_models.h"
#include "engine/engine.h"
#include "engine/plan_runner.h"
#include "engine/testing/collector.h"

namespace bolide {
namespace {

using test::random_tokens;

struct Said {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Said&) const = default;
};

std::map<int32_t, Said> said_to(Collector& sink) {
  EXPECT_TRUE(sink.wait());
  EXPECT_EQ(sink.failure(), "");
  std::map<int32_t, Said> said;
  for (const Progress& p : sink.progress()) {
    said[p.choice].tokens.push_back(p.token);
    said[p.choice].logprobs.push_back(p.logprob);
  }
  return said;
}

ModelOptions options_of(int32_t sequences, bool deferred) {
  ModelOptions options = test::exact_options();
  options.deterministic = true;
  options.sequences = sequences;
  options.deferred = deferred;
  options.tokens_per_step = 24;
  return options;
}

// Step by step, one answer after the other.
Said alone(Model& model, const Request& request, int32_t choice) {
  Runner& runner = *model.runner;
  Sequence sequence;
  sequence.tokens = request.prompt;
  sequence.prompt_count = sequence.size();
  sequence.sampling = request.sampling;
  sequence.request = static_cast<uint64_t>(choice);
  Said said;
  while (static_cast<int32_t>(said.tokens.size()) < request.tokens_max && sequence.size() < runner.options().context) {
    // What longrope does beyond its boundary, which the generator knows too.
    const int64_t boundary = runner.rope_switch();
    if (boundary > 0 && sequence.rope_length <= boundary && sequence.size() > boundary) sequence.computed = 0;
    while (sequence.computed < sequence.size()) {
      const Work work{&sequence, std::min(sequence.size() - sequence.computed, runner.options().tokens_per_step)};
      test::must(runner.step(std::span(&work, 1)));
    }
    const int32_t id = runner.next()[0];
    said.tokens.push_back(id);
    said.logprobs.push_back(runner.logprobs()[0]);
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end()) break;
    sequence.tokens.push_back(id);
  }
  runner.truncate(sequence, 0);
  return said;
}

std::vector<Request> requests_for(Model& model, uint32_t seed, int count) {
  std::mt19937 random(seed);
  const std::vector<int32_t> shared = random_tokens(model, 60, seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    const std::vector<int32_t> rest = random_tokens(model, 1 + random() % 40, seed + 100 + static_cast<uint32_t>(i));
    request.prompt.assign(shared.begin(), shared.begin() + static_cast<ptrdiff_t>(random() % 60));
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    request.tokens_max = static_cast<int32_t>(1 + random() % 25);
    request.choices = i % 5 == 4 ? 3 : 1;
    request.priority = static_cast<int32_t>(random() % 2);
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.9f;
    request.sampling.seed = random();
    request.sampling.repetition_penalty = i % 3 == 2 ? 1.3f : 1;
    if (i % 4 == 3) request.stop_ids = random_tokens(model, 20, seed + 500 + static_cast<uint32_t>(i));
    if (i % 3 == 1) {
      std::vector<TokenBias> biases;
      for (int32_t id = static_cast<int32_t>(random() % 9); id < model.runner->vocab(); id += 9)
        biases.push_back({id, static_cast<float>(random() % 201) - 100});
      request.sampling.biases =
          *make_logit_biases(biases, request.stop_ids, static_cast<int32_t>(random() % 20), model.runner->vocab());
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

void expect_bits_of_each_alone(const char* name, int32_t sequences, bool deferred, bool prefix_cache) {
  SCOPED_TRACE(fmt::format("{}, {} sequences, deferred {}, prefix cache {}", name, sequences, deferred, prefix_cache));
  Model reference = test::open(name, options_of(1, false));
  Model model = test::open(name, options_of(sequences, deferred));
  const std::vector<Request> requests = requests_for(model, 17, 16);
  Engine engine(std::make_unique<PlanRunner>(std::move(model.runner)), {.prefix_cache = prefix_cache, .secret = 3});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<Collector>());
    ASSERT_TRUE(engine.submit(request, sinks.back()).has_value());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    std::map<int32_t, Said> said = said_to(*sinks[i]);
    for (int32_t choice = 0; choice < requests[i].choices; ++choice) {
      const Said want = alone(reference, requests[i], choice);
      EXPECT_EQ(said[choice].tokens, want.tokens) << "request " << i << ", choice " << choice;
      EXPECT_EQ(said[choice].logprobs, want.logprobs) << "request " << i << ", choice " << choice;
    }
  }
  ASSERT_TRUE(engine.wait_idle(10'000'000));
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.scheduler.blocks_used, 0);
  EXPECT_EQ(stats.scheduler.prefix_tokens_found > 0, prefix_cache);
}

TEST(EngineOnModels, AnswersHaveTheBitsOfEachAlone) {
  for (const char* name : {"llama-bias", "phi3-longrope"})
    for (const bool prefix_cache : {false, true}) expect_bits_of_each_alone(name, 5, false, prefix_cache);
}

// Steps scheduled while the one before runs, whose ids are taken from it. CPU kernels know no padding: batches of two.
TEST(EngineOnModels, StepsAheadGiveTheSameBits) {
  for (const char* name : {"llama-bias", "phi3-longrope"}) expect_bits_of_each_alone(name, 2, true, true);
}

}  // namespace
}  // namespace bolide
