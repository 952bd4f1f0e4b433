// SentencePiece's BPE as GGUF files use it (llama): no table of merges; two neighbours merge if their joined text is a
// token, the best score first and the leftmost of equals. What is left and is no token becomes byte tokens.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/utf8.h"
#include "text/model.h"

namespace bolide {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

class Spm final : public TokenModel {
 public:
  Spm(const token_model::Spm& spec, const Vocabulary& vocabulary, std::vector<double> scores)
      : vocabulary_(vocabulary), scores_(std::move(scores)), unk_id_(spec.unk_id.value_or(Vocabulary::kNone)) {}

  Result<> encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override {
    if (piece.empty()) return {};
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    for (size_t at = 0; at < piece.size();) {
      const uint32_t size = decode_utf8(piece, at).size;
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({0, index - 1, index + 1, static_cast<uint32_t>(at), size});
      at += size;
    }
    symbols.back().next = -1;
    const auto candidate = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return false;
      const Symbol& a = symbols[static_cast<size_t>(left)];
      const uint32_t size = a.size + symbols[static_cast<size_t>(right)].size;
      if (size > vocabulary_.longest_bytes()) return false;
      const int32_t id = vocabulary_.find(piece.substr(a.offset, size));
      if (id == Vocabulary::kNone || scores_[static_cast<size_t>(id)] == kNever) return false;
      heap.push_back({-scores_[static_cast<size_t>(id)], left, right, id, size});
      return true;
    };
    const auto later = [](const MergeCandidate& a, const MergeCandidate& b) {
      return a.key != b.key ? a.key > b.key : a.left > b.left;
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i) candidate(static_cast<int32_t>(i), static_cast<int32_t>(i + 1));
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const MergeCandidate top = heap.back();
      heap.pop_back();
      Symbol& left = symbols[static_cast<size_t>(top.left)];
      Symbol& right = symbols[static_cast<size_t>(top.right)];
      if (left.size == 0 || right.size == 0 || left.size + right.size != top.size) continue;
      left.size = top.size;
      right.size = 0;
      left.next = right.next;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.left;
      if (candidate(left.previous, top.left)) std::push_heap(heap.begin(), heap.end(), later);
      if (candidate(top.left, left.next)) std::push_heap(heap.begin(), heap.end(), later);
    }
    const size_t first = out.size();
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = symbols[static_cast<size_t>(i)];
      BOLIDE_TRY(emit(piece.substr(symbol.offset, symbol.size), first, out));
    }
    return {};
  }

 private:
  // Neighbouring unknowns are one; the piece's ids start at `first`.
  Result<> emit(std::string_view text, size_t first, std::vector<int32_t>& out) const {
    const int32_t id = vocabulary_.find(text);
    if (id != Vocabulary::kNone) {
      out.push_back(id);
      return {};
    }
    for (const char c : text) {
      if (vocabulary_.byte_token(static_cast<unsigned char>(c)) != Vocabulary::kNone) continue;
      if (unk_id_ == Vocabulary::kNone)
        return error(Code::kInvalid, fmt::format("\"{}\" has neither a token nor byte tokens", text));
      if (out.size() == first || out.back() != unk_id_) out.push_back(unk_id_);
      return {};
    }
    for (const char c : text) out.push_back(vocabulary_.byte_token(static_cast<unsigned char>(c)));
    return {};
  }

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;  // by id
  int32_t unk_id_;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> make_spm(const token_model::Spm& spec, const Vocabulary& vocabulary) {
  if (spec.scores.size() != static_cast<size_t>(vocabulary.size()))
    return error(Code::kInvalid, fmt::format("{} scores for {} tokens", spec.scores.size(), vocabulary.size()));
  for (size_t i = 0; i < spec.scores.size(); ++i) {
    if (spec.scores[i] != spec.scores[i]) return error(Code::kInvalid, fmt::format("the score of token {} is NaN", i));
  }
  return std::unique_ptr<TokenModel>(std::make_unique<Spm>(spec, vocabulary, spec.scores));
}

}  // namespace bolide
