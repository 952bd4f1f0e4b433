// bolide serve: models behind HTTP.
#include <fmt/format.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>

#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/served_models.h"
#include "cli/signals.h"
#include "measure/report.h"
#include "server/api.h"

namespace bolide::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kFooter = R"(Examples:
  bolide serve model.gguf                            on http://127.0.0.1:8000, for programs of this machine
  bolide serve small=model.gguf big=./Qwen2.5-7B-Instruct --port 9000
  bolide serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem
  curl http://127.0.0.1:8000/v1/chat/completions --json \
    '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": true}'
Clients of OpenAI's API take http://127.0.0.1:8000/v1 as their base URL. The first Ctrl-C or SIGTERM lets running
requests end, the second ends at once.)";

struct ServeFlags {
  ModelConfigFlags model;
  std::vector<std::string> models;
  std::string host = "127.0.0.1";
  int32_t port = 8000;
  int32_t max_sequences = 0;
  int64_t cache_tokens = 0;
  int32_t tokens_per_step = 0;
  bool no_prefix_cache = false;
  double target_itl_ms = 0;
  int32_t queue_requests = 1024;
  int64_t queue_tokens = 1 << 22;
  double request_seconds = 600;
  double drain_seconds = 30;
  std::string api_key_file;
  bool no_auth = false;
  std::string tls_cert, tls_key;
  int32_t http_threads = 2;
  int64_t body_bytes = 16 << 20;
  std::string template_file, metrics_compat;
};

constexpr Option<ServeFlags> kServeOptions[] = {
    {"host",
     &ServeFlags::host,
     {},
     "address to listen on: 127.0.0.1 for this machine alone, 0.0.0.0 or :: for all of its addresses"},
    {"port", &ServeFlags::port, {.min = 0, .max = 65535}, "TCP port; 0: any free one"},
    {"api_key_file",
     &ServeFlags::api_key_file,
     {},
     "file of keys that clients must send, a line each: NAME KEY [concurrent=N] [requests-per-minute=N] [urgent]"},
    {"no_auth",
     &ServeFlags::no_auth,
     {},
     "everybody may ask: listen beyond this machine without keys, or answer to any name that it is called by"},
    {"tls_cert", &ServeFlags::tls_cert, {}, "certificate chain (PEM): the server speaks HTTPS"},
    {"tls_key", &ServeFlags::tls_key, {}, "the certificate's private key (PEM)"},
    {"metrics_compat",
     &ServeFlags::metrics_compat,
     {.choices = "|vllm|trtllm|triton"},
     "/metrics has these names too, for dashboards that know them"},
    {"http_threads", &ServeFlags::http_threads, {.min = 1, .max = 256}, "threads that read and write for clients"},
    {"body_bytes", &ServeFlags::body_bytes, {.unit = "bytes", .min = 1024, .max = 1 << 30}, "a request's body at most"},
};

constexpr Option<ServeFlags> kEngineOptions[] = {
    {"max_sequences",
     &ServeFlags::max_sequences,
     {.min = 0, .max = 4096},
     "answers that are made at once; more wait; 0: 32, on GPUs 256"},
    {"cache_tokens",
     &ServeFlags::cache_tokens,
     {.unit = "tokens", .min = 0},
     "that all prompts and answers at once may have; 0: eight times the context"},
    {"tokens_per_step",
     &ServeFlags::tokens_per_step,
     {.unit = "tokens", .min = 0, .max = 1 << 20},
     "of prompts and answers in one step at most; 0: 512, on GPUs 8192"},
    {"target_itl_ms",
     &ServeFlags::target_itl_ms,
     {.unit = "ms", .min = 0},
     "time between two tokens of an answer that prompts of others should not stretch; 0: as it comes"},
    {"no_prefix_cache", &ServeFlags::no_prefix_cache, {}, "compute every prompt from its beginning"},
    {"queue_requests",
     &ServeFlags::queue_requests,
     {.min = 1, .max = 1 << 20},
     "requests that may wait for each model; beyond that 429"},
    {"queue_tokens", &ServeFlags::queue_tokens, {.unit = "tokens", .min = 1}, "tokens of prompts that may wait"},
    {"request_seconds",
     &ServeFlags::request_seconds,
     {.unit = "s", .min = 0.1, .max = 1e6},
     "from a request to the end of its answer at most"},
    {"drain_seconds",
     &ServeFlags::drain_seconds,
     {.unit = "s", .min = 0, .max = 1e6},
     "that running requests get to end after SIGTERM"},
};

sem_t g_stop;
std::atomic<int> g_stops{0};

// The first signal lets requests end, the second ends the program.
void on_stop(int signal) {
  if (g_stops.fetch_add(1) > 0) end_by_signal(signal);
  ::sem_post(&g_stop);
}

void catch_stops() {
  ::sem_init(&g_stop, 0, 0);
  struct sigaction action{};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) ::sigaction(signal, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a client that is gone is an error of that write
}

// A connection is a descriptor: as many as the system lets this process have.
void allow_connections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

constexpr int32_t kCacheContexts = 8;  // that the cache has room for, unless a flag says otherwise

uint64_t random_number() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Flags that cannot all be meant, and those that would leave the server open by mistake.
Result<> check_combination(const ServeFlags& flags) {
  if (flags.tls_cert.empty() != flags.tls_key.empty())
    return error(Code::kInvalid, "--tls-cert and --tls-key belong together: give both or neither");
  if (flags.no_auth && !flags.api_key_file.empty())
    return error(Code::kInvalid, "--no-auth and --api-key-file contradict each other");
  if (!is_loopback(flags.host) && flags.api_key_file.empty() && !flags.no_auth)
    return error(Code::kInvalid, fmt::format("--host {:.100} lets others than this machine ask: give --api-key-file, "
                                             "or --no-auth if everybody may",
                                             flags.host));
  return {};
}

Result<ServedModelOptions> model_options(const ServeFlags& flags, uint64_t secret) {
  ServedModelOptions options;
  BOLIDE_TRY(options.model, to_model_options(flags.model));
  const bool gpu = options.model.device != DeviceKind::kCpu;
  options.model.sequences = flags.max_sequences > 0 ? flags.max_sequences : gpu ? 256 : 32;
  options.model.tokens_per_step = flags.tokens_per_step;
  options.model.cache_tokens = flags.cache_tokens;
  options.model.cache_contexts = kCacheContexts;
  options.engine.prefix_cache = !flags.no_prefix_cache;
  options.engine.secret = secret;
  options.engine.itl_target_us = flags.target_itl_ms * 1000;
  options.engine.queue_requests_max = flags.queue_requests;
  options.engine.queue_tokens_max = flags.queue_tokens;
  options.template_file = flags.template_file;
  options.drain_us = static_cast<int64_t>(flags.drain_seconds * 1e6);
  return options;
}

void tell(const std::string& line) { std::fprintf(stderr, "%s\n", printable(line).c_str()); }

void print_start(const ServeFlags& flags, const ServedModels& models, uint16_t port) {
  const bool tls = !flags.tls_cert.empty();
  const bool v6 = flags.host.find(':') != std::string::npos;
  const bool any = flags.host == "0.0.0.0" || flags.host == "::";
  const std::string host = any ? "localhost" : v6 ? "[" + flags.host + "]" : flags.host;
  const std::string url = fmt::format("{}://{}:{}", tls ? "https" : "http", host, port);
  std::string first;
  for (const server::ModelEntry& entry : models.list()) {
    const auto model = models.find(entry.name);
    if (model == nullptr) continue;
    if (first.empty()) first = entry.name;
    tell(fmt::format("{}: {}, weights {}, KV cache {}, context {} tokens, on {}", model->name, model->format,
                     format_bytes(model->weight_bytes), format_bytes(model->cache_bytes), model->context,
                     model->device));
  }
  tell(fmt::format("serving on {}{}{}; OpenAI's API at {}/v1, Ctrl-C ends", url,
                   any ? fmt::format(" and all other addresses of this machine ({})", flags.host) : "",
                   flags.api_key_file.empty() ? "" : ", with keys", url));
  tell(
      fmt::format("try: curl {}{}/v1/chat/completions{} --json '{{\"model\": \"{}\", \"messages\": [{{\"role\": "
                  "\"user\", \"content\": \"Hello\"}}]}}'",
                  tls ? "-k " : "", url, flags.api_key_file.empty() ? "" : " -H 'Authorization: Bearer KEY'", first));
}

// Requests that run end, new ones are refused; what is not over in time is cut off.
void drain(const ServeFlags& flags, server::Api& api, ServedModels& models, server::HttpServer& http) {
  tell(fmt::format("ending: running requests have {} s; the next signal ends at once", flags.drain_seconds));
  api.set_draining();
  http.retire();
  models.drain();
  if (!models.wait_idle(static_cast<int64_t>(flags.drain_seconds * 1e6)))
    tell("requests that did not end in time are cut off");
  models.stop();
  http.drain();
  if (!http.wait_closed(seconds(2))) tell("clients that did not take their answers in time are left");
  http.stop();
}

Result<> serve(const ServeFlags& flags, const Version& version) {
  BOLIDE_TRY(check_combination(flags));
  const uint64_t secret = random_number();
  std::unique_ptr<server::ApiKeys> keys;
  if (!flags.api_key_file.empty()) {
    BOLIDE_TRY(const std::string text, read_file(flags.api_key_file, 4u << 20));
    BOLIDE_TRY(keys, server::ApiKeys::parse(text, flags.api_key_file, secret));
  }
  BOLIDE_TRY(auto metrics, server::Metrics::make(flags.metrics_compat));
  BOLIDE_TRY(const ServedModelOptions options, model_options(flags, secret));
  ServedModels models(options);
  for (const std::string& model : flags.models) BOLIDE_TRY(models.add(model));

  server::ApiOptions api_options;
  api_options.version = version.number;
  api_options.body_bytes_max = static_cast<size_t>(flags.body_bytes);
  api_options.request_us_max = static_cast<int64_t>(flags.request_seconds * 1e6);
  api_options.loopback_names_only = keys == nullptr && !flags.no_auth;
  server::HttpOptions http_options;
  http_options.host = flags.host;
  http_options.port = static_cast<uint16_t>(flags.port);
  http_options.threads = flags.http_threads;
  http_options.tls_certificate = flags.tls_cert;
  http_options.tls_key = flags.tls_key;
  http_options.limits.body_bytes = static_cast<uint64_t>(flags.body_bytes);

  // Exchanges that the api's threads still have must end before the server does, hence the order.
  std::unique_ptr<server::HttpServer> http;
  server::Api api(models, api_options, std::move(metrics), std::move(keys));
  std::atomic<server::HttpServer*> listening{nullptr};
  api.set_http_stats([&listening] {
    const server::HttpServer* server = listening;
    return server != nullptr ? server->stats() : server::HttpStats();
  });
  BOLIDE_TRY(http, server::HttpServer::start(
                       http_options, [&api](const auto& exchange) { api.handle(exchange); }, server::Api::error_body,
                       [&api](const auto& head, uint64_t* body_bytes) { return api.admit(head, body_bytes); }));
  listening = http.get();
  catch_stops();
  allow_connections();
  print_start(flags, models, http->port());
  while (::sem_wait(&g_stop) != 0) {
  }
  drain(flags, api, models, *http);
  return {};
}

}  // namespace

void add_serve(const Command& app, Outcome& outcome, const Version& version) {
  const Command command = app.add_command("serve", "Answer requests over HTTP, as OpenAI's API does");
  auto flags = std::make_shared<ServeFlags>();
  command.footer(kFooter);
  command
      .add_option("model", flags->models,
                  "[NAME=]MODEL: a GGUF file, a Hugging Face folder, an engine or synth:NAME, and the name that "
                  "requests call it by (without: that of the file)")
      .required();
  command.add_options(bind_options(*flags, kServeOptions), "Server");
  command.add_options(bind_options(*flags, kEngineOptions), "Engine");
  command.add_option("--template,--template-file", flags->template_file, "Jinja file to use as the chat template")
      .take_last();
  const auto model = bind_options(flags->model, kModelOptions);
  command.add_options(model, "Model");
  command.callback([flags, &outcome, &version] {
    if (const auto done = serve(*flags, version); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
