// bolide batch: the requests of a file, answered as fast as the models can, into a file.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "app/network.h"
#include "base/json_string.h"
#include "base/utf8.h"
#include "cli/batch_progress.h"
#include "cli/cli.h"
#include "cli/engine_flags.h"
#include "cli/flags.h"
#include "cli/signals.h"
#include "server/batch/batch.h"
#include "server/random_id.h"

namespace bolide::cli {
namespace {

using Clock = std::chrono::steady_clock;
using server::BatchOrder;
using server::IdTable;

constexpr const char* kFooter = R"(Examples:
  bolide batch requests.jsonl model.gguf -o answers.jsonl
  bolide batch requests.jsonl small=model.gguf big=./Qwen2.5-7B-Instruct -o answers.jsonl
  bolide batch requests.jsonl model.gguf -o answers.jsonl --retry-errors
Both files are in OpenAI's batch format. A line of requests:
  {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...], "max_tokens": 100}}
Answers come in the order in which they are ready. The same command again goes on where it was ended, killed or without
power: requests whose custom_id is in the output are not asked again, whatever else was changed. The first Ctrl-C or
SIGTERM lets running requests end, the second ends at once.
Exit code: 0 if all requests have answers, 3 if some failed (their lines say why), 1 if the batch could not go on.)";

constexpr int kSomeFailed = 3;

struct BatchFlags {
  EngineFlags engine;
  std::string file, output;
  bool retry_errors = false, json = false;
};

constexpr Option<BatchFlags> kBatchOptions[] = {
    {"retry_errors",
     &BatchFlags::retry_errors,
     {},
     "ask those that failed again; their lines are taken out of the output first"},
    {"json", &BatchFlags::json, {}, "the summary as one JSON object on standard output"},
};

void tell(const std::string& line) { std::fprintf(stderr, "%s\n", printable(line).c_str()); }

Result<std::vector<std::string>> names_of(const std::vector<std::string>& models) {
  std::vector<std::string> names;
  for (const std::string& model : models) {
    const auto [name, path] = split_model_argument(model);
    if (is_network(path))
      return error(Code::kInvalid,
                   fmt::format("{}: an ONNX model has no completions; bolide run or serve runs it", path));
    names.push_back(name);
  }
  return names;
}

// A name that no model has would make a failure of every line, after the models were loaded.
Result<> check_model(const server::BatchLine& line, const std::vector<std::string>& names) {
  if (line.model.empty() && names.size() == 1) return {};
  if (line.model.empty())
    return error(Code::kInvalid, fmt::format("body.model: is required, as there are {}", fmt::join(names, ", ")));
  if (std::find(names.begin(), names.end(), line.model) != names.end()) return {};
  return error(Code::kNotFound, fmt::format("body.model: is \"{:.200}\", but there is {}; {:.200}=MODEL calls one so",
                                            line.model, fmt::join(names, ", "), line.model));
}

struct BatchFiles {
  IdTable ids;
  std::unique_ptr<server::Ledger> ledger;
  BatchTotals totals;
};

Result<BatchFiles> open_files(const BatchFlags& flags) {
  BatchFiles files;
  std::error_code none;
  if (std::filesystem::equivalent(flags.file, flags.output, none))
    return error(Code::kInvalid,
                 fmt::format("{}: is the file of the requests; give another name for the output", flags.output));
  BOLIDE_TRY(const std::vector<std::string> names, names_of(flags.engine.models));
  ProgressLine line;
  BOLIDE_TRY(server::check_batch_file(
      flags.file, &files.ids, [&](const server::BatchLine& request) { return check_model(request, names); },
      [&](uint64_t bytes) { line.show(fmt::format("checking {}: {} MiB", flags.file, bytes >> 20)); }));
  BOLIDE_TRY(files.ledger, server::Ledger::open(flags.output, {flags.retry_errors}, &files.ids, [&](uint64_t lines) {
               line.show(fmt::format("reading {}: {} lines", flags.output, lines));
             }));
  line.clear();
  if (files.ledger->cut_bytes() > 0)
    tell(fmt::format("{}: an unfinished line was cut off ({} bytes)", flags.output, files.ledger->cut_bytes()));
  files.totals.requests = files.ids.count(IdTable::kListed);
  files.totals.answered_before = files.ids.count(IdTable::kListed | IdTable::kAnswered);
  files.totals.failed_before = files.ids.count(IdTable::kListed | IdTable::kFailed);
  if (const uint64_t others = files.ids.count(IdTable::kAnswered) - files.totals.answered_before; others > 0)
    tell(fmt::format("{} has {} answers to requests that {} does not have; they stay", flags.output, others,
                     flags.file));
  return files;
}

server::ApiOptions api_options() {
  server::ApiOptions options;
  options.body_bytes_max = server::kRequestLineBytesMax;
  options.long_body_bytes = std::numeric_limits<size_t>::max();
  options.request_us_max = int64_t{100} * 365 * 86'400 * 1'000'000;  // a century, which clocks of nanoseconds can count
  return options;
}

// Nothing is refused because too much waits: how much is under way is the batch's to say.
Result<ServedModelOptions> model_options(const BatchFlags& flags) {
  BOLIDE_TRY(ServedModelOptions options, to_served_options(flags.engine, server::random_number()));
  options.engine.queue_requests_max = std::numeric_limits<int32_t>::max();
  options.engine.queue_tokens_max = std::numeric_limits<int64_t>::max();
  return options;
}

int64_t drawn_by(const ServedModels& models) {
  int64_t drawn = 0;
  for (const server::ModelEntry& entry : models.list())
    if (const auto model = models.find(entry.name)) drawn += model->engine->stats().drawn;
  return drawn;
}

// What is asked while the batch runs: shows how far it is, and obeys signals.
class Attendant {
 public:
  Attendant(const BatchFlags& flags, const ServedModels& models, const BatchTotals& totals)
      : flags_(flags), models_(models), totals_(totals) {}

  BatchOrder operator()(const server::BatchCounts& counts) {
    const auto now = Clock::now();
    line_.show(progress_text(totals_, counts, drawn_by(models_), seconds()));
    if (stop_signal() == 0) return BatchOrder::kGo;
    if (!ending_) {
      ending_ = now + std::chrono::microseconds(static_cast<int64_t>(flags_.engine.drain_seconds * 1e6));
      line_.clear();
      tell(fmt::format("ending: {} running requests have {} s; the next signal ends at once", counts.under_way,
                       flags_.engine.drain_seconds));
    }
    return now < *ending_ ? BatchOrder::kEnd : BatchOrder::kEndNow;
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void clear() { line_.clear(); }

 private:
  const BatchFlags& flags_;
  const ServedModels& models_;
  const BatchTotals totals_;
  const Clock::time_point begin_ = Clock::now();
  std::optional<Clock::time_point> ending_;
  ProgressLine line_;
};

struct BatchEnd {
  server::BatchCounts counts;
  double seconds = 0;
  std::optional<Error> failure;
};

// The engines end before the batch does, to whose thread they hand over.
Result<BatchEnd> answer(const BatchFlags& flags, BatchFiles& files, const Version& version) {
  BOLIDE_TRY(const ServedModelOptions options, model_options(flags));
  BOLIDE_TRY(auto metrics, server::Metrics::make(""));
  ServedModels models(options);
  for (const std::string& model : flags.engine.models) BOLIDE_TRY(models.add(model));
  server::ApiOptions of_api = api_options();
  of_api.version = version.number;
  server::Api api(models, of_api, std::move(metrics));
  server::BatchOptions of_batch;
  // An engine that has ended an answer finds the next request waiting.
  of_batch.under_way_max = static_cast<size_t>(options.model.sequences) * 2 * flags.engine.models.size();
  server::Batch batch(api, models, *files.ledger, of_batch);
  catch_stops();
  Attendant attendant(flags, models, files.totals);
  auto done = batch.run(flags.file, &files.ids, attendant);
  BatchEnd end;
  end.seconds = attendant.seconds();
  attendant.clear();
  models.stop();
  end.counts = batch.counts();
  if (!done) end.failure = std::move(done).error();
  return end;
}

int batch(const BatchFlags& flags, const Version& version) {
  auto files = open_files(flags);
  if (!files) return report(files.error());
  const BatchTotals& totals = files->totals;
  BatchEnd end;
  if (totals.answered_before < totals.requests) {
    auto made = answer(flags, *files, version);
    if (!made) return report(made.error());
    end = *std::move(made);
  }
  tell(summary_text(totals, end.counts, end.seconds));
  if (flags.json) fmt::print("{}\n", summary_json(totals, end.counts, end.seconds));
  if (const uint64_t left = totals.left(end.counts); left > 0)
    tell(fmt::format("{} requests have no answer yet; the same command goes on with them", left));
  if (end.failure) return report(*end.failure);
  if (stop_signal() != 0 && totals.left(end.counts) > 0) {
    std::fflush(stdout);
    end_by_signal(stop_signal());
  }
  return totals.failed(end.counts) > 0 ? kSomeFailed : 0;
}

}  // namespace

void add_batch(const Command& app, Outcome& outcome, const Version& version) {
  const Command command = app.add_command("batch", "Answer the requests of a file, as OpenAI's batches do");
  auto flags = std::make_shared<BatchFlags>();
  command.footer(kFooter);
  command.add_option("file", flags->file, "requests: a JSON object a line, with custom_id, method, url and body")
      .required();
  add_model_arguments(command, flags->engine).required();
  command.add_option("-o,--output", flags->output, "answers: written line by line, and read when the batch goes on")
      .required()
      .take_last();
  command.add_options(bind_options(*flags, kBatchOptions));
  add_engine_flags(command, flags->engine);
  command.callback([flags, &outcome, &version] { outcome.code = batch(*flags, version); });
}

}  // namespace bolide::cli
