// Finds the fastest of a problem's candidates, and changes nothing unless it is faster for certain.
#pragma once

#include "kernels/tunable.h"

namespace bolide {

struct TuneRules {
  double gain = 0.03;              // a candidate must be faster by this share of the untuned time, in each round
  int rounds = 2;                  // in which that has to show; who fails in one is not measured again
  double difference_max = 0x1p-6;  // relative L2, beyond which a candidate is wrong; bf16 rounds by 2^-9
};

struct Tuned {
  int candidate = 0;  // 0: nothing is faster
  Tactic tactic;
  double seconds = 0, untuned_seconds = 0;  // means of the rounds
  int measured = 0, refused = 0;            // candidates; those that failed or were wrong
  double flops = 0;
};

// Rounds go through all candidates in turn, the untuned one first, so that a clock that changes meets all of them.
// Errors: those of candidate 0.
Result<Tuned> tune(Tunable& problem, const TuneRules& rules = {});

}  // namespace bolide
