// bolide bench serve: loads a server as its users would, and says what they would get.
#include <fmt/format.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/cpu.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/signals.h"
#include "measure/http/fetch.h"
#include "measure/load/prompts.h"
#include "measure/load/schedule.h"
#include "measure/load/summary.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide bench serve http://127.0.0.1:8000                             one user, 128 tokens in and out, 30 seconds
  bolide bench serve http://127.0.0.1:8000 --concurrency 1,4,16        users that wait for their answers
  bolide bench serve http://127.0.0.1:8000 --rate 2,5 --promise ttft=500ms,itl=50ms
  bolide bench serve http://127.0.0.1:8000 --requests mine.jsonl --html report.html --json > report.json
  bolide bench serve http://127.0.0.1:8000 --dialect kserve --model llama

--concurrency is a closed loop: it hides overload, since users wait. --rate is an open loop: users come whatever the
server does, and latencies count from when a request was due. --requests FILE.jsonl has one JSON object a line:
{"prompt": "..."} or {"messages": [...]}, and "output_tokens" if it is not --output-tokens.
itl in --promise is the mean time between a request's tokens, gap the longest, e2e the whole answer.
Ctrl-C ends with a report of what there is.)";

struct BenchServeFlags {
  std::string url, dialect = "openai-chat", model, concurrency, rate, arrival = "poisson", requests, extra, promise;
  std::string ignore_eos = "auto", html;
  std::vector<std::string> headers;
  double duration = 30, timeout = 120;
  int64_t count = 0, seed = 1;
  int32_t prompt_tokens = 128, output_tokens = 128, shared_tokens = 0;
  bool json = false;
};

constexpr Option<BenchServeFlags> kBenchServeOptions[] = {
    {"dialect", &BenchServeFlags::dialect, {.choices = "openai-chat|openai|kserve"}, "how the server is spoken to"},
    {"model", &BenchServeFlags::model, {}, "its name on the server; empty: the first it lists"},
    {"concurrency", &BenchServeFlags::concurrency, {}, "closed loop: numbers of users, one run each: 1,4,16"},
    {"rate", &BenchServeFlags::rate, {}, "open loop: requests a second, one run each: 2,5"},
    {"arrival", &BenchServeFlags::arrival, {.choices = "poisson|fixed"}, "how requests of an open loop come"},
    {"duration",
     &BenchServeFlags::duration,
     {.unit = "s", .min = 0.1, .max = 86400},
     "of one run; then answers are awaited"},
    {"count", &BenchServeFlags::count, {.unit = "requests", .min = 0}, "most requests of one run; 0: no limit"},
    {"timeout", &BenchServeFlags::timeout, {.unit = "s", .min = 0.1, .max = 86400}, "of one request"},
    {"prompt_tokens",
     &BenchServeFlags::prompt_tokens,
     {.min = 1, .max = 1 << 20},
     "random words of a prompt, about a token each"},
    {"shared_tokens",
     &BenchServeFlags::shared_tokens,
     {.min = 0, .max = 1 << 20},
     "words before them that are the same in every prompt"},
    {"output_tokens", &BenchServeFlags::output_tokens, {.min = 1, .max = 1 << 20}, "tokens of an answer, at most"},
    {"requests", &BenchServeFlags::requests, {}, "file with the requests, a JSON object a line"},
    {"ignore_eos",
     &BenchServeFlags::ignore_eos,
     {.choices = "auto|yes|no"},
     "ask for answers of full length; auto: if the server takes the field"},
    {"extra", &BenchServeFlags::extra, {}, "JSON object whose fields go into every request"},
    {"seed", &BenchServeFlags::seed, {.min = 0}, "of prompts and arrivals"},
    {"promise", &BenchServeFlags::promise, {}, "what goodput counts: ttft=500ms,itl=50ms,gap=200ms,e2e=10s"},
    {"html", &BenchServeFlags::html, {}, "write a page with plots to this file"},
    {"json", &BenchServeFlags::json, {}, "one JSON object on standard output in place of the tables"},
};

std::atomic<bool> stop_wanted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_stop_signal(int signal) {
  if (stop_wanted.exchange(true)) end_by_signal(signal);  // the second time
}

// While it lives, the first Ctrl-C asks for an end with a report.
class StopOnSignals {
 public:
  StopOnSignals() {
    stop_wanted = false;
    struct sigaction action{};
    action.sa_handler = on_stop_signal;
    for (size_t i = 0; i < kSignals.size(); ++i)
      if (!is_ignored(kSignals[i])) ::sigaction(kSignals[i], &action, &before_[i]);
  }
  ~StopOnSignals() {
    for (size_t i = 0; i < kSignals.size(); ++i)
      if (!is_ignored(kSignals[i])) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

 private:
  static constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};
  std::array<struct sigaction, 2> before_{};
};

// "1,4,16": numbers in (0, max].
Result<std::vector<double>> parse_list(std::string_view flag, std::string_view text, double max) {
  std::vector<double> values;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    double value = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != part.data() + part.size() || !(value > 0) || value > max)
      return error(Code::kInvalid, fmt::format("{}: \"{}\" is not a number above 0 and up to {}; give numbers with "
                                               "commas between: 1,4,16",
                                               flag, part.substr(0, 40), max));
    values.push_back(value);
  }
  return values;
}

Result<std::string> header_lines(std::span<const std::string> headers) {
  std::string lines;
  for (const std::string& header : headers) {
    const size_t colon = header.find(':');
    if (colon == 0 || colon == std::string::npos || header.find_first_of("\r\n") != std::string::npos)
      return error(Code::kInvalid, fmt::format("--header \"{}\" is not \"Name: value\"", header.substr(0, 60)));
    lines += header + "\r\n";
  }
  return lines;
}

std::string first_error(const http::Answer& answer) {
  const load::StreamEvent said = load::read_event(answer.body);
  std::string text = said.error_text.empty() ? answer.body.substr(0, 200) : said.error_text;
  return fmt::format("HTTP {}{}{}", answer.status, text.empty() ? "" : ": ", text);
}

Result<std::string> find_model(const load::Target& target) {
  const bool kserve = target.dialect == load::Dialect::kKserve;
  constexpr double kTimeoutSeconds = 30;
  std::string said;
  for (const bool repository : {kserve, false}) {
    const std::string request =
        repository ? http::request_text(target.url, "POST", "/v2/repository/index", target.headers, "{}")
                   : http::request_text(target.url, "GET", "/v1/models", target.headers, "");
    const auto answer = http::fetch(target.address, request, kTimeoutSeconds);
    if (answer && answer->status == 200) {
      const std::vector<std::string> names = load::model_names(answer->body);
      if (!names.empty()) return names.front();
      said = "it lists none";
    } else {
      said = answer ? first_error(*answer) : answer.error().text;
    }
  }
  return error(Code::kUnavailable,
               fmt::format("{}: the server does not say which models it has ({}); give --model NAME",
                           http::authority(target.url), said));
}

// One short request, before anything is measured: does the server answer at all, and does it take the fields that not
// every server knows? Those it refuses are left out from then on.
Result<> try_one(const load::Target& target, const load::Prompts& prompts, double timeout_s,
                 load::RequestFields* fields, bool may_drop_eos, std::vector<std::string>* notes) {
  load::RequestFields probe = *fields;
  prompts.fill(0, &probe);
  probe.output_tokens = std::min(probe.output_tokens, 4);
  for (;;) {
    const std::string body = load::request_body(target.dialect, probe);
    BOLIDE_TRY(const http::Answer answer,
               http::fetch(target.address, http::request_text(target.url, "POST", target.route, target.headers, body),
                           timeout_s)
                   .context(http::authority(target.url) + target.url.path + target.route));
    const bool refused = answer.status == 400 || answer.status == 422;
    if (refused && probe.ignore_eos && may_drop_eos) {
      probe.ignore_eos = false;
      continue;
    }
    if (refused && probe.ask_usage && target.dialect != load::Dialect::kKserve) {
      probe.ask_usage = false;
      probe.ignore_eos = fields->ignore_eos;
      continue;
    }
    const std::string where = http::authority(target.url) + target.url.path + target.route;
    if (answer.status != 200) return error(Code::kUnavailable, fmt::format("{}: {}", where, first_error(answer)));
    if (answer.content_type != "text/event-stream")
      return error(Code::kInvalid, fmt::format("{}: the answer is no stream of events but {}; is --dialect {} right?",
                                               where, answer.content_type.substr(0, 60), to_string(target.dialect)));
    if (fields->ignore_eos && !probe.ignore_eos)
      notes->push_back("the server refuses ignore_eos: answers end where the model ends them");
    if (fields->ask_usage && !probe.ask_usage)
      notes->push_back("the server refuses stream_options: tokens are counted by events");
    fields->ignore_eos = probe.ignore_eos;
    fields->ask_usage = probe.ask_usage;
    return {};
  }
}

struct Point {
  int32_t concurrency = 0;
  double rate = 0;
};

Result<std::vector<Point>> points_of(const BenchServeFlags& flags) {
  BOLIDE_TRY(const std::vector<double> users, parse_list("--concurrency", flags.concurrency, 100'000));
  BOLIDE_TRY(const std::vector<double> rates, parse_list("--rate", flags.rate, 100'000));
  std::vector<Point> points;
  for (const double value : users) {
    if (value != std::floor(value)) return error(Code::kInvalid, "--concurrency: users come whole");
    points.push_back({static_cast<int32_t>(value), 0});
  }
  for (const double value : rates) points.push_back({0, value});
  if (points.empty()) points.push_back({1, 0});
  return points;
}

Result<load::Summary> run_point(const Point& point, const BenchServeFlags& flags, const load::Target& target,
                                const load::Prompts& prompts, load::RequestFields fields,
                                const load::Promise& promise) {
  load::LoadPlan plan;
  plan.duration_s = flags.duration;
  plan.timeout_s = flags.timeout;
  plan.requests_max = flags.count;
  if (point.concurrency > 0) {
    plan.concurrency = point.concurrency;
  } else {
    plan.arrivals_s = load::arrival_times(flags.arrival == "fixed" ? load::Arrival::kFixed : load::Arrival::kPoisson,
                                          point.rate, flags.duration, flags.count, static_cast<uint64_t>(flags.seed));
    if (plan.arrivals_s.empty())
      return error(Code::kInvalid,
                   fmt::format("--rate {}: no request is due within --duration {} s", point.rate, flags.duration));
  }
  ProgressLine line;
  const std::string name = point.concurrency > 0 ? fmt::format("concurrency {}", point.concurrency)
                                                 : fmt::format("{:g} requests/s", point.rate);
  const auto show = [&](const load::LoadProgress& progress) {
    line.show(fmt::format("{}: {:.0f} of {:.0f} s, {} sent, {} answered, {} errors, {} under way, {} events", name,
                          progress.elapsed_s, flags.duration, progress.sent, progress.ok, progress.failed,
                          progress.in_flight, progress.events));
  };
  const auto body = [&](int64_t index) {
    prompts.fill(index, &fields);
    return load::request_body(target.dialect, fields);
  };
  BOLIDE_TRY(const load::RunLog log, load::run_load(target, plan, body, stop_wanted, show));
  return load::summarise_run(log, plan, promise, point.rate);
}

Result<int> bench_serve(const BenchServeFlags& flags, const Version& version) {
  BOLIDE_TRY(const std::vector<Point> points, points_of(flags));
  BOLIDE_TRY(const load::Promise promise, load::parse_promise(flags.promise));
  BOLIDE_TRY(load::check_extra(flags.extra));
  load::Target target;
  BOLIDE_TRY(target.url, http::parse_url(flags.url));
  BOLIDE_TRY(target.dialect, load::parse_dialect(flags.dialect));
  BOLIDE_TRY(target.headers, header_lines(flags.headers));
  if (!flags.html.empty()) {
    BOLIDE_TRY(check_output_file(flags.html));
  }
  const load::WordOptions words{flags.prompt_tokens, flags.shared_tokens, flags.output_tokens,
                                static_cast<uint64_t>(flags.seed)};
  load::Prompts prompts = load::Prompts::of_words(words);
  if (!flags.requests.empty()) {
    BOLIDE_TRY(prompts, load::Prompts::of_file(flags.requests, words));
  }
  if (prompts.has_messages() && target.dialect != load::Dialect::kOpenaiChat)
    return error(Code::kInvalid, fmt::format("{}: \"messages\" are for --dialect openai-chat", flags.requests));
  constexpr double kConnectSeconds = 10;
  BOLIDE_TRY(target.address, http::resolve(target.url, kConnectSeconds));
  load::RequestFields fields;
  fields.model = flags.model;
  if (fields.model.empty()) {
    BOLIDE_TRY(fields.model, find_model(target));
  }
  target.route = load::route(target.dialect, fields.model);
  fields.extra_json = flags.extra;
  fields.ignore_eos = flags.ignore_eos != "no";
  load::RunDescription run;
  BOLIDE_TRY(try_one(target, prompts, flags.timeout, &fields, flags.ignore_eos == "auto", &run.notes));

  run.url = "http://" + http::authority(target.url) + target.url.path;
  run.model = fields.model;
  run.dialect = flags.dialect;
  run.requests = flags.requests.empty()
                     ? fmt::format("{} random words in ({} of them shared), {} tokens out",
                                   flags.prompt_tokens + flags.shared_tokens, flags.shared_tokens, flags.output_tokens)
                     : fmt::format("{} lines of {}", prompts.lines(), flags.requests);
  run.arrival = flags.arrival;
  run.machine = describe(detect_cpu());
  run.commit = version.commit;
  run.seed = static_cast<uint64_t>(flags.seed);

  const StopOnSignals signals;
  std::vector<load::Summary> summaries;
  bool answered = false;
  for (const Point& point : points) {
    if (stop_wanted) break;
    BOLIDE_TRY(load::Summary summary, run_point(point, flags, target, prompts, fields, promise));
    answered = answered || summary.ok > 0;
    summaries.push_back(std::move(summary));
  }
  if (flags.json) {
    fmt::print("{}\n", load::json_text(run, summaries));
  } else {
    fmt::print("{}, model {}, {}; {}\n", run.url, printable(run.model), run.dialect, run.requests);
    for (const std::string& note : run.notes) fmt::print("note: {}\n", note);
    fmt::print("\n{}", load::table_text(summaries));
    for (const load::Summary& summary : summaries) fmt::print("\n{}", load::details_text(summary));
  }
  if (!flags.html.empty()) {
    BOLIDE_TRY(write_file_atomically(flags.html, as_bytes(load::html_text(run, summaries))));
  }
  if (stop_wanted) return 130;
  if (!answered) return error(Code::kUnavailable, "no request was answered; the errors are above");
  return 0;
}

}  // namespace

void add_bench_serve(const Command& bench, Outcome& outcome, const Version& version) {
  const Command command = bench.add_command("serve", "Load a server over HTTP and measure what its users get");
  auto flags = std::make_shared<BenchServeFlags>();
  command.footer(kFooter);
  command.keep_to_itself();
  command.add_option("url", flags->url, "of the server, http only: http://127.0.0.1:8000").required();
  const auto options = bind_options(*flags, kBenchServeOptions);
  command.add_options(options);
  command.add_option("--header", flags->headers, "\"Name: value\" of every request (may be repeated)").repeated();
  command.callback([flags, &outcome, &version] {
    const auto code = bench_serve(*flags, version);
    outcome.code = code ? *code : report(code.error());
  });
}

}  // namespace bolide::cli
