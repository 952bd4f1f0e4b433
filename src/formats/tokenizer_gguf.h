// The tokenizer inside a GGUF file (keys tokenizer.ggml.*) into a TokenizerSpec that gives llama.cpp's ids.
#pragma once

#include "base/result.h"
#include "formats/gguf_tokenizer.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

// Errors: kInvalid (ids, list lengths or texts that do not fit), kUnsupported (another model). An unknown `pre` is
// read as gpt-2's, with a warning in the spec.
Result<TokenizerSpec> tokenizer_from_gguf(const GgufTokenizer& gguf);

}  // namespace bolide
