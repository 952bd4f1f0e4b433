// Any bytes as tokenizer.model: a spec or an error, nothing else.
#include <cstddef>
#include <cstdint>

#include "formats/tokenizer_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)bolide::parse_tokenizer_model({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
