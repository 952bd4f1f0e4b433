// Any bytes as a photo.
#include <cstddef>
#include <cstdint>

#include "formats/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)bolide::parse_image({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  return 0;
}
