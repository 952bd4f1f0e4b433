// Weights of float64 as float32, which is what every kernel computes in.
#pragma once

#include <memory>

#include "formats/weight_source.h"

namespace bolide {

// `inner` with its F64 tensors rounded to the nearest F32 when they are opened, one at a time; `inner` itself if it has
// none. A value beyond F32's range becomes infinite, which packing refuses.
std::shared_ptr<const WeightSource> narrow_doubles(std::shared_ptr<const WeightSource> inner);

}  // namespace bolide
