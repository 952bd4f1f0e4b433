// WorkQueue: threads for work that would hold up the server's own, such as tokenising megabytes.
//
// Thread rules: any thread may add; what waits when the queue ends is dropped.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace bolide::server {

class WorkQueue {
 public:
  WorkQueue(int threads, size_t waiting_max) : waiting_max_(waiting_max) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Ends the work at hand and drops the rest.
  void stop() {
    std::deque<std::function<void()>> dropped;  // ends outside the lock: what it holds may be the last of something
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      dropped.swap(waiting_);
    }
    arrived_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  // False: too much waits, or the queue has ended.
  bool add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ || waiting_.size() >= waiting_max_) return false;
      waiting_.push_back(std::move(work));
    }
    arrived_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      arrived_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  const size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bolide::server
