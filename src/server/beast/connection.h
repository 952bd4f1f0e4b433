// A connection: a coroutine that reads a request and writes its answer, over and over; beside it one that reads ahead
// while an answer is under way, to see that the client is gone, and one that keeps time. All run on its strand.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <optional>

#include "server/beast/body.h"
#include "server/beast/exchange.h"
#include "server/beast/request_head.h"
#include "server/beast/shared.h"

// Asio's functions give their error code twice: in an argument, which is looked at, and as what they return.
// NOLINTBEGIN(bugprone-unused-return-value)
namespace bolide::server::beast {

constexpr std::chrono::seconds kLingerTime{2};           // to take note of a refusal while still sending
constexpr size_t kLingerBytes = 32u << 20;               // that are read and dropped meanwhile
constexpr std::chrono::milliseconds kFarewellTime{500};  // for the end of TLS
constexpr std::chrono::milliseconds kLastTime{200};      // for a request that is on its way when the server ends
constexpr size_t kAheadBytes = 64 * 1024;                // read of a client that does not wait for answers

template <class Stream>
class Connection final : public Closable, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, const Strand& strand, std::shared_ptr<Shared> shared, std::string client)
      : stream_(std::move(stream)),
        strand_(strand),
        deadline_(strand),
        shared_(std::move(shared)),
        client_(std::move(client)),
        buffer_(kAheadBytes + std::max<size_t>(kAheadBytes, 2 * shared_->options.limits.header_bytes)) {}
  ~Connection() override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->open.erase(this);
    }
    shared_->leave(client_);
  }

  asio::awaitable<void> run() {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->open.insert(this);
    }
    try {
      asio::co_spawn(strand_, keep_time(this->shared_from_this()), drop_exception);
      if (co_await open())
        while (co_await serve_one()) {
        }
      co_await say_farewell();
    } catch (const std::exception& thrown) {
      log::error("a connection failed", {{"client", std::string_view(client_)}, {"what", thrown.what()}});
      if (const auto exchange = exchange_.lock()) exchange->leave();
    }
    Fault ignored;
    socket().shutdown(tcp::socket::shutdown_both, ignored);
    socket().close(ignored);
    closed_ = true;
    deadline_.cancel();
  }

  std::shared_ptr<Closable> hold() override { return this->weak_from_this().lock(); }
  void hurry_if_idle() override {
    asio::post(strand_, [self = this->shared_from_this()] {
      if (self->idle_) self->expect_within(kLastTime);
    });
  }

 private:
  struct Watching {
    bool& flag;
    ~Watching() { flag = false; }
  };
  using Parser = http::request_parser<GrowingBody>;
  static constexpr bool kSecure = std::is_same_v<Stream, Secure>;

  tcp::socket& socket() {
    if constexpr (kSecure)
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
    if constexpr (kSecure) {
      Fault failed;
      expect_within(shared_->options.limits.header_time);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, redirect_error(use_awaitable, failed));
      if (failed) co_return false;
    }
    co_return true;
  }

  // TLS says that nothing was cut off.
  asio::awaitable<void> say_farewell() {
    if constexpr (kSecure) {
      if (!socket().is_open() || std::exchange(parted_, true)) co_return;
      Fault ignored;
      expect_within(kFarewellTime);
      co_await stream_.async_shutdown(redirect_error(use_awaitable, ignored));
    }
  }

  // One request and its response. False: the connection is to be closed.
  asio::awaitable<bool> serve_one() {
    const HttpLimits& limits = shared_->options.limits;
    Parser parser;
    parser.header_limit(limits.header_bytes);
    parser.body_limit(limits.body_bytes);
    ChunkCount chunks;
    std::string_view wrong;
    auto on_chunk = [&](uint64_t bytes, boost::beast::string_view extensions, Fault& flooded) {
      if (!chunks.add(bytes, extensions.size(), &wrong)) flooded = http::error::bad_chunk;
    };
    parser.on_chunk_header(on_chunk);

    if (!co_await wait_for_request()) co_return false;
    Fault failed;
    expect_within(limits.header_time);
    co_await http::async_read_header(stream_, buffer_, parser, redirect_error(use_awaitable, failed));
    const auto target = parser.get().target();
    path_ = path_of({target.data(), target.size()},
                    {static_cast<const char*>(buffer_.data().data()), buffer_.data().size()});
    if (failed) co_return co_await refuse_fault(failed, wrong);
    // Trailers, which come behind a body, are none of this.
    std::pair<int, std::string> refusal = check_head(parser.get(), limits);
    std::optional<HttpRequest> request;
    if (refusal.first == 0) request = request_of(parser.get(), client_);
    if (refusal.first == 0 && !request) refusal = {400, "the address is not well-formed"};
    if (refusal.first != 0) {
      const std::string text = refusal_text(refusal.first, refusal.second);
      co_return co_await refuse(text);
    }
    const AnswerForm form{parser.get().version() == 11, parser.get().keep_alive()};
    uint64_t body_bytes_max = limits.body_bytes;
    if (std::optional<HttpResponse> response = ask_gate(*request, &body_bytes_max))
      co_return co_await refuse_by_gate(*response, form, *request, parser.is_done());

    BodyShare share(*shared_);
    const int status = co_await read_body(parser, form, body_bytes_max, share, &failed);
    if (failed) co_return co_await refuse_fault(failed, wrong);
    if (status != 0) {
      const std::string text = refusal_text(
          status, status == 413 ? fmt::format("the body may have {} bytes at most", body_bytes_max)
                                : std::string("the bodies of all requests have too many bytes; try again"));
      co_return co_await refuse(text);
    }
    expect_by(kNever);
    request->body = std::move(parser.get().body());
    const auto exchange = std::make_shared<Exchange>(strand_, *std::move(request), shared_, form);
    exchange_ = exchange;
    co_return co_await answer(exchange);
  }

  // Until its first byte. False: none comes.
  asio::awaitable<bool> wait_for_request() {
    if (buffer_.size() > 0) {
      served_ = true;
      co_return true;
    }
    buffer_.shrink_to_fit();  // thousands of connections may be idle
    const HttpLimits& limits = shared_->options.limits;
    if (shared_->draining || (served_ && shared_->retiring))
      expect_within(kLastTime);
    else
      expect_within(served_ ? limits.idle_time : limits.header_time);
    Fault failed;
    idle_ = true;
    const size_t bytes = co_await stream_.async_read_some(buffer_.prepare(4096), redirect_error(use_awaitable, failed));
    idle_ = false;
    if (failed) co_return false;
    buffer_.commit(bytes);
    served_ = true;
    co_return true;
  }

  // 0, or the status of a body that is longer than it may be.
  asio::awaitable<int> read_body(Parser& parser, const AnswerForm& form, uint64_t bytes_max, BodyShare& share,
                                 Fault* failed) {
    if (parser.content_length() && *parser.content_length() > bytes_max) co_return 413;
    if (parser.is_done()) co_return 0;
    parser.body_limit(bytes_max);
    if (form.http_1_1 && boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await asio::async_write(stream_, asio::buffer(kContinue), redirect_error(use_awaitable, *failed));
    }
    // Every kilobyte of a body buys its time.
    const HttpLimits& limits = shared_->options.limits;
    const Clock::time_point begun = Clock::now();
    while (!*failed && !parser.is_done()) {
      const uint64_t bytes = parser.get().body().size();
      if (!share.grow_to(bytes)) co_return 503;
      expect_by(begun + limits.header_time + std::chrono::milliseconds(bytes * 1000 / limits.body_bytes_per_second));
      co_await http::async_read_some(stream_, buffer_, parser, redirect_error(use_awaitable, *failed));
    }
    co_return 0;
  }

  std::optional<HttpResponse> ask_gate(const HttpRequest& head, uint64_t* body_bytes_max) {
    if (!shared_->gate) return std::nullopt;
    try {
      return shared_->gate(head, body_bytes_max);
    } catch (const std::exception& thrown) {
      log::error("a request could not be looked at", {{"what", thrown.what()}});
      return shared_->error_body(500, "the server failed at this request", path_);
    }
  }

  asio::awaitable<bool> refuse_by_gate(HttpResponse& response, const AnswerForm& form, const HttpRequest& head,
                                       bool whole) {
    shared_->count(response.status);
    const bool keep_alive = whole && form.keep_alive && !shared_->retiring;
    if (keep_alive && !form.http_1_1) response.headers.emplace_back("Connection", "keep-alive");
    const std::string text = response_text(response, head.method == "HEAD", keep_alive);
    if (!keep_alive) co_return co_await refuse(text);
    Fault failed;
    expect_within(shared_->options.limits.write_time);
    co_await asio::async_write(stream_, asio::buffer(text), redirect_error(use_awaitable, failed));
    co_return !failed;
  }

  // `wrong`: what the fault does not say.
  asio::awaitable<bool> refuse_fault(Fault failed, std::string_view wrong) {
    const int status = timed_out_ ? 408 : status_of(failed);
    if (status == 0) co_return false;
    const std::string what = timed_out_      ? "the request did not come in time"
                             : wrong.empty() ? failed.message()
                                             : std::string(wrong);
    const std::string text = refusal_text(status, what);
    co_return co_await refuse(text);
  }

  std::string refusal_text(int status, std::string_view what) const {
    shared_->count(status);
    return response_text(shared_->error_body(status, what, path_), false, /*keep_alive=*/false);
  }

  // Always false: the rest of the request is not known. The text is the caller's, by name: GCC 12 destroys temporaries
  // in a co_await expression twice.
  asio::awaitable<bool> refuse(const std::string& text) {
    timed_out_ = false;
    expect_within(kLingerTime);
    Fault failed;
    co_await asio::async_write(stream_, asio::buffer(text), redirect_error(use_awaitable, failed));
    if constexpr (kSecure) {
      // Fails if the client sends on, but what ends the answer has been sent by then.
      parted_ = true;
      Fault ignored;
      if (!failed) co_await stream_.async_shutdown(redirect_error(use_awaitable, ignored));
    }
    // A client that still sends would get a reset in place of the answer: what it sends is read for a while.
    if (!failed) socket().shutdown(tcp::socket::shutdown_send, failed);
    char dropped[4096];
    for (size_t bytes = 0; !failed && !timed_out_ && bytes < kLingerBytes;)
      bytes += co_await socket().async_read_some(asio::buffer(dropped), redirect_error(use_awaitable, failed));
    co_return false;
  }

  asio::awaitable<bool> answer(const std::shared_ptr<Exchange>& exchange) {
    watching_ = true;
    asio::co_spawn(strand_, watch(this->shared_from_this(), exchange), drop_exception);
    exchange->guard([&] { shared_->handler(exchange); });
    bool complete = false;
    while (!complete) {
      const std::string text = co_await exchange->take();
      if (exchange->gone() || exchange->aborted()) break;
      if (!text.empty()) {
        expect_within(shared_->options.limits.write_time);
        Fault failed;
        co_await asio::async_write(stream_, asio::buffer(text), redirect_error(use_awaitable, failed));
        expect_by(kNever);
        exchange->sent(text.size());
        if (failed) break;
      }
      complete = exchange->complete() && !exchange->aborted();
    }
    if (complete) exchange->finish();
    exchange->leave();
    if (!complete) {
      close_hard();
      co_return false;
    }
    // The watcher still reads: it is stopped, and what it has read is the next request's.
    while (watching_) {
      Fault ignored;
      socket().cancel(ignored);
      asio::steady_timer turn(strand_, Clock::now());
      co_await turn.async_wait(redirect_error(use_awaitable, ignored));
    }
    co_return exchange->keep_alive() && !timed_out_ && !client_left_;
  }

  // Reads while a response is under way, to see at once that the client is gone.
  asio::awaitable<void> watch([[maybe_unused]] std::shared_ptr<Connection> self, std::shared_ptr<Exchange> exchange) {
    const Watching watching{watching_};
    while (!exchange->gone() && buffer_.size() < kAheadBytes) {
      Fault failed;
      const size_t bytes =
          co_await stream_.async_read_some(buffer_.prepare(4096), redirect_error(use_awaitable, failed));
      if (!failed) {
        buffer_.commit(bytes);
        continue;
      }
      if (failed == asio::error::operation_aborted) break;
      // It may have closed its half alone, and wait.
      if (!kSecure && failed == asio::error::eof && exchange->probe()) {
        co_await socket().async_wait(tcp::socket::wait_error, redirect_error(use_awaitable, failed));
        if (failed) break;
      }
      client_left_ = true;
      exchange->leave();
      break;
    }
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
  std::string path_;  // of the last request, as it came
  boost::beast::flat_buffer buffer_;
  std::weak_ptr<Exchange> exchange_;  // the last one
  bool watching_ = false, timed_out_ = false, client_left_ = false, closed_ = false, idle_ = false, served_ = false,
       parted_ = false;  // what says that TLS ends was sent
};

}  // namespace bolide::server::beast
// NOLINTEND(bugprone-unused-return-value)
