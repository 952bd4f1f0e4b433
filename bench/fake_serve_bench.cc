// A server whose model is a script and costs nothing: the load is on HTTP, the engine's bookkeeping and the client
// (bench/serve_soak.py).
//
//   bolide_fake_serve_bench [STREAMS [STEP_MS [CONTEXT]]]
//
// STREAMS answers run at once, a step takes STEP_MS at least, a prompt and its answer have CONTEXT tokens at most.
// Prompts are token ids. Token k of the answer to a prompt that begins with A, B is " W", W = (A + k * B) mod 1000: a
// client sees at once if one is missing, comes twice or belongs to another. SIGTERM lets requests end.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "engine/testing/fake_runner.h"
#include "formats/tokenizer_json.h"
#include "server/api.h"

namespace bolide::server {
namespace {

class OneModel final : public ModelRegistry {
 public:
  explicit OneModel(std::shared_ptr<const ServedModel> model) : model_(std::move(model)) {}
  std::shared_ptr<const ServedModel> find(std::string_view name) const override {
    return name == model_->name ? model_ : nullptr;
  }
  std::shared_ptr<const ServedNetwork> find_network(std::string_view) const override { return nullptr; }
  std::vector<ModelEntry> list() const override { return {{model_->name, "READY", ""}}; }
  Result<> load(std::string_view) override { return {}; }
  Result<> unload(std::string_view) override { return error(Code::kUnsupported, "the script stays"); }

 private:
  std::shared_ptr<const ServedModel> model_;
};

// Token i is " i".
Result<Tokenizer> numbers() {
  std::string vocab;
  for (int32_t id = 0; id < FakeRunner::kVocab; ++id)
    vocab += fmt::format("{}\"\\u0120{}\":{}", id == 0 ? "" : ",", id, id);
  BOLIDE_TRY(TokenizerSpec spec, parse_tokenizer_json(fmt::format(
                                     R"({{"model":{{"type":"BPE","merges":[],"vocab":{{{}}}}},"decoder":{{"type":)"
                                     R"("ByteLevel"}}}})",
                                     vocab)));
  return Tokenizer::create(std::move(spec));
}

int32_t scripted(const Request& request, int32_t at) {
  const int64_t step = request.prompt.size() > 1 ? request.prompt[1] : 1;
  return static_cast<int32_t>((request.prompt[0] + at * step) % FakeRunner::kVocab);
}

SchedulerOptions limits_for(int32_t streams, int32_t context) {
  SchedulerOptions limits;
  limits.context = context;
  limits.sequences_max = streams;
  limits.tokens_per_step = 2 * streams + 512;
  limits.blocks = streams * (context / limits.block_tokens + 1);
  return limits;
}

Result<> serve(int32_t streams, int64_t step_ms, int32_t context, const sigset_t& stops) {
  auto runner = std::make_unique<FakeRunner>(limits_for(streams, context));
  runner->script = scripted;
  runner->on_submit = [step_ms](const StepBatch&) -> Result<> {
    std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
    return {};
  };
  EngineOptions engine_options;
  engine_options.queue_requests_max = streams;
  auto engine = std::make_shared<Engine>(std::move(runner), engine_options);
  BOLIDE_TRY(Tokenizer tokenizer, numbers());
  OneModel models(std::make_shared<ServedModel>(ServedModel{.name = "script",
                                                            .format = "script",
                                                            .device = "none",
                                                            .created = 1,
                                                            .tokenizer = std::move(tokenizer),
                                                            .chat_template = {},
                                                            .generation = {},
                                                            .stop_ids = {},
                                                            .context = context,
                                                            .vocab = FakeRunner::kVocab,
                                                            .engine = engine}));
  BOLIDE_TRY(auto metrics, Metrics::make(""));
  std::unique_ptr<HttpServer> http;  // outlives the api's exchanges
  Api api(models, {}, std::move(metrics));
  HttpOptions options;
  options.port = 0;
  options.threads = 2;
  options.limits.connections = static_cast<size_t>(streams) + 1000;
  BOLIDE_TRY(http, HttpServer::start(options, [&api](const auto& exchange) { api.handle(exchange); }, Api::error_body));
  api.set_http_stats([&http] { return http->stats(); });
  fmt::print(stderr, "serving on http://127.0.0.1:{}\n", http->port());
  int signal = 0;
  ::sigwait(&stops, &signal);
  api.set_draining();
  engine->drain();
  engine->wait_idle(30'000'000);
  engine->stop();
  http->drain();
  http->wait_closed(std::chrono::seconds(2));
  http->stop();
  return {};
}

}  // namespace
}  // namespace bolide::server

int main(int argc, char** argv) {
  const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
  const int streams = number(1, 1000), step_ms = number(2, 10), context = number(3, 1024);
  if (argc > 4 || streams < 1 || step_ms < 0 || context < 16) {
    fmt::print(stderr, "usage: {} [STREAMS [STEP_MS [CONTEXT]]]\n", argv[0]);
    return 2;
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {  // a connection is a descriptor
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &stops, nullptr);  // before there are threads, which inherit it
  ::signal(SIGPIPE, SIG_IGN);
  const auto done = bolide::server::serve(streams, step_ms, context, stops);
  if (!done) fmt::print(stderr, "{}\n", done.error().text);
  return done ? 0 : 1;
}
