// A tokenizer.json (or tokenizer.model), a NUL, and a text. Whatever the tokenizer: encoding ends, ids exist, decoding
// gives UTF-8, and decoding step by step gives the same.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/utf8.h"
#include "formats/tokenizer_json.h"
#include "formats/tokenizer_model.h"
#include "text/detokenizer.h"

namespace {

void check_decoding(const bolide::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  for (const bool skip_special : {false, true}) {
    const std::string whole = tokenizer.decode(ids, skip_special);
    BOLIDE_CHECK(bolide::utf8_invalid_at(whole) == bolide::kUtf8Valid, "decoded text is not UTF-8");
    bolide::Detokenizer stream(tokenizer, skip_special);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string part = stream.push(id);
      BOLIDE_CHECK(bolide::utf8_invalid_at(part) == bolide::kUtf8Valid, "half a character");
      joined += part;
    }
    joined += stream.flush();
    BOLIDE_CHECK(joined == whole, "decoding step by step differs");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.rfind('\0');
  const std::string_view description = input.substr(0, end);
  const std::string_view text = end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  auto spec = description.starts_with('{') ? bolide::parse_tokenizer_json(description)
                                           : bolide::parse_tokenizer_model(bolide::as_bytes(description));
  if (!spec.has_value()) return 0;
  const auto tokenizer = bolide::Tokenizer::create(*std::move(spec));
  if (!tokenizer.has_value()) return 0;
  const auto ids = tokenizer->encode(text);
  if (ids.has_value()) check_decoding(*tokenizer, *ids);
  // Ids that no text gives.
  std::vector<int32_t> other;
  for (const char c : text) other.push_back(static_cast<unsigned char>(c) % (tokenizer->vocab_size() + 1));
  check_decoding(*tokenizer, other);
  for (int32_t id = 0; id < tokenizer->vocab_size() && id < 64; ++id) (void)tokenizer->token_bytes(id);
  return 0;
}
