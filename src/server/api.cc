#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/json_string.h"
#include "server/generation.h"
#include "server/http_text.h"
#include "server/kserve_response.h"
#include "server/openai_request.h"
#include "server/playground.h"
#include "server/prompts.h"
#include "server/random_id.h"

namespace bolide::server {
namespace {

constexpr std::string_view kMetricsPath = "/metrics";
constexpr size_t kShortBody = 64 * 1024;    // where none is expected
constexpr size_t kTokenizeBody = 1u << 20;  // tokens take many times the memory of their text
constexpr int32_t kCompletionTokens = 16;   // OpenAI's default

HttpResponse json_response(std::string body) { return {200, {{"Content-Type", "application/json"}}, std::move(body)}; }

std::string model_json(const ServedModel& model) {
  return fmt::format(R"({{"id":{},"object":"model","created":{},"owned_by":"bolide","max_model_len":{}}})",
                     json_string(model.name), model.created, model.context);
}

HttpResponse stranger() {
  HttpResponse response = status_response(401, kKeyNeeded, "invalid_api_key");
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

bool is_json(std::string_view content_type) {
  const std::string type = lower_case(content_type.substr(0, content_type.find(';')));
  return type.starts_with("application/json");
}

}  // namespace

struct Api::Route {
  std::string_view method, path;  // a path that ends in a slash: all that begin so
  void (Api::*handler)(const Shared&, const ApiKey& caller);
  bool long_work = false;     // with a body of JSON
  bool open = false;          // needs no key
  size_t body_bytes_max = 0;  // 0: what all of its kind have
  bool watching = false;      // is on Listener::kMetrics, too
};

constexpr Api::Route Api::kRoutes[] = {
    {"POST", "/v1/chat/completions", &Api::chat, true},
    {"POST", "/v1/completions", &Api::completions, true},
    {"GET", "/v1/models", &Api::models},
    {"GET", "/v1/models/", &Api::model},
    {"GET", "/v1/requests/", &Api::timeline},
    {"POST", "/tokenize", &Api::tokenize, true, false, kTokenizeBody},
    {"POST", "/detokenize", &Api::detokenize, true},
    {"GET", "/health", &Api::ready, false, true, 0, true},
    {"GET", "/health/ready", &Api::ready, false, true, 0, true},
    {"GET", "/health/live", &Api::live, false, true, 0, true},
    {"GET", "/v2/health/ready", &Api::ready, false, true, 0, true},
    {"GET", "/v2/health/live", &Api::live, false, true, 0, true},
    {"GET", "/ping", &Api::live, false, true, 0, true},
    {"GET", "/version", &Api::version},
    {"GET", kMetricsPath, &Api::metrics, false, false, 0, true},
    {"GET", "/playground", &Api::playground, false, true},
};

constexpr Api::Route Api::kKserve = {"", "/v2", &Api::kserve};

Api::Api(ModelRegistry& registry, const ApiOptions& options, std::unique_ptr<Metrics> metrics,
         std::unique_ptr<ApiKeys> keys)
    : registry_(registry),
      options_(options),
      metrics_(std::move(metrics)),
      keys_(std::move(keys)),
      text_(options.text_threads),
      calls_(registry_, *metrics_, keys_.get(),
             {.limits = options.limits,
              .version = options.version,
              .body_bytes_max = options.body_bytes_max,
              .request_us_max = options.request_us_max,
              .text_threads = options.text_threads,
              .model_control = options.model_control},
             log_),
      kserve_(calls_) {}

bool Api::calls_us_rightly(const HttpRequest& request, Listener listener, std::string* refusal) const {
  const std::string_view host = request.header("host");  // browsers always send it
  const bool checked =
      listener == Listener::kMain ? options_.loopback_names_only : options_.metrics_listener->loopback_names_only;
  if (!checked || host.empty() || is_loopback_host(host)) return true;
  *refusal = fmt::format(
      "this server needs no key, so it answers only those who call it localhost, 127.0.0.1 or [::1], "
      "not {:.200}; start it with --api-key-file, or with --no-auth if everybody may ask",
      host);
  return false;
}

bool Api::calls_us_rightly(const HttpRequest& head, std::string* refusal) const {
  return calls_us_rightly(head, Listener::kMain, refusal);
}

const ApiKey* Api::caller_of(const HttpRequest& head, int* status, std::string* refusal) const {
  *status = 403;
  if (!calls_us_rightly(head, refusal)) return nullptr;
  *status = 401;
  *refusal = kKeyNeeded;
  return key_of(head);
}

bool Api::has(Listener listener, const Route& route) const {
  if (listener == Listener::kMetrics) return route.watching;
  return !options_.metrics_listener || route.path != kMetricsPath;
}

const Api::Route* Api::route_of(const HttpRequest& request, Listener listener, HttpResponse* refusal,
                                const ApiKey** caller) const {
  if (std::string why; !calls_us_rightly(request, listener, &why)) {
    *refusal = status_response(403, why, "host_not_allowed");
    return nullptr;
  }
  static const ApiKey kAnybody;
  const bool open = listener == Listener::kMetrics && !options_.metrics_listener->needs_key;
  *caller = open ? &kAnybody : key_of(request);
  std::string allowed;
  for (const Route& route : kRoutes) {
    if (!has(listener, route)) continue;
    const bool all_below = route.path.ends_with('/');
    if (all_below ? !request.path.starts_with(route.path) || request.path.size() == route.path.size()
                  : request.path != route.path)
      continue;
    if (request.method == route.method || (request.method == "HEAD" && route.method == "GET")) {
      if (route.open || *caller != nullptr) return &route;
      *refusal = stranger();
      return nullptr;
    }
    allowed = route.method;
  }
  if (allowed.empty() && listener == Listener::kMain && Kserve::has(request.path)) {
    if (*caller != nullptr) return &kKserve;
    *refusal = Kserve::stranger();
    return nullptr;
  }
  // What there is is nobody's business who has no key.
  if (*caller == nullptr) {
    *refusal = stranger();
  } else if (allowed.empty()) {
    *refusal = status_response(404, fmt::format("there is nothing at {:.200}", request.path), "not_found");
  } else {
    *refusal = status_response(405, fmt::format("{:.200} takes {}", request.path, allowed), "method_not_allowed");
    refusal->headers.emplace_back("Allow", allowed);
  }
  return nullptr;
}

size_t Api::body_limit(const Route& route) const {
  const size_t most = route.long_work || &route == &kKserve ? options_.body_bytes_max : kShortBody;
  return route.body_bytes_max > 0 ? std::min(route.body_bytes_max, most) : most;
}

std::optional<HttpResponse> Api::admit(const HttpRequest& head, uint64_t* body_bytes_max, Listener listener) {
  HttpResponse refusal;
  const ApiKey* caller = nullptr;
  if (const Route* route = route_of(head, listener, &refusal, &caller)) {
    *body_bytes_max = std::min<uint64_t>(*body_bytes_max, body_limit(*route));
    return std::nullopt;
  }
  metrics_->refused(refusal.status);
  return refusal;
}

void Api::handle(const Shared& exchange, Listener listener) {
  HttpResponse refusal;
  static const ApiKey kNobody;  // who asks for what is open to all
  const ApiKey* caller = nullptr;
  const Route* route = route_of(exchange->request(), listener, &refusal, &caller);
  if (route == nullptr) return refuse(exchange, std::move(refusal));
  if (caller == nullptr) caller = &kNobody;
  if (route->long_work) return with_body(exchange, *route, *caller);
  (this->*route->handler)(exchange, *caller);
}

const ApiKey* Api::key_of(const HttpRequest& request) const {
  static const ApiKey kAnybody{.urgent = true};
  if (keys_ == nullptr) return &kAnybody;
  std::string_view key = request.header("x-api-key");
  const std::string_view authorization = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (lower_case(authorization.substr(0, kBearer.size())) == kBearer) key = authorization.substr(kBearer.size());
  return keys_->find(key);
}

Result<> Api::replace_keys(std::string_view text, std::string_view label, uint64_t secret) {
  if (keys_ == nullptr) return error(Code::kInvalid, "this server was started without keys");
  return keys_->replace(text, label, secret);
}

void Api::refuse(const Shared& exchange, HttpResponse response) {
  metrics_->refused(response.status);
  exchange->respond(std::move(response));
}

HttpResponse Api::error_body(int status, std::string_view what, std::string_view path) {
  if (Kserve::has(path)) return kserve_error(status, what);
  const std::string_view code = status == 408   ? "request_timeout"
                                : status == 413 ? "body_too_large"
                                : status == 431 ? "headers_too_large"
                                : status == 500 ? "internal"
                                : status == 501 ? "not_implemented"
                                : status == 503 ? "too_many_connections"
                                                : "bad_request";
  HttpResponse response = status_response(status, what, code);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

void Api::with_body(const Shared& exchange, const Route& route, const ApiKey& caller) {
  const HttpRequest& request = exchange->request();
  if (!is_json(request.header("content-type")))
    return refuse(exchange, status_response(415, "the body must be JSON: send Content-Type: application/json",
                                            "unsupported_media_type"));
  if (request.body.size() > body_limit(route))
    return refuse(
        exchange,
        status_response(413, fmt::format("the body has {} bytes, at most {}", request.body.size(), body_limit(route)),
                        "body_too_large"));
  if (request.body.size() <= options_.long_body_bytes) return (this->*route.handler)(exchange, caller);
  text_.add(
      exchange, [this, exchange, handler = route.handler, from = &caller] { (this->*handler)(exchange, *from); },
      [this, exchange](const Error& failure) { refuse(exchange, error_response(failure)); });
}

Result<std::shared_ptr<const ServedModel>> Api::find(const std::string& name, std::string* param) const {
  *param = "model";
  std::vector<std::string> names;
  for (const ModelEntry& entry : registry_.list()) {
    if (registry_.find(entry.name) != nullptr) names.push_back(entry.name);
    if (entry.state == "LOADING" && (name.empty() || name == entry.name))
      return error(Code::kUnavailable, fmt::format("model {} {}; try again", entry.name, entry.reason));
  }
  if (name.empty() && names.size() != 1)
    return error(Code::kInvalid, fmt::format("model: is required; this server has {}", fmt::join(names, ", ")));
  if (auto model = registry_.find(name.empty() ? names.front() : name)) {
    param->clear();
    return model;
  }
  return error(Code::kNotFound,
               fmt::format("there is no model {:.200}; this server has {}", name, fmt::join(names, ", ")));
}

std::string Api::state() const {
  if (draining_) return "draining";
  std::string loading;
  bool any = false;
  for (const ModelEntry& entry : registry_.list()) {
    const auto model = registry_.find(entry.name);
    if (model == nullptr) {  // not wanted at the moment, or not yet there
      if (entry.state == "LOADING") loading = fmt::format("{}: {}", entry.name, entry.reason);
      continue;
    }
    any = true;
    const EngineStats stats = model->engine->stats();
    if (stats.state == EngineState::kFailed)
      return fmt::format("{}: the engine has failed: {}", entry.name, stats.failure);
    if (stats.stalled()) return fmt::format("{}: a step takes far too long", entry.name);
  }
  if (!any && !loading.empty()) return loading;
  return "ready";
}

void Api::live(const Shared& exchange, const ApiKey&) { exchange->respond(json_response(R"({"status":"live"})")); }

void Api::ready(const Shared& exchange, const ApiKey&) {
  const std::string now = state();
  HttpResponse response = json_response(fmt::format(R"({{"status":{}}})", json_string(now)));
  if (now != "ready") response.status = 503;
  exchange->respond(std::move(response));
}

void Api::version(const Shared& exchange, const ApiKey&) {
  exchange->respond(json_response(fmt::format(R"({{"version":{}}})", json_string(options_.version))));
}

void Api::metrics(const Shared& exchange, const ApiKey&) {
  exchange->respond({200,
                     {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                     metrics_->text(registry_, http_stats_ ? http_stats_() : HttpStats())});
}

void Api::kserve(const Shared& exchange, const ApiKey& caller) { kserve_.handle(exchange, caller); }

// "/v1/requests/ID/timeline", of whoever asked for it.
void Api::timeline(const Shared& exchange, const ApiKey& caller) {
  const HttpRequest& request = exchange->request();
  std::string_view id = request.path;
  id.remove_prefix(std::string_view("/v1/requests/").size());
  constexpr std::string_view kTimeline = "/timeline";
  const bool named = id.ends_with(kTimeline);
  if (named) id.remove_suffix(kTimeline.size());
  const auto record = named ? log_.find(id) : nullptr;
  if (record == nullptr || record->key() != caller.number)
    return refuse(exchange,
                  status_response(404,
                                  named ? fmt::format("there is no request {:.80}, or it is over for long", id)
                                        : fmt::format("there is nothing at {:.200}", request.path),
                                  "not_found"));
  exchange->respond(json_response(record->to_json()));
}

void Api::models(const Shared& exchange, const ApiKey&) {
  std::string list;
  for (const ModelEntry& entry : registry_.list()) {
    const auto model = registry_.find(entry.name);
    if (model == nullptr) continue;
    if (!list.empty()) list += ',';
    list += model_json(*model);
  }
  exchange->respond(json_response(R"({"object":"list","data":[)" + list + "]}"));
}

void Api::model(const Shared& exchange, const ApiKey&) {
  std::string param;
  const auto model = find(exchange->request().path.substr(std::string_view("/v1/models/").size()), &param);
  if (!model) return refuse(exchange, error_response(model.error(), param));
  exchange->respond(json_response(model_json(**model)));
}

// The common end of both routes: `ids_of` gives the ids of each prompt, and what is put in front of its answers.
template <class Parsed, class Ids>
void Api::generate(const Shared& exchange, const ApiKey& caller, const Parsed& parsed, bool chat, Ids&& ids_of) {
  std::string param, code;
  const auto job = [&]() -> Result<GenerationJob> {
    GenerationJob made;
    BOLIDE_TRY(made.model, find(parsed.model, &param));
    made.wishes = parsed.wishes;
    BOLIDE_TRY(check_wishes(*made.model, made.wishes, &param));
    made.route = exchange->request().path;
    made.metrics = metrics_->of_model(made.model->name);
    made.head = {fmt::format("{}-{}", chat ? "chatcmpl" : "cmpl", random_id()), made.model->name, unix_seconds(), chat};
    const int64_t now = steady_us();
    param = "priority";
    BOLIDE_TRY(check_priority(caller, made.wishes.priority));
    param.clear();
    if (keys_ != nullptr) {
      BOLIDE_TRY(made.while_it_runs, keys_->enter(caller, now));
    }
    BOLIDE_TRY(std::vector<std::vector<int32_t>> prompts, ids_of(made, &param, &code));
    for (std::vector<int32_t>& ids : prompts) {
      BOLIDE_TRY(Request request, make_request(*made.model, made.wishes, std::move(ids), chat ? 0 : kCompletionTokens,
                                               random_number(), &param));
      request.deadline_us = now + options_.request_us_max;
      request.key = caller.number;
      request.cache_salt = caller.salt;
      made.requests.push_back(std::move(request));
    }
    made.record = std::make_shared<RequestRecord>(made.head.id, made.route, made.model, caller.number, now);
    log_.add(made.record);
    return made;
  }();
  if (!job) return refuse(exchange, error_response(job.error(), param, code));
  // On the exchange's own thread, wherever this runs.
  exchange->post(
      [exchange, made = std::make_shared<GenerationJob>(*job)] { start_generation(exchange, std::move(*made)); });
}

void Api::chat(const Shared& exchange, const ApiKey& caller) {
  std::string param;
  const auto parsed = parse_chat_request(exchange->request().body, options_.limits, &param);
  if (!parsed) return refuse(exchange, error_response(parsed.error(), param));
  generate(exchange, caller, *parsed, true,
           [&](GenerationJob& job, std::string* field, std::string* code) -> Result<std::vector<std::vector<int32_t>>> {
             const ServedModel& model = *job.model;
             if (parsed->tools.is_array() && !parsed->tools_off) {
               *field = "tools";
               if (model.chat_template && !model.chat_template->mentions("tools"))
                 return error(Code::kUnsupported, fmt::format("tools: the chat template of {} knows none", model.name));
               if (model.chat_template) job.tools = tool_format_of(model.chat_template->source());
             }
             *field = "messages";
             BOLIDE_TRY(std::vector<int32_t> ids, chat_ids(model, *parsed, code));
             std::vector<std::vector<int32_t>> all;
             all.push_back(std::move(ids));
             return all;
           });
}

void Api::completions(const Shared& exchange, const ApiKey& caller) {
  std::string param;
  const auto parsed = parse_completion_request(exchange->request().body, options_.limits, &param);
  if (!parsed) return refuse(exchange, error_response(parsed.error(), param));
  generate(exchange, caller, *parsed, false,
           [&](GenerationJob& job, std::string* field, std::string* code) -> Result<std::vector<std::vector<int32_t>>> {
             const ServedModel& model = *job.model;
             std::vector<std::vector<int32_t>> all;
             *field = "prompt";
             for (const Prompt& prompt : parsed->prompts) {
               BOLIDE_TRY(std::vector<int32_t> ids, prompt_ids(model, prompt, code));
               if (parsed->echo) {
                 const auto* text = std::get_if<std::string>(&prompt);
                 job.echoes.push_back(text != nullptr ? *text : model.tokenizer.decode(ids));
               }
               all.push_back(std::move(ids));
             }
             size_t tokens = 0;
             for (const std::vector<int32_t>& ids : all) tokens += ids.size();
             const size_t each = 1 + static_cast<size_t>(parsed->wishes.top_logprobs);
             if (parsed->wishes.prompt_logprobs && tokens > options_.limits.prompt_logprobs_max / each) {
               *field = "logprobs";
               return error(Code::kInvalid,
                            fmt::format("logprobs: {} tokens of prompts with {} each, at most {} in all; ask for fewer "
                                        "at a time",
                                        tokens, each, options_.limits.prompt_logprobs_max));
             }
             return all;
           });
}

// Open to all: a browser has no key when it asks for a page. What the page asks for needs one.
void Api::playground(const Shared& exchange, const ApiKey&) {
  exchange->respond({200,
                     {{"Content-Type", "text/html; charset=utf-8"},
                      {"Content-Security-Policy", std::string(playground_html_policy())},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Cache-Control", "no-cache"}},
                     std::string(playground_html())});
}

void Api::tokenize(const Shared& exchange, const ApiKey&) {
  std::string param, code;
  const auto body = [&]() -> Result<std::string> {
    BOLIDE_TRY(const TokenizeRequest parsed, parse_tokenize_request(exchange->request().body, options_.limits, &param));
    BOLIDE_TRY(const auto model, find(parsed.model, &param));
    std::vector<int32_t> ids;
    if (const auto* text = std::get_if<std::string>(&parsed.input)) {
      BOLIDE_TRY(ids,
                 model->tokenizer.encode(*text, {.add_special = parsed.add_special_tokens, .parse_special = true}));
    } else {
      ChatRequest chat;
      chat.messages = std::get<nlohmann::ordered_json>(parsed.input);
      chat.add_generation_prompt = parsed.add_generation_prompt;
      BOLIDE_TRY(ids, chat_ids(*model, chat, &code));
    }
    return fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[{}]}})", ids.size(), model->context,
                       fmt::join(ids, ","));
  }();
  exchange->respond(body ? json_response(*body) : error_response(body.error(), param, code));
}

void Api::detokenize(const Shared& exchange, const ApiKey&) {
  std::string param;
  const auto body = [&]() -> Result<std::string> {
    BOLIDE_TRY(const DetokenizeRequest parsed,
               parse_detokenize_request(exchange->request().body, options_.limits, &param));
    BOLIDE_TRY(const auto model, find(parsed.model, &param));
    for (const int32_t id : parsed.tokens)
      if (!model->tokenizer.has_token(id)) {
        param = "tokens";
        return error(Code::kInvalid, fmt::format("tokens: {} is not in the vocabulary", id));
      }
    return R"({"prompt":)" + json_string(model->tokenizer.decode(parsed.tokens)) + "}";
  }();
  exchange->respond(body ? json_response(*body) : error_response(body.error(), param));
}

}  // namespace bolide::server
