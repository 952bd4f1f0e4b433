// Unigram: the segmentation with the largest sum of scores (Kudo 2018, arXiv:1804.10959), by one pass over the piece
// that keeps the best way to end at each byte.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/utf8.h"
#include "text/byte_trie.h"
#include "text/model.h"

namespace bolide {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the worst token, as SentencePiece has it

constexpr double kNever = -std::numeric_limits<double>::infinity();

class Unigram final : public TokenModel {
 public:
  Unigram(const token_model::Unigram& spec, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary),
        scores_(spec.scores),
        unk_id_(spec.unk_id.value_or(-1)),
        byte_fallback_(spec.byte_fallback),
        float_sums_(spec.float_sums) {
    double least = std::numeric_limits<double>::infinity();
    for (const double score : scores_) {
      if (score != kNever) least = std::min(least, score);
    }
    unk_score_ = sum(least, -kUnknownPenalty);
    std::vector<std::pair<std::string_view, int32_t>> strings;
    strings.reserve(scores_.size());
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      if (vocabulary.has(id) && scores_[static_cast<size_t>(id)] != kNever)
        strings.emplace_back(vocabulary.text(id), id);
    }
    trie_ = ByteTrie(std::move(strings));
  }

  Result<> encode(std::string_view piece, ModelScratch&, std::vector<int32_t>& out) const override {
    struct Node {
      double score = 0;
      uint32_t start = UINT32_MAX;
      int32_t id = -1;
    };
    std::vector<Node> best(piece.size() + 1);
    for (size_t at = 0; at < piece.size();) {
      const uint32_t char_size = decode_utf8(piece, at).size;
      const double here = best[at].score;
      bool single = false;
      const auto offer = [&](size_t end, double score, int32_t id) {
        Node& node = best[end];
        if (node.start == UINT32_MAX || score > node.score) node = {score, static_cast<uint32_t>(at), id};
      };
      trie_.prefixes(piece, at, [&](size_t length, int32_t id) {
        offer(at + length, sum(scores_[static_cast<size_t>(id)], here), id);
        single |= length == char_size;
      });
      if (!single) {
        if (unk_id_ < 0)
          return error(Code::kInvalid,
                       fmt::format("\"{}\" has no token and there is no unknown token", piece.substr(at, char_size)));
        offer(at + char_size, sum(unk_score_, here), unk_id_);
      }
      at += char_size;
    }
    return backtrack(piece, best, out);
  }

 private:
  double sum(double a, double b) const {
    return float_sums_ ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b)) : a + b;
  }

  // Neighbouring unknowns are one text, which becomes its token, its bytes, or one unknown token.
  template <class Nodes>
  Result<> backtrack(std::string_view piece, const Nodes& best, std::vector<int32_t>& out) const {
    const size_t first = out.size();
    size_t end = piece.size();
    while (end > 0) {
      size_t start = best[end].start;
      const int32_t id = best[end].id;
      if (id != unk_id_) {
        // By text, not by id: of equal texts the last one counts.
        out.push_back(id);
      } else {
        while (start > 0 && best[start].id == unk_id_) start = best[start].start;
        unknown(piece.substr(start, end - start), out);
      }
      end = start;
    }
    std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
    return {};
  }

  // Appends in reverse.
  void unknown(std::string_view text, std::vector<int32_t>& out) const {
    const int32_t id = vocabulary_.find(text);
    if (id != Vocabulary::kNone) {
      out.push_back(id);
      return;
    }
    const bool bytes = byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char c) {
                         return vocabulary_.byte_token(static_cast<unsigned char>(c)) != Vocabulary::kNone;
                       });
    if (!bytes) {
      out.push_back(unk_id_);
      return;
    }
    for (size_t i = text.size(); i-- > 0;) out.push_back(vocabulary_.byte_token(static_cast<unsigned char>(text[i])));
  }

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;  // by id
  ByteTrie trie_;
  double unk_score_ = 0;
  int32_t unk_id_;
  bool byte_fallback_, float_sums_;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> make_unigram(const token_model::Unigram& spec, const Vocabulary& vocabulary) {
  if (spec.scores.size() != static_cast<size_t>(vocabulary.size()))
    return error(Code::kInvalid, fmt::format("{} scores for {} tokens", spec.scores.size(), vocabulary.size()));
  return std::unique_ptr<TokenModel>(std::make_unique<Unigram>(spec, vocabulary));
}

}  // namespace bolide
