// The tokenizer inside a GGUF file (keys tokenizer.ggml.*) into a TokenizerSpec that gives llama.cpp's ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

// The keys as they stand in the file; what is absent stays empty.
struct GgufTokenizer {
  std::string model;                 // "gpt2", "llama" or "bert"
  std::string pre;                   // name of the pre-tokeniser, for gpt2
  std::vector<std::string> tokens;   // by id
  std::vector<float> scores;         // by id; needed by llama
  std::vector<int32_t> token_types;  // by id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
  std::vector<std::string> merges;   // "a b", best first; needed by gpt2
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unk_id, sep_id, pad_id, cls_id;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::string chat_template;
};

// Errors: kInvalid (ids, list lengths or texts that do not fit), kUnsupported (another model). An unknown `pre` is
// read as gpt-2's, with a warning in the spec.
Result<TokenizerSpec> tokenizer_from_gguf(const GgufTokenizer& gguf);

}  // namespace bolide
