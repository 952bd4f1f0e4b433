// A server without an API, for tests of HTTP itself.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "server/http.h"
#include "server/testing/http_client.h"

namespace bolide::server::test {

inline HttpResponse echo_error_body(int status, std::string_view what, std::string_view) {
  return {status, {}, std::string(what)};
}

// "/echo" answers with the body, "/stream/N" with N chunks, "/flood" without end, "/fill" with 16 MiB and no end,
// "/hang" never; "/throw..." fails at once, later, or after it has begun.
class Echo {
 public:
  explicit Echo(const HttpLimits& limits = {}, int threads = 2) : Echo(options_of(limits, threads)) {}
  explicit Echo(HttpOptions options, HttpGate gate = nullptr) {
    options.port = 0;
    auto started = HttpServer::start(
        options, [this](const auto& exchange) { handle(exchange); }, echo_error_body, std::move(gate));
    EXPECT_TRUE(started.has_value()) << started.error().text;
    server = *std::move(started);
  }
  ~Echo() {
    server->stop();
    hanging.clear();
  }
  uint16_t port() const { return server->port(); }
  // Whether so many exchanges wait for the test to answer them.
  bool hang(size_t count) {
    return becomes([&] {
      const std::lock_guard lock(mutex);
      return hanging.size() == count;
    });
  }

  std::unique_ptr<HttpServer> server;
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpExchange>> hanging;
  std::atomic<int> gone{0}, written{0}, handled{0};

 private:
  static HttpOptions options_of(const HttpLimits& limits, int threads) {
    HttpOptions options;
    options.threads = threads;
    options.limits = limits;
    return options;
  }

  void handle(const std::shared_ptr<HttpExchange>& e) {
    const std::string& path = e->request().path;
    ++handled;
    if (path == "/echo") return e->respond({200, {}, e->request().body});
    e->on_gone([this] { ++gone; });
    if (path.starts_with("/throw")) return fail(e, path);
    if (path == "/flood") {
      e->begin(200, {});
      std::thread([this, e] {
        while (e->write(std::string(16384, 'x'))) ++written;
      }).detach();
      return;
    }
    if (path.starts_with("/stream/")) {
      e->begin(200, {}, ": ping\n\n");
      const int count = std::atoi(path.c_str() + 8);
      for (int i = 0; i < count; ++i) e->write(fmt::format("{}\n", i));
      return path.ends_with("abort") ? e->abort() : e->end();
    }
    if (path == "/fill") {
      e->begin(200, {});
      e->write(std::string(16 << 20, 'x'));
    }
    if (path == "/ping") e->begin(200, {}, ": ping\n\n");
    const std::lock_guard lock(mutex);
    hanging.push_back(e);
  }
  static void fail(const std::shared_ptr<HttpExchange>& e, std::string_view path) {
    if (path == "/throw") throw std::bad_alloc();
    if (path == "/throw/begun") e->begin(200, {});
    if (path == "/throw/begun") e->write("the beginning");
    e->post([] { throw std::bad_alloc(); });
  }
};

// One connection, the answer to these bytes.
inline Answer answer_to(uint16_t port, std::string_view bytes) {
  HttpClient client(port);
  client.send(bytes);
  return client.read_answer();
}

}  // namespace bolide::server::test
