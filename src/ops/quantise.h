// What the group of quantised ops shares.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "ir/op_def.h"

namespace bolide {

// The least and the largest code of an integer type to quantise to; none of other types.
std::optional<std::pair<double, double>> code_range(DType dtype);

std::span<const OpDef> quantised_product_ops();  // quantise_product.cc

}  // namespace bolide
