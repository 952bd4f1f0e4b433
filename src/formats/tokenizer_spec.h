// What a tokenizer is, as plain data: every reader (tokenizer.json, GGUF, tokenizer.model) fills one of these and
// text/tokenizer.h executes it. Nested "Sequence" parts of the files are flattened into the lists.
//
// All strings are valid UTF-8 (the readers see to it), except Precompiled::charsmap, which is binary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace bolide {

// A literal string or an Oniguruma regular expression (Ruby syntax, as the tokenizers library reads it).
struct TextPattern {
  bool regex = false;
  std::string text;
};

enum class SplitBehavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme : uint8_t { kFirst, kNever, kAlways };

// Normalisers: text in, text out, in order.
namespace normalizer {
enum class Form : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
struct UnicodeForm {
  Form form;
};
struct Lowercase {};
struct Strip {
  bool left, right;
};
struct StripAccents {};
struct Replace {
  TextPattern pattern;
  std::string content;
};
// Before every text that is not empty; first_only: not behind an added token.
struct Prepend {
  std::string text;
  bool first_only = false;
};
struct Bert {
  bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};
struct Nmt {};
// SentencePiece's map of strings: a double array, then the replacements. The tokenizers library replaces a whole
// grapheme by what its shortest prefix maps to; SentencePiece itself replaces the longest prefix (longest_prefix).
struct Precompiled {
  std::string charsmap;
  bool longest_prefix;
};
// One space at the start and one at the end of the whole text, not beside an added token.
struct TrimSpaces {};
struct ByteLevel {};
using Step = std::variant<UnicodeForm, Lowercase, Strip, StripAccents, Replace, Prepend, Bert, Nmt, Precompiled,
                          TrimSpaces, ByteLevel>;
}  // namespace normalizer

// Pre-tokenisers: pieces in, smaller pieces out, in order.
namespace pretokenizer {
struct ByteLevel {
  bool add_prefix_space, use_regex;
};
struct Split {
  TextPattern pattern;
  SplitBehavior behavior;
  bool invert;
};
struct Whitespace {};  // runs of word characters, runs of others, without the spaces
struct WhitespaceSplit {};
struct Metaspace {
  char32_t replacement;
  PrependScheme scheme;
  bool split;
};
struct Digits {
  bool individual;
};
struct Punctuation {
  SplitBehavior behavior;
};
struct Bert {};
struct CharDelimiter {
  char32_t delimiter;
};
struct FixedLength {
  int64_t length;
};  // in characters
using Step = std::variant<ByteLevel, Split, Whitespace, WhitespaceSplit, Metaspace, Digits, Punctuation, Bert,
                          CharDelimiter, FixedLength>;
}  // namespace pretokenizer

struct VocabEntry {
  std::string text;
  int32_t id = 0;
};

// One of these turns a piece into ids.
namespace token_model {
struct Merge {
  std::string left, right;
};
struct Bpe {
  std::vector<Merge> merges;  // best first
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix, end_of_word_suffix;
  bool byte_fallback = false, fuse_unk = false, ignore_merges = false;
};
// SentencePiece's BPE as GGUF carries it: neighbours whose joined text is a token merge, the best score first; what
// is no token becomes bytes.
struct Spm {
  // By id. Minus infinity: never found in a text (control tokens, bytes).
  std::vector<double> scores;
  std::optional<int32_t> unk_id;
};
struct Unigram {
  // By id. Minus infinity: never found in a text (control tokens, bytes).
  std::vector<double> scores;
  std::optional<int32_t> unk_id;
  bool byte_fallback = false;
  bool float_sums = false;  // add scores in float32, as SentencePiece does: it decides ties
};
struct WordPiece {
  std::string unk_token, continuing_subword_prefix;
  int64_t word_chars_max = 100;
};
struct WordLevel {
  std::string unk_token;
};
using Model = std::variant<Bpe, Spm, Unigram, WordPiece, WordLevel>;
}  // namespace token_model

// Post-processors: what adding special tokens means. Each wraps the ids of the one before.
struct TemplatePiece {
  bool sequence = false;
  std::vector<int32_t> ids;
};  // the text's ids, or these
using PostProcessor = std::vector<TemplatePiece>;

// Decoders: a list of token texts in, a list of texts out, in order; the last list is joined.
namespace decoder {
struct ByteLevel {};
struct ByteFallback {};
struct Fuse {};
struct Metaspace {
  char32_t replacement;
  PrependScheme scheme;
};
struct Replace {
  TextPattern pattern;
  std::string content;
};
struct Strip {
  char32_t content;
  int64_t start, stop;
};
struct WordPiece {
  std::string prefix;
  bool cleanup;
};
struct Bpe {
  std::string suffix;
};
using Step = std::variant<ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, WordPiece, Bpe>;
}  // namespace decoder

struct AddedToken {
  int32_t id = 0;  // used when the vocabulary does not have the content
  std::string content;
  bool special = false, single_word = false, lstrip = false, rstrip = false, normalized = false;
};

struct NamedTemplate {
  std::string name;  // "default" for the one that is used unless another is asked for
  std::string text;
};

struct TokenizerSpec {
  std::vector<VocabEntry> vocab;
  token_model::Model model;
  std::vector<normalizer::Step> normalizers;
  std::vector<pretokenizer::Step> pretokenizers;
  std::vector<PostProcessor> postprocessors;
  // None: token texts are joined with spaces, as the tokenizers library does without a decoder.
  std::vector<decoder::Step> decoders;
  std::vector<AddedToken> added_tokens;

  // From tokenizer_config.json or GGUF keys; all optional.
  std::optional<std::string> bos_token, eos_token;
  std::optional<int32_t> bos_id, eos_id;  // count before the texts
  std::vector<int32_t> more_end_ids;      // end of turn and the like
  std::optional<bool> add_bos, add_eos;
  std::vector<NamedTemplate> chat_templates;
  std::vector<std::string> warnings;  // one sentence each, for the user
};

}  // namespace bolide
