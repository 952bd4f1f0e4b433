// The list of decoder families. A new one: one file and one line in families.cc (docs/recipes/add-a-family.md).
#pragma once

#include "models/decoder.h"

namespace bolide {

std::span<const Family* const> families();

// The family of config.json's `architectures`. kUnsupported names the architecture and the nearest supported one.
Result<const Family*> find_family(const ModelConfig& config);

}  // namespace bolide
