#include "server/http.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <thread>

#include "base/log.h"
#include "server/beast/connection.h"
#include "server/beast/shared.h"
#include "server/http_text.h"

// Asio's functions give their error code twice: in an argument, which is looked at, and as what they return.
// NOLINTBEGIN(bugprone-unused-return-value)
namespace bolide::server {
namespace {

namespace asio = boost::asio;
using asio::redirect_error;
using asio::use_awaitable;
using asio::ip::tcp;
using beast::Closable;
using beast::Connection;
using beast::Fault;
using beast::Secure;
using beast::Shared;
using beast::Strand;

class BeastServer final : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, HttpHandler handler, HttpErrorBody error_body, HttpGate gate)
      : shared_(std::make_shared<Shared>()),
        io_(options.threads),
        work_(io_.get_executor()),
        acceptor_(Strand(io_.get_executor())),
        tls_(asio::ssl::context::tls_server) {
    shared_->options = options;
    shared_->handler = std::move(handler);
    shared_->error_body = std::move(error_body);
    shared_->gate = std::move(gate);
  }
  ~BeastServer() override { stop(); }

  Result<> listen() {
    const HttpOptions& options = shared_->options;
    Fault failed;
    const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, failed);
    if (failed)
      return error(Code::kInvalid, fmt::format("{} {:.100}: is no address; give one as 127.0.0.1 or ::1, or "
                                               "0.0.0.0 for all of this machine's",
                                               options.host_flag, options.host));
    const tcp::endpoint endpoint(address, options.port);
    acceptor_.open(endpoint.protocol(), failed);
    if (!failed) acceptor_.set_option(asio::socket_base::reuse_address(true), failed);
    if (!failed) acceptor_.bind(endpoint, failed);
    if (!failed) acceptor_.listen(4096, failed);
    if (failed == asio::error::address_in_use)
      return error(Code::kUnavailable, fmt::format("{} {} of {} is in use by another program; choose another, or "
                                                   "0 for any free one",
                                                   options.port_flag, options.port, options.host));
    if (failed)
      return error(Code::kUnavailable, fmt::format("{} {} {} {}: {}", options.host_flag, options.host,
                                                   options.port_flag, options.port, failed.message()));
    if (!options.tls_certificate.empty()) BOLIDE_TRY(open_tls(options));
    port_ = acceptor_.local_endpoint(failed).port();
    shared_->accepting = true;
    asio::co_spawn(acceptor_.get_executor(), accept(), beast::drop_exception);
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { run(); });
    return {};
  }

  uint16_t port() const override { return port_; }
  HttpStats stats() const override {
    const std::lock_guard lock(shared_->mutex);
    HttpStats stats = shared_->stats;
    for (size_t status = 0; status < shared_->answers.size(); ++status)
      if (const uint64_t count = shared_->answers[status]; count > 0) stats.answers[static_cast<int>(status)] = count;
    return stats;
  }
  void retire() override { shared_->retiring = true; }
  void drain() override {
    shared_->retiring = true;
    if (shared_->draining.exchange(true)) return;
    asio::post(acceptor_.get_executor(), [this] {
      take_backlog();
      Fault ignored;
      acceptor_.close(ignored);
    });
    hurry_idle();
  }
  bool wait_closed(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(shared_->mutex);
    return shared_->closed.wait_for(
        lock, timeout, [&] { return shared_->stats.connections == 0 && !(shared_->draining && shared_->accepting); });
  }
  void stop() override {
    io_.stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  // Nothing that a connection throws gets here; if something else does, the others go on.
  void run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& thrown) {
        log::error("a server's thread failed", {{"what", thrown.what()}});
      }
    }
  }
  void hurry_idle() {
    std::vector<std::shared_ptr<Closable>> held;  // their end takes the mutex
    {
      const std::lock_guard lock(shared_->mutex);
      for (Closable* connection : shared_->open) held.push_back(connection->hold());
    }
    for (const auto& connection : held)
      if (connection != nullptr) connection->hurry_if_idle();
  }
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
      try {
        co_await accept_one();
      } catch (const std::exception& thrown) {
        log::error("a connection could not be accepted", {{"what", thrown.what()}});
      }
    }
    const std::lock_guard lock(shared_->mutex);
    shared_->accepting = false;
    shared_->closed.notify_all();
  }
  asio::awaitable<void> accept_one() {
    const Strand strand(io_.get_executor());
    Fault failed;
    tcp::socket socket = co_await acceptor_.async_accept(strand, redirect_error(use_awaitable, failed));
    if (failed == asio::error::operation_aborted) co_return;
    if (failed) {  // out of descriptors, say: others must end first
      asio::steady_timer pause(acceptor_.get_executor(), std::chrono::milliseconds(20));
      co_await pause.async_wait(redirect_error(use_awaitable, failed));
      co_return;
    }
    take(std::move(socket), strand);
  }
  // Those that have connected before the end are answered, too.
  void take_backlog() {
    Fault failed;
    acceptor_.non_blocking(true, failed);
    while (!failed) {
      const Strand strand(io_.get_executor());
      tcp::socket socket(strand);
      acceptor_.accept(socket, failed);
      if (!failed) take(std::move(socket), strand);
    }
  }
  void take(tcp::socket socket, const Strand& strand) {
    Fault failed;
    const auto peer = socket.remote_endpoint(failed);
    if (failed) return;
    const std::string client = peer.address().to_string();
    if (!shared_->enter(client)) {
      shared_->count(503);
      socket.non_blocking(true, failed);
      socket.write_some(asio::buffer(response_text(shared_->error_body(503, "too many connections", {}), false, false)),
                        failed);
      return;
    }
    socket.set_option(tcp::no_delay(true), failed);
    if (shared_->options.tls_certificate.empty())
      start(std::make_shared<Connection<tcp::socket>>(std::move(socket), strand, shared_, client), strand);
    else
      start(std::make_shared<Connection<Secure>>(Secure(std::move(socket), tls_), strand, shared_, client), strand);
  }
  template <class C>
  static void start(std::shared_ptr<C> connection, const Strand& strand) {
    asio::co_spawn(strand, hold(std::move(connection)), beast::drop_exception);
  }
  template <class C>
  static asio::awaitable<void> hold(std::shared_ptr<C> connection) {
    co_await connection->run();
  }

  std::shared_ptr<Shared> shared_;
  uint16_t port_ = 0;
  asio::io_context io_;
  // Threads that have nothing left to do stay: what is still posted for a connection holds it until it has run.
  asio::executor_work_guard<asio::io_context::executor_type> work_;
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
                                                      HttpErrorBody error_body, HttpGate gate) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler), std::move(error_body), std::move(gate));
  BOLIDE_TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace bolide::server
// NOLINTEND(bugprone-unused-return-value)
