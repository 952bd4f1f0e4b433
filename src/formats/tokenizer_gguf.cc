#include "formats/tokenizer_gguf.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "formats/tokenizer_gguf_pre.h"

namespace bolide {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

constexpr std::string_view kMark = "\u2581";
constexpr double kNever = -std::numeric_limits<double>::infinity();

Result<> check_lists(const GgufTokenizer& gguf) {
  const size_t count = gguf.tokens.size();
  if (count == 0) return error(Code::kInvalid, "tokenizer.ggml.tokens: is empty or missing");
  if (count > INT32_MAX) return error(Code::kInvalid, fmt::format("tokenizer.ggml.tokens: {} tokens are too many", count));
  if (!gguf.scores.empty() && gguf.scores.size() != count)
    return error(Code::kInvalid, fmt::format("tokenizer.ggml.scores: {} scores for {} tokens", gguf.scores.size(), count));
  if (!gguf.token_types.empty() && gguf.token_types.size() != count)
    return error(Code::kInvalid, fmt::format("tokenizer.ggml.token_type: {} types for {} tokens", gguf.token_types.size(), count));
  for (size_t i = 0; i < count; ++i) {
    if (const size_t at = utf8_invalid_at(gguf.tokens[i]); at != kUtf8Valid)
      return error(Code::kInvalid, fmt::format("tokenizer.ggml.tokens[{}]: is not UTF-8 at byte {}", i, at));
  }
  for (size_t i = 0; i < gguf.scores.size(); ++i) {
    if (!std::isfinite(gguf.scores[i])) return error(Code::kInvalid, fmt::format("tokenizer.ggml.scores[{}]: is not finite", i));
  }
  return {};
}

int32_t type_of(const GgufTokenizer& gguf, size_t id) {
  return gguf.token_types.empty() ? static_cast<int32_t>(kNormal) : gguf.token_types[id];
}

Result<std::optional<int32_t>> checked(const GgufTokenizer& gguf, std::optional<int64_t> id, std::string_view key) {
  if (!id.has_value()) return std::optional<int32_t>();
  // Some writers say "none" with -1.
  if (*id == -1 || *id == 0xFFFFFFFF) return std::optional<int32_t>();
  if (*id < 0 || *id >= static_cast<int64_t>(gguf.tokens.size()))
    return error(Code::kInvalid, fmt::format("tokenizer.ggml.{}: {} is not one of the {} tokens", key, *id, gguf.tokens.size()));
  return std::optional<int32_t>(static_cast<int32_t>(*id));
}

void add_added_tokens(const GgufTokenizer& gguf, TokenizerSpec& spec) {
  const auto add = [&](size_t id, bool special) {
    spec.added_tokens.push_back({.id = static_cast<int32_t>(id), .content = gguf.tokens[id], .special = special});
  };
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const int32_t type = type_of(gguf, id);
    if (type == kControl || type == kUnknown) add(id, true);
    if (type == kUserDefined) add(id, false);
  }
  if (!gguf.token_types.empty()) return;
  for (const auto& id : {spec.bos_id, spec.eos_id}) {
    if (id.has_value()) add(static_cast<size_t>(*id), true);
  }
}

Result<> gpt2(const GgufTokenizer& gguf, TokenizerSpec& spec, bool* add_bos) {
  const GgufPretokenizer* pre = find_gguf_pretokenizer(gguf.pre);
  if (pre == nullptr) {
    spec.warnings.push_back(fmt::format(
        "the file's pre-tokeniser \"{}\" is not known here; text is split as gpt-2 does, and ids may differ", gguf.pre));
    pre = find_gguf_pretokenizer("gpt-2");
  }
  token_model::Bpe bpe;
  bpe.ignore_merges = pre->ignore_merges;
  bpe.merges.reserve(gguf.merges.size());
  for (size_t i = 0; i < gguf.merges.size(); ++i) {
    const std::string& merge = gguf.merges[i];
    // The first character may be a space itself.
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size())
      return error(Code::kInvalid, fmt::format("tokenizer.ggml.merges[{}]: \"{}\" is not two tokens", i, merge));
    bpe.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  if (gguf.merges.empty()) return error(Code::kInvalid, "tokenizer.ggml.merges: is empty or missing");
  spec.model = std::move(bpe);
  if (pre->nfc) spec.normalizers.push_back(normalizer::UnicodeForm{normalizer::Form::kNfc});
  for (const std::string_view pattern : pre->patterns) {
    spec.pretokenizers.push_back(
        pretokenizer::Split{TextPattern{true, std::string(pattern)}, SplitBehavior::kIsolated, false});
  }
  spec.pretokenizers.push_back(pretokenizer::ByteLevel{gguf.add_space_prefix.value_or(false), false});
  spec.decoders.push_back(decoder::ByteLevel{});
  *add_bos = pre->add_bos;
  return {};
}

Result<> llama(const GgufTokenizer& gguf, TokenizerSpec& spec) {
  if (gguf.scores.empty()) return error(Code::kInvalid, "tokenizer.ggml.scores: is missing, but a llama tokenizer needs it");
  token_model::Spm spm;
  spm.scores.assign(gguf.scores.begin(), gguf.scores.end());
  BOLIDE_TRY(spm.unk_id, checked(gguf, gguf.unknown_id, "unknown_token_id"));
  spec.model = std::move(spm);
  const bool prefix = gguf.add_space_prefix.value_or(true);
  if (prefix) spec.normalizers.push_back(normalizer::Prepend{std::string(kMark), false});
  spec.normalizers.push_back(normalizer::Replace{TextPattern{false, " "}, std::string(kMark)});
  spec.decoders = {decoder::Replace{TextPattern{false, std::string(kMark)}, " "}, decoder::ByteFallback{}, decoder::Fuse{}};
  if (prefix) spec.decoders.push_back(decoder::Strip{' ', 1, 0});
  return {};
}

// GGUF marks the beginnings of words with U+2581 where BERT marks the continuations with ##.
Result<> bert(const GgufTokenizer& gguf, TokenizerSpec& spec) {
  for (VocabEntry& entry : spec.vocab) {
    std::string& text = entry.text;
    if (text.starts_with(kMark)) text.erase(0, kMark.size());
    else if (!(text.size() > 1 && text.starts_with('[') && text.ends_with(']'))) text = "##" + text;
  }
  std::string unk = "[UNK]";
  BOLIDE_TRY(const std::optional<int32_t> unk_id, checked(gguf, gguf.unknown_id, "unknown_token_id"));
  if (unk_id.has_value()) unk = spec.vocab[static_cast<size_t>(*unk_id)].text;
  spec.model = token_model::WordPiece{unk, "##", 100};
  spec.normalizers.push_back(normalizer::Bert{true, true, true, true});
  spec.pretokenizers.push_back(pretokenizer::Bert{});
  spec.decoders.push_back(decoder::WordPiece{"##", true});
  return {};
}

}  // namespace

Result<TokenizerSpec> tokenizer_from_gguf(const GgufTokenizer& gguf) {
  BOLIDE_TRY(check_lists(gguf));
  TokenizerSpec spec;
  spec.vocab.reserve(gguf.tokens.size());
  for (size_t i = 0; i < gguf.tokens.size(); ++i) spec.vocab.push_back({gguf.tokens[i], static_cast<int32_t>(i)});
  BOLIDE_TRY(spec.bos_id, checked(gguf, gguf.bos_id, "bos_token_id"));
  BOLIDE_TRY(spec.eos_id, checked(gguf, gguf.eos_id, "eos_token_id"));
  BOLIDE_TRY(const std::optional<int32_t> eot, checked(gguf, gguf.eot_id, "eot_token_id"));
  BOLIDE_TRY(const std::optional<int32_t> eom, checked(gguf, gguf.eom_id, "eom_token_id"));
  BOLIDE_TRY(const std::optional<int32_t> sep, checked(gguf, gguf.separator_id, "seperator_token_id"));
  BOLIDE_TRY(const std::optional<int32_t> cls, checked(gguf, gguf.cls_id, "cls_token_id"));
  for (const auto& id : {eot, eom}) {
    if (id.has_value() && id != spec.eos_id) spec.more_end_ids.push_back(*id);
  }
  bool add_bos = false;
  bool add_sep = false;
  if (gguf.model == "gpt2") {
    BOLIDE_TRY(gpt2(gguf, spec, &add_bos));
  } else if (gguf.model == "llama") {
    BOLIDE_TRY(llama(gguf, spec));
    add_bos = true;
  } else if (gguf.model == "bert") {
    BOLIDE_TRY(bert(gguf, spec));
    add_bos = add_sep = true;
  } else {
    return error(Code::kUnsupported, fmt::format("tokenizer.ggml.model: a tokenizer of kind \"{}\" is not supported "
                                                 "(gpt2, llama and bert are)", gguf.model));
  }
  add_added_tokens(gguf, spec);
  spec.add_bos = gguf.add_bos.value_or(add_bos);
  spec.add_eos = gguf.add_eos.value_or(false);
  const std::optional<int32_t> first = gguf.model == "bert" && cls.has_value() ? cls : spec.bos_id;
  PostProcessor around;
  if (*spec.add_bos && first.has_value()) around.push_back({false, {*first}});
  around.push_back({true, {}});
  if (*spec.add_eos && spec.eos_id.has_value()) around.push_back({false, {*spec.eos_id}});
  if (gguf.add_sep.value_or(add_sep) && sep.has_value()) around.push_back({false, {*sep}});
  if (around.size() > 1) spec.postprocessors.push_back(std::move(around));
  return spec;
}

}  // namespace bolide
