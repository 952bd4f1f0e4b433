#include "tensor/pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/bytes.h"

namespace bolide {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

std::byte* map_pages(size_t bytes, size_t alignment) {
  const size_t size = round_up(bytes, kPage), more = alignment > kPage ? alignment : 0;
  if (size + more < bytes) return nullptr;
  void* mapped = ::mmap(nullptr, size + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const data = static_cast<std::byte*>(mapped);
  if (more == 0) return data;
  const size_t before = round_up(reinterpret_cast<uintptr_t>(data), alignment) - reinterpret_cast<uintptr_t>(data);
  if (before > 0) ::munmap(data, before);
  if (before < more) ::munmap(data + before + size, more - before);
  return data + before;
}

void unmap_pages(std::byte* data, size_t bytes) { ::munmap(data, round_up(bytes, kPage)); }

void prefer_large_pages(std::byte* data, size_t bytes) { ::madvise(data, bytes, MADV_HUGEPAGE); }

}  // namespace bolide
