// TeamGovernor: how many threads a pool should use now, from how long each was kept waiting for a processor.
//
// A thread that is starved for a fraction f of the time holds back all n of its team: it is worth keeping while
// n (1 - f) > n - 1, so while f < 1/n. The governor drops starved threads well before that, tries to grow again after a
// pause, and doubles the pause each time that growing did not last.
//
// Pure arithmetic on the times it is given; owned by one thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bolide {

class TeamGovernor {
 public:
  static constexpr int64_t kPauseMinNs = 8'000'000;
  static constexpr int64_t kPauseMaxNs = 256'000'000;  // bounds both the cost of trying and the delay of growing back

  explicit TeamGovernor(int threads) : threads_(threads), team_(threads) {}

  int team() const { return team_; }

  // Before a run: grows if it is time to try.
  int team_at(int64_t now_ns) {
    if (team_ < threads_ && now_ns >= retry_ns_) {
      team_ = std::min(threads_, team_ * 2);
      grown_ns_ = now_ns;
      retry_ns_ = now_ns + pause_ns_;
    }
    return team_;
  }

  // `starved_threads` of the team were kept waiting for longer than starved_limit_ns(window).
  void shrink(int64_t now_ns, int starved_threads) {
    if (starved_threads <= 0 || team_ == 1) return;
    const bool lasted = now_ns - grown_ns_ > 4 * pause_ns_;
    pause_ns_ = lasted ? kPauseMinNs : std::min(2 * pause_ns_, kPauseMaxNs);
    team_ = std::max(1, team_ - starved_threads);
    retry_ns_ = now_ns + pause_ns_;
  }

  // Half of the break-even point 1/n, and never less than an eighth: stray kernel threads stay below that.
  int64_t starved_limit_ns(int64_t window_ns) const { return window_ns / std::min(2 * team_, 8); }

 private:
  int threads_;
  int team_;
  int64_t pause_ns_ = kPauseMinNs / 2;
  int64_t grown_ns_ = INT64_MIN / 2;
  int64_t retry_ns_ = 0;
};

}  // namespace bolide
