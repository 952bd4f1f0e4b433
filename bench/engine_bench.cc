// What the engine makes of a model when more is asked of it than it can answer at once: so many requests at the start,
// as many answers at a time as --sequences, every answer of full length. In process: no server, no text.
//
//   bolide_engine_bench [MODEL] [--device cuda] [--prompt 128] [--generate 128] [--sequences 512] [--requests 2048]
//                       [--tokens-per-step N] [--kv-type bf16|fp8] [--deterministic] [--json FILE]
//   bolide_engine_bench [MODEL] --check [...]   with --deterministic: do answers have the bits that they have alone?
//
// Output tokens per second are all answers' over the time from the first submission to the last token, filling and
// emptying included, and between the moments at which a quarter and three quarters of the tokens were there. Every 0.1
// seconds are kept: answers running and waiting, KV blocks in use, tokens so far, and the share of the time in which a
// step was under way; what is left of it is the device's idle share as far as the engine can see.
#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "app/model.h"
#include "base/version.h"
#include "engine/engine.h"
#include "engine/plan_runner.h"
#include "measure/gpu.h"

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string model = "synth:llama-3-8b", json, kv_type = "bf16", device = "cuda";
  bool deterministic = false, check = false;
  int32_t prompt = 128, generate = 128, sequences = 512, requests = 2048, tokens_per_step = 0;
};

[[noreturn]] void die(std::string_view text) {
  fmt::print(stderr, "engine_bench: error: {}\n", text);
  std::exit(2);
}

// Counts: the tokens themselves are nobody's.
class Counter final : public RequestSink {
 public:
  Counter(std::atomic<int64_t>& tokens, std::atomic<int>& open) : tokens_(tokens), open_(open) {}
  void on_progress(const Progress& p) override {
    if (p.token >= 0) tokens_.fetch_add(1, std::memory_order_relaxed);
    if (p.request_over) open_.fetch_sub(1, std::memory_order_release);
  }
  void on_failure(const Error& failure) override { die(failure.text); }

 private:
  std::atomic<int64_t>& tokens_;
  std::atomic<int>& open_;
};

// An answer's tokens and the bits of their log-probabilities.
class Keeper final : public RequestSink {
 public:
  void on_progress(const Progress& p) override {
    if (p.token >= 0) said.emplace_back(p.token, std::bit_cast<uint32_t>(p.logprob));
    if (p.request_over) over.store(true, std::memory_order_release);
  }
  void on_failure(const Error& failure) override { die(failure.text); }
  void wait() const {
    while (!over.load(std::memory_order_acquire)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<std::pair<int32_t, uint32_t>> said;
  std::atomic<bool> over = false;
};

// Requests of many lengths, half of which begin alike: all at once, then each by itself.
int check(Engine& engine, const Arguments& arguments, uint64_t vocab) {
  std::mt19937_64 random(std::random_device{}());
  std::vector<Request> requests(static_cast<size_t>(std::min(arguments.requests, 96)));
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto length = 1 + random() % static_cast<uint64_t>(arguments.prompt);
    for (uint64_t t = 0; t < length; ++t)
      requests[i].prompt.push_back(static_cast<int32_t>((i % 2 == 0 && t < 70 ? 17 * t : random()) % vocab));
    requests[i].tokens_max = static_cast<int32_t>(1 + random() % static_cast<uint64_t>(arguments.generate));
    requests[i].sampling.temperature = i % 3 == 0 ? 0 : 0.9f;
    requests[i].sampling.seed = random();
  }
  std::vector<std::shared_ptr<Keeper>> together;
  for (const Request& request : requests) {
    together.push_back(std::make_shared<Keeper>());
    if (const auto id = engine.submit(request, together.back()); !id) die(id.error().text);
  }
  for (const auto& keeper : together) keeper->wait();
  size_t differ = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = std::make_shared<Keeper>();
    if (const auto id = engine.submit(requests[i], alone); !id) die(id.error().text);
    alone->wait();
    differ += alone->said != together[i]->said ? 1 : 0;
  }
  const SchedulerStats s = engine.stats().scheduler;
  fmt::print("{}: {} of {} answers differ from those alone; {} prompt tokens were found in the cache, {} preemptions\n",
             arguments.model, differ, requests.size(), s.prefix_tokens_found, s.preemptions);
  return differ == 0 ? 0 : 1;
}

int run(const Arguments& arguments) {
  ModelOptions options;
  options.device = arguments.device == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
  options.context = arguments.prompt + arguments.generate;
  options.sequences = arguments.sequences;
  options.rows_max = arguments.sequences;
  options.tokens_per_step = arguments.tokens_per_step;
  options.deferred = true;
  options.deterministic = arguments.deterministic;
  options.kv_dtype = arguments.kv_type == "fp8" ? DType::kF8E4M3 : DType::kBF16;
  auto opened = open_model(arguments.model, options);
  if (!opened) die(opened.error().text);
  Model model = *std::move(opened);
  const std::string device = model.device->info().name;
  const GpuEnergy meter(*model.device);
  const auto vocab = static_cast<uint64_t>(model.runner->vocab());
  Engine engine(
      std::make_unique<PlanRunner>(std::move(model.runner)),
      {.prefix_cache = arguments.check, .queue_requests_max = arguments.requests + 64, .queue_tokens_max = 1ll << 40});

  if (arguments.check) return check(engine, arguments, vocab);

  std::mt19937_64 random(1);
  const auto answer = [&](int count, bool timed) {
    std::atomic<int64_t> tokens = 0;
    std::atomic<int> open = count;
    const auto sink = std::make_shared<Counter>(tokens, open);
    const auto start = Clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    const EngineStats before = engine.stats();
    GpuEnergy energy(*model.device);
    energy.begin();
    for (int i = 0; i < count; ++i) {
      Request request;
      for (int32_t t = 0; t < arguments.prompt; ++t) request.prompt.push_back(static_cast<int32_t>(random() % vocab));
      request.tokens_max = timed ? arguments.generate : std::min(arguments.generate, 8);
      request.sampling.temperature = 0.8f;
      request.sampling.seed = random();
      if (const auto id = engine.submit(std::move(request), sink); !id) die(id.error().text);
    }
    const int64_t all = int64_t{count} * arguments.generate;
    double quarter = 0, three_quarters = 0;
    int64_t at_quarter = 0, at_three_quarters = 0;
    Json samples = Json::array();
    double next = 0;
    while (open.load(std::memory_order_acquire) > 0) {
      const int64_t now = tokens.load(std::memory_order_relaxed);
      if (quarter == 0 && now >= all / 4) quarter = seconds(), at_quarter = now;
      if (three_quarters == 0 && now >= all * 3 / 4) three_quarters = seconds(), at_three_quarters = now;
      if (seconds() >= next) {
        const EngineStats s = engine.stats();
        samples.push_back({{"s", seconds()},
                           {"running", s.scheduler.running},
                           {"waiting", s.scheduler.waiting},
                           {"kv_use", static_cast<double>(s.scheduler.blocks_used) / s.scheduler.blocks},
                           {"tokens", now},
                           {"busy", static_cast<double>(s.busy_us - before.busy_us) / 1e6 / seconds()}});
        next += 0.1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const double took = seconds();
    energy.end();
    const EngineStats after = engine.stats();
    const double rate = static_cast<double>(all) / took;
    const double steady = static_cast<double>(at_three_quarters - at_quarter) / (three_quarters - quarter);
    if (!timed) return Json();
    const double idle = 1 - static_cast<double>(after.busy_us - before.busy_us) / 1e6 / took;
    fmt::print(
        "{}; {}; {} in, {} out, {} requests, {} at a time: {:.0f} tokens/s, {:.0f} in the middle half; {:.2f} s, "
        "{} steps, idle {:.1f} %, {:.0f} W\n",
        device, arguments.model, arguments.prompt, arguments.generate, count, arguments.sequences, rate, steady, took,
        after.steps - before.steps, idle * 100, energy.watts().value_or(0));
    return Json{{"output_tokens_per_s", rate},
                {"middle_half_tokens_per_s", steady},
                {"seconds", took},
                {"steps", after.steps - before.steps},
                {"idle_share", idle},
                {"watts", energy.watts().value_or(0)},
                {"preemptions", after.scheduler.preemptions},
                {"samples", samples}};
  };
  answer(std::min(arguments.requests, arguments.sequences), false);  // kernels are loaded, graphs are captured
  const Json result = answer(arguments.requests, true);
  if (!arguments.json.empty()) {
    const Json out = {{"bench", "engine"},
                      {"machine", device},
                      {"driver", meter.driver()},
                      {"commit", std::string(version().commit)},
                      {"model", arguments.model},
                      {"kv_type", arguments.kv_type},
                      {"deterministic", arguments.deterministic},
                      {"prompt", arguments.prompt},
                      {"generate", arguments.generate},
                      {"sequences", arguments.sequences},
                      {"requests", arguments.requests},
                      {"result", result}};
    std::ofstream(arguments.json) << out.dump(1) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace bolide

int main(int argc, char** argv) {
  bolide::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--check" || word == "--deterministic") {
      (word == "--check" ? arguments.check : arguments.deterministic) = true;
      continue;
    }
    if (!word.starts_with("--")) {
      arguments.model = word;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    const auto number = [&] { return std::max(1, std::atoi(value)); };
    if (word == "--prompt")
      arguments.prompt = number();
    else if (word == "--generate")
      arguments.generate = number();
    else if (word == "--sequences")
      arguments.sequences = number();
    else if (word == "--requests")
      arguments.requests = number();
    else if (word == "--tokens-per-step")
      arguments.tokens_per_step = number();
    else if (word == "--kv-type")
      arguments.kv_type = value;
    else if (word == "--device")
      arguments.device = value;
    else if (word == "--json")
      arguments.json = value;
    else
      bolide::die("see the head of bench/engine_bench.cc for what there is");
  }
  return bolide::run(arguments);
}
