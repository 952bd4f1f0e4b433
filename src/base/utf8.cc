#include "base/utf8.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>

namespace bolide {
namespace {

struct Sequence {
  uint32_t size;  // bytes of the well-formed character, or of the ill-formed part
  bool valid;
  bool incomplete;  // ill-formed only because the text ends
};

// Table 3-7 of the Unicode standard: which second bytes may follow which lead byte.
Sequence examine(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (uint32_t i = 1; i < size; ++i) {
    if (at + i >= text.size()) return {i, false, true};
    if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true, false};
}

size_t ascii_run(std::string_view text, size_t at) {
  const size_t from = at;
  while (at + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080u) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at - from;
}

}  // namespace

size_t utf8_invalid_at(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    at += ascii_run(text, at);
    if (at == text.size()) break;
    const Sequence sequence = examine(text, at);
    if (!sequence.valid) return at;
    at += sequence.size;
  }
  return kUtf8Valid;
}

void append_utf8(std::string& out, char32_t value) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

size_t append_utf8_lossy(std::string& out, std::string_view bytes, bool final) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t ascii = ascii_run(bytes, at);
    out.append(bytes.substr(at, ascii));
    at += ascii;
    if (at == bytes.size()) break;
    const Sequence sequence = examine(bytes, at);
    if (sequence.incomplete && !final) return at;
    if (sequence.valid) {
      out.append(bytes.substr(at, sequence.size));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    at += sequence.size;
  }
  return at;
}

namespace {

// C0, DEL, C1; the marks, embeddings, overrides and isolates that turn the direction of writing; line separators.
bool steers_terminal(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text, bool keep_lines) {
  std::string valid, out;
  append_utf8_lossy(valid, text, true);
  for (size_t at = 0; at < valid.size();) {
    const Utf8Char c = decode_utf8(valid, at);
    const bool line = c.value == '\n' || c.value == '\t';
    if (line && !keep_lines) {
      out += c.value == '\n' ? "\\n" : "\\t";
    } else if (!line && steers_terminal(c.value)) {
      fmt::format_to(std::back_inserter(out), "\\u{{{:x}}}", static_cast<uint32_t>(c.value));
    } else {
      out.append(valid, at, c.size);
    }
    at += c.size;
  }
  return out;
}

}  // namespace bolide
