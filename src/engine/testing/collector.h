// Collector: a sink that keeps a request's answers and waits for its end, for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace bolide {

class Collector final : public RequestSink {
 public:
  void on_progress(const Progress& progress) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_) << "progress after the end";
    progress_.push_back(progress);
    over_ = progress.request_over;
    if (over_) ended_.notify_all();
  }
  void on_failure(const Error& failure) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(over_) << "a failure after the end";
    over_ = true;
    error_ = failure.text;
    ended_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::seconds(120), [&] { return over_; });
  }
  bool over() const {
    const std::lock_guard lock(mutex_);
    return over_;
  }
  std::vector<Progress> progress() const {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  // The tokens of each answer.
  std::map<int32_t, std::vector<int32_t>> answers() const {
    std::map<int32_t, std::vector<int32_t>> answers;
    for (const Progress& p : progress())
      if (p.token >= 0) answers[p.choice].push_back(p.token);
    return answers;
  }
  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Progress> progress_;
  std::string error_;
  bool over_ = false;
};

}  // namespace bolide
