// A request's exchange. Its connection takes from it what is to be written; both run on the connection's strand, but
// for the counters.
#pragma once

#include <optional>

#include "base/log.h"
#include "server/beast/shared.h"
#include "server/http_text.h"

namespace bolide::server::beast {

// What HTTP's version and headers of a request say of how it is answered.
struct AnswerForm {
  bool http_1_1 = true;  // knows chunks and answers before the answer (100)
  bool keep_alive = true;
};

class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(const Strand& strand, HttpRequest request, std::shared_ptr<Shared> shared, AnswerForm form)
      : strand_(strand),
        request_(std::move(request)),
        shared_(std::move(shared)),
        form_(form),
        keep_alive_(form.keep_alive),
        wake_(strand),
        alarm_(strand) {}

  const HttpRequest& request() const override { return request_; }

  void respond(HttpResponse response) override {
    if (shared_->retiring) keep_alive_ = false;
    if (!form_.http_1_1 && keep_alive_) response.headers.emplace_back("Connection", "keep-alive");
    const std::string text = response_text(response, request_.method == "HEAD", keep_alive_);
    if (put(text, Part::kWhole)) shared_->count(response.status);
  }
  void begin(int status, Headers headers, std::string ping) override {
    // Without chunks the end of the connection is that of the stream.
    if (shared_->retiring || !form_.http_1_1) keep_alive_ = false;
    const std::string head = stream_head(status, headers, keep_alive_, /*chunked=*/form_.http_1_1);
    if (put(head, Part::kHead, ping.empty() ? ping : framed(ping))) shared_->count(status);
  }
  bool write(std::string chunk) override {
    if (chunk.empty()) return !gone_;
    return put(framed(chunk), Part::kMore);
  }
  void end() override { put(form_.http_1_1 ? "0\r\n\r\n" : "", Part::kEnd); }
  void abort() override {
    asio::dispatch(strand_, [self = shared_from_this()] { self->give_up(); });
  }
  void on_gone(std::function<void()> callback) override {
    asio::dispatch(strand_, [self = shared_from_this(), callback = std::move(callback)]() mutable {
      if (self->gone_)
        self->guard(callback);
      else
        self->on_gone_ = std::move(callback);
    });
  }
  void post(std::function<void()> task) override {
    asio::post(strand_, [self = shared_from_this(), task = std::move(task)] { self->guard(task); });
  }
  void post_at(Clock::time_point when, std::function<void()> task) override {
    asio::dispatch(strand_, [self = shared_from_this(), when, task = std::move(task)]() mutable {
      if (self->last_ || self->gone_) return;
      self->alarm_.expires_at(when);
      self->alarm_.async_wait([self, task = std::move(task)](Fault ended) {
        if (!ended && !self->last_ && !self->gone_) self->guard(task);
      });
    });
  }

  bool keep_alive() const { return keep_alive_; }

  // --- on the strand ---

  // Runs what a handler wants. What it throws (for want of memory, say) ends its request, not the process.
  template <class Task>
  void guard(const Task& task) {
    try {
      task();
    } catch (const std::exception& thrown) {
      fail(thrown.what());
    }
  }

  // What is to be written now, all of it; waits until there is something. Empty: the response is complete.
  asio::awaitable<std::string> take() {
    while (pending_.empty() && !last_ && !gone_) {
      Fault ended;
      wake_.expires_at(ping_.empty() ? kNever : Clock::now() + shared_->options.limits.ping_time);
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
  // The client sends no more: it may be gone, or wait for its answer. Something is sent, so that the system of one that
  // is gone says so. False: there is nothing that could be sent now.
  bool probe() {
    if (last_ || !pending_.empty()) return true;
    if (begun_ ? ping_.empty() : !form_.http_1_1) return false;
    pending_ = begun_ ? ping_ : "HTTP/1.1 100 Continue\r\n\r\n";
    unsent_ += pending_.size();
    wake();
    return true;
  }
  void leave() {
    if (gone_.exchange(true)) return;
    alarm_.cancel();
    wake();
    if (const auto callback = std::exchange(on_gone_, nullptr)) guard(callback);
  }
  // The response was written: nobody is to hear of what happens to the connection.
  void finish() { on_gone_ = nullptr; }

 private:
  enum class Part : uint8_t { kWhole, kHead, kMore, kEnd };

  void wake() {
    if (waits_) wake_.cancel();
  }
  void give_up() {
    aborted_ = last_ = true;
    wake();
  }
  void fail(std::string_view what) {
    log::error("a handler failed", {{"path", std::string_view(request_.path)}, {"what", what}});
    const auto gone = std::exchange(on_gone_, nullptr);  // ends what still works for this answer
    try {
      respond(shared_->error_body(500, "the server failed at this request", request_.path));
      if (gone) gone();
    } catch (const std::exception&) {
      give_up();
    }
  }
  std::string framed(std::string_view text) const { return form_.http_1_1 ? chunk_text(text) : std::string(text); }

  bool put(std::string text, Part part, std::string ping = {}) {
    if (gone_) return false;
    const bool last = part == Part::kWhole || part == Part::kEnd;
    const size_t waiting = unsent_ += text.size();
    const bool slow = !last && waiting > shared_->options.limits.unsent_bytes + text.size();
    asio::dispatch(strand_, [self = shared_from_this(), text = std::move(text), part, slow,
                             ping = std::move(ping)]() mutable { self->take_over(text, part, slow, ping); });
    return !slow;
  }
  void take_over(std::string& text, Part part, bool slow, std::string& ping) {
    if (last_) return;
    // A second head: the handler failed after it had begun.
    if (slow || (begun_ && part == Part::kWhole)) return give_up();
    begun_ = true;
    if (pending_.empty())
      pending_ = std::move(text);
    else
      pending_ += text;
    if (!ping.empty()) ping_ = std::move(ping);
    last_ = part == Part::kWhole || part == Part::kEnd;
    wake();
  }

  Strand strand_;
  HttpRequest request_;
  std::shared_ptr<Shared> shared_;
  const AnswerForm form_;
  std::atomic<bool> keep_alive_;
  std::atomic<size_t> unsent_ = 0;
  std::atomic<bool> gone_ = false;
  asio::steady_timer wake_, alarm_;  // what follows: on the strand
  std::string pending_, ping_;
  bool waits_ = false, begun_ = false, last_ = false, aborted_ = false;
  std::function<void()> on_gone_;
};

}  // namespace bolide::server::beast
