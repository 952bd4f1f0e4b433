// What the connections of one server share, and Boost as they use it. Only http_server.cc and the headers beside this
// one include it: it takes long to compile.
#pragma once

// Asio 1.74 knows of itself that GCC has coroutines, but not that clang has.
#define BOOST_ASIO_HAS_CO_AWAIT 1
#define BOOST_ASIO_HAS_STD_COROUTINE 1

#include <utility>  // Asio's awaitable.hpp needs it

#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "server/http.h"

namespace bolide::server::beast {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Fault = boost::system::error_code;
using Secure = asio::ssl::stream<tcp::socket>;
using Strand = asio::strand<asio::io_context::executor_type>;
using asio::redirect_error;
using asio::use_awaitable;

constexpr Clock::time_point kNever = Clock::time_point::max();

// What a coroutine throws (for want of memory) ends what it did, not the process.
inline void drop_exception(const std::exception_ptr&) {}

class Closable {
 public:
  virtual ~Closable() = default;
  virtual std::shared_ptr<Closable> hold() = 0;  // null: it is about to go
  // It has little time for a further request. Any thread.
  virtual void hurry_if_idle() = 0;
};

struct Shared {
  HttpOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;
  HttpGate gate;
  std::atomic<bool> retiring{false};  // answers end their connections
  std::atomic<bool> draining{false};  // and there are no new ones, nor many further requests
  std::atomic<uint64_t> body_bytes{0};
  std::array<std::atomic<uint64_t>, 600> answers{};  // by status

  std::mutex mutex;  // guards what follows
  std::condition_variable closed;
  std::map<std::string, size_t> by_client;
  std::set<Closable*> open;
  HttpStats stats;
  bool accepting = false;

  // False: there are too many.
  bool enter(const std::string& client) {
    const std::lock_guard lock(mutex);
    const HttpLimits& limits = options.limits;
    size_t& of_client = by_client[client];
    if (stats.connections >= limits.connections || of_client >= limits.connections_per_client) {
      if (of_client == 0) by_client.erase(client);
      ++stats.refused;
      return false;
    }
    ++of_client;
    ++stats.connections;
    ++stats.accepted;
    return true;
  }
  void leave(const std::string& client) {
    const std::lock_guard lock(mutex);
    const auto it = by_client.find(client);
    if (--it->second == 0) by_client.erase(it);
    --stats.connections;
    if (stats.connections == 0) closed.notify_all();
  }
  void count(int status) {
    if (status >= 0 && static_cast<size_t>(status) < answers.size()) ++answers[static_cast<size_t>(status)];
  }
};

// The memory of one request's body, among that of all.
class BodyShare {
 public:
  explicit BodyShare(Shared& shared) : shared_(shared) {}
  ~BodyShare() { shared_.body_bytes -= bytes_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // False: all together have more than they may.
  bool grow_to(uint64_t bytes) {
    const uint64_t all = shared_.body_bytes += bytes - bytes_;
    bytes_ = bytes;
    return all <= shared_.options.limits.bodies_bytes;
  }

 private:
  Shared& shared_;
  uint64_t bytes_ = 0;
};

}  // namespace bolide::server::beast
