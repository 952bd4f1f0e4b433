#include "server/grpc/kserve_grpc.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "server/grpc/grpc_reflection.h"
#include "server/grpc/grpc_request.h"
#include "server/grpc/grpc_response.h"

namespace bolide::server {
namespace {

using Shared = std::shared_ptr<HttpExchange>;
using Handler = void (*)(Api& api, const Shared& exchange, const ApiKey* caller);

constexpr std::string_view kService = "/inference.GRPCInferenceService/";
constexpr std::chrono::milliseconds kWatchTime(200);  // between two looks at how it is

int64_t steady_us() {
  using std::chrono::microseconds;
  return std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

HttpResponse message_response(std::string message) { return {200, {}, std::move(message)}; }

KserveCall call_of(const Shared& exchange, const ApiKey* caller, std::string model = {}) {
  return {exchange, caller, infer_dialect(), std::move(model), steady_us()};
}

void refuse(Api& api, const Shared& exchange, const Error& failure) {
  api.kserve_calls().refuse(call_of(exchange, nullptr), failure);
}

bool is_ready(Api& api) { return api.state() == "ready"; }

void server_live(Api&, const Shared& exchange, const ApiKey*) {
  exchange->respond(message_response(ready_message(true)));
}
void server_ready(Api& api, const Shared& exchange, const ApiKey*) {
  exchange->respond(message_response(ready_message(is_ready(api))));
}
void server_metadata(Api& api, const Shared& exchange, const ApiKey*) {
  exchange->respond(message_response(server_metadata_message(api.kserve_calls().options().version)));
}

Result<> check_version(std::string_view model, std::string_view version) {
  if (version.empty() || version == kModelVersion) return {};
  return no_version(model, version);
}

// What there is to tell about the model that the message names.
template <class Tell>
void about_model(Api& api, const Shared& exchange, Tell&& tell) {
  const auto message = [&]() -> Result<std::string> {
    BOLIDE_TRY(const ModelNameMessage asked,
               parse_model_name_message(exchange->request().body, api.kserve_calls().options().limits));
    BOLIDE_TRY(check_version(asked.name, asked.version));
    return tell(asked.name);
  }();
  if (!message) return refuse(api, exchange, message.error());
  exchange->respond(message_response(*message));
}

// A model that is not ready is no error, one that there is not is.
void model_ready(Api& api, const Shared& exchange, const ApiKey*) {
  about_model(api, exchange, [&](const std::string& name) -> Result<std::string> {
    const auto ready = api.kserve_calls().check_ready(name);
    if (!ready && ready.error().code != Code::kUnavailable) return ready.error();
    return ready_message(ready.has_value());
  });
}
void model_metadata(Api& api, const Shared& exchange, const ApiKey*) {
  about_model(api, exchange, [&](const std::string& name) -> Result<std::string> {
    BOLIDE_TRY(const ModelOutline outline, api.kserve_calls().outline(name));
    return model_metadata_message(outline);
  });
}
void model_config(Api& api, const Shared& exchange, const ApiKey*) {
  about_model(api, exchange, [&](const std::string& name) -> Result<std::string> {
    BOLIDE_TRY(const ModelOutline outline, api.kserve_calls().outline(name));
    return model_config_message(outline);
  });
}
void model_statistics(Api& api, const Shared& exchange, const ApiKey*) {
  about_model(api, exchange, [&](const std::string& name) -> Result<std::string> {
    if (name.empty()) return statistics_message(api.kserve_calls().all_totals());
    BOLIDE_TRY(const auto totals, api.kserve_calls().totals(name));
    return statistics_message(totals);
  });
}

void repository_index(Api& api, const Shared& exchange, const ApiKey*) {
  const auto ready = parse_index_message(exchange->request().body, api.kserve_calls().options().limits);
  if (!ready) return refuse(api, exchange, ready.error());
  exchange->respond(message_response(index_message(api.kserve_calls().index(*ready))));
}

template <bool kLoad>
void change_model(Api& api, const Shared& exchange, const ApiKey* caller) {
  auto name = parse_change_message(exchange->request().body, kLoad, api.kserve_calls().options().limits);
  if (!name) return refuse(api, exchange, name.error());
  // Both responses have no fields.
  api.kserve_calls().change(call_of(exchange, caller, *std::move(name)), kLoad, message_response(""));
}

template <bool kStream>
void infer(Api& api, const Shared& exchange, const ApiKey* caller) {
  KserveCalls& calls = api.kserve_calls();
  KserveCall call = call_of(exchange, caller);
  if (kStream) {
    call.dialect = stream_dialect("", false);
    // A call may last longer than its key is one.
    int status = 0;
    std::string why;
    call.caller = api.caller_of(exchange->request(), &status, &why);
    if (call.caller == nullptr) return calls.refuse(call, status, why);
  }
  calls.with_body(call, [&calls, call]() mutable {
    auto message = parse_infer_message(call.exchange->request().body, calls.options().limits);
    if (!message) return calls.refuse(call, message.error());
    call.model = message->model;
    if (kStream) call.dialect = stream_dialect(message->id, message->empty_final);
    if (const auto checked = check_version(message->model, message->version); !checked)
      return calls.refuse(call, checked.error());
    calls.infer(call, [&](const std::vector<TensorPort>&) { return std::move(message->request); });
  });
}

Health health_of(Api& api, std::string_view service) {
  constexpr std::string_view kServices[] = {"", "inference.GRPCInferenceService"};
  if (std::find(std::begin(kServices), std::end(kServices), service) == std::end(kServices))
    return Health::kUnknownService;
  return is_ready(api) ? Health::kServing : Health::kNotServing;
}

void health_check(Api& api, const Shared& exchange, const ApiKey*) {
  const auto service = parse_health_message(exchange->request().body, api.kserve_calls().options().limits);
  if (!service) return refuse(api, exchange, service.error());
  const Health health = health_of(api, *service);
  if (health == Health::kUnknownService)
    return refuse(api, exchange, error(Code::kNotFound, fmt::format("there is no service {:.100}", *service)));
  exchange->respond(message_response(health_message(health)));
}

// Tells how it is whenever that changes, until the client leaves or the server ends.
void keep_watch(Api& api, const Shared& exchange, const std::string& service, Health told) {
  exchange->post_at(std::chrono::steady_clock::now() + kWatchTime, [&api, exchange, service, told] {
    const Health now = health_of(api, service);
    if (now != told) {
      std::string out;
      append_message(out, health_message(now));
      if (!exchange->write(std::move(out))) return;
    }
    if (api.is_draining()) return exchange->end();
    keep_watch(api, exchange, service, now);
  });
}

void health_watch(Api& api, const Shared& exchange, const ApiKey*) {
  const auto service = parse_health_message(exchange->request().body, api.kserve_calls().options().limits);
  if (!service) return refuse(api, exchange, service.error());
  const Health now = health_of(api, *service);
  std::string out;
  append_message(out, health_message(now));
  exchange->begin(200, {});
  exchange->write(std::move(out));
  keep_watch(api, exchange, *service, now);
}

void reflection(Api& api, const Shared& exchange, const ApiKey*) {
  auto message = reflect(exchange->request().body);
  // There is no form for a request that is none: its answer is empty.
  if (!message) return api.kserve_calls().refuse(call_of(exchange, nullptr), HttpResponse{400, {}, ""});
  exchange->respond(message_response(*std::move(message)));
}

struct Method {
  std::string_view service, name;
  Handler handler;
  GrpcMethod::Kind kind = GrpcMethod::Kind::kOneRequest;
  bool open = false;  // needs no key
};
constexpr std::string_view kHealth = "/grpc.health.v1.Health/";
constexpr auto kMany = GrpcMethod::Kind::kManyRequests;
constexpr auto kOne = GrpcMethod::Kind::kOneRequest;
constexpr Method kMethods[] = {
    {kService, "ServerLive", server_live, kOne, true},
    {kService, "ServerReady", server_ready, kOne, true},
    {kService, "ModelReady", model_ready},
    {kService, "ServerMetadata", server_metadata},
    {kService, "ModelMetadata", model_metadata},
    {kService, "ModelInfer", infer<false>},
    {kService, "ModelStreamInfer", infer<true>, kMany},
    {kService, "ModelConfig", model_config},
    {kService, "ModelStatistics", model_statistics},
    {kService, "RepositoryIndex", repository_index},
    {kService, "RepositoryModelLoad", change_model<true>},
    {kService, "RepositoryModelUnload", change_model<false>},
    {kHealth, "Check", health_check, kOne, true},
    {kHealth, "Watch", health_watch, kOne, true},
    {"/grpc.reflection.v1.ServerReflection/", "ServerReflectionInfo", reflection, kMany},
    {"/grpc.reflection.v1alpha.ServerReflection/", "ServerReflectionInfo", reflection, kMany},
};

// Why a method that others have is not there.
std::string absence(std::string_view path) {
  const std::string_view name = path.starts_with(kService) ? path.substr(kService.size()) : std::string_view();
  if (name.find("SharedMemory") != std::string_view::npos)
    return fmt::format("{:.60}: this server has no shared memory; send the tensors' bytes in the request", name);
  if (name == "TraceSetting")
    return "TraceSetting: this server keeps a timeline of each request (GET /v1/requests/ID/timeline); there is "
           "nothing "
           "to set";
  if (name == "LogSettings") return "LogSettings: how this server logs is set when it is started";
  return fmt::format("there is no method {:.200}", path);
}

std::optional<HttpResponse> admit(Api& api, const HttpRequest& head, GrpcMethod* to) {
  const auto refuse = [&](int status, std::string_view why) {
    api.count_refusal(status);
    return grpc_refusal(status, why);
  };
  const auto method = std::find_if(std::begin(kMethods), std::end(kMethods), [&](const Method& m) {
    return head.path.starts_with(m.service) && std::string_view(head.path).substr(m.service.size()) == m.name;
  });
  const bool open = method != std::end(kMethods) && method->open;
  std::string why;
  int status = 403;
  const ApiKey* caller = nullptr;
  if (!open) caller = api.caller_of(head, &status, &why);
  const bool may = open ? api.calls_us_rightly(head, &why) : caller != nullptr;
  if (!may) return refuse(status, why);
  if (method == std::end(kMethods)) return refuse(501, absence(head.path));
  to->kind = method->kind;
  to->handler = [&api, handler = method->handler, caller](const Shared& exchange) { handler(api, exchange, caller); };
  return std::nullopt;
}

}  // namespace

GrpcGate kserve_grpc_gate(Api& api) {
  google::protobuf::SetLogHandler(nullptr);  // it writes to standard error whatever clients get wrong
  return [&api](const HttpRequest& head, GrpcMethod* method) { return admit(api, head, method); };
}

}  // namespace bolide::server
