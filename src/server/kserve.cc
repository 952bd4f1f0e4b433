#include "server/kserve.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/clock.h"
#include "base/json_string.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/generation.h"
#include "server/http_text.h"
#include "server/kserve_models.h"
#include "server/kserve_response.h"
#include "server/kserve_tensors.h"
#include "server/prompts.h"
#include "server/random_id.h"

namespace bolide::server {
namespace {

constexpr size_t kLongBody = 64 * 1024;  // bodies beyond this are read aside
constexpr int32_t kTokens = 20;          // of an answer, if a request does not say: the protocol's default

HttpResponse json_response(std::string body) { return {200, {{"Content-Type", "application/json"}}, std::move(body)}; }

// A page of another origin may make its visitors' browsers send requests, which say where they are from.
bool is_foreign(const HttpRequest& request) {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return false;
  const size_t host = origin.find("://");
  return host == std::string_view::npos || origin.substr(host + 3) != request.header("host");
}

// Inference-Header-Content-Length; nothing: there is none.
Result<std::optional<uint64_t>> json_bytes_of(const HttpRequest& request) {
  const std::string_view text = request.header("inference-header-content-length");
  if (text.empty()) return std::optional<uint64_t>();
  uint64_t bytes = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (fault != std::errc() || end != text.data() + text.size())
    return error(Code::kInvalid, fmt::format("Inference-Header-Content-Length: {:.40} is no number of bytes", text));
  return std::optional<uint64_t>(bytes);
}

// What a request may take at most, and what it says itself.
int64_t deadline_of(int64_t begun_us, int64_t most_us, std::optional<int64_t> wish_us) {
  return begun_us + std::min(most_us, wish_us.value_or(most_us));
}

size_t bytes_of(const std::vector<AnyValue>& values) {
  size_t bytes = 0;
  for (const AnyValue& value : values) bytes += raw_bytes(*value.tensor());
  return bytes;
}

}  // namespace

struct Kserve::Action {
  std::string_view name, method;  // the end of a path: "/infer"
  void (Kserve::*handler)(const Call&);
  bool has_body = false;
};

// A longer name that ends like a shorter one goes first.
constexpr Kserve::Action Kserve::kActions[] = {
    {"/infer", "POST", &Kserve::infer, true},
    {"/generate_stream", "POST", &Kserve::generate_stream, true},
    {"/generate", "POST", &Kserve::generate, true},
    {"/ready", "GET", &Kserve::ready},
    {"/stats", "GET", &Kserve::statistics},
    {"/config", "GET", &Kserve::config},
    {"", "GET", &Kserve::metadata},
};

Kserve::Kserve(ModelRegistry& registry, Metrics& metrics, ApiKeys* keys, KserveOptions options, RequestLog& log)
    : registry_(registry),
      metrics_(metrics),
      keys_(keys),
      options_(std::move(options)),
      log_(log),
      changes_(1, 16),
      text_(options_.text_threads,
            [this](const Shared& exchange, const Error& failure) { refuse(exchange, failure); }) {}

void Kserve::refuse(const Shared& exchange, HttpResponse response) {
  metrics_.refused(response.status);
  exchange->respond(std::move(response));
}
void Kserve::refuse(const Shared& exchange, const Error& failure) { refuse(exchange, kserve_error(failure)); }

void Kserve::refuse_method(const Shared& exchange, std::string_view allowed) {
  HttpResponse response = kserve_error(405, fmt::format("{:.200} takes {}", exchange->request().path, allowed));
  response.headers.emplace_back("Allow", allowed);
  refuse(exchange, std::move(response));
}

bool Kserve::check(const Shared& exchange, std::string_view method) {
  const HttpRequest& request = exchange->request();
  const bool fits = request.method == method || (method == "GET" && request.method == "HEAD");
  if (!fits) {
    refuse_method(exchange, method);
  } else if (method == "POST" && is_foreign(request)) {
    refuse(exchange, kserve_error(403, "pages of other origins cannot use this server"));
  } else if (!request.header("content-encoding").empty() && request.header("content-encoding") != "identity") {
    refuse(exchange, kserve_error(415, fmt::format("Content-Encoding: {:.40}: this server reads bodies as they are",
                                                   request.header("content-encoding"))));
  } else if (request.body.size() > options_.body_bytes_max) {
    refuse(exchange, kserve_error(413, fmt::format("the body has {} bytes, at most {}", request.body.size(),
                                                   options_.body_bytes_max)));
  } else {
    return true;
  }
  return false;
}

HttpResponse Kserve::stranger() {
  HttpResponse response =
      kserve_error(401, "this server needs an API key: send Authorization: Bearer KEY, with one that it knows");
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

void Kserve::handle(const Shared& exchange, const ApiKey& caller) {
  constexpr std::string_view kModels = "/v2/models/", kRepository = "/v2/repository/";
  const std::string_view path = exchange->request().path;
  if (path == "/v2" || path == "/v2/") {
    if (check(exchange, "GET")) exchange->respond(json_response(server_metadata_json(options_.version)));
  } else if (path == "/v2/models/stats") {
    if (check(exchange, "GET")) all_statistics(exchange);
  } else if (path.starts_with(kModels)) {
    model(exchange, &caller, path.substr(kModels.size()));
  } else if (path.starts_with(kRepository)) {
    repository(exchange, path.substr(kRepository.size()));
  } else {
    refuse(exchange, kserve_error(404, fmt::format("there is nothing at {:.200}", path)));
  }
}

// "MODEL[/versions/VERSION][/ACTION]", whose model may have slashes in it.
void Kserve::model(const Shared& exchange, const ApiKey* caller, std::string_view path) {
  const Action* action = kActions;
  while (!path.ends_with(action->name)) ++action;
  path.remove_suffix(action->name.size());
  constexpr std::string_view kVersions = "/versions/";
  const size_t at = path.rfind(kVersions);
  const std::string_view version = at == std::string_view::npos ? kModelVersion : path.substr(at + kVersions.size());
  Call call{exchange, caller, std::string(path.substr(0, at)), steady_us()};
  if (!check(exchange, action->method)) return;
  if (version != kModelVersion)
    return refuse(exchange, error(Code::kNotFound, fmt::format("model {:.200} has version {} alone, not {:.40}",
                                                               call.model, kModelVersion, version)));
  if (!action->has_body || exchange->request().body.size() <= kLongBody) return (this->*action->handler)(call);
  text_.add(exchange, [this, call, handler = action->handler] { (this->*handler)(call); });
}

Error Kserve::not_there(const std::string& model) const {
  for (const ModelEntry& entry : registry_.list())
    if (entry.name == model)
      return error(Code::kUnavailable, fmt::format("model {} is {}: {}", model, entry.state, entry.reason));
  return error(Code::kNotFound, fmt::format("there is no model {:.200}", model));
}

Result<ModelOutline> Kserve::outline(const std::string& model) const {
  if (const auto language = registry_.find(model)) return outline_of(*language);
  if (const auto network = registry_.find_network(model)) return outline_of(*network);
  return not_there(model);
}

void Kserve::metadata(const Call& call) {
  const auto outline = this->outline(call.model);
  if (!outline) return refuse(call.exchange, outline.error());
  call.exchange->respond(json_response(model_metadata_json(*outline)));
}

void Kserve::config(const Call& call) {
  const auto outline = this->outline(call.model);
  if (!outline) return refuse(call.exchange, outline.error());
  call.exchange->respond(json_response(model_config_json(*outline)));
}

void Kserve::ready(const Call& call) {
  const auto outline = this->outline(call.model);
  if (!outline) return refuse(call.exchange, outline.error());
  if (const auto language = registry_.find(call.model)) {
    const EngineStats stats = language->engine->stats();
    if (stats.state != EngineState::kReady || stats.stalled())
      return refuse(
          call.exchange,
          error(Code::kUnavailable, fmt::format("the engine of {} is {} {}", call.model,
                                                stats.stalled() ? "stalled" : to_string(stats.state), stats.failure)));
  }
  std::string name;
  append_json_string(name, call.model);
  call.exchange->respond(json_response(fmt::format(R"({{"name":{},"ready":true}})", name)));
}

void Kserve::statistics(const Call& call) {
  const auto outline = this->outline(call.model);
  if (!outline) return refuse(call.exchange, outline.error());
  const NamedTotals one{call.model, metrics_.totals(call.model)};
  call.exchange->respond(json_response(statistics_json(std::span(&one, 1))));
}

void Kserve::all_statistics(const Shared& exchange) {
  std::vector<NamedTotals> all;
  for (const ModelEntry& entry : registry_.list())
    if (entry.state == "READY") all.push_back({entry.name, metrics_.totals(entry.name)});
  exchange->respond(json_response(statistics_json(all)));
}

void Kserve::repository(const Shared& exchange, std::string_view path) {
  if (path != "index" && !(path.starts_with("models/") && (path.ends_with("/load") || path.ends_with("/unload"))))
    return refuse(exchange, kserve_error(404, fmt::format("there is nothing at {:.200}", exchange->request().path)));
  if (!check(exchange, "POST")) return;
  if (path != "index" && !options_.model_control)
    return refuse(exchange, kserve_error(403, "models are not loaded and unloaded by requests (--no-model-control)"));
  const std::string& body = exchange->request().body;
  if (path == "index") {
    const auto ready = parse_index_request(body, options_.limits);
    if (!ready) return refuse(exchange, ready.error());
    return exchange->respond(json_response(index_json(registry_.list(), *ready)));
  }
  path.remove_prefix(std::string_view("models/").size());
  const size_t slash = path.rfind('/');
  const bool load = path.substr(slash) == "/load";
  const std::string name(path.substr(0, slash));
  const auto checked = load ? check_load_request(body, options_.limits) : check_unload_request(body, options_.limits);
  if (!checked) return refuse(exchange, checked.error());
  if (!changes_.add([this, exchange, name, load] { change(exchange, name, load); }))
    refuse(exchange, error(Code::kOverloaded, "too many models wait to be loaded or unloaded"));
}

// On a thread of changes_.
void Kserve::change(const Shared& exchange, const std::string& name, bool load) {
  const auto done = load ? registry_.load(name) : registry_.unload(name);
  log::info(load ? "model loaded by a request" : "model unloaded by a request",
            {{"model", std::string_view(name)},
             {"client", std::string_view(exchange->request().client)},
             {"error", std::string_view(done ? "" : done.error().text)}});
  if (!done) return refuse(exchange, done.error());
  exchange->respond(json_response(""));
}

void Kserve::infer(const Call& call) {
  if (const auto network = registry_.find_network(call.model)) return infer_network(call, network);
  if (const auto model = registry_.find(call.model)) return infer_text(call, model);
  refuse(call.exchange, not_there(call.model));
}

// One request to a network, on its way through the queue.
struct Kserve::Run {
  Call call;
  std::shared_ptr<const ServedNetwork> network;
  std::string id;
  std::vector<ChosenOutput> outputs;
  std::shared_ptr<ModelMetrics> metrics;
  std::shared_ptr<void> while_it_runs;
  int64_t input_us = 0;

  Result<HttpResponse> response(const NetworkQueue::Values& values) const {
    std::vector<OutputTensor> tensors;
    for (const ChosenOutput& output : outputs) {
      const std::string& name = network->outputs[output.place].name;
      const Tensor* tensor = values[output.place].tensor();
      if (tensor == nullptr)
        return error(Code::kUnsupported, fmt::format("output {:.100}: is no tensor this time", name));
      tensors.push_back({name, tensor, output.raw});
    }
    return infer_response({call.model, id}, tensors);
  }

  // On a thread of the queue.
  void end(const Result<NetworkQueue::Values>& values, const NetworkQueue::Times& times) {
    const int64_t ended = steady_us();
    auto made = catching_bad_alloc(
        [&]() -> Result<HttpResponse> { return values ? response(*values) : Result<HttpResponse>(values.error()); });
    const int64_t now = steady_us();
    metrics->run_ended({.reason = made ? "stop" : "error",
                        .all_us = now - call.begun_us,
                        .input_us = input_us,
                        .queue_us = times.queue_us,
                        .run_us = times.run_us,
                        .output_us = now - ended});
    log::info("run over", {{"model", std::string_view(call.model)},
                           {"client", std::string_view(call.exchange->request().client)},
                           {"error", std::string_view(made ? "" : made.error().text)},
                           {"queue_us", times.queue_us},
                           {"run_us", times.run_us}});
    while_it_runs = nullptr;
    network = nullptr;  // before the client can ask for the model's end
    call.exchange->respond(made ? *std::move(made) : kserve_error(made.error()));
  }
};

void Kserve::infer_network(const Call& call, const std::shared_ptr<const ServedNetwork>& network) {
  const HttpRequest& http = call.exchange->request();
  auto run = std::make_shared<Run>();
  const auto job = [&]() -> Result<NetworkQueue::Job> {
    BOLIDE_TRY(const std::optional<uint64_t> json_bytes, json_bytes_of(http));
    BOLIDE_TRY(InferRequest request, json_bytes == uint64_t{0}
                                         ? raw_infer_request(http.body, network->inputs, options_.limits)
                                         : parse_infer_request(http.body, json_bytes, options_.limits));
    if (!request.parameters.empty())
      return error(Code::kUnsupported, fmt::format("parameters.{:.64}: this server does not have it; leave it out",
                                                   request.parameters.begin().key()));
    BOLIDE_TRY(run->outputs, choose_outputs(request, network->outputs));
    NetworkQueue::Job made;
    BOLIDE_TRY(made.inputs, match_inputs(std::move(request.inputs), network->inputs));
    made.bytes = bytes_of(made.inputs);
    made.deadline_us = deadline_of(call.begun_us, options_.request_us_max, request.timeout_us);
    run->id = std::move(request.id);
    if (keys_ != nullptr) {
      BOLIDE_TRY(run->while_it_runs, keys_->enter(*call.caller, call.begun_us));
    }
    return made;
  };
  auto made = catching_bad_alloc(job);
  if (!made) return refuse(call.exchange, made.error());
  run->call = call;
  run->network = network;
  run->metrics = metrics_.of_model(call.model);
  run->input_us = steady_us() - call.begun_us;
  made->done = [run](const Result<NetworkQueue::Values>& values, const NetworkQueue::Times& times) {
    run->end(values, times);
  };
  const auto number = network->queue->submit(*std::move(made));
  if (!number) return refuse(call.exchange, number.error());
  call.exchange->on_gone(
      [weak = std::weak_ptr(network), number = *number, metrics = run->metrics, begun_us = call.begun_us] {
        const auto there = weak.lock();
        if (there != nullptr && there->queue->cancel(number))
          metrics->run_ended({.reason = "cancelled", .all_us = steady_us() - begun_us});
      });
}

void Kserve::infer_text(const Call& call, const std::shared_ptr<const ServedModel>& model) {
  const HttpRequest& http = call.exchange->request();
  const std::vector<TensorPort> outputs = outline_of(*model).outputs;
  std::shared_ptr<const AnswerFormat> format;
  auto request = [&]() -> Result<TextRequest> {
    BOLIDE_TRY(const std::optional<uint64_t> json_bytes, json_bytes_of(http));
    BOLIDE_TRY(const InferRequest infer, json_bytes == uint64_t{0}
                                             ? raw_infer_request(http.body, outline_of(*model).inputs, options_.limits)
                                             : parse_infer_request(http.body, json_bytes, options_.limits));
    BOLIDE_TRY(const std::vector<ChosenOutput> chosen, choose_outputs(infer, outputs));
    BOLIDE_TRY(TextRequest text, text_of_infer(infer, options_.limits));
    format = infer_format({call.model, text.id}, Shape(text.shape), chosen.front().raw);
    return text;
  }();
  if (!request) return refuse(call.exchange, request.error());
  answer_text(call, *std::move(request), std::move(format));
}

void Kserve::generate(const Call& call) {
  auto request = parse_generate_request(call.exchange->request().body, options_.limits);
  if (!request) return refuse(call.exchange, request.error());
  const KserveHead head{call.model, request->id};
  answer_text(call, *std::move(request), generate_format(head));
}

void Kserve::generate_stream(const Call& call) {
  auto request = parse_generate_request(call.exchange->request().body, options_.limits);
  if (!request) return refuse(call.exchange, request.error());
  request->wishes.stream = true;
  const KserveHead head{call.model, request->id};
  answer_text(call, *std::move(request), generate_format(head));
}

void Kserve::answer_text(const Call& call, TextRequest request, std::shared_ptr<const AnswerFormat> format) {
  const auto job = [&]() -> Result<GenerationJob> {
    GenerationJob made;
    made.model = registry_.find(call.model);
    if (made.model == nullptr && registry_.find_network(call.model) != nullptr)
      return error(Code::kUnsupported, fmt::format("model {} generates no text: use infer", call.model));
    if (made.model == nullptr) return not_there(call.model);
    std::string param, code;
    made.wishes = std::move(request.wishes);
    BOLIDE_TRY(check_wishes(*made.model, made.wishes, &param));
    made.format = std::move(format);
    made.route = call.exchange->request().path;
    made.metrics = metrics_.of_model(call.model);
    BOLIDE_TRY(check_priority(*call.caller, made.wishes.priority));
    made.head = {"kserve-" + random_id(), call.model, unix_seconds(), false};
    if (keys_ != nullptr) {
      BOLIDE_TRY(made.while_it_runs, keys_->enter(*call.caller, call.begun_us));
    }
    BOLIDE_TRY(std::vector<int32_t> ids, prompt_ids(*made.model, Prompt(std::move(request.text)), &code));
    BOLIDE_TRY(Request one, make_request(*made.model, made.wishes, std::move(ids), kTokens, random_number(), &param));
    one.deadline_us = deadline_of(call.begun_us, options_.request_us_max, request.timeout_us);
    one.key = call.caller->number;
    one.cache_salt = call.caller->salt;
    made.requests.push_back(std::move(one));
    made.record =
        std::make_shared<RequestRecord>(made.head.id, made.route, made.model, call.caller->number, call.begun_us);
    log_.add(made.record);
    return made;
  }();
  if (!job) return refuse(call.exchange, job.error());
  // On the exchange's own thread, wherever this runs.
  call.exchange->post([exchange = call.exchange, made = std::make_shared<GenerationJob>(*job)] {
    start_generation(exchange, std::move(*made));
  });
}

}  // namespace bolide::server
