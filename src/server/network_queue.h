// NetworkQueue: runs of one network, each on a thread of its own, of requests that wait in line. Neither the server's
// threads nor an engine's ever wait for a run.
//
// Thread rules: any thread may call; `done` is called on a thread of the queue, or on the one that stops it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "tensor/value.h"

namespace bolide::server {

class NetworkQueue {
 public:
  using Values = std::vector<AnyValue>;
  // Inputs to outputs, on one thread at a time.
  using Run = std::function<Result<Values>(Values)>;
  struct Options {
    size_t requests_max = 1024;          // that wait
    size_t bytes_max = size_t{1} << 30;  // of their inputs
  };
  struct Times {
    int64_t queue_us = 0, run_us = 0;
  };
  using Done = std::function<void(Result<Values>, const Times&)>;
  struct Job {
    Values inputs;
    size_t bytes = 0;                   // of the inputs
    int64_t deadline_us = kNoDeadline;  // steady clock: what is not over by then is kDeadline
    Done done;                          // once, unless the job is cancelled in time
  };
  struct Stats {
    size_t waiting = 0, running = 0;
  };

  // A thread for each of `runs`.
  NetworkQueue(std::vector<Run> runs, const Options& options);
  ~NetworkQueue() { stop(); }
  NetworkQueue(const NetworkQueue&) = delete;
  NetworkQueue& operator=(const NetworkQueue&) = delete;

  // The number by which the job can be cancelled. Errors: kOverloaded, too much waits; kUnavailable, it drains.
  Result<uint64_t> submit(Job job);
  // Nobody wants the outputs any more: a job that waits is dropped, the end of one that runs is not told. False: it is
  // over.
  bool cancel(uint64_t job);
  Stats stats() const;

  // Refuses new jobs from now on.
  void drain();
  // Until nothing waits or runs, or the time is over. True: nothing does.
  bool wait_idle(int64_t timeout_us);
  // What waits fails as kUnavailable; what runs is waited for. One thread calls this, not one of the queue's.
  void stop();
  // The same without waiting.
  void ask_to_stop();
  // ask_to_stop, and waits for so long. False: a run still has not ended, and may never: those who wait for it have
  // heard kUnavailable, but stop waits for its end. Any thread but the queue's.
  bool stop_within(int64_t timeout_us);

 private:
  struct Item {
    Job job;
    int64_t submitted_us = 0, begun_us = 0;
  };

  void work(const Run& run);
  void keep_time();
  // With the mutex held: a job that is over; its `done`, if it is still to be called.
  Done take(std::map<uint64_t, Item>::iterator item, std::map<uint64_t, Item>& from);

  const Options options_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_, idle_, sooner_;
  std::map<uint64_t, Item> waiting_, running_;  // by number: the longest wait first
  std::set<std::pair<int64_t, uint64_t>> deadlines_;
  size_t waiting_bytes_ = 0;
  size_t busy_ = 0;  // threads that run a job or tell its end
  uint64_t numbers_ = 0;
  bool draining_ = false, stopping_ = false;

  std::vector<std::thread> threads_;  // last: everything is there when they start
};

}  // namespace bolide::server
