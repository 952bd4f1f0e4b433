#include "text/pre_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "base/utf8.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace bolide {
namespace {

// The expression that GPT-2 splits text by.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A part of a piece that a pattern matched or did not match; parts cover the piece without gaps.
struct Part {
  uint32_t begin, end;
  bool match;
};

// Joins and drops parts as the behaviour says, and appends what remains.
class Splitter {
 public:
  explicit Splitter(Pieces& pieces) : pieces_(pieces) {}

  // find(text, parts) fills in the parts of one piece, with offsets into it.
  template <class Find>
  Result<> run(SplitBehavior behavior, bool invert, Find find) {
    std::vector<Piece> out;
    out.reserve(pieces_.pieces.size() * 2);
    for (const Piece& piece : pieces_.pieces) {
      parts_.clear();
      BOLIDE_TRY(find(std::string_view(pieces_.text).substr(piece.begin, piece.end - piece.begin), parts_));
      if (invert) {
        for (Part& part : parts_) part.match = !part.match;
      }
      join(behavior);
      for (const Part& part : parts_) {
        if (part.begin == part.end) continue;
        out.push_back({piece.begin + part.begin, piece.begin + part.end, piece.first && part.begin == 0});
      }
    }
    pieces_.pieces.swap(out);
    return {};
  }

 private:
  void join(SplitBehavior behavior) {
    switch (behavior) {
      case SplitBehavior::kIsolated: return;
      case SplitBehavior::kRemoved: std::erase_if(parts_, [](const Part& p) { return p.match; }); return;
      case SplitBehavior::kContiguous: {
        size_t count = 0;
        for (const Part& part : parts_) {
          if (count > 0 && parts_[count - 1].match == part.match)
            parts_[count - 1].end = part.end;
          else
            parts_[count++] = part;
        }
        parts_.resize(count);
        return;
      }
      case SplitBehavior::kMergedWithPrevious: merge_previous(); return;
      case SplitBehavior::kMergedWithNext: {
        std::reverse(parts_.begin(), parts_.end());
        merge_previous();
        std::reverse(parts_.begin(), parts_.end());
        return;
      }
    }
  }

  // Of neighbouring matches only the first joins what stands before it.
  void merge_previous() {
    size_t count = 0;
    bool previous_match = false;
    for (const Part part : parts_) {  // a copy: the place it came from is written
      if (part.match && !previous_match && count > 0) {
        parts_[count - 1].begin = std::min(parts_[count - 1].begin, part.begin);
        parts_[count - 1].end = std::max(parts_[count - 1].end, part.end);
      } else {
        parts_[count++] = {part.begin, part.end, false};
      }
      previous_match = part.match;
    }
    parts_.resize(count);
  }

  Pieces& pieces_;
  std::vector<Part> parts_;
};

void add_part(std::vector<Part>& parts, size_t begin, size_t end, bool match) {
  parts.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), match});
}

Result<> find_regex(const Regex& regex, std::string_view text, std::vector<Part>& parts) {
  size_t at = 0;
  RegexMatches matches(regex, text);
  for (;;) {
    BOLIDE_TRY(const RegexMatch match, matches.next());
    if (!match.found) break;
    if (match.begin > at) add_part(parts, at, match.begin, false);
    add_part(parts, match.begin, match.end, true);
    at = match.end;
  }
  if (at < text.size()) add_part(parts, at, text.size(), false);
  return {};
}

void find_literal(std::string_view wanted, std::string_view text, std::vector<Part>& parts) {
  size_t at = 0;
  size_t found = text.find(wanted);
  for (; found != std::string_view::npos; found = text.find(wanted, at)) {
    if (found > at) add_part(parts, at, found, false);
    at = found + wanted.size();
    add_part(parts, found, at, true);
  }
  if (at < text.size()) add_part(parts, at, text.size(), false);
}

// Every matching character is a match of its own.
template <class Matches>
Result<> find_chars(std::string_view text, std::vector<Part>& parts, Matches matches) {
  size_t from = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (matches(c.value)) {
      if (from < at) add_part(parts, from, at, false);
      from = at + c.size;
      add_part(parts, at, from, true);
    }
    at += c.size;
  }
  if (from < text.size()) add_part(parts, from, text.size(), false);
  return {};
}

template <class Matches>
Result<> split_chars(Pieces& pieces, SplitBehavior behavior, Matches matches) {
  return Splitter(pieces).run(behavior, false, [&](std::string_view text, std::vector<Part>& parts) {
    return find_chars(text, parts, matches);
  });
}

// \w+|[^\w\s]+, without what is between.
Result<> split_words(Pieces& pieces) {
  const auto kind = [](char32_t c) { return unicode::is_word(c) ? 1 : unicode::is_whitespace(c) ? 0 : 2; };
  return Splitter(pieces).run(SplitBehavior::kRemoved, false,
                              [&](std::string_view text, std::vector<Part>& parts) -> Result<> {
                                for (size_t at = 0; at < text.size();) {
                                  const size_t from = at;
                                  const int k = kind(decode_utf8(text, at).value);
                                  while (at < text.size()) {
                                    const Utf8Char c = decode_utf8(text, at);
                                    if (kind(c.value) != k) break;
                                    at += c.size;
                                  }
                                  add_part(parts, from, at, k == 0);
                                }
                                return {};
                              });
}

Result<> split_lengths(Pieces& pieces, int64_t length) {
  return Splitter(pieces).run(SplitBehavior::kIsolated, false,
                              [&](std::string_view text, std::vector<Part>& parts) -> Result<> {
                                size_t from = 0;
                                int64_t chars = 0;
                                for (size_t at = 0; at < text.size();) {
                                  at += decode_utf8(text, at).size;
                                  if (++chars < length && at < text.size()) continue;
                                  add_part(parts, from, at, true);
                                  from = at;
                                  chars = 0;
                                }
                                return {};
                              });
}

// Rebuilds every piece: write(out, piece's text, piece) appends the new one.
template <class Write>
Result<> rewrite(Pieces& pieces, Write write) {
  std::string out;
  out.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (Piece& piece : pieces.pieces) {
    const auto begin = static_cast<uint32_t>(out.size());
    write(out, std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), piece);
    if (out.size() > kNormalizedBytesMax) return error(Code::kInvalid, "pre-tokenising makes the text too long");
    piece = {begin, static_cast<uint32_t>(out.size()), piece.first};
  }
  pieces.text.swap(out);
  return {};
}

Result<> byte_level(Pieces& pieces, const pretokenizer::ByteLevel& options, const Regex& regex) {
  if (options.add_prefix_space) {
    BOLIDE_TRY(rewrite(pieces, [](std::string& out, std::string_view text, const Piece&) {
      if (!text.starts_with(' ')) out += ' ';
      out += text;
    }));
  }
  if (options.use_regex) {
    BOLIDE_TRY(Splitter(pieces).run(
        SplitBehavior::kIsolated, false,
        [&](std::string_view text, std::vector<Part>& parts) { return find_regex(regex, text, parts); }));
  }
  return rewrite(pieces, [](std::string& out, std::string_view text, const Piece&) {
    for (const char c : text) append_utf8(out, unicode::byte_to_char(static_cast<unsigned char>(c)));
  });
}

Result<> metaspace(Pieces& pieces, const pretokenizer::Metaspace& options) {
  std::string mark;
  append_utf8(mark, options.replacement);
  BOLIDE_TRY(rewrite(pieces, [&](std::string& out, std::string_view text, const Piece& piece) {
    const bool prepend =
        options.scheme == PrependScheme::kAlways || (options.scheme == PrependScheme::kFirst && piece.first);
    if (prepend && !text.starts_with(mark) && !text.starts_with(' ')) out += mark;
    for (const char c : text) {
      if (c == ' ')
        out += mark;
      else
        out += c;
    }
  }));
  if (!options.split) return {};
  return split_chars(pieces, SplitBehavior::kMergedWithNext, [&](char32_t c) { return c == options.replacement; });
}

Result<> run_step(const pretokenizer::Step& spec, const Regex& regex, Pieces& pieces) {
  if (const auto* b = std::get_if<pretokenizer::ByteLevel>(&spec)) return byte_level(pieces, *b, regex);
  if (const auto* split = std::get_if<pretokenizer::Split>(&spec)) {
    return Splitter(pieces).run(split->behavior, split->invert,
                                [&](std::string_view text, std::vector<Part>& parts) -> Result<> {
                                  if (needs_regex(split->pattern)) return find_regex(regex, text, parts);
                                  find_literal(split->pattern.text, text, parts);
                                  return {};
                                });
  }
  if (std::holds_alternative<pretokenizer::Whitespace>(spec)) return split_words(pieces);
  if (std::holds_alternative<pretokenizer::WhitespaceSplit>(spec))
    return split_chars(pieces, SplitBehavior::kRemoved, unicode::is_whitespace);
  if (const auto* m = std::get_if<pretokenizer::Metaspace>(&spec)) return metaspace(pieces, *m);
  if (const auto* digits = std::get_if<pretokenizer::Digits>(&spec)) {
    return split_chars(pieces, digits->individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                       unicode::is_numeric);
  }
  if (const auto* punctuation = std::get_if<pretokenizer::Punctuation>(&spec))
    return split_chars(pieces, punctuation->behavior, unicode::is_punctuation);
  if (std::holds_alternative<pretokenizer::Bert>(spec)) {
    BOLIDE_TRY(split_chars(pieces, SplitBehavior::kRemoved, unicode::is_whitespace));
    return split_chars(pieces, SplitBehavior::kIsolated, unicode::is_punctuation);
  }
  if (const auto* delimiter = std::get_if<pretokenizer::CharDelimiter>(&spec))
    return split_chars(pieces, SplitBehavior::kRemoved, [&](char32_t c) { return c == delimiter->delimiter; });
  return split_lengths(pieces, std::get<pretokenizer::FixedLength>(spec).length);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(const std::vector<pretokenizer::Step>& steps) {
  PreTokenizer result;
  for (const pretokenizer::Step& spec : steps) {
    Step step{spec, {}};
    if (const auto* b = std::get_if<pretokenizer::ByteLevel>(&spec); b != nullptr && b->use_regex) {
      BOLIDE_TRY(step.regex, Regex::compile(kByteLevelPattern));
    }
    if (const auto* split = std::get_if<pretokenizer::Split>(&spec); split != nullptr && needs_regex(split->pattern)) {
      BOLIDE_TRY(step.regex, Regex::compile(split->pattern.text).context("pre_tokenizer"));
    }
    result.steps_.push_back(std::move(step));
  }
  return result;
}

Result<> PreTokenizer::run(Pieces& pieces) const {
  for (const Step& step : steps_) BOLIDE_TRY(run_step(step.spec, step.regex, pieces));
  return {};
}

}  // namespace bolide
