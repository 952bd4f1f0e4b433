// Any bytes: an error, or tensors that all lie in the bytes. The same bytes are tried as an index too.
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bolide;
  const Bytes file(reinterpret_cast<const std::byte*>(data), size);
  const auto entries = parse_safetensors(file, "fuzz.safetensors");
  if (entries) {
    for (const SafetensorsEntry& entry : *entries) {
      BOLIDE_CHECK(entry.offset <= size && entry.size <= size - entry.offset, "tensor outside the file");
      BOLIDE_CHECK(entry.size == entry.info.byte_size() || entry.size == 0, "size {}", entry.size);
    }
  }
  (void)parse_safetensors_index(as_text(file), "fuzz.index.json");
  return 0;
}
