// Element-wise loops, one pass over memory; bound by the exponential below L2, by bandwidth above.
#pragma once

#include "kernels/act/act_isa.h"
#include "kernels/simd/math.h"

namespace bolide {
namespace {

template <Vec (*kAct)(Vec)>
void gated_row(const float* gate, const float* up, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, kAct(load(gate + i)) * load(up + i));
  if (i < count) store_n(out + i, kAct(load_n(gate + i, count - i)) * load_n(up + i, count - i), count - i);
}

template <Vec (*kAct)(Vec)>
void plain_row(const float* x, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, kAct(load(x + i)));
  if (i < count) store_n(out + i, kAct(load_n(x + i, count - i)), count - i);
}

void add_row(const float* x, const float* y, float* out, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, load(x + i) + load(y + i));
  if (i < count) store_n(out + i, load_n(x + i, count - i) + load_n(y + i, count - i), count - i);
}

constexpr isa::ActFunctions kActFunctions = {
    {gated_row<silu>, gated_row<gelu>, gated_row<gelu_tanh>, gated_row<relu>},
    {plain_row<silu>, plain_row<gelu>, plain_row<gelu_tanh>, plain_row<relu>},
    add_row,
};

}  // namespace
}  // namespace bolide
