// What the scheduler costs a step: so many answers decoding, with new requests coming as others end, on no model.
//
//   bolide_scheduler_bench [STEPS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>

#include "engine/scheduler.h"

namespace {

using bolide::Progress;
using bolide::Request;
using bolide::Scheduler;
using bolide::StepBatch;
using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Answers of 128 tokens to prompts of 128, half of which begin alike.
Request request(std::mt19937& random, uint64_t id) {
  Request r;
  r.id = id;
  r.prompt.resize(128);
  for (size_t i = 0; i < r.prompt.size(); ++i)
    r.prompt[i] = id % 2 == 0 && i < 64 ? static_cast<int32_t>(i) : static_cast<int32_t>(random() % 30000);
  r.tokens_max = 128;
  r.key = static_cast<uint32_t>(id % 8);
  return r;
}

void measure(int32_t sequences, int steps) {
  bolide::SchedulerOptions options;
  options.block_tokens = 16;
  options.blocks = sequences * 20;
  options.context = 4096;
  options.sequences_max = sequences;
  options.tokens_per_step = sequences + 512;
  options.secret = 1;
  Scheduler scheduler(options);
  std::mt19937 random(1);
  uint64_t ids = 0;
  std::vector<int32_t> drawn;
  std::vector<float> logprobs;
  std::vector<Progress> progress;
  std::vector<double> us;
  for (int step = -steps / 4; step < steps; ++step) {  // the first are not counted: the batch fills
    while (scheduler.stats().waiting < 8)
      if (!scheduler.add(std::make_shared<const Request>(request(random, ++ids)))) return;
    const auto start = Clock::now();
    const StepBatch batch = scheduler.schedule({options.tokens_per_step}, &progress);
    const double scheduled = us_since(start);
    drawn.resize(batch.items.size());
    logprobs.resize(batch.items.size());
    for (int32_t& id : drawn) id = static_cast<int32_t>(random() % 30000);
    const auto committed = Clock::now();
    scheduler.commit(batch, drawn, logprobs, &progress);
    scheduler.collect();
    progress.clear();
    if (step >= 0) us.push_back(scheduled + us_since(committed));
  }
  std::sort(us.begin(), us.end());
  const auto at = [&](double share) { return us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))]; };
  fmt::print(
      "{{\"sequences\": {}, \"steps\": {}, \"step_us\": {{\"median\": {:.1f}, \"p99\": {:.1f}}}, \"preemptions\": "
      "{}}}\n",
      sequences, us.size(), at(0.5), at(0.99), scheduler.stats().preemptions);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::stoi(argv[1]) : 4000;
  for (const int32_t sequences : {1, 16, 128, 512, 2048}) measure(sequences, steps);
}
