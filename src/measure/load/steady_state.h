// Where a series stops being warm-up: found, not configured.
//
// Thread rules: pure functions.
#pragma once

#include <cstddef>
#include <span>

namespace bolide::load {

struct Truncation {
  size_t observations = 0;  // that are to be left out; 0 if there is no steady state
  bool steady = false;
  bool judged = false;  // there were enough observations to say so
};

// 50: fewer say nothing.
constexpr size_t kSteadyObservationsMin = 50;

// MSER-5 (White, Cobb & Spratt 2000): means of batches of five; the truncation that makes the standard error of the
// mean of what is left smallest. If that is beyond half of the series and the means of the last two quarters differ (by
// 3 standard errors and 2 %) there is no steady state: the series still drifts. Users in step make series with a
// period, which lead MSER-5 alone astray. The last quarter is no candidate, where few batches can lie close together by
// chance.
Truncation mser5(std::span<const double> series);

}  // namespace bolide::load
