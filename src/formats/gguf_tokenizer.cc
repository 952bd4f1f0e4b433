#include "formats/gguf_tokenizer.h"

#include <fmt/format.h>

#include "formats/gguf.h"

namespace bolide {
namespace {

// The largest published vocabularies have 262,144 tokens.
constexpr uint64_t kTokensMax = 1u << 20;

Error bad(const std::string& label, std::string_view key, std::string_view what) {
  return error(Code::kInvalid, fmt::format("{}: {}: {}", label, key, what));
}

Result<std::vector<std::string>> strings(const GgufHeader& header, std::string_view key, const std::string& label) {
  const GgufValue* value = header.find(key);
  std::vector<std::string> list;
  if (value == nullptr) return list;
  if (value->count > kTokensMax)
    return bad(label, key, fmt::format("has {} entries, at most {} are read", value->count, kTokensMax));
  const auto views = value->strings();
  if (!views) return bad(label, key, "expected an array of strings");
  list.assign(views->begin(), views->end());
  return list;
}

// An array of `count` numbers, or empty if the key is absent.
template <class T>
Result<std::vector<T>> numbers(const GgufHeader& header, std::string_view key, size_t count, const std::string& label) {
  const GgufValue* value = header.find(key);
  if (value == nullptr) return std::vector<T>();
  if (!value->is_array() || value->count != count)
    return bad(label, key, fmt::format("expected an array of {} numbers, one for each token", count));
  const auto list = value->numbers();
  if (!list) return bad(label, key, "expected an array of numbers");
  std::vector<T> out;
  out.reserve(count);
  for (const double number : *list) {
    if constexpr (std::is_integral_v<T>)
      if (!(number >= 0 && number <= 1e6)) return bad(label, key, fmt::format("{} is out of range", number));
    out.push_back(static_cast<T>(number));
  }
  return out;
}

}  // namespace

Result<GgufTokenizer> read_gguf_tokenizer(const GgufHeader& header, const std::string& label) {
  GgufTokenizer tokenizer;
  BOLIDE_TRY(const auto model, header.string("tokenizer.ggml.model", label));
  if (!model)
    return error(Code::kNotFound, fmt::format("{}: has no tokenizer (tokenizer.ggml.model is missing)", label));
  tokenizer.model = *model;
  BOLIDE_TRY(const auto pre, header.string("tokenizer.ggml.pre", label));
  tokenizer.pre = pre.value_or("");
  BOLIDE_TRY(tokenizer.tokens, strings(header, "tokenizer.ggml.tokens", label));
  if (tokenizer.tokens.empty()) return bad(label, "tokenizer.ggml.tokens", "is missing or empty");
  const size_t vocabulary = tokenizer.tokens.size();
  BOLIDE_TRY(tokenizer.scores, numbers<float>(header, "tokenizer.ggml.scores", vocabulary, label));
  BOLIDE_TRY(tokenizer.token_types, numbers<int32_t>(header, "tokenizer.ggml.token_type", vocabulary, label));
  BOLIDE_TRY(tokenizer.merges, strings(header, "tokenizer.ggml.merges", label));
  if (const GgufValue* value = header.find("tokenizer.ggml.precompiled_charsmap")) {
    if (!value->is_array() || (value->element != GgufType::kU8 && value->element != GgufType::kI8))
      return bad(label, "tokenizer.ggml.precompiled_charsmap", "expected an array of bytes");
    tokenizer.precompiled_charsmap = as_text(value->bytes);
  }

  const struct {
    std::string_view key;
    std::optional<int64_t>& id;
  } ids[] = {
      {"tokenizer.ggml.bos_token_id", tokenizer.bos_id},
      {"tokenizer.ggml.eos_token_id", tokenizer.eos_id},
      {"tokenizer.ggml.eot_token_id", tokenizer.eot_id},
      {"tokenizer.ggml.eom_token_id", tokenizer.eom_id},
      {"tokenizer.ggml.unknown_token_id", tokenizer.unknown_id},
      {"tokenizer.ggml.seperator_token_id", tokenizer.separator_id},  // spelt so in the files
      {"tokenizer.ggml.padding_token_id", tokenizer.padding_id},
      {"tokenizer.ggml.cls_token_id", tokenizer.cls_id},
      {"tokenizer.ggml.mask_token_id", tokenizer.mask_id},
  };
  for (const auto& [key, id] : ids) {
    BOLIDE_TRY(id, header.integer(key, label));
    if (id && (*id < 0 || static_cast<uint64_t>(*id) >= vocabulary)) {
      // Some converters write -1 or 2^32 - 1 for "none".
      if (*id != -1 && *id != UINT32_MAX)
        return bad(label, key, fmt::format("{} is no id of the {} tokens", *id, vocabulary));
      id.reset();
    }
  }
  const struct {
    std::string_view key;
    std::optional<bool>& flag;
  } flags[] = {
      {"tokenizer.ggml.add_bos_token", tokenizer.add_bos},
      {"tokenizer.ggml.add_eos_token", tokenizer.add_eos},
      {"tokenizer.ggml.add_sep_token", tokenizer.add_sep},
      {"tokenizer.ggml.add_space_prefix", tokenizer.add_space_prefix},
      {"tokenizer.ggml.remove_extra_whitespaces", tokenizer.remove_extra_whitespaces},
      {"tokenizer.ggml.escape_whitespaces", tokenizer.escape_whitespaces},
  };
  for (const auto& [key, flag] : flags) {
    BOLIDE_TRY(flag, header.boolean(key, label));
  }
  return tokenizer;
}

}  // namespace bolide
