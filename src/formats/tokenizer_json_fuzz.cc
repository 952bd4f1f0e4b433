// Any bytes as tokenizer.json and as tokenizer_config.json: a spec or an error, nothing else.
#include <cstddef>
#include <cstdint>

#include "formats/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto spec = bolide::parse_tokenizer_json(text);
  bolide::TokenizerSpec empty;
  (void)bolide::apply_tokenizer_config(spec.has_value() ? *spec : empty, text);
  return 0;
}
