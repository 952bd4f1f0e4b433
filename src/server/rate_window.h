// RateWindow: how many things happened in the last ten seconds.
//
// Thread rules: none of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace bolide::server {

class RateWindow {
 public:
  static constexpr int64_t kSeconds = 10;

  // `now_us`: of steady_us, never less than before.
  void add(int64_t now_us) {
    move_to(now_us);
    ++counts_[static_cast<size_t>(last_ % kParts)];
  }
  double per_second(int64_t now_us) {
    move_to(now_us);
    int64_t all = 0;
    for (const int64_t count : counts_) all += count;
    return static_cast<double>(all) / kSeconds;
  }

 private:
  static constexpr int64_t kParts = 100, kPartUs = kSeconds * 1'000'000 / kParts;

  // Parts that have begun since are empty.
  void move_to(int64_t now_us) {
    const int64_t part = now_us / kPartUs;
    for (int64_t i = std::max(last_ + 1, part - kParts + 1); i <= part; ++i)
      counts_[static_cast<size_t>(i % kParts)] = 0;
    last_ = std::max(last_, part);
  }

  std::array<int64_t, kParts> counts_{};
  int64_t last_ = 0;
};

}  // namespace bolide::server
