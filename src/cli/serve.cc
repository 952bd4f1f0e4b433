// bolide serve: models behind HTTP.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/config_file.h"
#include "cli/engine_flags.h"
#include "cli/flags.h"
#include "cli/serve_flags.h"
#include "cli/served_models.h"
#include "cli/signals.h"
#include "measure/report.h"
#include "server/api.h"
#include "server/grpc/kserve_grpc.h"
#include "server/kserve_tensors.h"
#include "server/random_id.h"

namespace bolide::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kFooter = R"(Examples:
  bolide serve model.gguf                            on http://127.0.0.1:8000, for programs of this machine
  bolide serve small=model.gguf big=./Qwen2.5-7B-Instruct --port 9000
  bolide serve model.gguf --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem
  bolide serve model.gguf --print-config > serve.yaml; bolide serve --config serve.yaml
  bolide serve resnet50.onnx chat=model.gguf         ONNX models too, by KServe's protocol
  curl http://127.0.0.1:8000/v1/chat/completions --json \
    '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": true}'
  curl http://127.0.0.1:8000/v2/models/resnet50      what an ONNX model takes and gives; /infer runs it
  bolide serve resnet50.onnx --grpc-port 8001        KServe's protocol over gRPC, too
Clients of OpenAI's API take http://127.0.0.1:8000/v1 as their base URL. The first Ctrl-C or SIGTERM lets running
requests end, the second ends at once.)";

constexpr uint64_t kKeyFileBytesMax = 4u << 20;
constexpr int64_t kStepUs = 2'000'000;  // for a step to end, when what was to be answered is cut off

// The command line's flags, and what its configuration file says of the others.
Result<ServeFlags> with_config(ServeFlags flags, const Command& command) {
  if (!flags.config_file.empty()) {
    BOLIDE_TRY(const ConfigFile file, read_config(flags.config_file));
    std::vector<BoundOption> options;
    for (const OptionGroup& group : all_option_groups(flags))
      options.insert(options.end(), group.options.begin(), group.options.end());
    BOLIDE_TRY(apply_config(file, options, [&](std::string_view name) { return command.given(name); }));
    if (flags.engine.models.empty()) flags.engine.models = file.models;
  }
  return flags;
}

// A connection is a descriptor: as many as the system lets this process have.
void allow_connections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void tell(const std::string& line) { std::fprintf(stderr, "%s\n", printable(line).c_str()); }

// "ids INT64[-1,-1], mask INT64[-1,-1]"
std::string ports_text(const std::vector<server::TensorPort>& ports) {
  std::string text;
  for (const server::TensorPort& port : ports)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", port.name, server::kserve_type(port.dtype, port.dims));
  return text;
}

void print_start(const ServeFlags& flags, const ServedModels& models, uint16_t port) {
  const bool tls = !flags.tls_cert.empty();
  const bool v6 = flags.host.find(':') != std::string::npos;
  const bool any = flags.host == "0.0.0.0" || flags.host == "::";
  const std::string host = any ? "localhost" : v6 ? "[" + flags.host + "]" : flags.host;
  const std::string url = fmt::format("{}://{}:{}", tls ? "https" : "http", host, port);
  std::string first;
  for (const server::ModelEntry& entry : models.list()) {
    if (const auto network = models.find_network(entry.name))
      tell(fmt::format("{}: onnx, {:.300} to {:.300}, on {}", entry.name, ports_text(network->inputs),
                       ports_text(network->outputs), network->device));
    const auto model = models.find(entry.name);
    if (model == nullptr) continue;
    if (first.empty()) first = entry.name;
    tell(fmt::format("{}: {}, weights {}, KV cache {}, context {} tokens, on {}", model->name, model->format,
                     format_bytes(model->weight_bytes), format_bytes(model->cache_bytes), model->context,
                     model->device));
  }
  tell(fmt::format("serving on {}{}{}; OpenAI's API at {}/v1, KServe's at {}/v2, Ctrl-C ends", url,
                   any ? fmt::format(" and all other addresses of this machine ({})", flags.host) : "",
                   flags.api_key_file.empty() ? "" : ", with keys", url, url));
  const std::string options =
      fmt::format("{}{}", tls ? "-k " : "", flags.api_key_file.empty() ? "" : "-H 'Authorization: Bearer KEY' ");
  if (first.empty()) {
    tell(fmt::format("try: curl {}{}/v2/models/{}", options, url, models.list().front().name));
    return;
  }
  tell(
      fmt::format("try: curl {}{}/v1/chat/completions --json '{{\"model\": \"{}\", \"messages\": [{{\"role\": "
                  "\"user\", \"content\": \"Hello\"}}]}}'",
                  options, url, first));
}

void print_grpc(const ServeFlags& flags, uint16_t port) {
  const std::string& host = grpc_host(flags);
  tell(fmt::format("KServe's protocol over gRPC{} on {}{}{}:{}", flags.tls_cert.empty() ? "" : ", with TLS,",
                   host.find(':') != std::string::npos ? "[" : "", host, host.find(':') != std::string::npos ? "]" : "",
                   port));
  if (!is_loopback(host))
    tell(
        "warning: the gRPC library gets few repairs, and strangers can exhaust it (docs/kserve.md): let none but "
        "networks that you trust reach this port");
}

// Where requests come from. `metrics`, `grpc`: null, or where metrics are read until all else has ended, and gRPC.
struct Listeners {
  server::HttpServer& http;
  server::HttpServer* metrics;
  server::GrpcServer* grpc;
};

// Requests that run end, new ones are refused; what is not over in time is cut off.
void drain(const ServeFlags& flags, server::Api& api, ServedModels& models, const Listeners& listeners) {
  auto& [http, metrics, grpc] = listeners;
  api.set_draining();
  http.retire();
  if (flags.drain_delay > 0) {
    tell(fmt::format("not ready from now on; requests are taken for {} s more", flags.drain_delay));
    std::this_thread::sleep_for(std::chrono::duration<double>(flags.drain_delay));
  }
  tell(fmt::format("ending: running requests have {} s; the next signal ends at once", flags.engine.drain_seconds));
  models.drain();
  if (!models.wait_idle(static_cast<int64_t>(flags.engine.drain_seconds * 1e6)))
    tell("requests that did not end in time are cut off");
  const std::vector<std::string> hanging = models.stop_within(kStepUs);
  http.drain();
  if (grpc != nullptr) grpc->stop(seconds(2));
  if (!http.wait_closed(seconds(2))) tell("clients that did not take their answers in time are left");
  if (!hanging.empty()) {
    // Nothing of what that step works with may go before it: the process goes as it is.
    tell(fmt::format("bolide: error: a step of {} did not end within {} s and {} s more: the process ends without it",
                     fmt::join(hanging, ", "), flags.engine.drain_seconds, kStepUs / 1'000'000));
    end_at_once(1);
  }
  http.stop();
  if (metrics == nullptr) return;
  metrics->drain();
  metrics->wait_closed(seconds(1));
  metrics->stop();
}

// Options that a reload changes, too; others are named, and wait for a restart.
constexpr std::string_view kReloaded[] = {"api_key_file", "drain_seconds", "drain_delay"};

void tell_of_others(ServeFlags& now, ServeFlags& next) {
  const auto before = all_option_groups(now), after = all_option_groups(next);
  for (size_t g = 0; g < before.size(); ++g)
    for (size_t i = 0; i < before[g].options.size(); ++i) {
      const BoundOption& option = before[g].options[i];
      if (std::find(std::begin(kReloaded), std::end(kReloaded), option.name) == std::end(kReloaded) &&
          value_text(option) != value_text(after[g].options[i]))
        tell(fmt::format("{} has changed: that needs a restart", flag_name(option.name)));
    }
}

// The models that there are then. Those that are new come first: those that go answer until then.
std::vector<std::string> change_models(const std::vector<std::string>& before, const std::vector<std::string>& after,
                                       ServedModels& models) {
  const auto has = [](const std::vector<std::string>& list, const std::string& model) {
    return std::find(list.begin(), list.end(), model) != list.end();
  };
  const auto name = [](const std::string& model) { return split_model_argument(model).first; };
  const auto remove = [&](const std::string& model) {
    const auto done = models.remove(name(model));
    tell(done ? fmt::format("removed {}", model) : fmt::format("removed {}: {}", model, done.error().text));
  };
  std::vector<std::string> gone, there;
  for (const std::string& model : before) (has(after, model) ? there : gone).push_back(model);
  for (const std::string& model : after) {
    if (has(there, model)) continue;
    // One of the same name in another file cannot be there beside it.
    const auto same = std::find_if(gone.begin(), gone.end(), [&](const auto& old) { return name(old) == name(model); });
    if (same != gone.end()) {
      remove(*same);
      gone.erase(same);
    }
    if (const auto added = models.add(model); added) {
      there.push_back(model);
      tell(fmt::format("added {}", model));
    } else {
      tell(fmt::format("{} is not there: {}", model, added.error().text));
      if (models.find(name(model)) == nullptr) (void)models.remove(name(model));
    }
  }
  for (const std::string& model : gone) remove(model);
  return there;
}

// Models and keys as flags and configuration are now. What is wrong in them leaves everything as it is.
Result<> reload(ServeFlags& now, const std::function<Result<ServeFlags>()>& read, server::Api& api,
                ServedModels& models, uint64_t secret) {
  BOLIDE_TRY(ServeFlags next, read());
  BOLIDE_TRY(check_combination(next));
  if (next.api_key_file.empty() != now.api_key_file.empty())
    return error(Code::kInvalid, "api-key-file: that there are keys, or none, cannot change without a restart");
  if (!next.api_key_file.empty()) {
    BOLIDE_TRY(const std::string text, read_file(next.api_key_file, kKeyFileBytesMax));
    BOLIDE_TRY(api.replace_keys(text, next.api_key_file, secret));
  }
  tell_of_others(now, next);
  now.engine.models = change_models(now.engine.models, next.engine.models, models);
  now.engine.drain_seconds = next.engine.drain_seconds;
  now.drain_delay = next.drain_delay;
  now.api_key_file = next.api_key_file;
  return {};
}

// `read`: flags and configuration, anew.
Result<> serve(ServeFlags flags, const std::function<Result<ServeFlags>()>& read, const Version& version) {
  BOLIDE_TRY(check_combination(flags));
  const uint64_t secret = server::random_number();
  std::unique_ptr<server::ApiKeys> keys;
  if (!flags.api_key_file.empty()) {
    BOLIDE_TRY(const std::string text, read_file(flags.api_key_file, kKeyFileBytesMax));
    BOLIDE_TRY(keys, server::ApiKeys::parse(text, flags.api_key_file, secret));
  }
  BOLIDE_TRY(auto metrics, server::Metrics::make(flags.metrics_compat));
  BOLIDE_TRY(const ServedModelOptions options, model_options(flags, secret));
  ServedModels models(options);
  for (const std::string& model : flags.engine.models) BOLIDE_TRY(models.add(model));

  // Exchanges that the api's threads still have must end before the servers do, hence the order.
  std::unique_ptr<server::HttpServer> http, watched;
  std::unique_ptr<server::GrpcServer> grpc;
  server::Api api(models, api_options(flags, version), std::move(metrics), std::move(keys));
  std::atomic<server::HttpServer*> listening{nullptr};
  std::atomic<server::GrpcServer*> grpc_listening{nullptr};
  api.set_http_stats([&listening, &grpc_listening] {
    const server::HttpServer* server = listening;
    server::HttpStats stats = server != nullptr ? server->stats() : server::HttpStats();
    if (const server::GrpcServer* other = grpc_listening) {
      const server::HttpStats more = other->stats();
      stats.connections += more.connections;
      stats.accepted += more.accepted;
      stats.refused += more.refused;
      for (const auto& [status, count] : more.answers) stats.answers[status] += count;
    }
    return stats;
  });
  const auto start = [&api](const server::HttpOptions& where, server::Listener listener) {
    return server::HttpServer::start(
        where, [&api, listener](const auto& exchange) { api.handle(exchange, listener); }, server::Api::error_body,
        [&api, listener](const auto& head, uint64_t* body_bytes) { return api.admit(head, body_bytes, listener); });
  };
  BOLIDE_TRY(http, start(http_options(flags), server::Listener::kMain));
  listening = http.get();
  if (flags.metrics_port >= 0) {
    auto started = start(metrics_http_options(flags), server::Listener::kMetrics);
    if (!started) {
      http->stop();  // which uses the api
      return std::move(started).error();
    }
    watched = *std::move(started);
    tell(fmt::format("/metrics is on port {} of {}", watched->port(), metrics_host(flags)));
  }
  if (flags.grpc_port >= 0) {
    auto started = server::GrpcServer::start(grpc_options(flags), server::kserve_grpc_gate(api));
    if (!started) {
      if (watched != nullptr) watched->stop();
      http->stop();
      return std::move(started).error();
    }
    grpc = *std::move(started);
    grpc_listening = grpc.get();
  }
  catch_stops();
  if (!flags.config_file.empty() || !flags.api_key_file.empty()) catch_hangups();
  ::signal(SIGPIPE, SIG_IGN);  // a client that is gone is an error of that write
  allow_connections();
  print_start(flags, models, http->port());
  if (grpc != nullptr) print_grpc(flags, grpc->port());
  while (wait_for_signal() == SIGHUP) {
    const auto done = reload(flags, read, api, models, secret);
    tell(done ? "reloaded" : fmt::format("not reloaded, all stays as it is: {}", done.error().text));
  }
  drain(flags, api, models, {*http, watched.get(), grpc.get()});
  return {};
}

}  // namespace

void add_serve(const Command& app, Outcome& outcome, const Version& version) {
  const Command command =
      app.add_command("serve", "Answer requests over HTTP, as OpenAI's API and KServe's protocol have it");
  auto flags = std::make_shared<ServeFlags>();
  command.footer(kFooter);
  add_model_arguments(command, flags->engine, "an ONNX file, ");
  command
      .add_option("--config", flags->config_file,
                  "YAML file of these options, by their names without dashes in front; flags go before it")
      .type_name("FILE");
  command.add_flag("--print-config", flags->print_config, "print such a file with what is in force, and end");
  for (const OptionGroup& group : serve_option_groups(*flags)) command.add_options(group.options, group.heading);
  add_engine_flags(command, flags->engine);
  command.callback([flags, command, &outcome, &version] {
    const auto done = [&]() -> Result<> {
      const auto read = [&]() -> Result<ServeFlags> {
        BOLIDE_TRY(ServeFlags all, with_config(*flags, command));
        if (all.engine.models.empty() && !all.print_config)
          return error(Code::kInvalid, "there is no model: give one, or --config FILE with \"models\"");
        return all;
      };
      BOLIDE_TRY(ServeFlags all, read());
      if (all.print_config) {
        fmt::print("{}", config_text(all_option_groups(all), all.engine.models));
        return {};
      }
      return serve(std::move(all), read, version);
    }();
    if (!done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
