// Functions of sample_avx2.cc and sample_avx512.cc over one row of scores.
#pragma once

#include <cstdint>

namespace bolide::isa {

struct Candidate {
  float score;
  float weight;  // exp((score - largest) / temperature)
  int32_t id;
};

struct SampleFunctions {
  // Largest score and the lowest id that has it; NaN if any score is.
  float (*largest)(const float* scores, int64_t count, int64_t* id);
  // Sum of exp((score - largest) * inverse_temperature).
  double (*sum_weights)(const float* scores, int64_t count, float largest, float inverse_temperature);
  // Largest of each `group` consecutive scores, count / group of them; the rest is left out.
  void (*group_largest)(const float* scores, int64_t count, int64_t group, float* out);
  // Candidates with scores of at least `least`, ids ascending; their number.
  int64_t (*collect)(const float* scores, int64_t count, float least, float largest, float inverse_temperature,
                     Candidate* out);
};
extern const SampleFunctions kSampleAvx2, kSampleAvx512;

}  // namespace bolide::isa
