// The model's tokens: text to id and id to text. Added tokens are not in here (text/added_tokens.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"

namespace bolide {

// Immutable, any thread. All texts lie in one string.
class Vocabulary {
 public:
  static constexpr int32_t kNone = -1;

  // Errors: kInvalid for ids out of range or texts of more than 4 GiB. Of equal texts the last id counts, of equal
  // ids the last text.
  static Result<Vocabulary> create(const std::vector<VocabEntry>& entries);

  int32_t find(std::string_view text) const;
  bool has(int32_t id) const { return id >= 0 && id < size() && by_id_[static_cast<size_t>(id)].size != kAbsent; }
  std::string_view text(int32_t id) const {
    return has(id) ? view(by_id_[static_cast<size_t>(id)]) : std::string_view();
  }
  // One more than the largest id; some ids below may have no text.
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }
  int32_t count() const { return count_; }
  size_t longest_bytes() const { return longest_bytes_; }

  // The id of "<0xHH>", or kNone.
  int32_t byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Slice {
    uint32_t offset = 0;
    uint32_t size = kAbsent;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = kNone;
    Slice slice;
  };
  std::string_view view(Slice s) const { return std::string_view(texts_).substr(s.offset, s.size); }
  Slot& slot_for(std::string_view text, uint32_t hash);

  std::string texts_;
  std::vector<Slice> by_id_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t mask_ = 0;
  size_t longest_bytes_ = 0;
  int32_t count_ = 0;
  int32_t byte_tokens_[256];
};

// FNV-like over 8 bytes at a time; not for hostile keys where order matters, as a table is only as large as its file.
uint64_t hash_bytes(std::string_view bytes);

}  // namespace bolide
