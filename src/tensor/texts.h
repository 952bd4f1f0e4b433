// What the texts of a tensor take, which are no part of a pool's memory.
//
// Thread rules: any thread.
#pragma once

#include "tensor/value.h"

namespace bolide {

// Bytes, of the strings themselves and of what they hold; 0 for a tensor of another type.
size_t text_bytes(const Tensor& tensor);
// The same of all that a value holds.
size_t text_bytes(const AnyValue& value);

}  // namespace bolide
