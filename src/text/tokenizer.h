// Text to token ids and back, for any TokenizerSpec.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

struct EncodeOptions {
  bool add_special = true;    // what the post-processor puts around the text (bos, eos, [CLS] ...)
  bool parse_special = true;  // special tokens written in the text become their ids; false: they are plain text
};

// Immutable; a copy shares everything. All const members may be called from any thread at once.
class Tokenizer {
 public:
  // Errors: kInvalid (merges without tokens, broken expressions or maps), kUnsupported (expressions); the text names
  // the part. Takes about as much memory as the spec.
  static Result<Tokenizer> create(TokenizerSpec spec);

  // Errors: kInvalid for text that is not UTF-8 (names the byte), longer than 128 MiB, or with characters that the
  // tokenizer has no way to write. Time is O(n log n) in the text's length, whatever the text.
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;

  // Ids that do not exist are skipped, as are special tokens with skip_special. Always valid UTF-8: bytes that are
  // none become U+FFFD. No clean-up of spaces.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // One more than the largest id, added tokens included. Ids below it may be unused.
  int32_t vocab_size() const;
  bool has_token(int32_t id) const;
  // The token as the vocabulary writes it ("Ġthe", "▁the", "<0x0A>"); empty if there is none. Lives as long as this.
  std::string_view token_text(int32_t id) const;
  // The bytes that the token stands for in the middle of a text (" the", "\n"); added tokens stand for themselves.
  std::string token_bytes(int32_t id) const;
  std::optional<int32_t> token_to_id(std::string_view text) const;
  bool is_special(int32_t id) const;

  // By the names in tokenizer_config.json or GGUF keys.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  // eos and what else ends an answer by the tokenizer's own files; generation_config.json may name more.
  const std::vector<int32_t>& end_ids() const;
  // What the files said about beginnings and ends; the post-processor is what counts in encode().
  std::optional<bool> add_bos() const;
  const std::vector<NamedTemplate>& chat_templates() const;
  const std::vector<std::string>& warnings() const;

 private:
  friend class Detokenizer;
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  // Null if the id is to be skipped.
  const std::string_view* text_to_decode(int32_t id, bool skip_special, std::string_view* out) const;

  std::shared_ptr<const Parts> parts_;
};

}  // namespace bolide
