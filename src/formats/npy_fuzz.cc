// Any bytes as a .npy and as a .npz file.
#include <cstddef>
#include <cstdint>

#include "formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bolide::Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)bolide::parse_npy(bytes, "fuzz");
  (void)bolide::parse_npz(bytes, "fuzz");
  return 0;
}
