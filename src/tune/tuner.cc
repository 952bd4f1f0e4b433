#include "tune/tuner.h"

#include <cmath>
#include <vector>

namespace bolide {

Result<Tuned> tune(Tunable& problem, const TuneRules& rules) {
  struct Candidate {
    int index;
    double seconds = 0;  // of all rounds
  };
  Tuned tuned;
  tuned.flops = problem.flops();
  tuned.tactic = problem.tactic(0);
  std::vector<Candidate> alive;
  for (int i = 1; i < problem.candidates(); ++i) {
    const auto difference = problem.difference(i);
    if (difference && std::isfinite(*difference) && *difference <= rules.difference_max) {
      alive.push_back({i});
    } else {
      ++tuned.refused;
    }
  }
  tuned.measured = 1 + static_cast<int>(alive.size());
  double untuned = 0;
  for (int round = 0; round < rules.rounds; ++round) {
    BOLIDE_TRY(const double seconds, problem.seconds(0));
    untuned += seconds;
    std::vector<Candidate> faster;
    for (Candidate candidate : alive) {
      const auto its = problem.seconds(candidate.index);
      if (!its) {
        ++tuned.refused;
      } else if (*its < (1 - rules.gain) * seconds) {
        candidate.seconds += *its;
        faster.push_back(candidate);
      }
    }
    alive = std::move(faster);
  }
  tuned.untuned_seconds = tuned.seconds = untuned / rules.rounds;
  for (const Candidate& candidate : alive)
    if (candidate.seconds / rules.rounds < tuned.seconds) {
      tuned.candidate = candidate.index;
      tuned.tactic = problem.tactic(candidate.index);
      tuned.seconds = candidate.seconds / rules.rounds;
    }
  return tuned;
}

}  // namespace bolide
