// Asio 1.74 knows of itself that GCC has coroutines, but not that clang has.
#define BOOST_ASIO_HAS_CO_AWAIT 1
#define BOOST_ASIO_HAS_STD_COROUTINE 1

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <utility>  // Asio's awaitable.hpp needs it

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "server/http.h"
#include "server/http_text.h"

// Asio's functions give their error code twice: in an argument, which is looked at, and as what they return.
// NOLINTBEGIN(bugprone-unused-return-value)
namespace bolide::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Fault = boost::system::error_code;
using Secure = asio::ssl::stream<tcp::socket>;
using Strand = asio::strand<asio::io_context::executor_type>;
using asio::redirect_error;
using asio::use_awaitable;

constexpr std::chrono::seconds kWriteTime{60};  // to accept bytes that wait for a client
constexpr std::chrono::seconds kLingerTime{2};  // to take note of a refusal while still sending
constexpr size_t kLingerBytes = 4u << 20;       // that are read and dropped meanwhile
constexpr size_t kAheadBytes = 64 * 1024;       // read of a client that does not wait for answers
constexpr Clock::time_point kNever = Clock::time_point::max();

class Closable {
 public:
  virtual ~Closable() = default;
  virtual std::shared_ptr<Closable> hold() = 0;  // null: it is about to go
  virtual void close_if_idle() = 0;              // any thread
};

// What all connections of a server share.
struct Shared {
  HttpOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;
  std::atomic<bool> draining{false};

  std::mutex mutex;  // guards what follows
  std::condition_variable closed;
  std::map<std::string, size_t> by_client;
  std::set<Closable*> open;
  HttpStats stats;

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
};

// A request's exchange. Its connection takes from it what is to be written; both run on the connection's strand, but
// for the counters.
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(const Strand& strand, HttpRequest request, const HttpLimits& limits)
      : strand_(strand),
        request_(std::move(request)),
        unsent_max_(limits.unsent_bytes),
        ping_time_(limits.ping_time),
        wake_(strand) {}

  const HttpRequest& request() const override { return request_; }

  void respond(HttpResponse response) override {
    put(response_text(response, request_.method == "HEAD", keep_alive()), /*last=*/true);
  }
  void begin(int status, Headers headers, std::string ping) override {
    put(stream_head(status, headers, keep_alive()), false, ping.empty() ? ping : chunk_text(ping));
  }
  bool write(std::string chunk) override {
    if (chunk.empty()) return !gone_;
    return put(chunk_text(chunk), false);
  }
  void end() override { put("0\r\n\r\n", true); }
  void abort() override {
    asio::dispatch(strand_, [self = shared_from_this()] {
      self->aborted_ = self->last_ = true;
      self->wake();
    });
  }
  void on_gone(std::function<void()> callback) override {
    asio::dispatch(strand_, [self = shared_from_this(), callback = std::move(callback)]() mutable {
      if (self->gone_)
        callback();
      else
        self->on_gone_ = std::move(callback);
    });
  }
  void post(std::function<void()> task) override { asio::post(strand_, std::move(task)); }

  void set_keep_alive(bool keep) { keep_alive_ = keep; }
  bool keep_alive() const { return keep_alive_; }

  // --- on the strand ---

  // What is to be written now, all of it; waits until there is something. Empty: the response is complete.
  asio::awaitable<std::string> take() {
    while (pending_.empty() && !last_ && !gone_) {
      Fault ended;
      wake_.expires_at(ping_.empty() ? kNever : Clock::now() + ping_time_);
      waits_ = true;
      co_await wake_.async_wait(redirect_error(use_awaitable, ended));
      waits_ = false;
      if (!ended && pending_.empty() && !last_ && !gone_) {
        unsent_ += ping_.size();
        co_return ping_;
      }
    }
    co_return std::exchange(pending_, {});
  }
  void sent(size_t bytes) { unsent_ -= bytes; }
  bool aborted() const { return aborted_; }
  bool gone() const { return gone_; }
  bool complete() const { return last_ && pending_.empty(); }
  void leave() {
    if (gone_.exchange(true)) return;
    wake();
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }
  // The response was written: nobody is to hear of what happens to the connection.
  void finish() { on_gone_ = nullptr; }

 private:
  void wake() {
    if (waits_) wake_.cancel();
  }
  bool put(std::string text, bool last, std::string ping = {}) {
    if (gone_) return false;
    const size_t waiting = unsent_ += text.size();
    const bool slow = !last && waiting > unsent_max_ + text.size();
    asio::dispatch(strand_,
                   [self = shared_from_this(), text = std::move(text), last, slow, ping = std::move(ping)]() mutable {
                     if (self->last_) return;
                     if (self->pending_.empty())
                       self->pending_ = std::move(text);
                     else
                       self->pending_ += text;
                     if (!ping.empty()) self->ping_ = std::move(ping);
                     self->last_ = last;
                     if (slow) self->aborted_ = self->last_ = true;
                     self->wake();
                   });
    return !slow;
  }

  Strand strand_;
  HttpRequest request_;
  size_t unsent_max_;
  std::chrono::seconds ping_time_;
  std::atomic<size_t> unsent_ = 0;
  std::atomic<bool> gone_ = false;
  std::atomic<bool> keep_alive_ = true;
  asio::steady_timer wake_;  // what follows: on the strand
  std::string pending_, ping_;
  bool waits_ = false, last_ = false, aborted_ = false;
  std::function<void()> on_gone_;
};

template <class Stream>
class Connection final : public Closable, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, const Strand& strand, std::shared_ptr<Shared> shared, std::string client)
      : stream_(std::move(stream)),
        strand_(strand),
        deadline_(strand),
        shared_(std::move(shared)),
        client_(std::move(client)) {
    const std::lock_guard lock(shared_->mutex);
    shared_->open.insert(this);
  }
  ~Connection() override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->open.erase(this);
    }
    shared_->leave(client_);
  }

  asio::awaitable<void> run() {
    asio::co_spawn(strand_, keep_time(this->shared_from_this()), asio::detached);
    if (co_await open())
      while (co_await serve_one()) {
      }
    Fault ignored;
    socket().shutdown(tcp::socket::shutdown_both, ignored);
    socket().close(ignored);
    closed_ = true;
    deadline_.cancel();
  }

  std::shared_ptr<Closable> hold() override { return this->weak_from_this().lock(); }
  void close_if_idle() override {
    asio::post(strand_, [self = this->shared_from_this()] {
      if (!self->idle_) return;
      Fault ignored;
      self->socket().cancel(ignored);
    });
  }

 private:
  tcp::socket& socket() {
    if constexpr (std::is_same_v<Stream, Secure>)
      return stream_.next_layer();
    else
      return stream_;
  }

  // What the connection waits for must come by then.
  void expect_by(Clock::time_point when) {
    limit_ = when;
    if (when < armed_) deadline_.cancel();
  }
  void expect_within(Clock::duration time) { expect_by(Clock::now() + time); }

  // One timer a connection, which is set anew only if a limit comes sooner than the last.
  asio::awaitable<void> keep_time([[maybe_unused]] std::shared_ptr<Connection> self) {
    while (!closed_) {
      if (limit_ <= Clock::now()) {
        timed_out_ = true;
        Fault ignored;
        socket().cancel(ignored);
        limit_ = kNever;
      }
      armed_ = limit_;
      Fault ignored;
      deadline_.expires_at(armed_);
      co_await deadline_.async_wait(redirect_error(use_awaitable, ignored));
    }
  }

  asio::awaitable<bool> open() {
    if constexpr (std::is_same_v<Stream, Secure>) {
      Fault failed;
      expect_within(shared_->options.limits.header_time);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, redirect_error(use_awaitable, failed));
      if (failed) co_return false;
    }
    co_return true;
  }

  // One request and its response. False: the connection is to be closed.
  asio::awaitable<bool> serve_one() {
    const HttpLimits& limits = shared_->options.limits;
    http::request_parser<http::string_body> parser;
    parser.header_limit(limits.header_bytes);
    parser.body_limit(limits.body_bytes);
    Fault failed;
    if (shared_->draining && buffer_.size() == 0) co_return false;
    if (buffer_.size() == 0) {
      // Nothing has come yet: the time that a connection may be idle.
      expect_within(served_ ? limits.idle_time : limits.header_time);
      idle_ = true;
      const size_t bytes =
          co_await stream_.async_read_some(buffer_.prepare(4096), redirect_error(use_awaitable, failed));
      idle_ = false;
      if (failed) co_return false;
      buffer_.commit(bytes);
    }
    served_ = true;
    expect_within(limits.header_time);
    co_await http::async_read_header(stream_, buffer_, parser, redirect_error(use_awaitable, failed));
    if (failed) co_return co_await refuse_fault(failed);
    auto& head = parser.get();
    if (const auto wrong = check_head(head); wrong.first != 0) {
      const std::string text = refusal(wrong.first, wrong.second);
      co_return co_await refuse(text);
    }
    if (boost::beast::iequals(head[http::field::expect], "100-continue") && !parser.is_done()) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(kContinue), redirect_error(use_awaitable, failed));
    }
    // Every kilobyte of a body buys its time.
    const Clock::time_point begun = Clock::now();
    while (!failed && !parser.is_done()) {
      const auto paid = std::chrono::milliseconds(parser.get().body().size() * 1000 / limits.body_bytes_per_second);
      expect_by(begun + limits.header_time + paid);
      co_await http::async_read_some(stream_, buffer_, parser, redirect_error(use_awaitable, failed));
    }
    if (failed) co_return co_await refuse_fault(failed);
    expect_by(kNever);
    co_return co_await answer(parser.release());
  }

  // What of a header the library does not check: 0 and nothing, or a status and what is wrong.
  template <class Head>
  std::pair<int, std::string> check_head(const Head& head) const {
    const HttpLimits& limits = shared_->options.limits;
    if (head.version() != 11 && head.version() != 10) return {505, "only HTTP/1.1 is spoken here"};
    if (head.target().size() > limits.target_bytes) return {414, "the address is too long"};
    size_t count = 0, lengths = 0, hosts = 0;
    for (const auto& field : head) {
      ++count;
      lengths += field.name() == http::field::content_length || field.name() == http::field::transfer_encoding ? 1 : 0;
      hosts += field.name() == http::field::host ? 1 : 0;
    }
    if (count > limits.headers) return {431, fmt::format("more than {} headers", limits.headers)};
    // Proxies and servers that read such a request differently can be played off against each other.
    if (lengths > 1) return {400, "more than one Content-Length or Transfer-Encoding"};
    if (hosts > 1) return {400, "more than one Host"};
    return {0, {}};
  }

  static int status_of(Fault failed) {
    using http::error;
    if (failed == error::body_limit) return 413;
    if (failed == error::header_limit || failed == error::buffer_overflow) return 431;
    if (failed == error::end_of_stream || failed == error::partial_message) return 0;
    return failed.category() == make_error_code(error::bad_method).category() ? 400 : 0;
  }

  asio::awaitable<bool> refuse_fault(Fault failed) {
    const int status = timed_out_ ? 408 : status_of(failed);
    if (status == 0) co_return false;
    std::string what = failed.message();
    if (timed_out_) what = "the request did not come in time";
    const std::string text = refusal(status, what);
    co_return co_await refuse(text);
  }

  std::string refusal(int status, std::string_view what) const {
    return response_text(shared_->error_body(status, what), false, /*keep_alive=*/false);
  }

  // Always false: the rest of the request is not known. The text is the caller's, by name: GCC 12 destroys temporaries
  // in a co_await expression twice.
  asio::awaitable<bool> refuse(const std::string& text) {
    timed_out_ = false;
    expect_within(kLingerTime);
    Fault failed;
    co_await asio::async_write(stream_, asio::buffer(text), redirect_error(use_awaitable, failed));
    // A client that still sends would get a reset in place of the answer: what it sends is read for a while.
    socket().shutdown(tcp::socket::shutdown_send, failed);
    char dropped[4096];
    for (size_t bytes = 0; !failed && !timed_out_ && bytes < kLingerBytes;)
      bytes += co_await stream_.async_read_some(asio::buffer(dropped), redirect_error(use_awaitable, failed));
    co_return false;
  }

  template <class Message>
  asio::awaitable<bool> answer(Message message) {
    HttpRequest request;
    request.method = std::string(message.method_string());
    const auto target = split_target(std::string_view(message.target().data(), message.target().size()));
    if (!target) {
      const std::string text = refusal(400, "the address is not well-formed");
      co_return co_await refuse(text);
    }
    request.path = target->path;
    request.query = target->query;
    request.client = client_;
    for (const auto& field : message)
      request.headers.emplace_back(lower_case({field.name_string().data(), field.name_string().size()}),
                                   std::string(field.value()));
    request.body = std::move(message.body());
    auto exchange = std::make_shared<Exchange>(strand_, std::move(request), shared_->options.limits);
    exchange->set_keep_alive(message.keep_alive() && !shared_->draining);
    watching_ = true;
    asio::co_spawn(strand_, watch(this->shared_from_this(), exchange), asio::detached);
    shared_->handler(exchange);
    bool complete = false;
    while (!complete) {
      const std::string text = co_await exchange->take();
      if (exchange->gone() || exchange->aborted() || text.empty()) break;
      expect_within(kWriteTime);
      Fault failed;
      co_await asio::async_write(stream_, asio::buffer(text), redirect_error(use_awaitable, failed));
      expect_by(kNever);
      exchange->sent(text.size());
      if (failed) break;
      complete = exchange->complete() && !exchange->aborted();
    }
    if (complete) exchange->finish();
    exchange->leave();
    if (!complete) {
      close_hard();
      co_return false;
    }
    if (!exchange->keep_alive()) co_return false;
    // The watcher still reads: it is stopped, and what it has read is the next request's.
    while (watching_) {
      Fault ignored;
      socket().cancel(ignored);
      asio::steady_timer turn(strand_, Clock::now());
      co_await turn.async_wait(redirect_error(use_awaitable, ignored));
    }
    co_return !timed_out_ && !client_left_;
  }

  // Reads while a response is under way, to see at once that the client is gone.
  asio::awaitable<void> watch([[maybe_unused]] std::shared_ptr<Connection> self, std::shared_ptr<Exchange> exchange) {
    while (!exchange->gone() && buffer_.size() < kAheadBytes) {
      Fault failed;
      const size_t bytes =
          co_await stream_.async_read_some(buffer_.prepare(4096), redirect_error(use_awaitable, failed));
      if (failed) {
        if (failed != asio::error::operation_aborted) {
          client_left_ = true;
          exchange->leave();
        }
        break;
      }
      buffer_.commit(bytes);
    }
    watching_ = false;
  }

  // The client gets a reset, so that it cannot take a broken answer for a whole one.
  void close_hard() {
    Fault ignored;
    socket().set_option(asio::socket_base::linger(true, 0), ignored);
    socket().close(ignored);
  }

  Stream stream_;
  Strand strand_;
  asio::steady_timer deadline_;
  Clock::time_point limit_ = kNever, armed_ = kNever;
  std::shared_ptr<Shared> shared_;
  std::string client_;
  boost::beast::flat_buffer buffer_;
  bool watching_ = false, timed_out_ = false, client_left_ = false, closed_ = false, idle_ = false, served_ = false;
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, HttpHandler handler, HttpErrorBody error_body)
      : shared_(std::make_shared<Shared>()),
        io_(options.threads),
        acceptor_(io_),
        tls_(asio::ssl::context::tls_server) {
    shared_->options = options;
    shared_->handler = std::move(handler);
    shared_->error_body = std::move(error_body);
  }
  ~BeastServer() override { stop(); }

  Result<> listen() {
    const HttpOptions& options = shared_->options;
    Fault failed;
    const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, failed);
    if (failed)
      return error(Code::kInvalid, fmt::format("--host {:.100}: is no address; give one as 127.0.0.1 or ::1, or "
                                               "0.0.0.0 for all of this machine's",
                                               options.host));
    const tcp::endpoint endpoint(address, options.port);
    acceptor_.open(endpoint.protocol(), failed);
    if (!failed) acceptor_.set_option(asio::socket_base::reuse_address(true), failed);
    if (!failed) acceptor_.bind(endpoint, failed);
    if (!failed) acceptor_.listen(4096, failed);
    if (failed == asio::error::address_in_use)
      return error(Code::kUnavailable, fmt::format("--port {} of {} is in use by another program; choose another, or "
                                                   "0 for any free one",
                                                   options.port, options.host));
    if (failed)
      return error(Code::kUnavailable,
                   fmt::format("--host {} --port {}: {}", options.host, options.port, failed.message()));
    if (!options.tls_certificate.empty()) BOLIDE_TRY(open_tls(options));
    port_ = acceptor_.local_endpoint(failed).port();
    asio::co_spawn(io_, accept(), asio::detached);
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { io_.run(); });
    return {};
  }

  uint16_t port() const override { return port_; }
  HttpStats stats() const override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->stats;
  }
  void drain() override {
    if (shared_->draining.exchange(true)) return;
    asio::post(io_, [this] {
      Fault ignored;
      acceptor_.close(ignored);
    });
    std::vector<std::shared_ptr<Closable>> held;  // their end takes the mutex
    {
      const std::lock_guard lock(shared_->mutex);
      for (Closable* connection : shared_->open) held.push_back(connection->hold());
    }
    for (const auto& connection : held)
      if (connection != nullptr) connection->close_if_idle();
  }
  bool wait_closed(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(shared_->mutex);
    return shared_->closed.wait_for(lock, timeout, [&] { return shared_->stats.connections == 0; });
  }
  void stop() override {
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  Result<> open_tls(const HttpOptions& options) {
    Fault failed;
    tls_.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                     asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_compression);
    SSL_CTX_set_options(tls_.native_handle(), SSL_OP_NO_RENEGOTIATION);
    tls_.use_certificate_chain_file(options.tls_certificate, failed);
    if (failed)
      return error(Code::kInvalid, fmt::format("{}: {}; a chain of certificates in PEM is expected",
                                               options.tls_certificate, failed.message()));
    tls_.use_private_key_file(options.tls_key, asio::ssl::context::pem, failed);
    if (failed)
      return error(Code::kInvalid,
                   fmt::format("{}: {}; the certificate's key in PEM is expected", options.tls_key, failed.message()));
    return {};
  }

  asio::awaitable<void> accept() {
    while (acceptor_.is_open()) {
      const Strand strand(io_.get_executor());
      Fault failed;
      tcp::socket socket = co_await acceptor_.async_accept(strand, redirect_error(use_awaitable, failed));
      if (failed == asio::error::operation_aborted) break;
      if (failed) {  // out of descriptors, say: others must end first
        asio::steady_timer pause(io_, std::chrono::milliseconds(20));
        co_await pause.async_wait(redirect_error(use_awaitable, failed));
        continue;
      }
      const auto peer = socket.remote_endpoint(failed);
      if (failed) continue;
      const std::string client = peer.address().to_string();
      if (!shared_->enter(client)) {
        socket.non_blocking(true, failed);
        socket.write_some(asio::buffer(response_text(shared_->error_body(503, "too many connections"), false, false)),
                          failed);
        continue;
      }
      socket.set_option(tcp::no_delay(true), failed);
      if (shared_->options.tls_certificate.empty())
        start(std::make_shared<Connection<tcp::socket>>(std::move(socket), strand, shared_, client), strand);
      else
        start(std::make_shared<Connection<Secure>>(Secure(std::move(socket), tls_), strand, shared_, client), strand);
    }
  }
  template <class C>
  static void start(std::shared_ptr<C> connection, const Strand& strand) {
    asio::co_spawn(strand, hold(std::move(connection)), asio::detached);
  }
  template <class C>
  static asio::awaitable<void> hold(std::shared_ptr<C> connection) {
    co_await connection->run();
  }

  std::shared_ptr<Shared> shared_;
  uint16_t port_ = 0;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::ssl::context tls_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options, HttpHandler handler,
                                                      HttpErrorBody error_body) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler), std::move(error_body));
  BOLIDE_TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace bolide::server
// NOLINTEND(bugprone-unused-return-value)
