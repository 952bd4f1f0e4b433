// llama.cpp's names of pre-tokenisers; used by tokenizer_gguf.cc alone.
#pragma once

#include <span>
#include <string_view>

namespace bolide {

struct GgufPretokenizer {
  std::span<const std::string_view> names;
  std::span<const std::string_view> patterns;  // each splits what the one before left
  bool ignore_merges = false;                  // a piece that is a token is that token
  bool add_bos = false;                        // where the file does not say
  bool nfc = false;
};

// Null if nobody knows the name.
const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name);

}  // namespace bolide
