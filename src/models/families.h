// The list of decoder families. A new one: a file, and its name in families.cc (docs/recipes/add-a-family.md).
#pragma once

#include "models/decoder.h"

namespace bolide {

std::span<const Family* const> families();

// The family of config.json's `architectures`, or of its `model_type` where there are none: nothing else of the file is
// read. kUnsupported names the architecture and the nearest supported one.
Result<const Family*> find_family(const ModelConfig& config);

}  // namespace bolide
