// A server for tests: each connection is served by a function of its own thread, which may do what no server should.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "measure/http/url.h"

namespace bolide::load {

inline void pause_ms(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

class Peer {
 public:
  Peer(int descriptor, const std::atomic<bool>& stop) : descriptor_(descriptor), stop_(stop) {}

  // The next request's head and body; empty if the client has closed.
  std::string next_request() {
    for (;;) {
      const size_t head = pending_.find("\r\n\r\n");
      if (head != std::string::npos) {
        const size_t at = pending_.find("Content-Length: ");
        const size_t body = at < head ? std::stoul(pending_.substr(at + 16)) : 0;
        if (pending_.size() >= head + 4 + body) {
          const std::string request = pending_.substr(0, head + 4 + body);
          pending_.erase(0, request.size());
          return request;
        }
      }
      pollfd waiting{descriptor_, POLLIN, 0};
      while (::poll(&waiting, 1, 50) == 0)
        if (stop_) return {};
      char buffer[4096];
      const ssize_t got = ::recv(descriptor_, buffer, sizeof buffer, 0);
      if (got <= 0) return {};
      pending_.append(buffer, static_cast<size_t>(got));
    }
  }
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool start_stream() {
    return send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  bool event(std::string_view data) {
    const std::string text = fmt::format("data: {}\n\n", data);
    return send(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
  }
  bool token(int index) {
    return event(
        fmt::format(R"({{"choices":[{{"index":0,"delta":{{"content":"t{} "}},"finish_reason":null}}]}})", index));
  }
  bool end_stream() { return send("0\r\n\r\n"); }
  // A whole answer, a token every `gap_ms`.
  bool answer(int tokens, double gap_ms) {
    bool good = start_stream() && event(R"({"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})");
    for (int i = 0; good && i < tokens; ++i) {
      if (gap_ms > 0) pause_ms(gap_ms);
      good = token(i);
    }
    return good && event(R"({"choices":[{"index":0,"delta":{},"finish_reason":"length"}]})") &&
           event(fmt::format(R"({{"choices":[],"usage":{{"prompt_tokens":9,"completion_tokens":{}}}}})", tokens)) &&
           event("[DONE]") && end_stream();
  }
  bool stopped() const { return stop_; }

 private:
  int descriptor_;
  const std::atomic<bool>& stop_;
  std::string pending_;
};

class ScriptedServer {
 public:
  // `serve` is called once for each connection.
  explicit ScriptedServer(std::function<void(Peer&)> serve) : serve_(std::move(serve)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOLIDE_CHECK(
        ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && ::listen(listener_, 1024) == 0,
        "no port");
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    stop_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    ::close(listener_);
  }
  int port() const { return port_; }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int connections() const { return connections_; }

 private:
  void accept_all() {
    pollfd waiting{listener_, POLLIN, 0};
    while (!stop_) {
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int descriptor = ::accept(listener_, nullptr, nullptr);
      if (descriptor < 0) continue;
      const int on = 1;  // each token goes out by itself
      ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ++connections_;
      threads_.emplace_back([this, descriptor] {
        Peer peer(descriptor, stop_);
        serve_(peer);
        ::close(descriptor);
      });
    }
  }

  std::function<void(Peer&)> serve_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace bolide::load
