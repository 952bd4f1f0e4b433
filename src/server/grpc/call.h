// One gRPC call and its exchanges. Only grpc_server.cc includes this: the library's headers take long to compile.
//
// What the library tells is posted to the call's strand: its tasks run one after the other, on the threads of the
// server's pool. What is said of functions below holds there, unless they say otherwise.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/grpc_status.h"
#include "server/work_queue.h"

namespace bolide::server::rpc {

constexpr size_t kTextBytesMax = 4096;  // of what a status says: it travels in a header

// What all calls of a server share.
struct Shared {
  Shared(const GrpcOptions& of, GrpcGate the_gate)
      : options(of), gate(std::move(the_gate)), pool(of.threads, std::numeric_limits<size_t>::max()) {}

  const GrpcOptions options;
  const GrpcGate gate;
  std::atomic<size_t> calls{0};
  std::atomic<uint64_t> message_bytes{0};            // of requests that are not over
  std::array<std::atomic<uint64_t>, 600> answers{};  // by HTTP's status
  WorkQueue pool;

  void count(int status) {
    if (status >= 0 && static_cast<size_t>(status) < answers.size()) ++answers[static_cast<size_t>(status)];
  }
};

class Call;

class Exchange final : public HttpExchange, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<Call> call, HttpRequest request) : call_(std::move(call)), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override;
  void begin(int status, Headers headers, std::string ping) override;
  bool write(std::string chunk) override;
  void end() override;
  void abort() override;
  void on_gone(std::function<void()> callback) override;
  void post(std::function<void()> task) override;
  void post_at(std::chrono::steady_clock::time_point when, std::function<void()> task) override;

 private:
  friend class Call;

  const std::shared_ptr<Call> call_;
  const HttpRequest request_;
  std::atomic<bool> gone_{false};
  bool over_ = false;  // what follows: on the strand
  std::function<void()> on_gone_;
  std::unique_ptr<::grpc::Alarm> alarm_;
};

class Reactor;

class Call final : public std::enable_shared_from_this<Call> {
 public:
  Call(std::shared_ptr<Shared> shared, ::grpc::GenericCallbackServerContext* context)
      : shared_(std::move(shared)), context_(context) {}

  // Any thread: runs it after what was posted before.
  void post(std::function<void()> task);
  // Any thread. False: too much waits for the client; it is given up.
  bool reserve(size_t bytes) {
    const size_t waiting = unsent_ += bytes;
    return waiting <= shared_->options.limits.unsent_bytes + bytes;
  }

  void begin(Reactor* reactor);
  void read_done(bool is_message);
  void write_done(bool done);
  void cancelled();

  void answer(Exchange& exchange, HttpResponse response);
  void write(Exchange& exchange, std::string_view chunk, bool too_slow);
  void end(Exchange& exchange);
  // The handler of this exchange, or what it has posted, has thrown.
  void fail(Exchange& exchange, std::string_view what);
  // Ends the call.
  void finish(int status, std::string_view text, const Headers& headers = {});

 private:
  void run();
  void read();
  void take(HttpRequest request);
  void push(std::string message);
  void send();
  void over(Exchange& exchange);
  bool takes_many() const { return method_.kind == GrpcMethod::Kind::kManyRequests; }

  const std::shared_ptr<Shared> shared_;
  ::grpc::GenericCallbackServerContext* const context_;  // there until the reactor's end

  std::mutex mutex_;  // guards what follows
  std::deque<std::function<void()>> tasks_;
  bool runs_ = false;

  std::atomic<size_t> unsent_{0};
  Reactor* reactor_ = nullptr;  // null: the call is over, as far as it is known here
  GrpcMethod method_;
  HttpRequest head_;
  ::grpc::ByteBuffer in_, sending_;
  std::deque<std::pair<::grpc::ByteBuffer, size_t>> out_;
  std::optional<::grpc::Status> status_;  // how the call ends once everything is sent
  std::vector<std::shared_ptr<Exchange>> open_;
  size_t sending_bytes_ = 0;
  bool reads_ = false, sends_ = false, no_more_ = false;
};

// Lives until the library is done with the call, and the call with it.
class Reactor final : public ::grpc::ServerGenericBidiReactor {
 public:
  Reactor(std::shared_ptr<Call> call, std::shared_ptr<Shared> shared)
      : call_(std::move(call)), shared_(std::move(shared)) {
    ++shared_->calls;
  }
  void OnReadDone(bool ok) override {
    call_->post([call = call_.get(), ok] { call->read_done(ok); });
  }
  void OnWriteDone(bool ok) override {
    call_->post([call = call_.get(), ok] { call->write_done(ok); });
  }
  void OnCancel() override {
    call_->post([call = call_.get()] { call->cancelled(); });
  }
  void OnDone() override {
    --shared_->calls;
    delete this;
  }

 private:
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace bolide::server::rpc
