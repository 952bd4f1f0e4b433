#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "base/utf8.h"
#include "text/unicode.h"

namespace bolide {
namespace {

constexpr size_t kContentBytesMax = 1024;

size_t char_before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace

void AddedTokens::add(AddedToken token, const Vocabulary& vocabulary) {
  if (const auto it = by_content_.find(token.content); it != by_content_.end()) {
    token.id = tokens_[it->second].id;
    token.special |= tokens_[it->second].special;
    tokens_[it->second] = std::move(token);
    return;
  }
  if (const int32_t known = vocabulary.find(token.content); known != Vocabulary::kNone) {
    token.id = known;
  } else if (token.id < 0 || by_id_.contains(token.id)) {
    token.id = std::max(id_end_, vocabulary.size());
  }
  id_end_ = std::max(id_end_, token.id + 1);
  by_content_[token.content] = tokens_.size();
  by_id_[token.id] = tokens_.size();
  tokens_.push_back(std::move(token));
}

Result<AddedTokens> AddedTokens::create(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary,
                                        const Normalizer& normalizer) {
  AddedTokens result;
  for (const AddedToken& token : tokens) {
    if (token.content.size() > kContentBytesMax)
      return error(Code::kInvalid, fmt::format("added token {}: its content has {} bytes; at most {}", token.id,
                                               token.content.size(), kContentBytesMax));
    if (!token.content.empty()) result.add(token, vocabulary);
  }
  std::vector<std::pair<std::string_view, int32_t>> raw;
  std::vector<std::pair<std::string_view, int32_t>> normalized;
  std::unordered_set<std::string_view> seen;
  result.normalized_contents_.resize(result.tokens_.size());
  for (size_t i = 0; i < result.tokens_.size(); ++i) {
    const AddedToken& token = result.tokens_[i];
    if (!token.normalized) {
      raw.emplace_back(token.content, static_cast<int32_t>(i));
      continue;
    }
    bool ignored = false;
    std::string& content = result.normalized_contents_[i];
    content = token.content;
    BOLIDE_TRY(normalizer.run(content, false, false, &ignored));
    if (content.size() > kContentBytesMax)
      return error(Code::kInvalid, fmt::format("added token {}: its normalised content has {} bytes; at most {}",
                                               token.id, content.size(), kContentBytesMax));
    // Of tokens that normalise to the same text the library finds the first.
    if (seen.insert(content).second) normalized.emplace_back(content, static_cast<int32_t>(i));
  }
  result.raw_ = ByteTrie(std::move(raw));
  result.normalized_ = ByteTrie(std::move(normalized));
  return result;
}

void AddedTokens::split(std::string_view text, bool normalized, bool skip_special, std::vector<TextPart>& out) const {
  const ByteTrie& trie = normalized ? normalized_ : raw_;
  size_t from = 0;
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    if (!trie.can_start(static_cast<unsigned char>(text[at]))) {
      ++at;
      continue;
    }
    size_t length = 0;
    int32_t place = -1;
    trie.prefixes(text, at, [&](size_t l, int32_t value) {
      length = l;
      place = value;
    });
    if (place < 0) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + length;
    at = end;
    const AddedToken& token = tokens_[static_cast<size_t>(place)];
    if (skip_special && token.special) continue;
    if (token.single_word) {
      const bool word_before = begin > 0 && unicode::is_word(decode_utf8(text, char_before(text, begin)).value);
      const bool word_after = end < text.size() && unicode::is_word(decode_utf8(text, end).value);
      if (word_before || word_after) continue;
    }
    if (token.lstrip) {
      while (begin > 0 && unicode::is_whitespace(decode_utf8(text, char_before(text, begin)).value))
        begin = char_before(text, begin);
      begin = std::max(begin, from);
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Char c = decode_utf8(text, end);
        if (!unicode::is_whitespace(c.value)) break;
        end += c.size;
      }
    }
    if (begin > from) out.push_back({from, begin, -1});
    out.push_back({begin, end, token.id});
    // The search goes on before the space that rstrip took: a token of spaces there still counts, as in the library.
    from = end;
  }
  if (from < text.size()) out.push_back({from, text.size(), -1});
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

std::string_view AddedTokens::text(const AddedToken& token) const {
  if (!token.normalized) return token.content;
  return normalized_contents_[static_cast<size_t>(&token - tokens_.data())];
}

bool AddedTokens::is_special(std::string_view content) const {
  const AddedToken* token = find(content);
  return token != nullptr && token->special;
}

}  // namespace bolide
