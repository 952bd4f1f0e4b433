// The fields read here, by number: ModelProto {1 pieces, 2 trainer_spec, 3 normalizer_spec}, SentencePiece {1 piece,
// 2 score, 3 type}, TrainerSpec {3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback, 40-43 ids of unk, bos,
// eos, pad}, NormalizerSpec {2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
// 5 escape_whitespaces}. Others are skipped.
#include "formats/tokenizer_model.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace bolide {
namespace {

constexpr std::string_view kMark = "\u2581";
constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr size_t kPiecesMax = size_t{1} << 24;

struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      // varint, or the bits of a fixed32 or fixed64
  std::string_view bytes;  // of a length-delimited field
  bool is_bytes = false;
};

// Walks the fields of one message.
class Message {
 public:
  Message(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  bool done() const { return at_ == bytes_.size(); }

  Result<Field> next() {
    BOLIDE_TRY(const uint64_t tag, varint());
    Field field;
    field.number = static_cast<uint32_t>(tag >> 3);
    if (field.number == 0 || tag >> 3 > 536870911) return broken("a field number");
    switch (tag & 7) {
      case 0: {
        BOLIDE_TRY(field.value, varint());
        break;
      }
      case 1:
      case 5: {
        const size_t size = (tag & 7) == 1 ? 8 : 4;
        if (bytes_.size() - at_ < size) return broken("a number");
        for (size_t i = 0; i < size; ++i)
          field.value |= uint64_t{static_cast<unsigned char>(bytes_[at_ + i])} << (8 * i);
        at_ += size;
        break;
      }
      case 2: {
        BOLIDE_TRY(const uint64_t size, varint());
        if (size > bytes_.size() - at_) return broken("a length");
        field.bytes = bytes_.substr(at_, size);
        field.is_bytes = true;
        at_ += size;
        break;
      }
      default: return broken("a wire type");
    }
    return field;
  }

 private:
  Error broken(std::string_view what) const {
    return error(Code::kInvalid,
                 fmt::format("is no SentencePiece model: {} at byte {} of {} does not fit", what, at_, name_));
  }
  Result<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) return broken("a number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return broken("a number");
  }

  std::string_view bytes_, name_;
  size_t at_ = 0;
};

enum PieceType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
enum ModelType : int32_t { kUnigram = 1, kBpe = 2 };

struct ModelProto {
  std::vector<VocabEntry> pieces;
  std::vector<double> scores;
  std::vector<int32_t> types;
  int32_t model_type = kUnigram;
  bool byte_fallback = false, whitespace_as_suffix = false;
  int32_t unk_id = 0, bos_id = 1, eos_id = 2;
  std::string charsmap;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

Result<> read_piece(std::string_view bytes, ModelProto& model) {
  Message message(bytes, "a piece");
  VocabEntry piece{"", static_cast<int32_t>(model.pieces.size())};
  double score = 0;
  int32_t type = kNormal;
  while (!message.done()) {
    BOLIDE_TRY(const Field field, message.next());
    if (field.number == 1 && field.is_bytes) piece.text = std::string(field.bytes);
    if (field.number == 2 && !field.is_bytes) score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3 && !field.is_bytes) type = static_cast<int32_t>(field.value);
  }
  if (utf8_invalid_at(piece.text) != kUtf8Valid)
    return error(Code::kInvalid, fmt::format("piece {}: is not UTF-8", piece.id));
  if (!std::isfinite(score)) return error(Code::kInvalid, fmt::format("piece {}: its score is not finite", piece.id));
  if (model.pieces.size() == kPiecesMax) return error(Code::kInvalid, fmt::format("more than {} pieces", kPiecesMax));
  model.pieces.push_back(std::move(piece));
  model.scores.push_back(score);
  model.types.push_back(type);
  return {};
}

Result<> read_trainer(std::string_view bytes, ModelProto& model) {
  Message message(bytes, "trainer_spec");
  while (!message.done()) {
    BOLIDE_TRY(const Field field, message.next());
    if (field.is_bytes) continue;
    switch (field.number) {
      case 3: model.model_type = static_cast<int32_t>(field.value); break;
      case 24: model.whitespace_as_suffix = field.value != 0; break;
      case 35: model.byte_fallback = field.value != 0; break;
      case 40: model.unk_id = static_cast<int32_t>(field.value); break;
      case 41: model.bos_id = static_cast<int32_t>(field.value); break;
      case 42: model.eos_id = static_cast<int32_t>(field.value); break;
      default: break;
    }
  }
  return {};
}

Result<> read_normalizer(std::string_view bytes, ModelProto& model) {
  Message message(bytes, "normalizer_spec");
  while (!message.done()) {
    BOLIDE_TRY(const Field field, message.next());
    if (field.number == 2 && field.is_bytes) model.charsmap = std::string(field.bytes);
    if (field.number == 3 && !field.is_bytes) model.add_dummy_prefix = field.value != 0;
    if (field.number == 4 && !field.is_bytes) model.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5 && !field.is_bytes) model.escape_whitespaces = field.value != 0;
  }
  return {};
}

Result<ModelProto> read_model(Bytes bytes) {
  ModelProto model;
  Message message(as_text(bytes), "the file");
  while (!message.done()) {
    BOLIDE_TRY(const Field field, message.next());
    if (!field.is_bytes) continue;
    if (field.number == 1) BOLIDE_TRY(read_piece(field.bytes, model));
    if (field.number == 2) BOLIDE_TRY(read_trainer(field.bytes, model));
    if (field.number == 3) BOLIDE_TRY(read_normalizer(field.bytes, model));
  }
  if (model.pieces.empty()) return error(Code::kInvalid, "is no SentencePiece model: it has no pieces");
  return model;
}

// SentencePiece: map characters; drop spaces at both ends and runs of them; put one in front; write them as U+2581.
std::vector<normalizer::Step> normalizers(const ModelProto& model) {
  std::vector<normalizer::Step> steps;
  const auto replace = [&](std::string pattern, std::string content, bool regex) {
    steps.push_back(normalizer::Replace{TextPattern{regex, std::move(pattern)}, std::move(content)});
  };
  if (!model.charsmap.empty()) steps.push_back(normalizer::Precompiled{model.charsmap, true});
  if (model.remove_extra_whitespaces) {
    replace(" {2,}", " ", true);
    steps.push_back(normalizer::TrimSpaces{});
  }
  const std::string mark(model.escape_whitespaces ? kMark : " ");
  if (model.add_dummy_prefix) steps.push_back(normalizer::Prepend{mark, true});
  if (model.escape_whitespaces) replace(" ", mark, false);
  return steps;
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_model(Bytes bytes) {
  BOLIDE_TRY(ModelProto model, read_model(bytes));
  if (model.model_type != kUnigram && model.model_type != kBpe)
    return error(Code::kUnsupported,
                 fmt::format("a SentencePiece model of type {} (3 words, 4 characters) is not supported; "
                             "convert it to tokenizer.json",
                             model.model_type));
  if (model.whitespace_as_suffix)
    return error(Code::kUnsupported,
                 "treat_whitespace_as_suffix is not supported; convert the model to tokenizer.json");
  TokenizerSpec spec;
  std::optional<int32_t> unk_id;
  const auto count = static_cast<int32_t>(model.pieces.size());
  for (int32_t id = 0; id < count; ++id) {
    const auto i = static_cast<size_t>(id);
    const int32_t type = model.types[i];
    if (type == kUnknown) unk_id = id;
    if (type == kControl || type == kUnknown || type == kUserDefined)
      spec.added_tokens.push_back({.id = id, .content = model.pieces[i].text, .special = type != kUserDefined});
    if (type != kNormal) model.scores[i] = kNever;
  }
  spec.normalizers = normalizers(model);
  spec.vocab = std::move(model.pieces);
  if (model.model_type == kUnigram)
    spec.model = token_model::Unigram{std::move(model.scores), unk_id, model.byte_fallback, true};
  else
    spec.model = token_model::Spm{std::move(model.scores), unk_id};
  spec.decoders = {decoder::Replace{TextPattern{false, std::string(kMark)}, " "}, decoder::ByteFallback{},
                   decoder::Fuse{}};
  if (model.add_dummy_prefix) spec.decoders.push_back(decoder::Strip{' ', 1, 0});
  if (model.bos_id >= 0 && model.bos_id < count) spec.bos_id = model.bos_id;
  if (model.eos_id >= 0 && model.eos_id < count) spec.eos_id = model.eos_id;
  // Llama's own loader puts bos in front; a tokenizer_config.json may say otherwise.
  spec.add_bos = spec.bos_id.has_value();
  if (spec.bos_id.has_value()) spec.postprocessors.push_back({{false, {*spec.bos_id}}, {true, {}}});
  return spec;
}

}  // namespace bolide
