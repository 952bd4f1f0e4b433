// Engine: answers many requests at once with one model: a thread that schedules, runs and commits steps, and the
// client that others talk to it through.
//
// Thread rules: the client's functions may be called by any thread; a sink is called by the engine's thread alone. The
// rules that both sides keep are in CONTRACT.md.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/model_runner.h"
#include "engine/step_time.h"
#include "engine/timeline.h"

namespace bolide {

struct EngineOptions {
  bool prefix_cache = true;
  uint64_t secret = 0;                 // of PrefixKey: a number that nobody outside the process knows
  int32_t queue_requests_max = 1024;   // that wait for their first step
  int64_t queue_tokens_max = 1 << 22;  // of their prompts
  double itl_target_us = 0;            // prompts get what fits a step of so long; 0: the runner's tokens a step
};

// Where a request's progress goes. The functions are called on the engine's thread, which waits for them: they hand
// over and return. An engine that is given up (Engine::stop_within) says so on another thread; what its own may still
// say afterwards counts for nothing.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // In order; the last has request_over.
  virtual void on_progress(const Progress& progress) = 0;
  // Instead of further progress: the engine cannot go on.
  virtual void on_failure(const Error& error) = 0;
};

enum class EngineState : uint8_t { kReady, kDraining, kFailed, kStopped };
std::string_view to_string(EngineState state);  // "ready", "draining", "failed", "stopped"

struct EngineStats {
  EngineState state = EngineState::kReady;
  SchedulerStats scheduler;    // after the last step
  int32_t queued = 0;          // requests that were submitted since
  int32_t waiting = 0;         // requests that wait for their first step, at this moment,
  int64_t waiting_tokens = 0;  // and the tokens of their prompts
  int64_t steps = 0, tokens = 0, drawn = 0;
  int64_t busy_us = 0;  // time in steps
  // The step under way: how long it has been going on and how long it should take; 0: there is none.
  int64_t step_us = 0, step_predicted_us = 0;
  std::string failure;

  // A step takes far longer than it should: nothing may ever come.
  bool stalled() const;
};

class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // The id by which the request can be cancelled. Errors, at once: kInvalid, it can never be answered; kOverloaded, too
  // many wait; kUnavailable, the engine drains or has failed. `request.id` is set here.
  virtual Result<RequestId> submit(Request request, std::shared_ptr<RequestSink> sink) = 0;
  // The sink hears no more from it, after at most what is being said to it. Blocks are free within a step.
  virtual void cancel(RequestId request) = 0;
  // The caller wants no more of one answer; its sink hears of the others.
  virtual void finish(RequestId request, int32_t choice) = 0;
  virtual EngineStats stats() const = 0;
  // None: there is no such request, or it is over for long.
  virtual std::optional<Timeline> timeline(RequestId request) const = 0;
};

class Engine final : public EngineClient {
 public:
  Engine(std::unique_ptr<ModelRunner> runner, const EngineOptions& options);
  ~Engine() override { stop(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Result<RequestId> submit(Request request, std::shared_ptr<RequestSink> sink) override;
  void cancel(RequestId request) override;
  void finish(RequestId request, int32_t choice) override;
  EngineStats stats() const override;
  std::optional<Timeline> timeline(RequestId request) const override { return timelines_.find(request); }

  // Refuses new requests from now on; what was accepted is answered.
  void drain();
  // Until nothing is left to answer, or the time is over. True: nothing is left.
  bool wait_idle(int64_t timeout_us);
  // Ends what is under way, whose sinks hear kUnavailable, and the engine's thread: it has ended when this returns. Any
  // thread but the engine's, any number of times.
  void stop();
  // The same without waiting: the engine's thread ends as soon as the steps under way have.
  void ask_to_stop();
  // ask_to_stop, and waits for so long. False: a step still has not ended, and may never: sinks have heard
  // kUnavailable, but stop, and the engine's end, wait for that step. Any thread but the engine's.
  bool stop_within(int64_t timeout_us);

 private:
  struct Message {
    enum class Kind : uint8_t { kSubmit, kCancel, kFinish } kind;
    RequestId request = 0;
    int32_t choice = 0;
    std::shared_ptr<const Request> content;
    std::shared_ptr<RequestSink> sink;
  };
  // A request that is not over.
  struct Accepted {
    std::weak_ptr<RequestSink> sink;
    int64_t tokens = 0;  // of the prompt
    bool waits = true;   // for its first step
  };
  struct Underway {
    StepBatch batch;
    int64_t started_us = 0;
  };

  void run();
  bool take_messages(bool wait);
  void apply(Message& message);
  Result<> advance();
  Result<> commit_oldest();
  void deliver(const Progress& progress);
  void begin(const StepBatch& batch, int64_t scheduled_us);
  void stops_waiting(Accepted& request);
  void leaves(RequestId request);
  void forget(RequestId request);
  void fail(const Error& error);
  int32_t budget() const;
  void publish_stats();

  const EngineOptions options_;
  std::unique_ptr<ModelRunner> runner_;  // this and what follows: the engine's thread
  Scheduler scheduler_;
  StepTime step_time_;
  std::vector<Underway> underway_;
  std::vector<Progress> progress_;
  std::unordered_map<RequestId, std::shared_ptr<RequestSink>> sinks_;
  TimelineBook timelines_;
  int64_t completed_us_ = 0, last_context_ = 0;  // of the step committed last
  EngineStats counted_;
  bool failed_ = false;
  std::atomic<bool> given_up_{false};  // sinks were told so by stop_within

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_, idle_, ended_;
  std::vector<Message> messages_;
  RequestId ids_ = 0;
  EngineState state_ = EngineState::kReady;
  bool stopping_ = false, busy_ = false, thread_over_ = false;
  int32_t queued_ = 0;  // requests among messages_
  std::unordered_map<RequestId, Accepted> accepted_;
  int32_t waiting_ = 0;  // of accepted_
  int64_t waiting_tokens_ = 0;
  EngineStats published_;
  int64_t step_started_us_ = 0;

  std::mutex joining_;  // guards the end of thread_
  std::thread thread_;  // last: everything is there when it starts
};

}  // namespace bolide
