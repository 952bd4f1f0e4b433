// The flags of `bolide serve`, and what they ask of its parts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/version.h"
#include "cli/config_file.h"
#include "cli/engine_flags.h"
#include "cli/served_models.h"
#include "server/api.h"
#include "server/grpc/grpc_server.h"
#include "server/http.h"

namespace bolide::cli {

struct ServeFlags {
  EngineFlags engine;
  std::string host = "127.0.0.1";
  int32_t port = 8000;
  int32_t grpc_port = -1;  // none
  std::string grpc_host;   // empty: host
  int32_t onnx_sessions = 1;
  double target_itl_ms = 0;
  int32_t queue_requests = 1024;
  int64_t queue_tokens = 1 << 22;
  double request_seconds = 600;
  std::string api_key_file;
  bool no_auth = false;
  bool no_model_control = false;
  std::string tls_cert, tls_key;
  int32_t http_threads = 2;
  int64_t body_bytes = 16 << 20;
  std::string metrics_compat;
  int32_t metrics_port = -1;
  std::string metrics_host;
  bool metrics_no_auth = false;
  double drain_delay = 0;
  std::string config_file;
  bool print_config = false;
};

// Those that `serve` alone has.
std::vector<OptionGroup> serve_option_groups(ServeFlags& flags);
// With the engine's and the models': what a configuration file can say. `flags` must outlive both.
std::vector<OptionGroup> all_option_groups(ServeFlags& flags);

bool is_loopback(const std::string& host);
std::string metrics_host(const ServeFlags& flags);
const std::string& grpc_host(const ServeFlags& flags);

// Errors: flags that cannot all be meant, or that would leave the server open by mistake.
Result<> check_combination(const ServeFlags& flags);
Result<ServedModelOptions> model_options(const ServeFlags& flags, uint64_t secret);

server::ApiOptions api_options(const ServeFlags& flags, const Version& version);
server::HttpOptions http_options(const ServeFlags& flags);
server::HttpOptions metrics_http_options(const ServeFlags& flags);
server::GrpcOptions grpc_options(const ServeFlags& flags);

}  // namespace bolide::cli
