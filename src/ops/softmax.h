// Softmax and its kin, for the ops of that name and for losses.
#pragma once

#include <span>

#include "base/workers.h"
#include "ir/op_def.h"

namespace bolide {

// A tensor as [outer, n, inner], of which a function takes the middle axis.
struct Lanes {
  int64_t outer = 1, n = 1, inner = 1;
};
Lanes lanes_of(const Shape& shape, int axis);

enum class SoftmaxKind : uint8_t { kSoftmax, kLog, kHard };
// x and y of f32 or f64, the same for both.
void softmax(const Tensor& x, Tensor& y, const Lanes& lanes, SoftmaxKind kind, Workers& workers);

// Parts of the group, a file each.
std::span<const OpDef> softmax_ops();  // softmax.cc
std::span<const OpDef> loss_ops();     // loss.cc

}  // namespace bolide
