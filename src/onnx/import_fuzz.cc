// Any bytes as an ONNX model: imported or refused, and nothing else.
#include <cstddef>
#include <cstdint>

#include "onnx/import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bolide::Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)bolide::import_onnx(bytes, nullptr, {}, "fuzz");
  return 0;
}
