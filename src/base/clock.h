// What time it is, as whole numbers: what requests, steps and queues are timed with.
//
// Thread rules: any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace bolide {

// Since an arbitrary point, never set back: for durations and deadlines.
inline int64_t steady_us() {
  using std::chrono::microseconds;
  return std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Since 1970.
inline int64_t unix_ms() {
  using std::chrono::milliseconds;
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}
inline int64_t unix_seconds() { return unix_ms() / 1000; }

}  // namespace bolide
