// HTTP/1.1 as handlers see it: a request in, one response or a stream out. Nothing here says which library speaks it.
//
// Thread rules: handlers are called on the server's threads and must not block; an exchange may be used from any
// thread, and what is asked of it is done in order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace bolide::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, without the query: "/v1/models"
  std::string query;   // as it came
  Headers headers;     // names in lower case
  std::string body;
  std::string client;                                             // its address
  std::optional<std::chrono::steady_clock::time_point> deadline;  // when it gives up waiting, where it says so (gRPC)

  // The first of this name (in lower case); empty if there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  Headers headers;
  std::string body;
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  // Once, and nothing else.
  virtual void respond(HttpResponse response) = 0;
  // Or: a stream of chunks, which ends with `end`, or with `abort` (the client sees that it is incomplete). `ping`, if
  // there is one, is sent whenever nothing else was for HttpLimits::ping_time.
  virtual void begin(int status, Headers headers, std::string ping = {}) = 0;
  // False: the client is gone, or so slow that too much waits for it, in which case it is given up.
  virtual bool write(std::string chunk) = 0;
  virtual void end() = 0;
  virtual void abort() = 0;
  // Called on a server's thread, once, if the client goes away before the response ended. Replaces an earlier one.
  virtual void on_gone(std::function<void()> callback) = 0;
  // Runs it on a server's thread, after what was posted before; never two of one exchange at once, nor beside on_gone.
  virtual void post(std::function<void()> task) = 0;
  // The same at a time, unless the response has ended. Replaces an earlier one. Exchanges without a clock drop it.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those with one keep it
  virtual void post_at(std::chrono::steady_clock::time_point, std::function<void()>) {}
};

// What a handler throws, or what it posted, is answered with 500, or ends its stream.
using HttpHandler = std::function<void(const std::shared_ptr<HttpExchange>&)>;
// The body of a response that no handler makes: 400, 408, 413, 431, 500, 501, 503 of the server itself. `path`: what
// was asked for, as it came; empty if that is not known.
using HttpErrorBody = std::function<HttpResponse(int status, std::string_view what, std::string_view path)>;
// Sees each request before any of its body is read: a response that refuses it, or nothing; it may lower how long the
// body may be.
using HttpGate = std::function<std::optional<HttpResponse>(const HttpRequest& head, uint64_t* body_bytes_max)>;

struct HttpLimits {
  uint32_t header_bytes = 32 * 1024;
  size_t headers = 100;
  size_t target_bytes = 8 * 1024;
  uint64_t body_bytes = 64ull << 20, bodies_bytes = 1ull << 30;  // of one request, and of all at once
  std::chrono::seconds header_time{10};
  uint64_t body_bytes_per_second = 1024;  // slower bodies are refused, after header_time
  std::chrono::seconds idle_time{60};     // between requests of a connection
  size_t connections = 20'000, connections_per_client = 1'000;
  size_t unsent_bytes = 256 * 1024;     // of a stream, before its client is given up
  std::chrono::seconds write_time{60};  // for a client to take what is written to it at once
  std::chrono::seconds ping_time{15};
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;                                    // 0: any free one
  std::string host_flag = "--host", port_flag = "--port";  // by which errors call them
  int threads = 1;
  std::string tls_certificate, tls_key;  // PEM files; both or neither
  HttpLimits limits;
};

struct HttpStats {
  size_t connections = 0;
  uint64_t accepted = 0, refused = 0;  // connections
  std::map<int, uint64_t> answers;     // by status
};

class HttpServer {
 public:
  // Errors: the address is in use or not this machine's, a certificate that cannot be read.
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options, HttpHandler handler,
                                                   HttpErrorBody error_body, HttpGate gate = nullptr);
  virtual ~HttpServer() = default;  // closes what is open

  virtual uint16_t port() const = 0;
  virtual HttpStats stats() const = 0;
  // From now on answers end their connections. New ones may come, and those that are open may ask once more: somebody
  // has to tell them that this server ends.
  virtual void retire() = 0;
  // No new connections. Those that wait for a request are closed, a moment later: one may be on its way.
  virtual void drain() = 0;
  // Until no connection is left, or the time is over. True: none is left.
  virtual bool wait_closed(std::chrono::milliseconds timeout) = 0;
  // Ends the server's threads: no handler is called afterwards. What may still use exchanges must end before the server
  // does.
  virtual void stop() = 0;
};

}  // namespace bolide::server
