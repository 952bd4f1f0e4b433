// bolide tune: which of a library's algorithms is fastest for a model's products on this GPU, kept in a file.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "measure/report.h"
#include "plan/tune_plans.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide tune model.gguf                             steps of 32 tokens, 64, 128 ... as many as a step may have
  bolide tune synth:llama-3-8b:fp8 --tokens 512,2048
Commands that run a model use what was found, on the same GPU, driver and library alone. No weights are read: the
products are measured on random numbers.)";

struct TuneFlags {
  ModelConfigFlags model;
  std::string path, tokens;
  bool again = false, json = false;
};

constexpr Option<TuneFlags> kTuneOptions[] = {
    {"tokens", &TuneFlags::tokens, {}, "tokens of the steps, separated by commas; empty: 32, 64, 128 ..."},
    {"again", &TuneFlags::again, {}, "measure what the file has already, too"},
    {"json", &TuneFlags::json, {}, "one JSON object on standard output"},
};

constexpr int32_t kSequences = 512;  // whose next token a step may be asked for

Result<std::vector<int64_t>> parse_tokens(std::string_view list, int64_t most) {
  std::vector<int64_t> tokens;
  if (list.empty())
    for (int64_t t = 32; t <= most; t *= 2) tokens.push_back(t);
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    int64_t value = 0;
    const auto [stop, failure] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (failure != std::errc() || stop != word.data() + word.size() || value < 1 || value > most)
      return error(Code::kInvalid,
                   fmt::format("--tokens {:.40}: expected numbers from 1 to {}, separated by commas", word, most));
    tokens.push_back(value);
    list.remove_prefix(std::min(list.size(), word.size() + 1));
  }
  return tokens;
}

Result<> tune_model(const TuneFlags& flags) {
  BOLIDE_TRY(ModelOptions options, to_model_options(flags.model));
  if (options.device == DeviceKind::kCpu)
    return error(Code::kUnsupported, "there is nothing to tune on the CPU: its kernels have no choices to measure");
  options.sequences = kSequences;
  BOLIDE_TRY(const std::unique_ptr<Device> device, make_device(options));
  const std::filesystem::path file = tuning_file(options, device->info());
  if (file.empty())
    return error(Code::kInvalid,
                 "there is no cache folder (neither XDG_CACHE_HOME nor HOME is set): say --tuning-cache FILE");
  if (!options.tuning_cache.empty()) {
    BOLIDE_TRY(check_output_file(file));
    BOLIDE_TRY(TimingCache::check_is_ours(file));
  }
  BOLIDE_TRY(PlanSet plans, outline_plans(flags.path, options));
  const SymbolValues most = plans.limits().sizes;
  BOLIDE_TRY(const std::vector<int64_t> tokens, parse_tokens(flags.tokens, most[Symbol::kTokens]));
  std::vector<SymbolValues> buckets;
  for (const int64_t t : tokens)
    buckets.push_back({{t, std::min(t, most[Symbol::kSequences]), std::min(t, most[Symbol::kRows])}});

  TimingCache timings = TimingCache::read(file, tuning_fingerprint(device->info()));
  Table table({{"product"}, {"us", 1}, {"untuned_us", 1}, {"tflop_per_s", 0}, {"gain_percent", 1}, {"measured", 0}});
  int improved = 0;
  ProgressLine line;
  const auto progress = [&](const TuneProgress& now) {
    line.show(fmt::format("tuning {} of {}: {}", now.done, now.all, now.key));
    if (now.tuned == nullptr) return;
    const Tuned& tuned = *now.tuned;
    improved += tuned.candidate > 0 ? 1 : 0;
    table.add({now.key, tuned.seconds * 1e6, tuned.untuned_seconds * 1e6, tuned.flops / tuned.seconds / 1e12,
               100 * (tuned.untuned_seconds / tuned.seconds - 1), static_cast<double>(tuned.measured)});
  };
  const auto done = tune_plans(plans, *device, buckets, flags.again, &timings, progress);
  line.clear();
  BOLIDE_TRY(timings.write(file));  // what was measured before an error as well
  BOLIDE_TRY(done);
  if (flags.json) {
    fmt::print("{{\"machine\": {}, \"file\": {}, \"products\": {}}}\n", nlohmann::json(device->info().name).dump(),
               nlohmann::json(file.native()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
               table.to_json());
    return {};
  }
  fmt::print("{}{}{} faster than untuned; {} choices in {}\n", device->info().name, "\n" + table.to_text(), improved,
             timings.size(), file.native());
  return {};
}

}  // namespace

void add_tune(const Command& app, Outcome& outcome) {
  const Command command = app.add_command("tune", "Measure which algorithms are fastest for a model on this GPU");
  auto flags = std::make_shared<TuneFlags>();
  command.footer(kFooter);
  command.add_option("model", flags->path, "a GGUF file, a Hugging Face folder, an engine or synth:NAME").required();
  const auto own = bind_options(*flags, kTuneOptions);
  command.add_options(own);
  const auto model = bind_options(flags->model, kModelOptions);
  command.add_options(model, "Model");
  command.callback([flags, &outcome] {
    if (const auto done = tune_model(*flags); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
