#include "measure/load/schedule.h"

#include <cmath>
#include <random>

namespace bolide::load {

std::vector<double> arrival_times(Arrival arrival, double rate, double duration_s, int64_t count_max, uint64_t seed) {
  constexpr int64_t kTimesMax = 10'000'000;
  const int64_t most = count_max > 0 ? std::min(count_max, kTimesMax) : kTimesMax;
  std::mt19937_64 random(seed);
  std::vector<double> times;
  double at = 0;
  while (static_cast<int64_t>(times.size()) < most) {
    if (arrival == Arrival::kFixed) {
      at = static_cast<double>(times.size()) / rate;
    } else {
      // 53 bits in (0, 1]: the library's distributions differ between implementations.
      const double uniform = (static_cast<double>(random() >> 11) + 1) * 0x1p-53;
      at -= std::log(uniform) / rate;
    }
    if (at >= duration_s) break;
    times.push_back(at);
  }
  return times;
}

}  // namespace bolide::load
