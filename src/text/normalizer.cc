#include "text/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/utf8.h"
#include "text/unicode.h"

namespace bolide {
namespace {

Error too_large(size_t limit) {
  return error(Code::kInvalid, fmt::format("normalising makes the text longer than {} bytes", limit));
}

// Rebuilds the text character by character; visit appends what becomes of one.
template <class Visit>
void map_chars(std::string& text, Visit visit) {
  std::string out;
  out.reserve(text.size() + 16);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    visit(out, c.value, std::string_view(text).substr(at, c.size));
    at += c.size;
  }
  text.swap(out);
}

template <class Remove>
void filter_chars(std::string& text, bool* first_removed, Remove remove) {
  if (!text.empty() && remove(decode_utf8(text, 0).value)) *first_removed = true;
  map_chars(text, [&](std::string& out, char32_t c, std::string_view bytes) {
    if (!remove(c)) out += bytes;
  });
}

void strip(std::string& text, bool left, bool right, bool* first_removed) {
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    const Utf8Char c = decode_utf8(text, begin);
    if (!unicode::is_whitespace(c.value)) break;
    begin += c.size;
  }
  while (right && end > begin) {
    size_t start = end - 1;
    while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    if (!unicode::is_whitespace(decode_utf8(text, start).value)) break;
    end = start;
  }
  if (begin > 0) *first_removed = true;
  text = text.substr(begin, end - begin);
}

void bert(std::string& text, const normalizer::Bert& options, bool* first_removed) {
  using unicode::is_whitespace;
  if (options.clean_text) {
    filter_chars(text, first_removed, [](char32_t c) {
      return c == 0 || c == 0xFFFD || (c != '\t' && c != '\n' && c != '\r' && unicode::is_other(c));
    });
    map_chars(text, [](std::string& out, char32_t c, std::string_view bytes) {
      if (is_whitespace(c))
        out += ' ';
      else
        out += bytes;
    });
  }
  if (options.handle_chinese_chars) {
    map_chars(text, [](std::string& out, char32_t c, std::string_view bytes) {
      const bool chinese = unicode::is_chinese(c);
      if (chinese) out += ' ';
      out += bytes;
      if (chinese) out += ' ';
    });
  }
  if (options.strip_accents) {
    text = unicode::normal_form(text, normalizer::Form::kNfd);
    filter_chars(text, first_removed, unicode::is_nonspacing);
  }
  if (options.lowercase) {
    map_chars(text, [](std::string& out, char32_t c, std::string_view) { unicode::append_lowercase(out, c); });
  }
}

// The rules of the Nematus machine translation toolkit.
void nmt(std::string& text, bool* first_removed) {
  const auto in = [](char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; };
  filter_chars(text, first_removed, [&](char32_t c) {
    return in(c, 0x01, 0x08) || c == 0x0B || in(c, 0x0E, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  });
  map_chars(text, [&](std::string& out, char32_t c, std::string_view bytes) {
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || in(c, 0x200B, 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    if (space)
      out += ' ';
    else
      out += bytes;
  });
}

Result<> replace_literal(std::string& text, const normalizer::Replace& replace, size_t limit, bool* first_removed) {
  const std::string& wanted = replace.pattern.text;
  if (wanted == replace.content) return {};
  size_t found = text.find(wanted);
  if (found == std::string::npos) return {};
  if (found == 0 && replace.content.empty()) *first_removed = true;
  std::string out;
  size_t at = 0;
  for (; found != std::string::npos; found = text.find(wanted, at)) {
    out.append(text, at, found - at).append(replace.content);
    at = found + wanted.size();
    if (out.size() > limit) return too_large(limit);
  }
  out.append(text, at);
  text.swap(out);
  return {};
}

Result<> replace_regex(std::string& text, const Regex& regex, std::string_view content, size_t limit,
                       bool* first_removed) {
  if (text.empty()) return {};
  std::string out;
  size_t at = 0;
  RegexMatches matches(regex, text);
  for (;;) {
    BOLIDE_TRY(const RegexMatch match, matches.next());
    if (!match.found) break;
    if (match.begin == 0 && match.end > 0 && content.empty()) *first_removed = true;
    out.append(text, at, match.begin - at).append(content);
    at = match.end;
    if (out.size() > limit) return too_large(limit);
  }
  out.append(text, at);
  text.swap(out);
  return {};
}

void precompiled(std::string& text, const CharsMap& map, bool longest) {
  std::string out;
  out.reserve(text.size());
  const std::string_view in = text;
  const auto one_char = [&](size_t at, size_t size) {
    const CharsMap::Found found = map.shortest(in.substr(at, size));
    if (found.size > 0)
      out += found.replacement;
    else
      out += in.substr(at, size);
  };
  for (size_t at = 0; at < in.size();) {
    if (longest) {
      const CharsMap::Found found = map.longest(in.substr(at));
      const size_t size = found.size > 0 ? found.size : decode_utf8(in, at).size;
      out += found.size > 0 ? found.replacement : in.substr(at, size);
      at += size;
      continue;
    }
    // The tokenizers library: graphemes below 6 bytes as a whole, else character by character; in both cases what the
    // shortest prefix in the map says replaces all of it.
    Utf8Char c = decode_utf8(in, at);
    size_t end = at + c.size;
    int state = 0;
    while (end < in.size()) {
      const Utf8Char next = decode_utf8(in, end);
      if (unicode::grapheme_break(c.value, next.value, &state)) break;
      c = next;
      end += c.size;
    }
    if (end - at < 6) {
      const CharsMap::Found found = map.shortest(in.substr(at, end - at));
      if (found.size > 0) {
        out += found.replacement;
        at = end;
        continue;
      }
    }
    while (at < end) {
      const uint32_t size = decode_utf8(in, at).size;
      one_char(at, size);
      at += size;
    }
  }
  text.swap(out);
}

}  // namespace

Result<CharsMap> CharsMap::create(std::string_view bytes) {
  CharsMap map;
  if (bytes.empty()) return map;
  uint32_t size = 0;
  if (bytes.size() < sizeof size)
    return error(Code::kInvalid, fmt::format("the precompiled character map has only {} bytes", bytes.size()));
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size % 4 != 0 || size > bytes.size() - 4)
    return error(Code::kInvalid,
                 fmt::format("the precompiled character map claims a trie of {} bytes in {}", size, bytes.size()));
  map.units_.resize(size / 4);
  std::memcpy(map.units_.data(), bytes.data() + 4, size);
  map.replacements_ = std::string(bytes.substr(4 + size));
  if (const size_t at = utf8_invalid_at(map.replacements_); at != kUtf8Valid)
    return error(Code::kInvalid, fmt::format("the precompiled character map is not UTF-8 at byte {}", at + 4 + size));
  return map;
}

// A double array as darts-clone lays it out: a unit holds its label, whether a value hangs below, and the offset.
CharsMap::Found CharsMap::search(std::string_view text, bool longest) const {
  const auto offset = [](uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6); };
  Found found;
  if (units_.empty()) return found;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xFF)) != byte) break;
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if ((unit >> 8 & 1) == 0) continue;
    const size_t at = units_[node] & 0x7FFFFFFF;
    if (at >= replacements_.size()) break;
    // A replacement that starts inside a character would break the text.
    if ((static_cast<unsigned char>(replacements_[at]) & 0xC0) == 0x80) break;
    if (i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xC0) == 0x80) continue;
    const size_t end = replacements_.find('\0', at);
    found = {i + 1, std::string_view(replacements_).substr(at, end == std::string::npos ? end : end - at)};
    if (!longest) break;
  }
  return found;
}

CharsMap::Found CharsMap::shortest(std::string_view text) const { return search(text, false); }
CharsMap::Found CharsMap::longest(std::string_view text) const { return search(text, true); }

Result<Normalizer> Normalizer::create(const std::vector<normalizer::Step>& steps) {
  Normalizer result;
  for (const normalizer::Step& spec : steps) {
    Step step{spec, {}, {}};
    if (const auto* replace = std::get_if<normalizer::Replace>(&spec);
        replace != nullptr && needs_regex(replace->pattern)) {
      BOLIDE_TRY(step.regex, Regex::compile(replace->pattern.text).context("normalizer"));
    }
    if (auto* map = std::get_if<normalizer::Precompiled>(&step.spec)) {
      BOLIDE_TRY(step.charsmap, CharsMap::create(map->charsmap).context("normalizer"));
      map->charsmap.clear();
    }
    result.steps_.push_back(std::move(step));
  }
  return result;
}

Result<> Normalizer::run(std::string& text, bool at_start, bool at_end, bool* first_removed) const {
  const size_t limit = std::min(kNormalizedBytesMax, text.size() * kNormalizedGrowthMax + kNormalizedBytesFree);
  for (const Step& step : steps_) {
    if (const auto* form = std::get_if<normalizer::UnicodeForm>(&step.spec)) {
      text = unicode::normal_form(text, form->form);
    } else if (std::holds_alternative<normalizer::Lowercase>(step.spec)) {
      map_chars(text, [](std::string& out, char32_t c, std::string_view) { unicode::append_lowercase(out, c); });
    } else if (const auto* s = std::get_if<normalizer::Strip>(&step.spec)) {
      strip(text, s->left, s->right, first_removed);
    } else if (std::holds_alternative<normalizer::StripAccents>(step.spec)) {
      filter_chars(text, first_removed, unicode::is_mark);
    } else if (const auto* replace = std::get_if<normalizer::Replace>(&step.spec)) {
      if (needs_regex(replace->pattern))
        BOLIDE_TRY(replace_regex(text, step.regex, replace->content, limit, first_removed));
      else
        BOLIDE_TRY(replace_literal(text, *replace, limit, first_removed));
    } else if (std::holds_alternative<normalizer::TrimSpaces>(step.spec)) {
      if (at_start && text.starts_with(' ')) text.erase(0, 1);
      if (at_end && text.ends_with(' ')) text.pop_back();
    } else if (const auto* prepend = std::get_if<normalizer::Prepend>(&step.spec)) {
      if (!text.empty() && (at_start || !prepend->first_only)) text.insert(0, prepend->text);
    } else if (const auto* b = std::get_if<normalizer::Bert>(&step.spec)) {
      bert(text, *b, first_removed);
    } else if (std::holds_alternative<normalizer::Nmt>(step.spec)) {
      nmt(text, first_removed);
    } else if (const auto* map = std::get_if<normalizer::Precompiled>(&step.spec)) {
      precompiled(text, step.charsmap, map->longest_prefix);
    } else {
      map_chars(text, [](std::string& out, char32_t, std::string_view bytes) {
        for (const char c : bytes) append_utf8(out, unicode::byte_to_char(static_cast<unsigned char>(c)));
      });
    }
    if (text.size() > limit) return too_large(limit);
  }
  return {};
}

}  // namespace bolide
