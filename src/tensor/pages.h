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

// Of processors: fewer faults and misses of translations. Memory that begins at a multiple of it can have such pages.
constexpr size_t kLargePage = 2 << 20;
// Asks for large pages where the memory has room for whole ones. A refusal only costs speed.
void prefer_large_pages(std::byte* data, size_t bytes);

}  // namespace bolide
