#include "server/kserve.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/clock.h"
#include "base/json_string.h"
#include "server/kserve_models.h"
#include "server/kserve_response.h"

namespace bolide::server {
namespace {

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

class RestDialect final : public KserveDialect {
 public:
  Result<HttpResponse> tensors(const KserveHead& head, std::span<const OutputTensor> outputs) const override {
    return infer_response(head, outputs);
  }
  std::shared_ptr<const AnswerFormat> text(const KserveHead& head, const Shape& shape, bool raw) const override {
    return infer_format(head, shape, raw);
  }
  HttpResponse refusal(const Error& failure) const override { return kserve_error(failure); }
  HttpResponse refusal(int status, std::string_view what) const override { return kserve_error(status, what); }
};

}  // namespace

struct Kserve::Action {
  std::string_view name, method;  // the end of a path: "/infer"
  void (Kserve::*handler)(const KserveCall&);
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

Kserve::Kserve(KserveCalls& calls) : calls_(calls), dialect_(std::make_shared<RestDialect>()) {}

KserveCall Kserve::call_of(const Shared& exchange, const ApiKey* caller, std::string model) const {
  return {exchange, caller, dialect_, std::move(model), steady_us()};
}
void Kserve::refuse(const Shared& exchange, HttpResponse response) {
  calls_.refuse(call_of(exchange, nullptr, ""), std::move(response));
}

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
  } else if (request.body.size() > calls_.options().body_bytes_max) {
    refuse(exchange, kserve_error(413, fmt::format("the body has {} bytes, at most {}", request.body.size(),
                                                   calls_.options().body_bytes_max)));
  } else {
    return true;
  }
  return false;
}

HttpResponse Kserve::stranger() {
  HttpResponse response = kserve_error(401, kKeyNeeded);
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

void Kserve::handle(const Shared& exchange, const ApiKey& caller) {
  constexpr std::string_view kModels = "/v2/models/", kRepository = "/v2/repository/";
  const std::string_view path = exchange->request().path;
  if (path == "/v2" || path == "/v2/") {
    if (check(exchange, "GET")) exchange->respond(json_response(server_metadata_json(calls_.options().version)));
  } else if (path == "/v2/models/stats") {
    if (check(exchange, "GET")) exchange->respond(json_response(statistics_json(calls_.all_totals())));
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
  const KserveCall call = call_of(exchange, caller, std::string(path.substr(0, at)));
  if (!check(exchange, action->method)) return;
  if (version != kModelVersion) return calls_.refuse(call, no_version(call.model, version));
  if (!action->has_body) return (this->*action->handler)(call);
  calls_.with_body(call, [this, call, handler = action->handler] { (this->*handler)(call); });
}

void Kserve::metadata(const KserveCall& call) {
  const auto outline = calls_.outline(call.model);
  if (!outline) return calls_.refuse(call, outline.error());
  call.exchange->respond(json_response(model_metadata_json(*outline)));
}

void Kserve::config(const KserveCall& call) {
  const auto outline = calls_.outline(call.model);
  if (!outline) return calls_.refuse(call, outline.error());
  call.exchange->respond(json_response(model_config_json(*outline)));
}

void Kserve::ready(const KserveCall& call) {
  const auto ready = calls_.check_ready(call.model);
  if (!ready) return calls_.refuse(call, ready.error());
  call.exchange->respond(json_response(fmt::format(R"({{"name":{},"ready":true}})", json_string(call.model))));
}

void Kserve::statistics(const KserveCall& call) {
  const auto totals = calls_.totals(call.model);
  if (!totals) return calls_.refuse(call, totals.error());
  call.exchange->respond(json_response(statistics_json(*totals)));
}

void Kserve::repository(const Shared& exchange, std::string_view path) {
  if (path != "index" && !(path.starts_with("models/") && (path.ends_with("/load") || path.ends_with("/unload"))))
    return refuse(exchange, kserve_error(404, fmt::format("there is nothing at {:.200}", exchange->request().path)));
  if (!check(exchange, "POST")) return;
  const std::string& body = exchange->request().body;
  const RequestLimits& limits = calls_.options().limits;
  if (path == "index") {
    const auto ready = parse_index_request(body, limits);
    if (!ready) return refuse(exchange, kserve_error(ready.error()));
    return exchange->respond(json_response(index_json(calls_.index(*ready))));
  }
  path.remove_prefix(std::string_view("models/").size());
  const size_t slash = path.rfind('/');
  const bool load = path.substr(slash) == "/load";
  const auto checked = check_change_request(body, load, limits);
  if (!checked) return refuse(exchange, kserve_error(checked.error()));
  calls_.change(call_of(exchange, nullptr, std::string(path.substr(0, slash))), load, json_response(""));
}

void Kserve::infer(const KserveCall& call) {
  calls_.infer(call, [&](const std::vector<TensorPort>& inputs) -> Result<InferRequest> {
    const HttpRequest& http = call.exchange->request();
    BOLIDE_TRY(const std::optional<uint64_t> json_bytes, json_bytes_of(http));
    return json_bytes == uint64_t{0} ? raw_infer_request(http.body, inputs, calls_.options().limits)
                                     : parse_infer_request(http.body, json_bytes, calls_.options().limits);
  });
}

void Kserve::generate(const KserveCall& call) { generate(call, false); }
void Kserve::generate_stream(const KserveCall& call) { generate(call, true); }

void Kserve::generate(const KserveCall& call, bool stream) {
  auto request = parse_generate_request(call.exchange->request().body, calls_.options().limits);
  if (!request) return calls_.refuse(call, request.error());
  if (stream) request->wishes.stream = true;
  const KserveHead head{call.model, request->id};
  calls_.generate(call, *std::move(request), generate_format(head));
}

}  // namespace bolide::server
