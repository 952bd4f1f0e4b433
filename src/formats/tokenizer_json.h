// Hugging Face tokenizer.json and tokenizer_config.json into a TokenizerSpec.
//
// Anything that cannot be honoured exactly is an error that names the field and its type; nothing is skipped in
// silence. Pure functions of their input: any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

// Errors: kInvalid (not JSON, wrong types, ids out of range), kUnsupported (a part Bolide does not have).
Result<TokenizerSpec> parse_tokenizer_json(std::string_view text);

// Adds what tokenizer_config.json says: added_tokens_decoder (tokens the spec lacks), bos_token and eos_token,
// add_bos_token and add_eos_token, chat_template (one text or a list of named ones).
Result<> apply_tokenizer_config(TokenizerSpec& spec, std::string_view text);

}  // namespace bolide
