// What a Tokenizer is made of; for tokenizer.cc and detokenizer.cc alone.
#pragma once

#include <memory>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace bolide {

struct Tokenizer::Parts {
  Vocabulary vocabulary;
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pretokenizer;
  std::unique_ptr<TokenModel> model;  // refers to vocabulary
  std::vector<PostProcessor> postprocessors;
  DecoderPlan decoders;
  bool byte_level = false;     // tokens are written in the byte alphabet
  bool byte_fallback = false;  // <0xHH> tokens are bytes
  std::optional<char32_t> metaspace;
  std::optional<int32_t> bos_id, eos_id;
  std::vector<int32_t> end_ids;
  std::optional<bool> add_bos;
  std::vector<NamedTemplate> chat_templates;
  std::vector<std::string> warnings;
};

}  // namespace bolide
