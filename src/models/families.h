// The list of decoder families. A new one: a file, its name here and in families.cc (docs/recipes/add-a-family.md).
#pragma once

#include "models/decoder.h"

namespace bolide {

// Each family file includes this header: a constant is visible to others only where it was declared extern.
extern const Family kLlama, kMistral, kQwen2, kQwen3, kPhi3, kMixtral;

std::span<const Family* const> families();

// The family of config.json's `architectures`. kUnsupported names the architecture and the nearest supported one.
Result<const Family*> find_family(const ModelConfig& config);

}  // namespace bolide
