// A tokenizer for models whose weights mean nothing.
#pragma once

#include <cstdint>
#include <string>

namespace bolide {

// tokenizer.json of a byte-level BPE without merges: ids 0 to 255 are bytes, those from 256 on made-up words with a
// space in front, up to `vocab` - 1. So every text can be encoded (a byte a token, or a made-up word) and every id
// decoded. `vocab` is at least 256.
std::string synth_tokenizer(int64_t vocab);

}  // namespace bolide
