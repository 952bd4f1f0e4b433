// WordPiece and WordLevel: the models that look words up.
#include <fmt/format.h>

#include <string>

#include "base/utf8.h"
#include "text/model.h"

namespace bolide {
namespace {

// Greedy longest match from the left; a word with any part unknown is unknown as a whole.
class WordPiece final : public TokenModel {
 public:
  WordPiece(const token_model::WordPiece& spec, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), spec_(spec), unk_id_(vocabulary.find(spec.unk_token)) {}

  Result<> encode(std::string_view piece, ModelScratch&, std::vector<int32_t>& out) const override {
    if (piece.empty()) return {};
    const size_t before = out.size();
    if (!too_long(piece) && match(piece, out)) return {};
    out.resize(before);
    if (unk_id_ == Vocabulary::kNone)
      return error(Code::kInvalid, fmt::format("a word needs the unknown token \"{}\", which is not in the vocabulary",
                                               spec_.unk_token));
    out.push_back(unk_id_);
    return {};
  }

 private:
  bool too_long(std::string_view piece) const {
    int64_t chars = 0;
    for (const char c : piece) chars += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    return chars > spec_.word_chars_max;
  }

  bool match(std::string_view piece, std::vector<int32_t>& out) const {
    std::string candidate;
    for (size_t at = 0; at < piece.size();) {
      const size_t prefix = at > 0 ? spec_.continuing_subword_prefix.size() : 0;
      if (prefix > vocabulary_.longest_bytes()) return false;
      size_t size = std::min(piece.size() - at, vocabulary_.longest_bytes() - prefix);
      candidate.assign(at > 0 ? spec_.continuing_subword_prefix : "").append(piece.substr(at, size));
      int32_t id = Vocabulary::kNone;
      for (; size > 0; --size) {
        const bool boundary =
            at + size == piece.size() || (static_cast<unsigned char>(piece[at + size]) & 0xC0) != 0x80;
        if (!boundary) continue;
        id = vocabulary_.find(std::string_view(candidate).substr(0, prefix + size));
        if (id != Vocabulary::kNone) break;
      }
      if (id == Vocabulary::kNone) return false;
      out.push_back(id);
      at += size;
    }
    return true;
  }

  const Vocabulary& vocabulary_;
  token_model::WordPiece spec_;
  int32_t unk_id_;
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(const token_model::WordLevel& spec, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), unk_token_(spec.unk_token), unk_id_(vocabulary.find(spec.unk_token)) {}

  Result<> encode(std::string_view piece, ModelScratch&, std::vector<int32_t>& out) const override {
    if (piece.empty()) return {};
    int32_t id = vocabulary_.find(piece);
    if (id == Vocabulary::kNone) id = unk_id_;
    if (id == Vocabulary::kNone)
      return error(Code::kInvalid,
                   fmt::format("a word needs the unknown token \"{}\", which is not in the vocabulary", unk_token_));
    out.push_back(id);
    return {};
  }

 private:
  const Vocabulary& vocabulary_;
  std::string unk_token_;
  int32_t unk_id_;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> make_word_piece(const token_model::WordPiece& spec, const Vocabulary& vocabulary) {
  return std::unique_ptr<TokenModel>(std::make_unique<WordPiece>(spec, vocabulary));
}

Result<std::unique_ptr<TokenModel>> make_word_level(const token_model::WordLevel& spec, const Vocabulary& vocabulary) {
  return std::unique_ptr<TokenModel>(std::make_unique<WordLevel>(spec, vocabulary));
}

Result<std::unique_ptr<TokenModel>> make_model(const token_model::Model& spec, const Vocabulary& vocabulary) {
  if (const auto* bpe = std::get_if<token_model::Bpe>(&spec)) return make_bpe(*bpe, vocabulary);
  if (const auto* spm = std::get_if<token_model::Spm>(&spec)) return make_spm(*spm, vocabulary);
  if (const auto* unigram = std::get_if<token_model::Unigram>(&spec)) return make_unigram(*unigram, vocabulary);
  if (const auto* word_piece = std::get_if<token_model::WordPiece>(&spec))
    return make_word_piece(*word_piece, vocabulary);
  return make_word_level(std::get<token_model::WordLevel>(spec), vocabulary);
}

}  // namespace bolide
