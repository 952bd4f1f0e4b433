// Gate: holds up the steps of a runner until it is opened, for tests.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/result.h"

namespace bolide {

class Gate {
 public:
  Result<> pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
    return {};
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace bolide
