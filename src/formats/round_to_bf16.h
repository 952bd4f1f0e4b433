// Matrices of float32 and float16 as bf16, which is what GPUs multiply.
#pragma once

#include <memory>

#include "base/function_ref.h"
#include "formats/weight_source.h"

namespace bolide {

// `inner` with its matrices of f32 and f16 rounded to the nearest bf16 when they are opened, one at a time, but for
// those that `keeps` names; vectors and all other types stay as they are. `inner` itself if it has none.
std::shared_ptr<const WeightSource> round_to_bf16(std::shared_ptr<const WeightSource> inner,
                                                  FunctionRef<bool(const std::string& name)> keeps);

}  // namespace bolide
