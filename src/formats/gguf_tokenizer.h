// The tokenizer as a GGUF file describes it (`tokenizer.ggml.*`), copied out of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace bolide {

struct GgufHeader;

struct GgufTokenizer {
  // tokenizer.ggml.token_type
  enum Type : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

  std::string model;                 // "gpt2" (byte-level BPE), "llama" (SentencePiece BPE), "bert", "t5" (Unigram)
  std::string pre;                   // name of the pre-tokenizer: "smollm", "llama-bpe", "qwen2"; may be empty
  std::vector<std::string> tokens;   // [V]
  std::vector<float> scores;         // [V] or empty
  std::vector<int32_t> token_types;  // [V] or empty
  std::vector<std::string> merges;   // "left right", best first; empty for SentencePiece
  std::string precompiled_charsmap;  // SentencePiece's normaliser, or empty
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unknown_id, separator_id, padding_id, cls_id, mask_id;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces, escape_whitespaces;
};

// Errors name `label` and the key. kNotFound if the file has no tokenizer.
Result<GgufTokenizer> read_gguf_tokenizer(const GgufHeader& header, const std::string& label);

}  // namespace bolide
