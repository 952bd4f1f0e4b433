// gRPC as handlers see it: as HTTP is seen (http.h), of which it is a use. Nothing here says which library speaks it.
//
// Each message of a call is a request: its path names the method ("/inference.GRPCInferenceService/ModelInfer"), its
// headers are the call's metadata, its body is the message. A response of status 200 has a message as its body. Any
// other ends the call with gRPC's code for that status, with the body as its text; but in a call with many requests the
// body of every response is a message. What is written to a stream are messages, each after its length
// (append_message).
//
// A build without gRPC (BOLIDE_GRPC=OFF) has grpc_absent.cc in place of what is in this folder.
//
// Thread rules: those of http.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/grpc/connections.h"
#include "server/http.h"

namespace bolide::server {

// Why this program speaks no gRPC; ok: it does.
Result<> grpc_available();

struct GrpcMethod {
  enum class Kind : uint8_t {
    kOneRequest,    // whose answer is a message, or a stream of them
    kManyRequests,  // any number of requests in one call; their answers end no call
  };
  Kind kind = Kind::kOneRequest;
  HttpHandler handler;
};
// Sees each call before any of its messages is read: a response that refuses it, or nothing, and then what answers it.
using GrpcGate = std::function<std::optional<HttpResponse>(const HttpRequest& head, GrpcMethod* method)>;

struct GrpcLimits {
  uint64_t message_bytes = 64ull << 20, messages_bytes = 1ull << 30;  // of one request, and of all at once
  size_t calls = 10'000;                                              // at once, each of some 11 KB
  int calls_per_connection = 256;
  rpc::ConnectionLimits connections;
  size_t requests_per_call = 64;  // at once; what comes beyond them is read later
  int metadata_bytes = 32 * 1024;
  size_t unsent_bytes = 256 * 1024;     // of a call, before its client is given up
  std::chrono::seconds ping_time{60};   // a connection on which nothing comes is asked whether it is there
  std::chrono::seconds idle_time{300};  // of a connection without calls
};

struct GrpcOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8001;                  // 0: any free one
  int threads = 1;                       // that run handlers
  std::string tls_certificate, tls_key;  // PEM files; both or neither
  GrpcLimits limits;
};

class GrpcServer {
 public:
  // Errors: kUnsupported, a build without gRPC; the address is in use or not this machine's; a certificate that cannot
  // be read.
  static Result<std::unique_ptr<GrpcServer>> start(const GrpcOptions& options, GrpcGate gate);
  virtual ~GrpcServer() = default;  // stops it

  virtual uint16_t port() const = 0;
  virtual HttpStats stats() const = 0;
  // No new connections or calls; calls that are not over after this time are cut off. Then ends the server's threads:
  // no handler is called afterwards.
  virtual void stop(std::chrono::milliseconds timeout) = 0;
};

// Messages of a stream as they are written to an exchange.
void append_message(std::string& out, std::string_view message);

}  // namespace bolide::server
