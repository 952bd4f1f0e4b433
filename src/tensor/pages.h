// Memory straight from the system, for what is large: it goes back as soon as it is given up, where an allocator would
// keep it between what is small.
//
// Thread rules: any thread.
#pragma once

#include <cstddef>

namespace bolide {

// Zeroed pages from an address that is a multiple of `alignment`, a power of two and at least a page; null: the system
// refuses.
std::byte* map_pages(size_t bytes, size_t alignment);
void unmap_pages(std::byte* data, size_t bytes);

}  // namespace bolide
