// Any bytes as an xz file: an error, or no more than was allowed.
#include "formats/xz.h"

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  for (const size_t bytes_max : {size_t{0}, size_t{100}, size_t{1} << 18}) {
    const auto text = unpack_xz({reinterpret_cast<const std::byte*>(data), size}, bytes_max);
    if (text) BOLIDE_CHECK(text->size() <= bytes_max, "{} bytes of at most {}", text->size(), bytes_max);
  }
  return 0;
}
