#include "server/network_queue.h"

#include <fmt/format.h>

#include <chrono>

#include "base/clock.h"

namespace bolide::server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

}  // namespace

NetworkQueue::NetworkQueue(std::vector<Run> runs, const Options& options) : options_(options) {
  threads_.emplace_back([this] { keep_time(); });
  for (Run& run : runs) threads_.emplace_back([this, run = std::move(run)] { work(run); });
}

Result<uint64_t> NetworkQueue::submit(Job job) {
  const std::lock_guard lock(mutex_);
  if (draining_ || stopping_)
    return error(Code::kUnavailable, "the model takes no new requests: the server ends, or unloads it");
  if (waiting_.size() >= options_.requests_max)
    return error(Code::kOverloaded, fmt::format("{} requests to this model wait already", waiting_.size()));
  if (waiting_bytes_ + job.bytes > options_.bytes_max && !waiting_.empty())
    return error(Code::kOverloaded, fmt::format("requests of {} bytes to this model wait already", waiting_bytes_));
  const uint64_t number = ++numbers_;
  waiting_bytes_ += job.bytes;
  if (job.deadline_us != kNoDeadline) {
    deadlines_.emplace(job.deadline_us, number);
    if (deadlines_.begin()->second == number) sooner_.notify_one();
  }
  waiting_.emplace(number, Item{std::move(job), steady_us(), 0});
  arrived_.notify_one();
  return number;
}

NetworkQueue::Done NetworkQueue::take(std::map<uint64_t, Item>::iterator item, std::map<uint64_t, Item>& from) {
  deadlines_.erase({item->second.job.deadline_us, item->first});
  Done done = std::move(item->second.job.done);
  if (&from == &waiting_) waiting_bytes_ -= item->second.job.bytes;
  from.erase(item);
  return done;
}

bool NetworkQueue::cancel(uint64_t job) {
  Done dropped;  // ends outside the lock: what it holds may be the last of something
  {
    const std::lock_guard lock(mutex_);
    for (auto* jobs : {&waiting_, &running_})
      if (const auto it = jobs->find(job); it != jobs->end()) dropped = take(it, *jobs);
    if (waiting_.empty() && busy_ == 0) idle_.notify_all();
  }
  return dropped != nullptr;
}

NetworkQueue::Stats NetworkQueue::stats() const {
  const std::lock_guard lock(mutex_);
  return {waiting_.size(), busy_};
}

void NetworkQueue::work(const Run& run) {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    auto job = waiting_.extract(waiting_.begin());
    const uint64_t number = job.key();
    Item& item = running_.insert(std::move(job)).position->second;
    waiting_bytes_ -= item.job.bytes;
    item.begun_us = steady_us();
    const Times waited{item.begun_us - item.submitted_us, 0};
    const int64_t begun = item.begun_us;
    Values inputs = std::move(item.job.inputs);
    ++busy_;
    lock.unlock();
    Result<Values> outputs = run(std::move(inputs));
    const Times times{waited.queue_us, steady_us() - begun};
    lock.lock();
    Done done;
    if (const auto it = running_.find(number); it != running_.end()) done = take(it, running_);
    lock.unlock();
    if (done) done(std::move(outputs), times);
    done = nullptr;
    outputs = Values();
    lock.lock();
    --busy_;
    if (waiting_.empty() && busy_ == 0) idle_.notify_all();
  }
}

void NetworkQueue::keep_time() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (deadlines_.empty()) {
      sooner_.wait(lock);
      continue;
    }
    const auto [deadline, number] = *deadlines_.begin();
    if (deadline > steady_us()) {
      sooner_.wait_until(lock, Clock::time_point(microseconds(deadline)));
      continue;
    }
    Times times;
    Done done;
    for (auto* jobs : {&waiting_, &running_}) {
      const auto it = jobs->find(number);
      if (it == jobs->end()) continue;
      const Item& item = it->second;
      times.queue_us = (item.begun_us > 0 ? item.begun_us : deadline) - item.submitted_us;
      times.run_us = item.begun_us > 0 ? deadline - item.begun_us : 0;
      done = take(it, *jobs);
    }
    ++busy_;
    lock.unlock();
    if (done) done(error(Code::kDeadline, "the request took longer than it may"), times);
    done = nullptr;
    lock.lock();
    --busy_;
    if (waiting_.empty() && busy_ == 0) idle_.notify_all();
  }
}

void NetworkQueue::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool NetworkQueue::wait_idle(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, microseconds(timeout_us), [&] { return waiting_.empty() && busy_ == 0; });
}

void NetworkQueue::ask_to_stop() {
  std::vector<Done> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    while (!waiting_.empty()) dropped.push_back(take(waiting_.begin(), waiting_));
    arrived_.notify_all();
    sooner_.notify_all();
  }
  for (const Done& done : dropped) done(error(Code::kUnavailable, "the server ends, or unloads the model"), Times());
}

bool NetworkQueue::stop_within(int64_t timeout_us) {
  ask_to_stop();
  std::vector<Done> left;
  {
    std::unique_lock lock(mutex_);
    if (idle_.wait_for(lock, microseconds(timeout_us), [&] { return busy_ == 0; })) return true;
    while (!running_.empty()) left.push_back(take(running_.begin(), running_));
  }
  for (const Done& done : left)
    done(error(Code::kUnavailable, "the server ends, or unloads the model, and a run of it does not end"), Times());
  return false;
}

void NetworkQueue::stop() {
  ask_to_stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace bolide::server
