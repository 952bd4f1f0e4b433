#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/tokenizer_parts.h"
#include "text/unicode.h"

namespace bolide {
namespace {

constexpr size_t kTextBytesMax = size_t{128} << 20;

// Remembers what the pieces of one text became: words repeat. A full slot is simply overwritten.
class PieceCache {
 public:
  // Too short a text repeats too little to pay for the table.
  explicit PieceCache(size_t text_bytes) : slots_(text_bytes < 256 ? 0 : text_bytes < 16384 ? 256 : 4096) {}

  Result<> encode(const TokenModel& model, std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids) {
    if (slots_.empty() || piece.size() > kPieceBytesMax) return model.encode(piece, scratch, ids);
    const uint64_t hash = hash_bytes(piece);
    Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.count >= 0 && slot.hash == hash && std::string_view(slot.key.data(), slot.size) == piece) {
      for (int32_t i = 0; i < slot.count; ++i) ids.push_back(ids[slot.begin + static_cast<size_t>(i)]);
      return {};
    }
    const size_t begin = ids.size();
    BOLIDE_TRY(model.encode(piece, scratch, ids));
    slot.hash = hash;
    slot.begin = begin;
    slot.count = static_cast<int32_t>(ids.size() - begin);
    slot.size = static_cast<uint32_t>(piece.size());
    std::copy(piece.begin(), piece.end(), slot.key.begin());
    return {};
  }

 private:
  static constexpr size_t kPieceBytesMax = 40;
  struct Slot {
    uint64_t hash = 0;
    size_t begin = 0;  // where the piece's ids are in the result
    int32_t count = -1;
    uint32_t size = 0;
    std::array<char, kPieceBytesMax> key;
  };
  std::vector<Slot> slots_;
};

template <class Step, class Steps>
bool any_of_type(const Steps& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const auto& step) { return std::holds_alternative<Step>(step); });
}

}  // namespace

Result<Tokenizer> Tokenizer::create(TokenizerSpec spec) {
  auto parts = std::make_shared<Parts>();
  BOLIDE_TRY(parts->vocabulary, Vocabulary::create(spec.vocab));
  std::vector<VocabEntry>().swap(spec.vocab);
  BOLIDE_TRY(parts->normalizer, Normalizer::create(spec.normalizers));
  BOLIDE_TRY(parts->pretokenizer, PreTokenizer::create(spec.pretokenizers));
  BOLIDE_TRY(parts->model, make_model(spec.model, parts->vocabulary));
  BOLIDE_TRY(parts->decoders, DecoderPlan::create(spec.decoders));
  BOLIDE_TRY(parts->added, AddedTokens::create(spec.added_tokens, parts->vocabulary, parts->normalizer));
  parts->postprocessors = std::move(spec.postprocessors);
  parts->byte_level = any_of_type<decoder::ByteLevel>(spec.decoders);
  parts->byte_fallback = any_of_type<decoder::ByteFallback>(spec.decoders);
  for (const decoder::Step& step : spec.decoders) {
    if (const auto* m = std::get_if<decoder::Metaspace>(&step)) parts->metaspace = m->replacement;
    const auto* replace = std::get_if<decoder::Replace>(&step);
    if (replace != nullptr && !replace->pattern.regex && replace->content == " " && replace->pattern.text == "\u2581")
      parts->metaspace = 0x2581;
  }
  parts->add_bos = spec.add_bos;
  parts->chat_templates = std::move(spec.chat_templates);
  parts->warnings = std::move(spec.warnings);
  Tokenizer tokenizer(parts);
  parts->bos_id = spec.bos_id;
  parts->eos_id = spec.eos_id;
  if (!spec.bos_id.has_value() && spec.bos_token.has_value()) parts->bos_id = tokenizer.token_to_id(*spec.bos_token);
  if (!spec.eos_id.has_value() && spec.eos_token.has_value()) parts->eos_id = tokenizer.token_to_id(*spec.eos_token);
  parts->end_ids = std::move(spec.more_end_ids);
  if (parts->eos_id.has_value()) parts->end_ids.insert(parts->end_ids.begin(), *parts->eos_id);
  return tokenizer;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kTextBytesMax)
    return error(Code::kInvalid,
                 fmt::format("the text has {} bytes; at most {} are tokenised at once", text.size(), kTextBytesMax));
  if (const size_t at = utf8_invalid_at(text); at != kUtf8Valid)
    return error(Code::kInvalid, fmt::format("the text is not valid UTF-8 at byte {}; convert it to UTF-8 first", at));
  const Parts& p = *parts_;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  ModelScratch scratch;
  PieceCache cache(text.size());
  std::vector<TextPart> raw_parts;
  std::vector<TextPart> parts;
  Pieces pieces;
  p.added.split(text, false, !options.parse_special, raw_parts);
  for (const TextPart& raw : raw_parts) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    std::string normalized(text.substr(raw.begin, raw.end - raw.begin));
    bool first_removed = false;
    BOLIDE_TRY(p.normalizer.run(normalized, raw.begin == 0, raw.end == text.size(), &first_removed));
    parts.clear();
    p.added.split(normalized, true, !options.parse_special, parts);
    for (const TextPart& part : parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      pieces.text.assign(normalized, part.begin, part.end - part.begin);
      const bool first = raw.begin == 0 && part.begin == 0 && !first_removed;
      pieces.pieces.assign(1, {0, static_cast<uint32_t>(pieces.text.size()), first});
      BOLIDE_TRY(p.pretokenizer.run(pieces));
      for (const Piece& piece : pieces.pieces) {
        const auto piece_text = std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin);
        BOLIDE_TRY(cache.encode(*p.model, piece_text, scratch, ids));
      }
    }
  }
  for (const PostProcessor& processor : p.postprocessors) {
    std::vector<int32_t> wrapped;
    for (const TemplatePiece& piece : processor) {
      if (piece.sequence)
        wrapped.insert(wrapped.end(), ids.begin(), ids.end());
      else if (options.add_special)
        wrapped.insert(wrapped.end(), piece.ids.begin(), piece.ids.end());
    }
    ids.swap(wrapped);
    if (ids.size() > kTextBytesMax) return error(Code::kInvalid, "the post-processor makes too many tokens");
  }
  return ids;
}

const std::string_view* Tokenizer::text_to_decode(int32_t id, bool skip_special, std::string_view* out) const {
  const AddedToken* added = parts_->added.find(id);
  if (added != nullptr) {
    *out = parts_->added.text(*added);
  } else if (parts_->vocabulary.has(id)) {
    *out = parts_->vocabulary.text(id);
  } else {
    return nullptr;
  }
  if (skip_special && (added != nullptr ? added->special : parts_->added.is_special(*out))) return nullptr;
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  DecodeStream stream(parts_->decoders);
  std::string_view text;
  for (const int32_t id : ids) {
    if (text_to_decode(id, skip_special, &text) != nullptr) stream.push(text);
  }
  stream.finish();
  return stream.take();
}

int32_t Tokenizer::vocab_size() const { return std::max(parts_->vocabulary.size(), parts_->added.id_end()); }

bool Tokenizer::has_token(int32_t id) const { return parts_->added.find(id) != nullptr || parts_->vocabulary.has(id); }

std::string_view Tokenizer::token_text(int32_t id) const {
  const AddedToken* added = parts_->added.find(id);
  return added != nullptr ? parts_->added.text(*added) : parts_->vocabulary.text(id);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const Parts& p = *parts_;
  if (const AddedToken* added = p.added.find(id)) return std::string(p.added.text(*added));
  const std::string_view text = p.vocabulary.text(id);
  std::string out;
  if (p.byte_level) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      at += c.size;
      const int byte = unicode::char_to_byte(c.value);
      if (byte < 0) return std::string(text);
      out += static_cast<char>(byte);
    }
    return out;
  }
  if (p.byte_fallback && text.size() == 6 && text.starts_with("<0x")) {
    for (int byte = 0; byte < 256; ++byte) {
      if (p.vocabulary.byte_token(static_cast<unsigned char>(byte)) == id)
        return std::string(1, static_cast<char>(byte));
    }
  }
  if (!p.metaspace.has_value()) return std::string(text);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.value == *p.metaspace)
      out += ' ';
    else
      out += text.substr(at, c.size);
    at += c.size;
  }
  return out;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view text) const {
  if (const AddedToken* added = parts_->added.find(text)) return added->id;
  const int32_t id = parts_->vocabulary.find(text);
  return id == Vocabulary::kNone ? std::optional<int32_t>() : std::optional<int32_t>(id);
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = parts_->added.find(id);
  return added != nullptr && added->special;
}

std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos_id; }
const std::vector<int32_t>& Tokenizer::end_ids() const { return parts_->end_ids; }
std::optional<bool> Tokenizer::add_bos() const { return parts_->add_bos; }
const std::vector<NamedTemplate>& Tokenizer::chat_templates() const { return parts_->chat_templates; }
const std::vector<std::string>& Tokenizer::warnings() const { return parts_->warnings; }

}  // namespace bolide
