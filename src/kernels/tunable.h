// A problem whose tactic is found by measuring: what a kernel gives a tuner (tune/tuner.h), with data of its own.
#pragma once

#include "kernels/kernel.h"

namespace bolide {

// One thread. Candidate 0 is what runs untuned.
class Tunable {
 public:
  virtual ~Tunable() = default;
  virtual int candidates() const = 0;
  virtual Tactic tactic(int candidate) const = 0;
  // How far the results of a candidate are from those of candidate 0: relative L2. An error: it cannot run.
  virtual Result<double> difference(int candidate) = 0;
  // Of one execution whose weights are in no cache: a median of several.
  virtual Result<double> seconds(int candidate) = 0;
  // Of one execution.
  virtual double flops() const = 0;
};

}  // namespace bolide
