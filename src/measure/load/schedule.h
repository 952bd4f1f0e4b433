// When requests of an open loop are meant to be sent.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace bolide::load {

enum class Arrival : uint8_t {
  kPoisson,  // independent users
  kFixed,    // one every 1/rate
};

// Seconds since the start, rising, all below `duration_s`; at most `count_max` (0: no limit but 10 million). The same
// seed gives the same times.
std::vector<double> arrival_times(Arrival arrival, double rate, double duration_s, int64_t count_max, uint64_t seed);

}  // namespace bolide::load
