// Embed: rows of a table by id, widened to f32.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace bolide {

// Fastest first, reference last. Tables of every float type and every block scheme. An id outside the table:
// kInvalid, naming the token and the id.
std::span<const Kernel> embed_kernels();

}  // namespace bolide
