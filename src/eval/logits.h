// Measures over vectors of logits, in float64.
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace bolide {

// |got - want| / |want|; infinity if a value is not finite or the sizes differ.
double rel_l2(std::span<const float> got, std::span<const float> want);
// The largest difference of two elements; infinity likewise.
double max_abs(std::span<const float> got, std::span<const float> want);
// KL(want || got) of the two softmax distributions, in nats.
double kl_divergence(std::span<const float> want, std::span<const float> got);
// log softmax(logits)[id], natural logarithm. `id` is below logits.size().
double log_probability(std::span<const float> logits, int32_t id);
// The first of the largest.
int32_t argmax(std::span<const float> logits);

}  // namespace bolide
