// IdTable: which custom_ids there are and what is known of them, in 22 to 43 bytes each however long they are:
// a batch may have tens of millions.
//
// An id is known by 124 bits of its SHA-256: two of a table never meet, whoever chose them.
//
// Thread rules: one thread.
#pragma once

#include <openssl/sha.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace bolide::server {

class IdTable {
 public:
  static constexpr uint64_t kListed = 1;    // a request has it
  static constexpr uint64_t kAnswered = 2;  // there is an answer, or one is on its way
  static constexpr uint64_t kFailed = 4;    // and it is that the request failed

  IdTable() : slots_(1024) {}

  // Adds the marks; the marks that the id had.
  uint64_t mark(std::string_view id, uint64_t marks) {
    if ((count_ + 1) * 4 > slots_.size() * 3) grow();
    Slot key = key_of(id);
    Slot& slot = find(slots_, key);
    if (slot.second == 0) {
      slot = key;
      ++count_;
    }
    const uint64_t before = slot.second & kMarks;
    slot.second |= marks;
    return before;
  }

  // How many ids have all of these marks.
  uint64_t count(uint64_t marks) const {
    uint64_t count = 0;
    for (const Slot& slot : slots_) count += slot.second != 0 && (slot.second & marks) == marks ? 1 : 0;
    return count;
  }

 private:
  static constexpr uint64_t kMarks = 7, kTaken = 8;  // the rest of `second` is of the digest
  struct Slot {
    uint64_t first = 0, second = 0;  // second 0: empty
  };

  static Slot key_of(std::string_view id) {
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
    SHA256(reinterpret_cast<const unsigned char*>(id.data()), id.size(), digest.data());
    Slot key;
    std::memcpy(&key.first, digest.data(), sizeof key.first);
    std::memcpy(&key.second, digest.data() + sizeof key.first, sizeof key.second);
    key.second = (key.second & ~kMarks) | kTaken;
    return key;
  }
  static Slot& find(std::vector<Slot>& slots, const Slot& key) {
    size_t at = key.first & (slots.size() - 1);
    while (slots[at].second != 0 && (slots[at].first != key.first || ((slots[at].second ^ key.second) & ~kMarks) != 0))
      at = (at + 1) & (slots.size() - 1);
    return slots[at];
  }
  void grow() {
    std::vector<Slot> larger(slots_.size() * 2);
    for (const Slot& slot : slots_)
      if (slot.second != 0) find(larger, slot) = slot;
    slots_.swap(larger);
  }

  std::vector<Slot> slots_;  // open addressing; their number is a power of two
  size_t count_ = 0;
};

}  // namespace bolide::server
