#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace bolide {
namespace {

// A step may take this long whatever was predicted; beyond that, and beyond a multiple of what was, it is stalled.
constexpr int64_t kStallUs = 5'000'000;
constexpr int64_t kStallTimes = 4;
// Prompts get on by at least so many tokens a step, whatever the target.
constexpr int32_t kPromptTokensMin = 32;

SchedulerOptions scheduler_options(const ModelRunner& runner, const EngineOptions& options) {
  SchedulerOptions result = runner.limits();
  result.prefix_cache = options.prefix_cache;
  result.secret = options.secret;
  return result;
}

}  // namespace

std::string_view to_string(EngineState state) {
  switch (state) {
    case EngineState::kReady: return "ready";
    case EngineState::kDraining: return "draining";
    case EngineState::kFailed: return "failed";
    case EngineState::kStopped: return "stopped";
  }
  return "";
}

bool EngineStats::stalled() const { return step_us > std::max(kStallUs, kStallTimes * step_predicted_us); }

Engine::Engine(std::unique_ptr<ModelRunner> runner, const EngineOptions& options)
    : options_(options), runner_(std::move(runner)), scheduler_(scheduler_options(*runner_, options)) {
  published_.scheduler = scheduler_.stats();
  thread_ = std::thread([this] { run(); });
}

void Engine::ask_to_stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
}

void Engine::stop() {
  ask_to_stop();
  const std::lock_guard joining(joining_);
  if (thread_.joinable()) thread_.join();
}

bool Engine::stop_within(int64_t timeout_us) {
  ask_to_stop();
  std::vector<std::shared_ptr<RequestSink>> left;
  {
    std::unique_lock lock(mutex_);
    if (ended_.wait_for(lock, std::chrono::microseconds(timeout_us), [&] { return thread_over_; })) return true;
    given_up_ = true;
    for (const auto& [id, request] : accepted_)
      if (auto sink = request.sink.lock()) left.push_back(std::move(sink));
    accepted_.clear();
    waiting_ = 0;
    waiting_tokens_ = 0;
  }
  for (const auto& sink : left)
    sink->on_failure(error(Code::kUnavailable, "the server is shutting down, and a step of the engine does not end"));
  return false;
}

// --- what others call ---

Result<RequestId> Engine::submit(Request request, std::shared_ptr<RequestSink> sink) {
  BOLIDE_TRY(check_request(scheduler_.options(), request));
  Message message{Message::Kind::kSubmit};
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || state_ == EngineState::kDraining || state_ == EngineState::kStopped)
      return error(Code::kUnavailable, "the server is shutting down");
    if (state_ == EngineState::kFailed)
      return error(Code::kUnavailable, fmt::format("the engine has failed: {}", published_.failure));
    const auto tokens = static_cast<int64_t>(request.prompt.size());
    if (waiting_ + 1 > options_.queue_requests_max)
      return error(Code::kOverloaded, fmt::format("{} requests wait already", options_.queue_requests_max));
    if (waiting_tokens_ > 0 && waiting_tokens_ + tokens > options_.queue_tokens_max)
      return error(Code::kOverloaded, fmt::format("requests with {} tokens wait already, {} more would pass {}",
                                                  waiting_tokens_, tokens, options_.queue_tokens_max));
    request.id = ++ids_;
    message.request = request.id;
    message.content = std::make_shared<const Request>(std::move(request));
    accepted_.emplace(message.request, Accepted{sink, tokens});
    message.sink = std::move(sink);
    ++queued_;
    ++waiting_;
    waiting_tokens_ += tokens;
    messages_.push_back(message);
  }
  arrived_.notify_one();
  return message.request;
}

void Engine::cancel(RequestId request) {
  Message unseen{Message::Kind::kCancel};  // outlives the lock, under which no sink should end
  {
    const std::lock_guard lock(mutex_);
    leaves(request);  // and gives its place to others at once: a step may be long
    const auto it = std::find_if(messages_.begin(), messages_.end(), [&](const Message& message) {
      return message.kind == Message::Kind::kSubmit && message.request == request;
    });
    if (it == messages_.end()) {
      messages_.push_back({Message::Kind::kCancel, request});
    } else {
      unseen = std::move(*it);
      messages_.erase(it);
      --queued_;
    }
  }
  arrived_.notify_one();
  idle_.notify_all();
}

void Engine::finish(RequestId request, int32_t choice) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back({Message::Kind::kFinish, request, choice});
  }
  arrived_.notify_one();
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = published_;
  stats.state = state_;
  stats.queued = queued_;
  stats.waiting = waiting_;
  stats.waiting_tokens = waiting_tokens_;
  stats.step_us = step_started_us_ == 0 ? 0 : steady_us() - step_started_us_;
  return stats;
}

void Engine::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == EngineState::kReady) state_ = EngineState::kDraining;
}

bool Engine::wait_idle(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::microseconds(timeout_us), [&] { return !busy_ && messages_.empty(); });
}

// --- the engine's thread ---

void Engine::run() {
  while (take_messages(/*wait=*/scheduler_.idle()))
    if (auto done = advance(); !done) fail(done.error());
  fail(error(Code::kUnavailable, "the server is shutting down"));
  const std::lock_guard lock(mutex_);
  thread_over_ = true;
  ended_.notify_all();
}

// What has arrived; with `wait`, as soon as something has. False: the engine is to stop.
bool Engine::take_messages(bool wait) {
  std::vector<Message> messages;
  {
    std::unique_lock lock(mutex_);
    if (wait && messages_.empty()) {
      busy_ = false;
      idle_.notify_all();
      arrived_.wait(lock, [&] { return stopping_ || !messages_.empty(); });
    }
    if (stopping_) return false;
    busy_ = true;
    messages.swap(messages_);
  }
  for (Message& message : messages) apply(message);
  if (messages.empty()) return true;
  const std::lock_guard lock(mutex_);
  for (const Message& message : messages) queued_ -= message.kind == Message::Kind::kSubmit ? 1 : 0;
  published_.scheduler = scheduler_.stats();
  return true;
}

void Engine::apply(Message& message) {
  switch (message.kind) {
    case Message::Kind::kSubmit:
      if (failed_) {
        message.sink->on_failure(error(Code::kUnavailable, "the engine has failed"));
        forget(message.request);
      } else if (auto added = scheduler_.add(message.content); added) {
        timelines_.accepted(*message.content, steady_us());
        sinks_.emplace(message.request, std::move(message.sink));
      } else {
        message.sink->on_failure(added.error());
        forget(message.request);
      }
      break;
    case Message::Kind::kCancel:
      scheduler_.cancel(message.request);
      forget(message.request);
      break;
    case Message::Kind::kFinish:
      if (scheduler_.finish(message.request, message.choice)) forget(message.request);
      break;
  }
}

int32_t Engine::budget() const {
  const SchedulerOptions& limits = scheduler_.options();
  if (options_.itl_target_us <= 0) return limits.tokens_per_step;
  const int32_t running = scheduler_.stats().running;
  const int64_t context = underway_.empty() ? last_context_ : underway_.back().batch.context;
  return step_time_.tokens_within(options_.itl_target_us, running, context, running + kPromptTokensMin,
                                  limits.tokens_per_step);
}

// Schedules and submits a step, and commits the oldest if as many are under way as may be, or nothing else can be done.
Result<> Engine::advance() {
  const int64_t now = steady_us();
  Underway next{scheduler_.schedule({budget(), now}, &progress_)};
  const bool any = !next.batch.items.empty();
  if (any) {
    begin(next.batch, now);
    next.started_us = steady_us();
    if (underway_.empty()) {
      const std::lock_guard lock(mutex_);
      step_started_us_ = next.started_us;
      published_.step_predicted_us = static_cast<int64_t>(step_time_.predict(next.batch.tokens, next.batch.context));
    }
    BOLIDE_TRY(runner_->submit(next.batch));
    underway_.push_back(std::move(next));
  }
  if (underway_.size() >= runner_->steps_ahead() || (!any && !underway_.empty())) BOLIDE_TRY(commit_oldest());
  for (const Progress& progress : progress_) deliver(progress);
  progress_.clear();
  for (const auto& answer : scheduler_.collect()) runner_->forget(*answer);
  publish_stats();
  return {};
}

Result<> Engine::commit_oldest() {
  BOLIDE_TRY(const StepResult result, runner_->wait());
  const Underway oldest = std::move(underway_.front());
  underway_.erase(underway_.begin());
  const int64_t now = steady_us();
  const int64_t began = std::max(completed_us_, oldest.started_us);
  timelines_.step(oldest.batch, began, now);
  scheduler_.commit(oldest.batch, result.ids, result.logprobs, &progress_, result.tops, result.scored);
  const int64_t took = now - began;
  completed_us_ = now;
  step_time_.learn(oldest.batch.tokens, oldest.batch.context, static_cast<double>(took));
  last_context_ = oldest.batch.context;
  ++counted_.steps;
  counted_.tokens += oldest.batch.tokens;
  counted_.busy_us += took;
  return {};
}

void Engine::deliver(const Progress& progress) {
  const auto it = sinks_.find(progress.request);
  if (it == sinks_.end() || given_up_) return;
  counted_.drawn += progress.token >= 0 ? 1 : 0;
  it->second->on_progress(progress);
  if (progress.request_over) forget(progress.request);
}

// Requests of which this is the first step wait no more.
void Engine::begin(const StepBatch& batch, int64_t scheduled_us) {
  const auto begins = [&](const StepItem& item) { return item.answer->begun_us == scheduled_us; };
  if (std::none_of(batch.items.begin(), batch.items.end(), begins)) return;
  const std::lock_guard lock(mutex_);
  for (const StepItem& item : batch.items) {
    if (!begins(item)) continue;
    if (const auto it = accepted_.find(item.answer->request->id); it != accepted_.end()) stops_waiting(it->second);
  }
}

// With the mutex held, as the next.
void Engine::stops_waiting(Accepted& request) {
  if (!std::exchange(request.waits, false)) return;
  --waiting_;
  waiting_tokens_ -= request.tokens;
}

void Engine::leaves(RequestId request) {
  const auto it = accepted_.find(request);
  if (it == accepted_.end()) return;
  stops_waiting(it->second);
  accepted_.erase(it);
}

// Its sink hears no more.
void Engine::forget(RequestId request) {
  {
    const std::lock_guard lock(mutex_);
    leaves(request);
  }
  sinks_.erase(request);
  timelines_.over(request, steady_us());
}

void Engine::publish_stats() {
  const std::lock_guard lock(mutex_);
  published_.scheduler = scheduler_.stats();
  published_.steps = counted_.steps;
  published_.tokens = counted_.tokens;
  published_.drawn = counted_.drawn;
  published_.busy_us = counted_.busy_us;
  if (underway_.empty()) {
    step_started_us_ = 0;
  } else {
    const Underway& oldest = underway_.front();
    step_started_us_ = std::max(oldest.started_us, completed_us_);
    published_.step_predicted_us = static_cast<int64_t>(step_time_.predict(oldest.batch.tokens, oldest.batch.context));
  }
}

// Everything that was accepted hears of it; nothing more is computed.
void Engine::fail(const Error& why) {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    state_ = stopping_ ? EngineState::kStopped : EngineState::kFailed;
    if (!failed_) published_.failure = why.text;
    step_started_us_ = 0;
    messages.swap(messages_);
    queued_ = 0;
    accepted_.clear();
    waiting_ = 0;
    waiting_tokens_ = 0;
  }
  for (auto& [id, sink] : sinks_) {
    if (!given_up_) sink->on_failure(why);
    timelines_.over(id, steady_us());
  }
  sinks_.clear();
  for (const Message& message : messages)
    if (message.kind == Message::Kind::kSubmit && !given_up_) message.sink->on_failure(why);
  scheduler_.abandon();
  for (const auto& answer : scheduler_.collect()) runner_->forget(*answer);
  underway_.clear();
  progress_.clear();
  failed_ = true;
}

}  // namespace bolide
