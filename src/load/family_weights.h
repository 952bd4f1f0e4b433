// A checkpoint's tensors as the rules of its family name and lay them out. Internal to load/, and for tests.
#pragma once

#include <memory>

#include "formats/weight_source.h"
#include "models/decoder.h"

namespace bolide {

// Without the family's optional prefix and without its leftovers; weights that its rules call Layout::kInOut are shown
// as [out, in], and are transposed when they are opened, one at a time. `inner` itself where nothing differs.
Result<std::shared_ptr<const WeightSource>> family_weights(std::shared_ptr<const WeightSource> inner,
                                                           const Family& family);

}  // namespace bolide
