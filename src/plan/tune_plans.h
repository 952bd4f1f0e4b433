// Measures what the plans of a graph leave open: the tactics of their kernels.
#pragma once

#include <span>

#include "base/function_ref.h"
#include "plan/plan.h"
#include "tune/tuner.h"

namespace bolide {

// One choice, before and after it is measured.
struct TuneProgress {
  std::string key;
  int done = 0, all = 0;
  const Tuned* tuned = nullptr;  // null: it is about to be measured
};

// Measures every key of the plans for these buckets that `timings` lacks, or all if `again`, and puts what it finds
// there. Nothing of `plans` changes: open the model again. Errors end it; what was measured until then is kept.
Result<> tune_plans(PlanSet& plans, Device& device, std::span<const SymbolValues> buckets, bool again,
                    TimingCache* timings, FunctionRef<void(const TuneProgress&)> progress);

}  // namespace bolide
