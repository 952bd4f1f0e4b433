// What `bolide batch` says of how far it is, and in the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "server/batch/batch.h"

namespace bolide::cli {

struct BatchTotals {
  uint64_t requests = 0;         // in the file
  uint64_t answered_before = 0;  // by earlier runs, failures among them
  uint64_t failed_before = 0;

  uint64_t done(const server::BatchCounts& counts) const {
    return answered_before + static_cast<uint64_t>(counts.answered) + static_cast<uint64_t>(counts.failed);
  }
  uint64_t left(const server::BatchCounts& counts) const { return requests - std::min(requests, done(counts)); }
  uint64_t failed(const server::BatchCounts& counts) const {
    return failed_before + static_cast<uint64_t>(counts.failed);
  }
};

// "[######--------------] 30 of 100, 2 failed, 811 tokens/s, 1 min 20 s left". `drawn`: tokens of answers so far.
std::string progress_text(const BatchTotals& totals, const server::BatchCounts& counts, int64_t drawn, double seconds);
std::string summary_text(const BatchTotals& totals, const server::BatchCounts& counts, double seconds);
std::string summary_json(const BatchTotals& totals, const server::BatchCounts& counts, double seconds);

}  // namespace bolide::cli
