#include <fmt/format.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "server/http.h"
#include "server/http_text.h"

namespace bolide::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Code = boost::system::error_code;
using Plain = beast::tcp_stream;
using Secure = beast::ssl_stream<beast::tcp_stream>;

// How long a client may take to accept bytes that wait for it.
constexpr std::chrono::seconds kWriteTime{60};
// What is read ahead of a client that sends its next request before it has the answer to this one.
constexpr size_t kAheadBytes = 64 * 1024;

// What all connections of a server share.
struct Shared {
  HttpOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;
  std::atomic<bool> draining{false};

  std::mutex mutex;  // guards what follows
  std::condition_variable closed;
  std::map<std::string, size_t> by_client;
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
    if (--by_client[client] == 0) by_client.erase(client);
    --stats.connections;
    if (stats.connections == 0) closed.notify_all();
  }
};

using Strand = asio::strand<asio::io_context::executor_type>;

// A request's exchange. Its connection takes from it what is to be written; both run on the connection's strand, but
// for the counters.
class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Strand strand, HttpRequest request, size_t unsent_max)
      : strand_(std::move(strand)), request_(std::move(request)), unsent_max_(unsent_max), wake_(strand_) {}

  const HttpRequest& request() const override { return request_; }

  void respond(HttpResponse response) override {
    put(response_text(response, request_.method == "HEAD", keep_alive()), /*last=*/true);
  }
  void begin(int status, Headers headers) override { put(stream_head(status, headers, keep_alive()), false); }
  bool write(std::string chunk) override {
    if (chunk.empty()) return !gone_;
    return put(chunk_text(chunk), false);
  }
  void end() override { put("0\r\n\r\n", true); }
  void abort() override {
    asio::post(strand_, [self = shared_from_this()] {
      self->aborted_ = self->last_ = true;
      self->wake_.cancel();
    });
  }
  void on_gone(std::function<void()> callback) override {
    asio::post(strand_, [self = shared_from_this(), callback = std::move(callback)]() mutable {
      if (self->gone_)
        callback();
      else
        self->on_gone_ = std::move(callback);
    });
  }

  void set_keep_alive(bool keep) { keep_alive_ = keep; }
  bool keep_alive() const { return keep_alive_; }

  // --- on the strand ---

  // What is to be written now, all of it; waits until there is something. Empty: the response is complete.
  asio::awaitable<std::string> take() {
    while (pending_.empty() && !last_ && !gone_) {
      Code ignored;
      wake_.expires_at(Clock::time_point::max());
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    co_return std::exchange(pending_, {});
  }
  void sent(size_t bytes) { unsent_ -= bytes; }
  bool aborted() const { return aborted_; }
  bool gone() const { return gone_; }
  bool complete() const { return last_ && pending_.empty(); }
  void leave() {
    if (gone_.exchange(true)) return;
    wake_.cancel();
    if (!complete() && on_gone_) std::exchange(on_gone_, nullptr)();
  }
  // The response was written: nobody is to hear of what happens to the connection.
  void finish() { on_gone_ = nullptr; }

 private:
  bool put(std::string text, bool last) {
    if (gone_) return false;
    const size_t waiting = unsent_ += text.size();
    const bool slow = !last && waiting > unsent_max_ + text.size();
    asio::post(strand_, [self = shared_from_this(), text = std::move(text), last, slow]() mutable {
      if (self->last_) return;
      self->pending_ += text;
      self->last_ = last;
      if (slow) self->aborted_ = self->last_ = true;
      self->wake_.cancel();
    });
    return !slow;
  }

  Strand strand_;
  HttpRequest request_;
  size_t unsent_max_;
  std::atomic<size_t> unsent_ = 0;
  std::atomic<bool> gone_ = false;
  std::atomic<bool> keep_alive_ = true;
  asio::steady_timer wake_;  // what follows: on the strand
  std::string pending_;
  bool last_ = false, aborted_ = false;
  std::function<void()> on_gone_;
};

template <class Stream>
class Connection final : public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, Strand strand, std::shared_ptr<Shared> shared, std::string client)
      : stream_(std::move(stream)),
        strand_(std::move(strand)),
        shared_(std::move(shared)),
        client_(std::move(client)) {}
  ~Connection() { shared_->leave(client_); }

  asio::awaitable<void> run() {
    if constexpr (std::is_same_v<Stream, Secure>) {
      Code failed;
      tcp_stream().expires_after(shared_->options.limits.header_time);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, asio::redirect_error(asio::use_awaitable, failed));
      if (failed) co_return;
    }
    for (bool first = true; co_await serve_one(first); first = false) {
    }
    Code ignored;
    tcp_stream().socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

 private:
  Plain& tcp_stream() { return beast::get_lowest_layer(stream_); }

  // One request and its response. False: the connection is to be closed.
  asio::awaitable<bool> serve_one(bool first) {
    const HttpLimits& limits = shared_->options.limits;
    beast::http::request_parser<beast::http::string_body> parser;
    parser.header_limit(limits.header_bytes);
    parser.body_limit(limits.body_bytes);
    Code failed;
    if (!first && buffer_.size() == 0) {
      // Nothing has come yet: the time that a connection may be idle.
      tcp_stream().expires_after(limits.idle_time);
      const size_t bytes = co_await stream_.async_read_some(buffer_.prepare(kAheadBytes),
                                                            asio::redirect_error(asio::use_awaitable, failed));
      if (failed) co_return false;
      buffer_.commit(bytes);
    }
    tcp_stream().expires_after(limits.header_time);
    co_await beast::http::async_read_header(stream_, buffer_, parser,
                                            asio::redirect_error(asio::use_awaitable, failed));
    if (failed) {
      if (const int status = status_of(failed); status != 0) co_await refuse(status, failed.message());
      co_return false;
    }
    auto& head = parser.get();
    if (const auto wrong = check_head(head); wrong.first != 0) {
      co_await refuse(wrong.first, wrong.second);
      co_return false;
    }
    if (beast::iequals(head[beast::http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(kContinue), asio::redirect_error(asio::use_awaitable, failed));
    }
    // Every kilobyte of a body buys its time.
    const Clock::time_point begun = Clock::now();
    while (!failed && !parser.is_done()) {
      const auto paid = std::chrono::milliseconds(parser.get().body().size() * 1000 / limits.body_bytes_per_second);
      tcp_stream().expires_at(begun + limits.header_time + paid);
      co_await beast::http::async_read_some(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, failed));
    }
    if (failed) {
      if (const int status = status_of(failed); status != 0) co_await refuse(status, failed.message());
      co_return false;
    }
    tcp_stream().expires_never();
    co_return co_await answer(parser.release());
  }

  // What of a header the library does not check: 0 and nothing, or a status and what is wrong.
  template <class Head>
  std::pair<int, std::string> check_head(const Head& head) const {
    const HttpLimits& limits = shared_->options.limits;
    if (head.target().size() > limits.target_bytes) return {414, "the address is too long"};
    size_t count = 0, lengths = 0, encodings = 0;
    for (const auto& field : head) {
      ++count;
      lengths += field.name() == beast::http::field::content_length ? 1 : 0;
      encodings += field.name() == beast::http::field::transfer_encoding ? 1 : 0;
    }
    if (count > limits.headers) return {431, fmt::format("more than {} headers", limits.headers)};
    // Proxies and servers that read such a request differently can be played off against each other.
    if (lengths + encodings > 1) return {400, "more than one Content-Length or Transfer-Encoding"};
    if (head.version() != 11 && head.version() != 10) return {505, "only HTTP/1.1 is spoken here"};
    return {0, {}};
  }

  static int status_of(Code failed) {
    using beast::http::error;
    if (failed == beast::error::timeout) return 408;
    if (failed == error::body_limit) return 413;
    if (failed == error::header_limit) return 431;
    if (failed == error::end_of_stream || failed == error::partial_message) return 0;
    return failed.category() == make_error_code(error::bad_method).category() ? 400 : 0;
  }

  asio::awaitable<void> refuse(int status, std::string what) {
    tcp_stream().expires_after(std::chrono::seconds(5));
    const std::string text = response_text(shared_->error_body(status, what), false, /*keep_alive=*/false);
    Code ignored;
    co_await asio::async_write(stream_, asio::buffer(text), asio::redirect_error(asio::use_awaitable, ignored));
  }

  template <class Message>
  asio::awaitable<bool> answer(Message message) {
    HttpRequest request;
    request.method = std::string(message.method_string());
    const auto target = split_target(std::string_view(message.target().data(), message.target().size()));
    if (!target) {
      co_await refuse(400, "the address is not well-formed");
      co_return false;
    }
    request.path = target->path;
    request.query = target->query;
    request.client = client_;
    for (const auto& field : message)
      request.headers.emplace_back(lower_case({field.name_string().data(), field.name_string().size()}),
                                   std::string(field.value()));
    request.body = std::move(message.body());
    auto exchange =
        std::make_shared<Exchange>(strand_, std::move(request), shared_->options.limits.unsent_bytes);
    exchange->set_keep_alive(message.keep_alive() && !shared_->draining);
    asio::co_spawn(strand_, watch(this->shared_from_this(), exchange), asio::detached);
    shared_->handler(exchange);
    while (true) {
      const std::string text = co_await exchange->take();
      if (exchange->gone() || exchange->aborted()) break;
      if (text.empty()) break;
      tcp_stream().expires_after(kWriteTime);
      Code failed;
      co_await asio::async_write(stream_, asio::buffer(text), asio::redirect_error(asio::use_awaitable, failed));
      exchange->sent(text.size());
      if (failed) break;
      if (exchange->complete()) {
        exchange->finish();
        break;
      }
    }
    const bool complete = exchange->complete() && !exchange->aborted();
    exchange->leave();
    tcp_stream().expires_never();
    if (!complete || !exchange->keep_alive()) {
      if (exchange->aborted()) close_hard();
      co_return false;
    }
    // The watcher still reads: it is stopped, and what it has read is the next request's.
    while (watching_) {
      tcp_stream().cancel();
      Code ignored;
      asio::steady_timer turn(strand_, Clock::now());
      co_await turn.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    co_return !shared_->draining;
  }

  // Reads while a response is under way, to see at once that the client is gone.
  asio::awaitable<void> watch(std::shared_ptr<Connection> self, std::shared_ptr<Exchange> exchange) {
    watching_ = true;
    while (!exchange->gone() && buffer_.size() < kAheadBytes) {
      Code failed;
      const size_t bytes = co_await stream_.async_read_some(buffer_.prepare(4096),
                                                            asio::redirect_error(asio::use_awaitable, failed));
      if (failed) {
        if (failed != asio::error::operation_aborted) exchange->leave();
        break;
      }
      buffer_.commit(bytes);
    }
    watching_ = false;
  }

  // The client gets a reset, so that it cannot take a broken answer for a whole one.
  void close_hard() {
    Code ignored;
    tcp_stream().socket().set_option(asio::socket_base::linger(true, 0), ignored);
    tcp_stream().socket().close(ignored);
  }

  Stream stream_;
  Strand strand_;
  std::shared_ptr<Shared> shared_;
  std::string client_;
  beast::flat_buffer buffer_;
  bool watching_ = false;
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, HttpHandler handler, HttpErrorBody error_body)
      : shared_(std::make_shared<Shared>()), io_(options.threads), acceptor_(io_), tls_(asio::ssl::context::tls_server) {
    shared_->options = options;
    shared_->handler = std::move(handler);
    shared_->error_body = std::move(error_body);
  }
  ~BeastServer() override {
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  Result<> listen() {
    const HttpOptions& options = shared_->options;
    Code failed;
    const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, failed);
    if (failed) return error(bolide::Code::kInvalid, fmt::format("--host {}: is no address of IP", options.host));
    const tcp::endpoint endpoint(address, options.port);
    acceptor_.open(endpoint.protocol(), failed);
    if (!failed) acceptor_.set_option(asio::socket_base::reuse_address(true), failed);
    if (!failed) acceptor_.bind(endpoint, failed);
    if (!failed) acceptor_.listen(4096, failed);
    if (failed)
      return error(bolide::Code::kUnavailable,
                   fmt::format("--host {} --port {}: {}; another program may use it", options.host, options.port,
                               failed.message()));
    if (!options.tls_certificate.empty()) BOLIDE_TRY(open_tls(options));
    asio::co_spawn(io_, accept(), asio::detached);
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { io_.run(); });
    return {};
  }

  uint16_t port() const override {
    Code ignored;
    return acceptor_.local_endpoint(ignored).port();
  }
  HttpStats stats() const override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->stats;
  }
  void drain() override {
    shared_->draining = true;
    asio::post(io_, [this] {
      Code ignored;
      acceptor_.close(ignored);
    });
  }
  bool wait_closed(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(shared_->mutex);
    return shared_->closed.wait_for(lock, timeout, [&] { return shared_->stats.connections == 0; });
  }

 private:
  Result<> open_tls(const HttpOptions& options) {
    Code failed;
    tls_.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                     asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_compression);
    SSL_CTX_set_options(tls_.native_handle(), SSL_OP_NO_RENEGOTIATION);
    tls_.use_certificate_chain_file(options.tls_certificate, failed);
    if (failed)
      return error(bolide::Code::kInvalid, fmt::format("{}: {}", options.tls_certificate, failed.message()));
    tls_.use_private_key_file(options.tls_key, asio::ssl::context::pem, failed);
    if (failed) return error(bolide::Code::kInvalid, fmt::format("{}: {}", options.tls_key, failed.message()));
    return {};
  }

  asio::awaitable<void> accept() {
    while (acceptor_.is_open()) {
      Strand strand(io_.get_executor());
      Code failed;
      tcp::socket socket =
          co_await acceptor_.async_accept(strand, asio::redirect_error(asio::use_awaitable, failed));
      if (failed == asio::error::operation_aborted) break;
      if (failed) {  // out of descriptors, say: others must end first
        asio::steady_timer pause(io_, std::chrono::milliseconds(20));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failed));
        continue;
      }
      const std::string client = socket.remote_endpoint(failed).address().to_string();
      if (failed || !shared_->enter(client)) continue;
      socket.set_option(tcp::no_delay(true), failed);
      if (shared_->options.tls_certificate.empty())
        start(std::make_shared<Connection<Plain>>(Plain(std::move(socket)), strand, shared_, client), strand);
      else
        start(std::make_shared<Connection<Secure>>(Secure(Plain(std::move(socket)), tls_), strand, shared_, client),
              strand);
    }
  }
  template <class C>
  static void start(std::shared_ptr<C> connection, const Strand& strand) {
    asio::co_spawn(
        strand, [connection]() -> asio::awaitable<void> { co_await connection->run(); }, asio::detached);
  }

  std::shared_ptr<Shared> shared_;
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
