#include "cli/serve_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/network.h"

namespace bolide::cli {
namespace {

constexpr Option<ServeFlags> kServeOptions[] = {
    {"host",
     &ServeFlags::host,
     {},
     "address to listen on: 127.0.0.1 for this machine alone, 0.0.0.0 or :: for all of its addresses"},
    {"port", &ServeFlags::port, {.min = 0, .max = 65535}, "TCP port; 0: any free one"},
    {"grpc_port",
     &ServeFlags::grpc_port,
     {.min = -1, .max = 65535},
     "TCP port of KServe's protocol over gRPC; 0: any free one, -1: there is none"},
    {"grpc_host", &ServeFlags::grpc_host, {}, "address to listen on for gRPC; empty: that of --host"},
    {"api_key_file",
     &ServeFlags::api_key_file,
     {},
     "file of keys that clients must send, a line each: NAME KEY [concurrent=N] [requests-per-minute=N] [urgent]"},
    {"no_auth",
     &ServeFlags::no_auth,
     {},
     "everybody may ask: listen beyond this machine without keys, or answer to any name that it is called by"},
    {"no_model_control", &ServeFlags::no_model_control, {}, "requests cannot load and unload models"},
    {"tls_cert", &ServeFlags::tls_cert, {}, "certificate chain (PEM): the server speaks HTTPS"},
    {"tls_key", &ServeFlags::tls_key, {}, "the certificate's private key (PEM)"},
    {"metrics_compat",
     &ServeFlags::metrics_compat,
     {.choices = "|vllm|trtllm|triton"},
     "/metrics has these names too, for dashboards that know them"},
    {"metrics_port",
     &ServeFlags::metrics_port,
     {.min = -1, .max = 65535},
     "TCP port that /metrics and health have to themselves; 0: any free one; -1: they are on --port"},
    {"metrics_host", &ServeFlags::metrics_host, {}, "address of --metrics-port; empty: that of --host"},
    {"metrics_no_auth",
     &ServeFlags::metrics_no_auth,
     {},
     "--metrics-port needs no key, though it is not for this machine alone"},
    {"drain_delay",
     &ServeFlags::drain_delay,
     {.unit = "s", .min = 0, .max = 3600},
     "after SIGTERM that requests are still taken while readiness is red already, for load balancers to take note"},
    {"http_threads", &ServeFlags::http_threads, {.min = 1, .max = 256}, "threads that read and write for clients"},
    {"body_bytes", &ServeFlags::body_bytes, {.unit = "bytes", .min = 1024, .max = 1 << 30}, "a request's body at most"},
};

constexpr Option<ServeFlags> kWaitingOptions[] = {
    {"target_itl_ms",
     &ServeFlags::target_itl_ms,
     {.unit = "ms", .min = 0},
     "time between two tokens of an answer that prompts of others should not stretch; 0: as it comes"},
    {"onnx_sessions",
     &ServeFlags::onnx_sessions,
     {.min = 1, .max = 64},
     "runs of each ONNX model at once, which share the threads"},
    {"queue_requests",
     &ServeFlags::queue_requests,
     {.min = 1, .max = 1 << 20},
     "requests that may wait for each model; beyond that 429"},
    {"queue_tokens", &ServeFlags::queue_tokens, {.unit = "tokens", .min = 1}, "tokens of prompts that may wait"},
    {"request_seconds",
     &ServeFlags::request_seconds,
     {.unit = "s", .min = 0.1, .max = 1e6},
     "from a request to the end of its answer at most"},
};

}  // namespace

std::vector<OptionGroup> serve_option_groups(ServeFlags& flags) {
  return {{"Server", bind_options(flags, kServeOptions)}, {"Engine", bind_options(flags, kWaitingOptions)}};
}

std::vector<OptionGroup> all_option_groups(ServeFlags& flags) {
  std::vector<OptionGroup> groups = serve_option_groups(flags);
  for (OptionGroup& group : engine_option_groups(flags.engine)) groups.push_back(std::move(group));
  return groups;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

std::string metrics_host(const ServeFlags& flags) {
  return flags.metrics_host.empty() ? flags.host : flags.metrics_host;
}
const std::string& grpc_host(const ServeFlags& flags) { return flags.grpc_host.empty() ? flags.host : flags.grpc_host; }

Result<> check_combination(const ServeFlags& flags) {
  if (flags.tls_cert.empty() != flags.tls_key.empty())
    return error(Code::kInvalid, "--tls-cert and --tls-key belong together: give both or neither");
  if (flags.no_auth && !flags.api_key_file.empty())
    return error(Code::kInvalid, "--no-auth and --api-key-file contradict each other");
  const auto check_host = [&](std::string_view flag, const std::string& host) -> Result<> {
    if (is_loopback(host) || !flags.api_key_file.empty() || flags.no_auth) return {};
    return error(Code::kInvalid, fmt::format("{} {:.100} lets others than this machine ask: give --api-key-file, or "
                                             "--no-auth if everybody may",
                                             flag, host));
  };
  BOLIDE_TRY(check_host("--host", flags.host));
  if (flags.metrics_port < 0 && (!flags.metrics_host.empty() || flags.metrics_no_auth))
    return error(Code::kInvalid, "--metrics-host and --metrics-no-auth are of --metrics-port: give that, too");
  const bool anybody = flags.no_auth || flags.metrics_no_auth;
  if (flags.metrics_port >= 0 && !is_loopback(metrics_host(flags)) && flags.api_key_file.empty() && !anybody)
    return error(Code::kInvalid,
                 fmt::format("--metrics-host {:.100} lets others than this machine read metrics: give --api-key-file, "
                             "or --metrics-no-auth if everybody may",
                             metrics_host(flags)));
  if (flags.grpc_port < 0) {
    if (flags.grpc_host.empty()) return {};
    return error(Code::kInvalid, "--grpc-host: there is no gRPC without --grpc-port");
  }
  BOLIDE_TRY(server::grpc_available());
  return check_host("--grpc-host", grpc_host(flags));
}

server::ApiOptions api_options(const ServeFlags& flags, const Version& version) {
  server::ApiOptions options;
  options.version = version.number;
  options.body_bytes_max = static_cast<size_t>(flags.body_bytes);
  options.request_us_max = static_cast<int64_t>(flags.request_seconds * 1e6);
  options.model_control = !flags.no_model_control;
  options.loopback_names_only = flags.api_key_file.empty() && !flags.no_auth;
  if (flags.metrics_port < 0) return options;
  const bool local = is_loopback(metrics_host(flags)), anybody = flags.no_auth || flags.metrics_no_auth;
  options.metrics_listener = {.needs_key = !local && !anybody, .loopback_names_only = local && !anybody};
  return options;
}

server::HttpOptions http_options(const ServeFlags& flags) {
  server::HttpOptions options;
  options.host = flags.host;
  options.port = static_cast<uint16_t>(flags.port);
  options.threads = flags.http_threads;
  options.tls_certificate = flags.tls_cert;
  options.tls_key = flags.tls_key;
  options.limits.body_bytes = static_cast<uint64_t>(flags.body_bytes);
  return options;
}

server::HttpOptions metrics_http_options(const ServeFlags& flags) {
  server::HttpOptions options = http_options(flags);
  options.host = metrics_host(flags);
  options.port = static_cast<uint16_t>(flags.metrics_port);
  options.host_flag = "--metrics-host", options.port_flag = "--metrics-port";
  options.threads = 1;
  options.limits.body_bytes = options.limits.bodies_bytes = 64 * 1024;
  options.limits.connections = options.limits.connections_per_client = 256;
  return options;
}

Result<ServedModelOptions> model_options(const ServeFlags& flags, uint64_t secret) {
  // A flag that one kind of model does not have is no fault where there is none of that kind.
  const std::vector<std::string>& models = flags.engine.models;
  const auto is_onnx = [](const std::string& model) { return is_network(split_model_argument(model).second); };
  const auto networks = static_cast<size_t>(std::count_if(models.begin(), models.end(), is_onnx));
  auto language = to_served_options(flags.engine, secret);
  if (!language && networks < models.size()) return std::move(language).error();
  ServedModelOptions options = language ? *std::move(language) : ServedModelOptions();
  auto settings = to_network_settings(flags.engine.model);
  if (!settings && networks > 0) return std::move(settings).error();
  if (settings) options.network.settings = *std::move(settings);
  options.network.sessions = flags.onnx_sessions;
  options.network.queue.requests_max = static_cast<size_t>(flags.queue_requests);
  options.drain_us = static_cast<int64_t>(flags.engine.drain_seconds * 1e6);
  options.engine.itl_target_us = flags.target_itl_ms * 1000;
  options.engine.queue_requests_max = flags.queue_requests;
  options.engine.queue_tokens_max = flags.queue_tokens;
  return options;
}

server::GrpcOptions grpc_options(const ServeFlags& flags) {
  server::GrpcOptions options;
  options.host = grpc_host(flags);
  options.port = static_cast<uint16_t>(flags.grpc_port);
  options.threads = flags.http_threads;
  options.tls_certificate = flags.tls_cert;
  options.tls_key = flags.tls_key;
  options.limits.message_bytes = static_cast<uint64_t>(flags.body_bytes);
  return options;
}

}  // namespace bolide::cli
