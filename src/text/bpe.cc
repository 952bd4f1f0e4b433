// Byte pair encoding by a table of merges, as the tokenizers library does it: a heap of candidate merges (rank, then
// place) over a linked list of symbols, O(n log n) in the piece's length.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/utf8.h"
#include "text/model.h"

namespace bolide {
namespace {

struct MergeRule {
  uint64_t pair = kNoPair;
  int32_t rank = 0;
  int32_t id = 0;
  static constexpr uint64_t kNoPair = UINT64_MAX;
};

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Open addressing over (left id, right id); later rules replace earlier ones with the same pair.
class MergeTable {
 public:
  explicit MergeTable(size_t count) : rules_(std::bit_ceil(count * 2 + 2)), mask_(rules_.size() - 1) {}

  void insert(MergeRule rule) {
    size_t at = place(rule.pair);
    while (rules_[at].pair != MergeRule::kNoPair && rules_[at].pair != rule.pair) at = (at + 1) & mask_;
    rules_[at] = rule;
  }

  const MergeRule* find(int32_t left, int32_t right) const {
    const uint64_t pair = pair_of(left, right);
    for (size_t at = place(pair); rules_[at].pair != MergeRule::kNoPair; at = (at + 1) & mask_) {
      if (rules_[at].pair == pair) return &rules_[at];
    }
    return nullptr;
  }

 private:
  size_t place(uint64_t pair) const {
    pair *= 0x9E3779B97F4A7C15u;
    return (pair ^ pair >> 29) & mask_;
  }
  std::vector<MergeRule> rules_;
  size_t mask_;
};

class Bpe final : public TokenModel {
 public:
  Bpe(const token_model::Bpe& spec, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary),
        merges_(spec.merges.size()),
        prefix_(spec.continuing_subword_prefix),
        suffix_(spec.end_of_word_suffix),
        unk_token_(spec.unk_token),
        byte_fallback_(spec.byte_fallback),
        fuse_unk_(spec.fuse_unk),
        ignore_merges_(spec.ignore_merges) {
    if (unk_token_.has_value()) unk_id_ = vocabulary.find(*unk_token_);
  }

  Result<> add_merges(const std::vector<token_model::Merge>& merges) {
    std::string joined;
    for (size_t i = 0; i < merges.size(); ++i) {
      const auto& [left, right] = merges[i];
      // As the library cuts it: the right half starts with the prefix.
      if (right.size() < prefix_.size())
        return error(Code::kInvalid,
                     fmt::format("model.merges[{}]: \"{}\" lacks the prefix \"{}\"", i, right, prefix_));
      joined.assign(left).append(right, prefix_.size());
      const int32_t ids[3] = {vocabulary_.find(left), vocabulary_.find(right), vocabulary_.find(joined)};
      for (int k = 0; k < 3; ++k) {
        if (ids[k] == Vocabulary::kNone)
          return error(Code::kInvalid, fmt::format("model.merges[{}]: \"{}\" is not in the vocabulary", i,
                                                   k == 0   ? left
                                                   : k == 1 ? right
                                                            : joined));
      }
      merges_.insert({pair_of(ids[0], ids[1]), static_cast<int32_t>(i), ids[2]});
    }
    return {};
  }

  Result<> encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override {
    if (piece.empty()) return {};
    if (ignore_merges_) {
      const int32_t whole = vocabulary_.find(piece);
      if (whole != Vocabulary::kNone) {
        out.push_back(whole);
        return {};
      }
    }
    scratch.symbols.clear();
    BOLIDE_TRY(split(piece, scratch.symbols));
    merge(scratch);
    if (scratch.symbols.empty()) return {};
    for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
      out.push_back(scratch.symbols[static_cast<size_t>(i)].id);
    }
    return {};
  }

 private:
  static void add(std::vector<Symbol>& symbols, int32_t id) {
    const auto at = static_cast<int32_t>(symbols.size());
    if (at > 0) symbols.back().next = at;
    symbols.push_back({id, at - 1, -1, 0, 1});
  }

  Result<> split(std::string_view piece, std::vector<Symbol>& symbols) const {
    std::string decorated;
    bool unk_pending = false;
    for (size_t at = 0; at < piece.size();) {
      const uint32_t size = decode_utf8(piece, at).size;
      std::string_view text = piece.substr(at, size);
      const bool first = at == 0;
      at += size;
      const bool last = at == piece.size();
      if ((!first && !prefix_.empty()) || (last && !suffix_.empty())) {
        decorated.clear();
        if (!first) decorated += prefix_;
        decorated += text;
        if (last) decorated += suffix_;
        text = decorated;
      }
      const int32_t id = vocabulary_.find(text);
      if (id != Vocabulary::kNone) {
        if (unk_pending) add(symbols, unk_id_);
        unk_pending = false;
        add(symbols, id);
        continue;
      }
      if (byte_fallback_ && add_bytes(text, symbols)) continue;
      if (!unk_token_.has_value()) continue;  // the library drops what it cannot name
      if (unk_id_ == Vocabulary::kNone)
        return error(
            Code::kInvalid,
            fmt::format("the unknown token \"{}\" is not in the vocabulary, but \"{}\" needs it", *unk_token_, text));
      if (unk_pending && !fuse_unk_) add(symbols, unk_id_);
      unk_pending = true;
    }
    if (unk_pending) add(symbols, unk_id_);
    return {};
  }

  bool add_bytes(std::string_view text, std::vector<Symbol>& symbols) const {
    for (const char c : text) {
      if (vocabulary_.byte_token(static_cast<unsigned char>(c)) == Vocabulary::kNone) return false;
    }
    for (const char c : text) add(symbols, vocabulary_.byte_token(static_cast<unsigned char>(c)));
    return true;
  }

  static bool later(const MergeCandidate& a, const MergeCandidate& b) {
    return a.key != b.key ? a.key > b.key : a.left > b.left;
  }

  void merge(ModelScratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    heap.clear();
    const auto candidate = [&](int32_t left) {
      const int32_t right = symbols[static_cast<size_t>(left)].next;
      if (right < 0) return false;
      const MergeRule* rule =
          merges_.find(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id);
      if (rule == nullptr) return false;
      heap.push_back({static_cast<double>(rule->rank), left, right, rule->id, 0});
      return true;
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i) candidate(static_cast<int32_t>(i));
    std::make_heap(heap.begin(), heap.end(), later);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const MergeCandidate top = heap.back();
      heap.pop_back();
      Symbol& left = symbols[static_cast<size_t>(top.left)];
      if (left.size == 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      const MergeRule* rule = merges_.find(left.id, right.id);
      if (rule == nullptr || rule->id != top.id) continue;  // one of the two has changed since
      left.id = top.id;
      right.size = 0;
      left.next = right.next;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.left;
      if (left.previous >= 0 && candidate(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
      if (candidate(top.left)) std::push_heap(heap.begin(), heap.end(), later);
    }
  }

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  std::string prefix_, suffix_;
  std::optional<std::string> unk_token_;
  int32_t unk_id_ = Vocabulary::kNone;
  bool byte_fallback_, fuse_unk_, ignore_merges_;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> make_bpe(const token_model::Bpe& spec, const Vocabulary& vocabulary) {
  auto model = std::make_unique<Bpe>(spec, vocabulary);
  BOLIDE_TRY(model->add_merges(spec.merges));
  return std::unique_ptr<TokenModel>(std::move(model));
}

}  // namespace bolide
