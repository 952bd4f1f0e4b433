// Generates with an ONNX decoder that has past and present keys and values (tools/make_decoder_onnx.py), through the
// public API: what presents hold becomes the next step's past. Prints one line of JSON: milliseconds of the prompt,
// tokens a second, the processor's seconds of both, ids.
// Usage: bolide_decoder_bench MODEL THREADS PROMPT TOKENS
#include <bolide/network.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
double processor() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Caches by the name of the past that reads them.
using Caches = std::map<std::string, bolide::Array>;

struct Decoder {
  bolide::Session session;
  std::map<std::string, std::string> past_of;  // by the present's name
  bool positions = false;                      // position_ids, else attention_mask

  bolide::Expected<std::vector<float>> step(const std::vector<int64_t>& ids, int64_t before, Caches& caches) {
    const auto count = static_cast<int64_t>(ids.size());
    std::vector<int64_t> other;
    for (int64_t i = positions ? before : 0; i < before + count; ++i) other.push_back(positions ? i : 1);
    bolide::NamedArrays inputs = {{"input_ids", bolide::Array::view<int64_t>(ids, {1, count})},
                                  {positions ? "position_ids" : "attention_mask",
                                   bolide::Array::view<int64_t>(other, {1, static_cast<int64_t>(other.size())})}};
    for (const auto& [name, array] : caches) inputs.push_back({name, array});
    auto outputs = session.run(inputs);
    if (!outputs) return outputs.status();
    std::vector<float> logits;
    for (const auto& [name, array] : *outputs) {
      if (name == "logits") {
        const auto width = static_cast<size_t>(array.dims().back());
        const auto last = array.as<float>().last(width);
        logits.assign(last.begin(), last.end());
      } else if (const auto found = past_of.find(name); found != past_of.end()) {
        caches[found->second] = array;
      }
    }
    return logits;
  }
};

int fail(const std::string& message) { return fmt::print(stderr, "{}\n", message), 1; }

int run(char** argv) {
  const int threads = std::atoi(argv[2]), prompt = std::atoi(argv[3]), tokens = std::atoi(argv[4]);
  const auto network = bolide::Network::open(argv[1], {.threads = threads});
  if (!network) return fail(network.status().message);
  auto session = network->session();
  if (!session) return fail(session.status().message);
  Decoder decoder{.session = *std::move(session), .past_of = {}};
  Caches caches;
  static constexpr float kNone[1] = {};
  for (const bolide::Port& port : network->inputs()) {
    decoder.positions = decoder.positions || port.name == "position_ids";
    constexpr std::string_view kPast = "past_key_values";
    if (!port.name.starts_with(kPast) || !port.dims) continue;
    decoder.past_of["present" + port.name.substr(kPast.size())] = port.name;
    caches[port.name] = bolide::Array::view<float>(std::span<const float>(kNone, 0),
                                                   {1, (*port.dims)[1].size, 0, (*port.dims)[3].size});
  }
  const Caches empty = caches;
  std::vector<int64_t> ids;
  double prompt_s = 0, prompt_cpu_s = 0, generate_s = 0, generate_cpu_s = 0;
  for (int pass = 0; pass < 2; ++pass) {  // the first one warms up
    caches = empty;
    ids.clear();
    std::vector<int64_t> given;
    for (int i = 0; i < prompt; ++i) given.push_back(1 + i * 37 % 1000);
    double start = now(), cpu = processor();
    for (int i = 0; i <= tokens; ++i) {
      const auto logits = decoder.step(given, i == 0 ? 0 : prompt + i - 1, caches);
      if (!logits) return fail(logits.status().message);
      if (i == 0) {
        prompt_s = now() - start, prompt_cpu_s = processor() - cpu;
        start = now(), cpu = processor();
      }
      given = {std::max_element(logits->begin(), logits->end()) - logits->begin()};
      if (i < tokens) ids.push_back(given[0]);
    }
    generate_s = now() - start, generate_cpu_s = processor() - cpu;
  }
  fmt::print(
      "{{\"prompt_ms\": {:.2f}, \"prompt_cpu_ms\": {:.2f}, \"tokens_per_s\": {:.3f}, \"token_cpu_ms\": {:.3f}, "
      "\"ids\": [{}]}}\n",
      prompt_s * 1e3, prompt_cpu_s * 1e3, tokens / generate_s, generate_cpu_s * 1e3 / tokens, fmt::join(ids, ", "));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: {} MODEL THREADS PROMPT TOKENS\n", argv[0]);
    return 2;
  }
  return run(argv);
}
