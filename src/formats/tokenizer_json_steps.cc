#include "formats/tokenizer_json_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace bolide {
namespace {

using nlohmann::json;

// Calls parse on each member of a "Sequence".
template <class Step>
Result<> parse_sequence(const JsonObject& object, std::string_view key, int depth, std::vector<Step>& out,
                        Result<> (*parse)(const json&, std::string, int, std::vector<Step>&)) {
  if (depth >= kSequenceDepthMax)
    return error(Code::kInvalid,
                 fmt::format("{}: sequences are nested more than {} deep", object.path(), kSequenceDepthMax));
  BOLIDE_TRY(const json* members, object.array(key));
  for (size_t i = 0; i < members->size(); ++i) {
    BOLIDE_TRY(parse((*members)[i], fmt::format("{}[{}]", object.at(key), i), depth + 1, out));
    if (out.size() > kStepsMax)
      return error(Code::kInvalid, fmt::format("{}: has more than {} steps", object.path(), kStepsMax));
  }
  return {};
}

Error unknown_type(const JsonObject& object, std::string_view what, std::string_view type) {
  return error(Code::kUnsupported,
               fmt::format("{}: {} of type \"{}\" is not supported", object.at("type"), what, type));
}

Result<TextPattern> parse_pattern(const JsonObject& object, std::string_view key) {
  BOLIDE_TRY(const json* value, object.require(key));
  // Old files have the string itself.
  if (value->is_string()) return TextPattern{false, value->get<std::string>()};
  BOLIDE_TRY(const JsonObject pattern, JsonObject::of(*value, object.at(key)));
  if (pattern.find("Regex") != nullptr) {
    BOLIDE_TRY(std::string text, pattern.string("Regex"));
    return TextPattern{true, std::move(text)};
  }
  BOLIDE_TRY(std::string text, pattern.string("String"));
  return TextPattern{false, std::move(text)};
}

Result<char32_t> parse_char(const JsonObject& object, std::string_view key) {
  BOLIDE_TRY(const std::string text, object.string(key));
  if (text.empty() || decode_utf8(text, 0).size != text.size())
    return error(Code::kInvalid, fmt::format("{}: \"{}\" is not one character", object.at(key), text));
  return decode_utf8(text, 0).value;
}

Result<SplitBehavior> parse_behavior(const JsonObject& object, std::string_view key, SplitBehavior fallback) {
  if (object.find(key) == nullptr) return fallback;
  BOLIDE_TRY(const std::string name, object.string(key));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return error(Code::kUnsupported, fmt::format("{}: behaviour \"{}\" is not supported", object.at(key), name));
}

struct Metaspace {
  char32_t replacement;
  PrependScheme scheme;
  bool split;
};

// The old style has add_prefix_space, the new one prepend_scheme and split.
Result<Metaspace> parse_metaspace(const JsonObject& object) {
  Metaspace result{0x2581, PrependScheme::kAlways, true};
  if (object.find("replacement") != nullptr) {
    BOLIDE_TRY(result.replacement, parse_char(object, "replacement"));
  }
  BOLIDE_TRY(const bool add_prefix_space, object.boolean("add_prefix_space", true));
  BOLIDE_TRY(const std::optional<std::string> scheme, object.optional_string("prepend_scheme"));
  if (scheme.has_value()) {
    if (*scheme == "always")
      result.scheme = PrependScheme::kAlways;
    else if (*scheme == "first")
      result.scheme = PrependScheme::kFirst;
    else if (*scheme == "never")
      result.scheme = PrependScheme::kNever;
    else
      return error(Code::kUnsupported,
                   fmt::format("{}: scheme \"{}\" is not supported", object.at("prepend_scheme"), *scheme));
  }
  if (!add_prefix_space) {
    if (scheme.has_value() && result.scheme == PrependScheme::kAlways)
      return error(Code::kInvalid,
                   fmt::format("{}: is false, but prepend_scheme is \"{}\"", object.at("add_prefix_space"), *scheme));
    result.scheme = PrependScheme::kNever;
  }
  BOLIDE_TRY(result.split, object.boolean("split", true));
  return result;
}

Result<std::string> decode_base64(const JsonObject& object, std::string_view key) {
  BOLIDE_TRY(const json* value, object.require(key));
  if (!value->is_string()) return error(Code::kInvalid, fmt::format("{}: is not a string", object.at(key)));
  const std::string& text = value->get_ref<const std::string&>();
  std::array<int8_t, 256> table;
  table.fill(-1);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) table[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text.size() && text[i] != '='; ++i) {
    const int digit = table[static_cast<unsigned char>(text[i])];
    if (digit < 0) return error(Code::kInvalid, fmt::format("{}: character {} is not base64", object.at(key), i));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return out;
}

Result<int32_t> parse_id(const json& value, const std::string& path) {
  if (!value.is_number_integer()) return error(Code::kInvalid, fmt::format("{}: is not an integer", path));
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= INT32_MAX : value.get<int64_t>() >= 0;
  if (!fits) return error(Code::kInvalid, fmt::format("{}: {} is no token id", path, value.dump()));
  return value.get<int32_t>();
}

Result<PostProcessor> parse_template(const JsonObject& object) {
  PostProcessor result;
  BOLIDE_TRY(const json* single, object.array("single"));
  for (size_t i = 0; i < single->size(); ++i) {
    BOLIDE_TRY(const JsonObject piece, JsonObject::of((*single)[i], fmt::format("{}[{}]", object.at("single"), i)));
    if (piece.find("Sequence") != nullptr) {
      BOLIDE_TRY(const JsonObject sequence, piece.object("Sequence"));
      BOLIDE_TRY(const std::string id, sequence.string("id"));
      if (id != "A")
        return error(Code::kInvalid, fmt::format("{}: a single text has no sequence \"{}\"", sequence.at("id"), id));
      result.push_back({true, {}});
    } else {
      BOLIDE_TRY(const JsonObject special, piece.object("SpecialToken"));
      BOLIDE_TRY(const std::string id, special.string("id"));
      BOLIDE_TRY(const JsonObject tokens, object.object("special_tokens"));
      BOLIDE_TRY(const JsonObject token, tokens.object(id));
      BOLIDE_TRY(const json* ids, token.array("ids"));
      TemplatePiece out;
      for (size_t k = 0; k < ids->size(); ++k) {
        BOLIDE_TRY(const int32_t value, parse_id((*ids)[k], fmt::format("{}[{}]", token.at("ids"), k)));
        out.ids.push_back(value);
      }
      result.push_back(std::move(out));
    }
    if (result.size() > kStepsMax)
      return error(Code::kInvalid, fmt::format("{}: has more than {} pieces", object.at("single"), kStepsMax));
  }
  return result;
}

// BERT and RoBERTa: ["[CLS]", 101] before the text, ["[SEP]", 102] after it.
Result<TemplatePiece> parse_named_id(const JsonObject& object, std::string_view key) {
  BOLIDE_TRY(const json* pair, object.array(key));
  if (pair->size() != 2) return error(Code::kInvalid, fmt::format("{}: is not a token and its id", object.at(key)));
  BOLIDE_TRY(const int32_t id, parse_id((*pair)[1], object.at(key) + "[1]"));
  return TemplatePiece{false, {id}};
}

}  // namespace

Result<> parse_normalizer(const json& value, std::string path, int depth, std::vector<normalizer::Step>& out) {
  BOLIDE_TRY(const JsonObject object, JsonObject::of(value, std::move(path)));
  BOLIDE_TRY(const std::string type, object.string("type"));
  if (type == "Sequence") return parse_sequence(object, "normalizers", depth, out, &parse_normalizer);
  if (type == "NFC")
    out.push_back(normalizer::UnicodeForm{normalizer::Form::kNfc});
  else if (type == "NFD")
    out.push_back(normalizer::UnicodeForm{normalizer::Form::kNfd});
  else if (type == "NFKC")
    out.push_back(normalizer::UnicodeForm{normalizer::Form::kNfkc});
  else if (type == "NFKD")
    out.push_back(normalizer::UnicodeForm{normalizer::Form::kNfkd});
  else if (type == "Lowercase")
    out.push_back(normalizer::Lowercase{});
  else if (type == "StripAccents")
    out.push_back(normalizer::StripAccents{});
  else if (type == "Nmt")
    out.push_back(normalizer::Nmt{});
  else if (type == "ByteLevel")
    out.push_back(normalizer::ByteLevel{});
  else if (type == "Strip") {
    BOLIDE_TRY(const bool left, object.boolean("strip_left", true));
    BOLIDE_TRY(const bool right, object.boolean("strip_right", true));
    out.push_back(normalizer::Strip{left, right});
  } else if (type == "Replace") {
    BOLIDE_TRY(TextPattern pattern, parse_pattern(object, "pattern"));
    BOLIDE_TRY(std::string content, object.string("content"));
    out.push_back(normalizer::Replace{std::move(pattern), std::move(content)});
  } else if (type == "Prepend") {
    BOLIDE_TRY(std::string text, object.string("prepend"));
    out.push_back(normalizer::Prepend{std::move(text), false});
  } else if (type == "BertNormalizer") {
    normalizer::Bert bert{};
    BOLIDE_TRY(bert.clean_text, object.boolean("clean_text", true));
    BOLIDE_TRY(bert.handle_chinese_chars, object.boolean("handle_chinese_chars", true));
    BOLIDE_TRY(bert.lowercase, object.boolean("lowercase", true));
    BOLIDE_TRY(bert.strip_accents, object.boolean("strip_accents", bert.lowercase));
    out.push_back(bert);
  } else if (type == "Precompiled") {
    BOLIDE_TRY(std::string charsmap, decode_base64(object, "precompiled_charsmap"));
    out.push_back(normalizer::Precompiled{std::move(charsmap), false});
  } else {
    return unknown_type(object, "a normaliser", type);
  }
  return {};
}

Result<> parse_pretokenizer(const json& value, std::string path, int depth, std::vector<pretokenizer::Step>& out) {
  BOLIDE_TRY(const JsonObject object, JsonObject::of(value, std::move(path)));
  BOLIDE_TRY(const std::string type, object.string("type"));
  if (type == "Sequence") return parse_sequence(object, "pretokenizers", depth, out, &parse_pretokenizer);
  if (type == "ByteLevel") {
    BOLIDE_TRY(const bool prefix, object.boolean("add_prefix_space", true));
    BOLIDE_TRY(const bool use_regex, object.boolean("use_regex", true));
    out.push_back(pretokenizer::ByteLevel{prefix, use_regex});
  } else if (type == "Split") {
    BOLIDE_TRY(TextPattern pattern, parse_pattern(object, "pattern"));
    BOLIDE_TRY(object.require("behavior"));
    BOLIDE_TRY(const SplitBehavior behavior, parse_behavior(object, "behavior", SplitBehavior::kRemoved));
    BOLIDE_TRY(const bool invert, object.boolean("invert", false));
    out.push_back(pretokenizer::Split{std::move(pattern), behavior, invert});
  } else if (type == "Whitespace") {
    out.push_back(pretokenizer::Whitespace{});
  } else if (type == "WhitespaceSplit") {
    out.push_back(pretokenizer::WhitespaceSplit{});
  } else if (type == "Metaspace") {
    BOLIDE_TRY(const Metaspace m, parse_metaspace(object));
    out.push_back(pretokenizer::Metaspace{m.replacement, m.scheme, m.split});
  } else if (type == "Digits") {
    BOLIDE_TRY(const bool individual, object.boolean("individual_digits", false));
    out.push_back(pretokenizer::Digits{individual});
  } else if (type == "Punctuation") {
    BOLIDE_TRY(const SplitBehavior behavior, parse_behavior(object, "behavior", SplitBehavior::kIsolated));
    out.push_back(pretokenizer::Punctuation{behavior});
  } else if (type == "BertPreTokenizer") {
    out.push_back(pretokenizer::Bert{});
  } else if (type == "CharDelimiterSplit") {
    BOLIDE_TRY(const char32_t delimiter, parse_char(object, "delimiter"));
    out.push_back(pretokenizer::CharDelimiter{delimiter});
  } else if (type == "FixedLength") {
    BOLIDE_TRY(const int64_t length, object.integer("length", 5));
    if (length < 1) return error(Code::kInvalid, fmt::format("{}: {} is not positive", object.at("length"), length));
    out.push_back(pretokenizer::FixedLength{length});
  } else {
    return unknown_type(object, "a pre-tokeniser", type);
  }
  return {};
}

Result<> parse_decoder(const json& value, std::string path, int depth, std::vector<decoder::Step>& out) {
  BOLIDE_TRY(const JsonObject object, JsonObject::of(value, std::move(path)));
  BOLIDE_TRY(const std::string type, object.string("type"));
  if (type == "Sequence") return parse_sequence(object, "decoders", depth, out, &parse_decoder);
  if (type == "ByteLevel")
    out.push_back(decoder::ByteLevel{});
  else if (type == "ByteFallback")
    out.push_back(decoder::ByteFallback{});
  else if (type == "Fuse")
    out.push_back(decoder::Fuse{});
  else if (type == "Metaspace") {
    BOLIDE_TRY(const Metaspace m, parse_metaspace(object));
    out.push_back(decoder::Metaspace{m.replacement, m.scheme});
  } else if (type == "Replace") {
    BOLIDE_TRY(TextPattern pattern, parse_pattern(object, "pattern"));
    BOLIDE_TRY(std::string content, object.string("content"));
    out.push_back(decoder::Replace{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    BOLIDE_TRY(const char32_t content, parse_char(object, "content"));
    BOLIDE_TRY(const int64_t start, object.integer("start", 0));
    BOLIDE_TRY(const int64_t stop, object.integer("stop", 0));
    if (start < 0 || stop < 0)
      return error(Code::kInvalid, fmt::format("{}: start and stop cannot be negative", object.path()));
    out.push_back(decoder::Strip{content, start, stop});
  } else if (type == "WordPiece") {
    BOLIDE_TRY(std::optional<std::string> prefix, object.optional_string("prefix"));
    BOLIDE_TRY(const bool cleanup, object.boolean("cleanup", true));
    out.push_back(decoder::WordPiece{std::move(prefix).value_or("##"), cleanup});
  } else if (type == "BPEDecoder") {
    BOLIDE_TRY(std::optional<std::string> suffix, object.optional_string("suffix"));
    out.push_back(decoder::Bpe{std::move(suffix).value_or("</w>")});
  } else {
    return unknown_type(object, "a decoder", type);
  }
  return {};
}

Result<> parse_postprocessor(const json& value, std::string path, int depth, std::vector<PostProcessor>& out) {
  BOLIDE_TRY(const JsonObject object, JsonObject::of(value, std::move(path)));
  BOLIDE_TRY(const std::string type, object.string("type"));
  if (type == "Sequence") return parse_sequence(object, "processors", depth, out, &parse_postprocessor);
  if (type == "ByteLevel") return {};  // trims offsets, which we do not report
  if (type == "TemplateProcessing") {
    BOLIDE_TRY(PostProcessor made, parse_template(object));
    out.push_back(std::move(made));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    BOLIDE_TRY(TemplatePiece before, parse_named_id(object, "cls"));
    BOLIDE_TRY(TemplatePiece after, parse_named_id(object, "sep"));
    out.push_back({std::move(before), TemplatePiece{true, {}}, std::move(after)});
  } else {
    return unknown_type(object, "a post-processor", type);
  }
  return {};
}

}  // namespace bolide
