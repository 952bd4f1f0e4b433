// All filters keep a prefix of the candidates in order, so no sort of the vocabulary is needed:
// - top_k: the k-th largest of the maxima of groups of scores is a lower bound of the k-th largest score; few scores
// lie
//   above it, and the exact k-th of those is found by selection.
// - top_p and the draw: only candidates above a threshold that together have enough mass are looked at; the prefix of a
//   given mass is found by a selection that halves the rest each time (linear time in all).
#include "kernels/sample/select.h"

#include <cmath>

#include "kernels/common/launch.h"
#include "kernels/sample/philox.h"
#include "kernels/sample/sample_parts.h"

namespace bolide::sample {
namespace {

using isa::Candidate;
using Candidates = std::span<Candidate>;

// Scratch for one row; the counts of `adjust` use the memory of the candidates, which come later.
struct Scratch {
  float* scores;          // [V]
  Candidate* candidates;  // [V]

  static size_t bytes(int64_t vocabulary) {
    return round_up(static_cast<size_t>(vocabulary) * sizeof(float), 64) +
           round_up(static_cast<size_t>(vocabulary) * sizeof(Candidate), 64);
  }
  Scratch(std::byte* at, int64_t vocabulary)
      : scores(reinterpret_cast<float*>(at)),
        candidates(reinterpret_cast<Candidate*>(at + round_up(static_cast<size_t>(vocabulary) * sizeof(float), 64))) {}
};

bool before(const Candidate& a, const Candidate& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; }

double mass(Candidates candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

// The shortest prefix of the order whose mass reaches `target` (passes it, if `strict`), or all candidates. It is moved
// to the front, its last candidate in place; at least one.
Candidates prefix_of_mass(Candidates all, double target, bool strict) {
  const auto enough = [&](double sum) { return strict ? sum > target : sum >= target; };
  size_t low = 0, high = all.size();  // the prefix ends in (low, high]; candidates before low are all in it
  double sum = 0;                     // of those before low
  while (high - low > 32) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(all.begin() + low, all.begin() + middle, all.begin() + high, before);
    const double more = mass(all.subspan(low, middle - low));
    if (enough(sum + more)) {
      high = middle;
    } else {
      sum += more, low = middle;
    }
  }
  std::sort(all.begin() + low, all.begin() + high, before);
  size_t last = low;  // of those with weight: a target lost to rounding must not pick an impossible token
  for (size_t i = low; i < high; ++i) {
    sum += all[i].weight;
    if (all[i].weight > 0) last = i;
    if (enough(sum)) return all.first(i + 1);
  }
  return all.first(strict ? last + 1 : high);
}

class Row {
 public:
  Row(const isa::SampleFunctions& functions, const SamplingRow& row, std::span<const float> scores, float largest,
      Candidate* memory)
      : functions_(functions),
        row_(row),
        scores_(scores),
        count_(static_cast<int64_t>(scores.size())),
        largest_(largest),
        memory_(memory),
        // Bounded, so that the largest score's own weight is exp(0 * bound) = 1 at any temperature.
        inverse_(std::min(1.f / row.temperature, 1e30f)) {}

  int32_t draw() {
    const double random = uniform(row_.seed, row_.request, row_.position);
    if (row_.top_k > 0 && row_.top_k < count_) return filter_and_draw(top_k(), random);
    const double least_weight = row_.top_p >= 1 && row_.min_p > 0 ? row_.min_p : 0;
    if (least_weight > 0) return filter_and_draw(collect_down_to(std::log(least_weight) - 1e-3), random);
    // Unfiltered, the prefix that holds the draw is all that matters.
    const double total = functions_.sum_weights(scores_.data(), count_, largest_, inverse_);
    const bool nucleus = row_.top_p < 1;
    const double wanted = total * (nucleus ? static_cast<double>(row_.top_p) : random);
    for (const double depth : {-5., -10., -20.}) {
      const Candidates found = collect_down_to(depth);
      if (mass(found) <= wanted) continue;
      return nucleus ? nucleus_and_draw(found, total, random) : prefix_of_mass(found, wanted, true).back().id;
    }
    const Candidates all = collect_down_to(-INFINITY);
    return nucleus ? nucleus_and_draw(all, total, random) : prefix_of_mass(all, wanted, true).back().id;
  }

 private:
  // Candidates whose weight is at least about exp(depth).
  Candidates collect_down_to(double depth) {
    const auto least = static_cast<float>(largest_ + depth * static_cast<double>(row_.temperature));
    return collect(std::min(least, largest_));
  }
  Candidates collect(float least) {
    return {memory_,
            static_cast<size_t>(functions_.collect(scores_.data(), count_, least, largest_, inverse_, memory_))};
  }

  Candidates top_k() {
    const int64_t k = row_.top_k;
    float bound = -INFINITY;
    // A few groups for each that is wanted: then few scores besides those wanted lie above the bound.
    if (const int64_t group = count_ / (4 * k); group >= 8) {
      auto* largest = reinterpret_cast<float*>(memory_);
      const int64_t groups = count_ / group;
      functions_.group_largest(scores_.data(), count_, group, largest);
      std::nth_element(largest, largest + k - 1, largest + groups, std::greater<>());
      bound = largest[k - 1];
    }
    const Candidates found = collect(bound);
    std::nth_element(found.begin(), found.begin() + (k - 1), found.end(), before);
    const float least = found[static_cast<size_t>(k) - 1].score;
    const auto end =
        std::partition(found.begin() + k, found.end(), [&](const Candidate& c) { return c.score == least; });
    return found.first(static_cast<size_t>(end - found.begin()));
  }

  int32_t nucleus_and_draw(Candidates candidates, double total, double random) {
    return min_p_and_draw(prefix_of_mass(candidates, total * static_cast<double>(row_.top_p), false), random);
  }
  int32_t filter_and_draw(Candidates candidates, double random) {
    if (row_.top_p < 1) return nucleus_and_draw(candidates, mass(candidates), random);
    return min_p_and_draw(candidates, random);
  }
  int32_t min_p_and_draw(Candidates candidates, double random) {
    if (row_.min_p > 0) {
      const auto end = std::partition(candidates.begin(), candidates.end(), [&](const Candidate& c) {
        return c.score == largest_ || c.weight >= row_.min_p;
      });
      candidates = candidates.first(static_cast<size_t>(end - candidates.begin()));
    }
    return prefix_of_mass(candidates, random * mass(candidates), true).back().id;
  }

  const isa::SampleFunctions& functions_;
  const SamplingRow& row_;
  std::span<const float> scores_;
  int64_t count_;
  float largest_;
  Candidate* memory_;  // [V]
  float inverse_;      // of the temperature
};

void sample_row(const isa::SampleFunctions& functions, const SamplingRow& row, const float* logits, int64_t count,
                const Scratch& scratch, int32_t* next, float* log_probability) {
  int64_t id = 0;
  const float largest = functions.largest(logits, count, &id);
  const auto none = [&] {
    *next = -1;
    *log_probability = NAN;
  };
  if (!std::isfinite(largest)) return none();
  const double total = functions.sum_weights(logits, count, largest, 1);
  const float* scores = logits;
  float largest_score = largest;
  if (row.adjusts()) {
    std::copy(logits, logits + count, scratch.scores);
    adjust(row, count, scratch.scores, reinterpret_cast<int32_t*>(scratch.candidates));
    scores = scratch.scores;
    largest_score = functions.largest(scores, count, &id);
    if (!std::isfinite(largest_score)) return none();
  }
  *next = static_cast<int32_t>(id);
  if (row.temperature > 0)
    *next = Row(functions, row, {scores, static_cast<size_t>(count)}, largest_score, scratch.candidates).draw();
  *log_probability = static_cast<float>(double{logits[*next]} - largest - std::log(total));
}

}  // namespace

size_t select_workspace(int64_t vocabulary, int threads) {
  return Scratch::bytes(vocabulary) * static_cast<size_t>(threads);
}

// (logits [R, V]) -> (next i32 [R], log-probability f32 [R]).
Result<> select(const isa::SampleFunctions& functions, const Launch& launch, Stream& stream) {
  check_rows(launch);
  const TensorView& logits = launch.in[0];
  const int64_t rows = logits.rows(), vocabulary = logits.cols();
  const auto slots = static_cast<int64_t>(launch.workspace.size() / Scratch::bytes(vocabulary));
  BOLIDE_CHECK(slots > 0, "no workspace for {} logits", vocabulary);
  const auto sample = [&](int64_t r, int64_t slot) {
    const Scratch scratch(launch.workspace.data() + static_cast<size_t>(slot) * Scratch::bytes(vocabulary), vocabulary);
    sample_row(functions, launch.batch->sampling[static_cast<size_t>(r)], logits.row<float>(r), vocabulary, scratch,
               launch.out[0].as<int32_t>() + r, launch.out[1].as<float>() + r);
  };
  Workers& workers = stream.workers();
  if (workers.threads() <= slots) {
    workers.run(rows, [&](int64_t r, int thread) { sample(r, thread); });
  } else {
    workers.run(std::min(slots, rows), [&](int64_t slot, int) {
      for (int64_t r = slot; r < rows; r += slots) sample(r, slot);
    });
  }
  return {};
}

}  // namespace bolide::sample
