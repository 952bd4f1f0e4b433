// From a piece of normalised text to ids: BPE, SentencePiece's BPE, Unigram, WordPiece, WordLevel.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace bolide {

// A neighbour of the linked list over a piece's symbols; `size` 0 marks one that was merged away.
struct Symbol {
  int32_t id;
  int32_t previous, next;
  uint32_t offset, size;  // bytes of the piece
};

struct MergeCandidate {
  double key;  // smallest first
  int32_t left, right;
  int32_t id;
  uint32_t size;
};

// Buffers that one encode call reuses from piece to piece.
struct ModelScratch {
  std::vector<Symbol> symbols;
  std::vector<MergeCandidate> heap;
};

// Immutable, any thread; the Vocabulary it was made with must outlive it.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the piece's ids. Errors: kInvalid if a character has no token and there is no unknown token.
  virtual Result<> encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const = 0;
};

Result<std::unique_ptr<TokenModel>> make_model(const token_model::Model& spec, const Vocabulary& vocabulary);

Result<std::unique_ptr<TokenModel>> make_bpe(const token_model::Bpe& spec, const Vocabulary& vocabulary);
Result<std::unique_ptr<TokenModel>> make_spm(const token_model::Spm& spec, const Vocabulary& vocabulary);
Result<std::unique_ptr<TokenModel>> make_unigram(const token_model::Unigram& spec, const Vocabulary& vocabulary);
Result<std::unique_ptr<TokenModel>> make_word_piece(const token_model::WordPiece& spec, const Vocabulary& vocabulary);
Result<std::unique_ptr<TokenModel>> make_word_level(const token_model::WordLevel& spec, const Vocabulary& vocabulary);

}  // namespace bolide
