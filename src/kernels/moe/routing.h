// Which experts a token goes to, and the activation of an expert: shared by every MoeFfn kernel.
#pragma once

#include <cstdint>

#include "ir/ops.h"

namespace bolide {

// scores [X] become probabilities by softmax; the `top_k` largest (the lower number first at ties) go to experts
// [top_k] and weights [top_k], in falling order, renormalised to sum 1 if asked. `scores` is overwritten.
void choose_experts(const MoeFfn& op, float* scores, int32_t* experts, float* weights);

double activate(ActKind kind, double x);

// hidden[i] = act(gate[i]) * up[i] in f32, a few units in the last place off.
void activate_row(ActKind kind, const float* gate, const float* up, int64_t n, float* hidden);

}  // namespace bolide
