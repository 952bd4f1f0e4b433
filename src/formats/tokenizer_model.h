// SentencePiece's tokenizer.model (a protobuf) into a TokenizerSpec.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

// Errors: kInvalid (not such a protobuf, broken fields), kUnsupported (word and character models).
Result<TokenizerSpec> parse_tokenizer_model(Bytes bytes);

}  // namespace bolide
