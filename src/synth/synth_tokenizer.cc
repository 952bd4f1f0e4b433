#include "synth/synth_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace bolide {
namespace {

constexpr int kBytes = 256;
constexpr std::string_view kConsonants = "bdfgklmnprstvz", kVowels = "aeiou";
constexpr int64_t kSyllables = static_cast<int64_t>(kConsonants.size() * kVowels.size());

// What stands around the entries of the vocabulary.
constexpr std::string_view kBeginning =
    R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,)"
    R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
    R"("post_processor":null,)"
    R"("decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},)"
    R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
    R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":true,"merges":[],"vocab":{)";
constexpr std::string_view kEnd = "}}}";

// The character that byte-level tokenizers write for a byte: itself if it is printable, else one from U+0100 on.
std::vector<char32_t> byte_characters() {
  std::vector<char32_t> characters(kBytes);
  char32_t next = 256;
  for (char32_t byte = 0; byte < kBytes; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173 && byte <= 255);
    characters[byte] = printable ? byte : next++;
  }
  return characters;
}

// Word i: syllables, two for the first 4900 words, three or more for the others; no two are alike.
std::string word(int64_t i) {
  int syllables = 2;
  for (int64_t words = kSyllables * kSyllables; i >= words; words *= kSyllables) i -= words, ++syllables;
  std::string text;
  for (; syllables > 0; --syllables, i /= kSyllables) {
    const auto digit = static_cast<size_t>(i % kSyllables);
    text += kConsonants[digit / kVowels.size()];
    text += kVowels[digit % kVowels.size()];
  }
  return text;
}

}  // namespace

std::string synth_tokenizer(int64_t vocab) {
  const std::vector<char32_t> characters = byte_characters();
  std::string space, entries;
  append_utf8(space, characters[' ']);
  for (int byte = 0; byte < kBytes; ++byte) {
    std::string text;
    append_utf8(text, characters[static_cast<size_t>(byte)]);
    entries += fmt::format("{}{}:{}", byte == 0 ? "" : ",", nlohmann::json(text).dump(), byte);
  }
  for (int64_t id = kBytes; id < vocab; ++id) entries += fmt::format(",\"{}{}\":{}", space, word(id - kBytes), id);
  return std::string(kBeginning) + entries + std::string(kEnd);
}

}  // namespace bolide
