#include "text/vocabulary.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace bolide {

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t h = 0x9E3779B97F4A7C15u ^ bytes.size();
  const auto mix = [&](uint64_t word) {
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  };
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    mix(word);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, bytes.data() + at, bytes.size() - at);
  mix(tail);
  return h;
}

Vocabulary::Slot& Vocabulary::slot_for(std::string_view text, uint32_t hash) {
  size_t at = hash & mask_;
  while (slots_[at].id != kNone && !(slots_[at].hash == hash && view(slots_[at].slice) == text)) at = (at + 1) & mask_;
  return slots_[at];
}

int32_t Vocabulary::find(std::string_view text) const {
  const auto hash = static_cast<uint32_t>(hash_bytes(text));
  size_t at = hash & mask_;
  while (slots_[at].id != kNone) {
    if (slots_[at].hash == hash && view(slots_[at].slice) == text) return slots_[at].id;
    at = (at + 1) & mask_;
  }
  return kNone;
}

Result<Vocabulary> Vocabulary::create(const std::vector<VocabEntry>& entries) {
  Vocabulary v;
  uint64_t bytes = 0;
  int64_t size = 0;
  for (const VocabEntry& entry : entries) {
    if (entry.id < 0) return error(Code::kInvalid, fmt::format("token \"{}\" has the id {}", entry.text, entry.id));
    bytes += entry.text.size();
    size = std::max<int64_t>(size, int64_t{entry.id} + 1);
  }
  if (bytes >= kAbsent) return error(Code::kInvalid, fmt::format("the tokens have {} bytes in all", bytes));
  v.texts_.reserve(bytes);
  v.by_id_.resize(static_cast<size_t>(size));
  v.slots_.resize(std::bit_ceil(entries.size() * 2 + 2));
  v.mask_ = v.slots_.size() - 1;
  for (const VocabEntry& entry : entries) {
    const Slice slice{static_cast<uint32_t>(v.texts_.size()), static_cast<uint32_t>(entry.text.size())};
    v.texts_ += entry.text;
    v.longest_bytes_ = std::max(v.longest_bytes_, entry.text.size());
    const auto hash = static_cast<uint32_t>(hash_bytes(entry.text));
    Slot& slot = v.slot_for(entry.text, hash);
    if (slot.id == kNone) ++v.count_;
    slot = {hash, entry.id, slice};
    v.by_id_[static_cast<size_t>(entry.id)] = slice;
  }
  for (int byte = 0; byte < 256; ++byte) v.byte_tokens_[byte] = v.find(fmt::format("<0x{:02X}>", byte));
  return v;
}

}  // namespace bolide
