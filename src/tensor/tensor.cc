#include "tensor/tensor.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/memory.h"

namespace bolide {

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.span(), ", ")); }

size_t row_bytes(DType dtype, const QuantScheme* quant, int64_t k) {
  if (quant != nullptr && quant->layout == BlockLayout::kBlock)
    return static_cast<size_t>(k) / static_cast<size_t>(quant->block_elements) *
           static_cast<size_t>(quant->block_bytes);
  return (static_cast<size_t>(k) * static_cast<size_t>(bits_of(dtype)) + 7) / 8;
}

TensorView make_view(std::byte* data, DType dtype, const Shape& shape, const QuantScheme* quant) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.quant = quant;
  view.shape = shape;
  view.row_stride = shape.rank == 0 ? 1 : shape[-1];
  return view;
}

Result<Buffer> Buffer::host(size_t bytes, Pages pages) {
  if (bytes == 0) return Buffer();
  const auto megabytes = [](size_t count) { return fmt::format("{:.1f} MB", static_cast<double>(count) / 1e6); };
  // Linux overcommits: without this check an absurd request succeeds here and the process is killed later, when the
  // pages are touched.
  if (bytes > (64u << 20)) {
    if (const size_t available = available_memory_bytes(); bytes > available)
      return error(Code::kOutOfMemory,
                   fmt::format("{} of memory asked for, {} available", megabytes(bytes), megabytes(available)));
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return error(Code::kOutOfMemory, fmt::format("{} of memory asked for, and the system gives no more{}",
                                                 megabytes(bytes), address_limit_note()));
  // What is read from end to end: with 4 KB pages a core under a hypervisor read 48 MB at 19 GB/s, with 2 MB pages at
  // 34 (AMD EPYC, family 25). A refusal only costs that speed.
  if (pages == Pages::kLarge && bytes >= (4u << 20)) ::madvise(data, bytes, MADV_HUGEPAGE);
  return Buffer(static_cast<std::byte*>(data), bytes, DeviceId{}, [](std::byte* p, size_t size) { ::munmap(p, size); });
}

}  // namespace bolide
