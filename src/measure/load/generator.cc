#include "measure/load/generator.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <queue>

#include "base/utf8.h"
#include "measure/http/fetch.h"
#include "measure/load/connection.h"
#include "measure/processor_time.h"

namespace bolide::load {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFaultTextMax = 200;
constexpr size_t kRefusalBytesMax = 4096;
constexpr size_t kGapsMax = 4 << 20;     // 32 MiB
constexpr int32_t kEventsMax = 1 << 20;  // of one request
constexpr double kBackoffSeconds = 0.1;  // of a user of the closed loop behind an error
constexpr double kSweepSeconds = 0.1;    // between looks at what is overdue
constexpr double kEndOfBodySeconds = 1;  // that a body may go on behind [DONE]
constexpr uint64_t kTimerTag = UINT64_MAX;

// What must be left of the descriptors that a process may open.
constexpr int64_t kDescriptorsLeft = 64;

int32_t connections_limit(const LoadPlan& plan) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  const int64_t room = std::max<int64_t>(1, most - kDescriptorsLeft);
  return static_cast<int32_t>(plan.connections_max > 0 ? std::min<int64_t>(room, plan.connections_max) : room);
}

class Generator {
 public:
  Generator(const Target& target, const LoadPlan& plan, BodySource body, const std::atomic<bool>& stop,
            FunctionRef<void(const LoadProgress&)> progress)
      : target_(target),
        plan_(plan),
        body_(body),
        stop_(stop),
        progress_(progress),
        connections_max_(connections_limit(plan)) {}
  ~Generator() {
    for (const auto& connection : connections_)
      if (connection->descriptor >= 0) ::close(connection->descriptor);
    if (timer_ >= 0) ::close(timer_);
    if (epoll_ >= 0) ::close(epoll_);
  }
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  Result<RunLog> run();

 private:
  // False: requests that are due must wait until a connection is free.
  bool room() const { return in_use_ < connections_max_ || !idle_.empty(); }
  bool open_loop() const { return !plan_.arrivals_s.empty(); }
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool all_sent(double at) const;
  void start_due_requests();
  void send_request(int64_t index);
  void begin(Connection& connection, int64_t index);
  Connection* take_connection();
  void write_some(Connection& connection);
  void read_some(Connection& connection);
  bool on_event(Connection& connection, std::string_view data, double at);
  void on_response_end(Connection& connection, double at);
  void on_broken(Connection& connection, std::string_view kind, std::string_view text);
  void succeed(Connection& connection, double at);
  void fail(Connection& connection, std::string_view kind, std::string_view text);
  void end_request(Connection& connection, bool ok, double at);
  void keep_or_close(Connection& connection);
  void close_connection(Connection& connection);
  void watch(Connection& connection, bool write);
  void count_fault(std::string_view kind, std::string_view text);
  void add_gap(double at, double seconds);
  void sweep(double at);
  void set_timer();
  void show(double at);

  const Target& target_;
  const LoadPlan& plan_;
  const BodySource body_;
  const std::atomic<bool>& stop_;
  const FunctionRef<void(const LoadProgress&)> progress_;
  const int32_t connections_max_;

  Clock::time_point start_;
  int epoll_ = -1, timer_ = -1;
  double timer_at_ = -1;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<uint32_t> free_, idle_;
  int64_t in_use_ = 0;  // descriptors that are open
  int64_t in_flight_ = 0, ok_ = 0, failed_ = 0;
  size_t arrival_ = 0;  // of the open loop: the next
  // Of the closed loop: when each user that has no request goes on.
  std::priority_queue<double, std::vector<double>, std::greater<>> users_;
  std::vector<int64_t> again_;  // requests whose kept connection had been closed by the server
  double last_sweep_ = 0, last_shown_ = 0;
  size_t gap_stride_ = 1, gap_count_ = 0;
  RunLog log_;
  std::array<char, 65536> buffer_{};
};

bool Generator::all_sent(double at) const {
  if (!again_.empty()) return false;
  if (open_loop()) return arrival_ == plan_.arrivals_s.size();
  return at >= plan_.duration_s ||
         (plan_.requests_max > 0 && static_cast<int64_t>(log_.requests.size()) >= plan_.requests_max);
}

void Generator::count_fault(std::string_view kind, std::string_view text) {
  constexpr size_t kKindsMax = 64;
  std::string key(kind);
  if (log_.faults.size() >= kKindsMax && log_.faults.find(key) == log_.faults.end()) key = "other";
  Fault& fault = log_.faults[key];
  if (fault.count++ == 0) fault.example = printable(text.substr(0, kFaultTextMax));
}

void Generator::add_gap(double at, double seconds) {
  if (gap_count_++ % gap_stride_ != 0) return;
  if (log_.gaps.size() == kGapsMax) {
    for (size_t i = 0; i < kGapsMax / 2; ++i) log_.gaps[i] = log_.gaps[2 * i];
    log_.gaps.resize(kGapsMax / 2);
    gap_stride_ *= 2;
  }
  log_.gaps.push_back({static_cast<float>(at), static_cast<float>(seconds)});
}

void Generator::watch(Connection& connection, bool write) {
  if (connection.wants_write == write) return;
  connection.wants_write = write;
  epoll_event event{};
  event.events = write ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.u64 = connection.tag;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.descriptor, &event);
}

// A connection that waits, or a new one; null if there may be no more.
Connection* Generator::take_connection() {
  if (!idle_.empty()) {
    Connection& connection = *connections_[idle_.back()];
    idle_.pop_back();
    connection.reused = true;
    return &connection;
  }
  if (in_use_ >= connections_max_) return nullptr;
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(connections_.size()));
    connections_.push_back(std::make_unique<Connection>());
  }
  const uint32_t slot = free_.back();
  Connection& connection = *connections_[slot];
  connection.slot = slot;
  connection.reused = false;
  connection.stage = Stage::kFree;
  return &connection;
}

void Generator::begin(Connection& connection, int64_t index) {
  connection.request = index;
  connection.stream_ended = connection.finished = false;
  connection.ended_s = 0;
  connection.refusal.clear();
  connection.parser.start();
  connection.stream.start();
  connection.out = http::request_text(target_.url, "POST", target_.route, target_.headers, body_(index));
  connection.out_at = 0;
}

void Generator::send_request(int64_t index) {
  Connection* connection = take_connection();
  BOLIDE_CHECK(connection != nullptr, "the caller has looked whether there is one");
  ++in_flight_;
  begin(*connection, index);
  RequestRecord& record = log_.requests[static_cast<size_t>(index)];
  record.sent_s = now();
  if (connection->stage == Stage::kIdle) {
    connection->stage = Stage::kSending;
    write_some(*connection);
    return;
  }
  free_.pop_back();
  connection->descriptor = open_socket(target_.address);
  if (connection->descriptor < 0) {
    const int reason = errno;
    connection->stage = Stage::kConnecting;
    ++in_use_;
    fail(*connection, "connection", std::strerror(reason));
    return;
  }
  ++in_use_;
  ++log_.connections;
  ++connection->generation;
  connection->tag = (static_cast<uint64_t>(connection->generation) << 32) | connection->slot;
  connection->stage = Stage::kConnecting;
  connection->wants_write = true;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT;
  event.data.u64 = connection->tag;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection->descriptor, &event) != 0)
    fail(*connection, "connection", std::strerror(errno));
}

void Generator::close_connection(Connection& connection) {
  if (connection.stage == Stage::kFree) return;
  if (connection.stage == Stage::kIdle) std::erase(idle_, connection.slot);
  if (connection.descriptor >= 0) ::close(connection.descriptor);
  connection.descriptor = -1;
  connection.stage = Stage::kFree;
  ++connection.generation;
  --in_use_;
  connection.out = {};
  free_.push_back(connection.slot);
}

void Generator::end_request(Connection& connection, bool ok, double at) {
  RequestRecord& record = log_.requests[static_cast<size_t>(connection.request)];
  record.ok = ok;
  record.end_s = at;
  connection.request = -1;
  --in_flight_;
  ++(ok ? ok_ : failed_);
  if (!open_loop()) users_.push(ok ? at : at + kBackoffSeconds);
}

void Generator::fail(Connection& connection, std::string_view kind, std::string_view text) {
  count_fault(kind, text);
  end_request(connection, false, now());
  close_connection(connection);
}

void Generator::succeed(Connection& connection, double at) {
  end_request(connection, true, at);
  keep_or_close(connection);
}

void Generator::keep_or_close(Connection& connection) {
  // A server may answer before it has read the whole request: the rest must not become the next one's beginning.
  if (!connection.parser.keep_alive() || connection.stage != Stage::kReceiving) return close_connection(connection);
  connection.stage = Stage::kIdle;
  idle_.push_back(connection.slot);
}

// The connection is of no use any more. One that was kept from an earlier request may have been closed by the server
// while the request was on its way: that is no error, it goes again.
void Generator::on_broken(Connection& connection, std::string_view kind, std::string_view text) {
  if (connection.stage == Stage::kIdle) return close_connection(connection);
  if (connection.reused && !connection.parser.begun()) {
    again_.push_back(connection.request);
    connection.request = -1;
    --in_flight_;
    return close_connection(connection);
  }
  fail(connection, kind, text);
}

void Generator::write_some(Connection& connection) {
  if (connection.stage == Stage::kConnecting) {
    int reason = 0;
    socklen_t size = sizeof reason;
    ::getsockopt(connection.descriptor, SOL_SOCKET, SO_ERROR, &reason, &size);
    if (reason != 0) return fail(connection, "connection", std::strerror(reason));
    connection.stage = Stage::kSending;
  }
  if (connection.stage != Stage::kSending) return watch(connection, false);
  while (connection.out_at < connection.out.size()) {
    const ssize_t sent = ::send(connection.descriptor, connection.out.data() + connection.out_at,
                                connection.out.size() - connection.out_at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return watch(connection, true);
    if (sent < 0) return on_broken(connection, "closed early", std::strerror(errno));
    connection.out_at += static_cast<size_t>(sent);
  }
  connection.out = std::string();  // prompts can be long, and thousands wait
  connection.stage = Stage::kReceiving;
  watch(connection, false);
}

void Generator::read_some(Connection& connection) {
  const ssize_t got = ::recv(connection.descriptor, buffer_.data(), buffer_.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const double at = now();
  if (got < 0) return on_broken(connection, "closed early", std::strerror(errno));
  if (connection.stage == Stage::kIdle) return close_connection(connection);  // its end, or bytes nobody asked for
  http::ResponseParser& parser = connection.parser;
  if (got == 0) {
    if (!parser.close()) return on_broken(connection, "closed early", to_string(parser.fault()));
    return on_response_end(connection, at);
  }
  bool good_events = true;  // what is wrong with them has been counted
  const auto event = [&](std::string_view data) { return good_events = on_event(connection, data, at); };
  const auto piece = [&](std::string_view bytes) {
    if (parser.status() == 200 && parser.content_type() == "text/event-stream") {
      if (connection.stream.push(bytes, event)) return true;
      if (good_events) count_fault("event too long", "an event is longer than 1 MiB");
      return good_events = false;
    }
    const size_t room = kRefusalBytesMax - std::min(kRefusalBytesMax, connection.refusal.size());
    connection.refusal += bytes.substr(0, room);
    return true;
  };
  const bool good = parser.push({buffer_.data(), static_cast<size_t>(got)}, piece);
  if (!good_events) {
    end_request(connection, false, at);
    return close_connection(connection);
  }
  if (!good) {
    // What the server had to say is there all the same.
    if (connection.stream_ended) return succeed(connection, at);
    return fail(connection, "bad http", to_string(parser.fault()));
  }
  if (parser.done()) on_response_end(connection, at);
}

// False: the request has failed, and that was counted.
bool Generator::on_event(Connection& connection, std::string_view data, double at) {
  if (connection.stream_ended) return true;
  const StreamEvent event = read_event(data);
  if (!event.valid) {
    count_fault("bad event", data);
    return false;
  }
  RequestRecord& record = log_.requests[static_cast<size_t>(connection.request)];
  if (event.failed) {
    count_fault("error in stream", event.error_text);
    return false;
  }
  if (event.prompt_tokens >= 0) record.prompt_tokens = event.prompt_tokens;
  if (event.output_tokens >= 0) record.output_tokens = event.output_tokens;
  connection.finished = connection.finished || event.finished;
  if (event.end) {
    connection.stream_ended = true;
    connection.ended_s = at;
  }
  if (event.text_bytes == 0) return true;
  if (record.events == 0) {
    record.first_s = at;
  } else {
    const double gap = at - record.last_s;
    record.gap_max_s = std::max(record.gap_max_s, gap);
    add_gap(at, gap);
  }
  record.last_s = at;
  const auto window = static_cast<size_t>(at / kWindowSeconds);
  if (window >= log_.events_per_window.size()) log_.events_per_window.resize(window + 1);
  ++log_.events_per_window[window];
  ++log_.events;
  if (++record.events < kEventsMax) return true;
  count_fault("too many events", fmt::format("{} of one request", kEventsMax));
  return false;
}

void Generator::on_response_end(Connection& connection, double at) {
  const int status = connection.parser.status();
  if (status != 200) {
    const StreamEvent answer = read_event(connection.refusal);
    const std::string text = answer.error_text.empty() ? connection.refusal : answer.error_text;
    count_fault(fmt::format("http {}", status), text);
  } else if (connection.parser.content_type() != "text/event-stream") {
    count_fault("no stream",
                fmt::format("the answer is {}, not text/event-stream", connection.parser.content_type().substr(0, 60)));
  } else {
    bool good = true;
    const auto event = [&](std::string_view data) { return good = on_event(connection, data, at); };
    connection.stream.finish(event);
    const RequestRecord& record = log_.requests[static_cast<size_t>(connection.request)];
    const bool whole = connection.stream_ended || connection.finished || target_.dialect == Dialect::kKserve;
    if (good && record.events > 0 && whole) return succeed(connection, at);
    if (good && record.events == 0)
      count_fault("no tokens", "the stream ended without any text");
    else if (good)
      count_fault("unfinished", "the stream ended without a finish_reason or [DONE]");
  }
  end_request(connection, false, at);
  keep_or_close(connection);
}

void Generator::start_due_requests() {
  while (!again_.empty() && room()) {
    const int64_t index = again_.back();
    again_.pop_back();
    send_request(index);
  }
  double at = now();
  if (open_loop()) {
    while (arrival_ < plan_.arrivals_s.size() && plan_.arrivals_s[arrival_] <= at && room()) {
      RequestRecord record;
      record.due_s = plan_.arrivals_s[arrival_++];
      log_.requests.push_back(record);
      log_.issue_end_s = record.due_s;
      send_request(static_cast<int64_t>(log_.requests.size()) - 1);
      at = now();
    }
    return;
  }
  while (!users_.empty() && users_.top() <= at && !all_sent(at) && room()) {
    RequestRecord record;
    record.due_s = users_.top();
    users_.pop();
    log_.requests.push_back(record);
    log_.issue_end_s = at;
    send_request(static_cast<int64_t>(log_.requests.size()) - 1);
    at = now();
  }
}

void Generator::sweep(double at) {
  last_sweep_ = at;
  for (const auto& held : connections_) {
    Connection& connection = *held;
    if (connection.request < 0) continue;
    if (connection.stream_ended && at - connection.ended_s > kEndOfBodySeconds)
      succeed(connection, connection.ended_s);
    else if (at - log_.requests[static_cast<size_t>(connection.request)].due_s > plan_.timeout_s)
      fail(connection, "timeout", fmt::format("no end after {} s", plan_.timeout_s));
  }
}

void Generator::set_timer() {
  double next = -1;
  if (!room()) return;
  if (open_loop() && arrival_ < plan_.arrivals_s.size()) next = plan_.arrivals_s[arrival_];
  if (!open_loop() && !users_.empty() && !all_sent(now())) next = users_.top();
  if (next < 0 || next == timer_at_) return;
  timer_at_ = next;
  const double seconds = std::max(1e-9, next - now());  // 0 would stop the timer
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(seconds);
  when.it_value.tv_nsec = std::max<long>(1, static_cast<long>((seconds - std::floor(seconds)) * 1e9));
  ::timerfd_settime(timer_, 0, &when, nullptr);
}

void Generator::show(double at) {
  last_shown_ = at;
  progress_({at, static_cast<int64_t>(log_.requests.size()), ok_, failed_, in_flight_, log_.events});
}

Result<RunLog> Generator::run() {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (epoll_ < 0 || timer_ < 0)
    return error(Code::kUnavailable, fmt::format("the system gives no epoll or timer: {}", std::strerror(errno)));
  epoll_event timer_event{};
  timer_event.events = EPOLLIN;
  timer_event.data.u64 = kTimerTag;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, timer_, &timer_event);
  const double processor_start = process_cpu_seconds();
  start_ = Clock::now();
  for (int32_t user = 0; !open_loop() && user < plan_.concurrency; ++user) users_.push(0);
  std::array<epoll_event, 256> events{};
  for (;;) {
    start_due_requests();
    const double before = now();
    if (in_flight_ == 0 && all_sent(before)) break;
    if (stop_.load(std::memory_order_relaxed)) {
      log_.interrupted = true;
      break;
    }
    set_timer();
    const int count =
        ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), static_cast<int>(kSweepSeconds * 1000));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.u64 == kTimerTag) {
        uint64_t expirations = 0;
        static_cast<void>(::read(timer_, &expirations, sizeof expirations) == sizeof expirations);
        timer_at_ = -1;
        continue;
      }
      Connection& connection = *connections_[event.data.u64 & 0xffffffffu];
      const auto current = [&] { return connection.stage != Stage::kFree && connection.tag == event.data.u64; };
      if (current() && (connection.stage == Stage::kConnecting || (event.events & EPOLLOUT) != 0))
        write_some(connection);
      if (current() && connection.stage != Stage::kConnecting && (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
        read_some(connection);
    }
    const double at = now();
    if (at - last_sweep_ > kSweepSeconds) sweep(at);
    if (at - last_shown_ > kSweepSeconds) show(at);
  }
  log_.end_s = now();
  if (log_.interrupted) {
    log_.issue_end_s = std::max(log_.issue_end_s, log_.end_s);
    for (const auto& connection : connections_)
      if (connection->request >= 0) log_.requests[static_cast<size_t>(connection->request)].interrupted = true;
  } else if (!open_loop() && plan_.requests_max == 0) {
    log_.issue_end_s = std::max(log_.issue_end_s, std::min(plan_.duration_s, log_.end_s));
  }
  log_.processor_s = process_cpu_seconds() - processor_start;
  return std::move(log_);
}

}  // namespace

int open_socket(const http::Address& address) {
  const int socket = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0 ||
      errno == EINPROGRESS)
    return socket;
  const int reason = errno;
  ::close(socket);
  errno = reason;
  return -1;
}

Result<RunLog> run_load(const Target& target, const LoadPlan& plan, BodySource body, const std::atomic<bool>& stop,
                        FunctionRef<void(const LoadProgress&)> progress) {
  return Generator(target, plan, body, stop, progress).run();
}

}  // namespace bolide::load
