#include "engine/token_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace bolide {

TokenHistory::TokenHistory(Device& device, int32_t sequences, int32_t context)
    : device_(&device), context_(context), places_(static_cast<size_t>(sequences)) {}

Result<> TokenHistory::make_room() {
  const size_t bytes = places_.size() * static_cast<size_t>(context_) * sizeof(int32_t);
  BOLIDE_TRY(here_, device_->allocate(bytes, Memory::kPinned).context("tokens for penalties"));
  BOLIDE_TRY(there_, device_->allocate(bytes, Memory::kDevice).context("tokens for penalties"));
  return {};
}

// A free place, else the one that was not needed for longest.
Result<> TokenHistory::take_place(Sequence& sequence, Stream& stream) {
  const auto it = std::min_element(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return std::pair(a.owner != nullptr, a.used) < std::pair(b.owner != nullptr, b.used);
  });
  if (it->owner != nullptr) {
    if (it->used == step_)
      return error(Code::kOutOfMemory, "more sequences with penalties in a step than the runner has sequences");
    it->owner->history_place = -1;
    // The step before may still be under way, and the copy that it waits for not have been made.
    if (it->used + 1 == step_) BOLIDE_TRY(stream.synchronize());
  }
  it->owner = &sequence;
  sequence.history_place = static_cast<int32_t>(it - places_.begin());
  sequence.history_sent = 0;
  return {};
}

Result<const int32_t*> TokenHistory::update(Sequence& sequence, int32_t count, Stream& stream) {
  if (there_.size() == 0) BOLIDE_TRY(make_room());
  if (sequence.history_place < 0) BOLIDE_TRY(take_place(sequence, stream));
  places_[static_cast<size_t>(sequence.history_place)].used = step_;
  BOLIDE_CHECK(count <= context_, "{} tokens in a context of {}", count, context_);
  const size_t place = static_cast<size_t>(sequence.history_place) * static_cast<size_t>(context_) * sizeof(int32_t);
  if (sequence.history_sent < count) {
    const auto begin = static_cast<size_t>(sequence.history_sent), end = static_cast<size_t>(count);
    const size_t offset = place + begin * sizeof(int32_t), bytes = (end - begin) * sizeof(int32_t);
    std::copy(sequence.tokens.begin() + sequence.history_sent, sequence.tokens.begin() + count,
              reinterpret_cast<int32_t*>(here_.data() + offset));
    BOLIDE_TRY(copy_bytes(stream, there_.bytes().subspan(offset, bytes), here_.bytes().subspan(offset, bytes)));
    sequence.history_sent = count;
  }
  return reinterpret_cast<const int32_t*>(there_.data() + place);
}

void TokenHistory::truncate(Sequence& sequence, int32_t keep) {
  sequence.history_sent = std::min(sequence.history_sent, keep);
  if (keep > 0 || sequence.history_place < 0) return;
  places_[static_cast<size_t>(sequence.history_place)].owner = nullptr;
  sequence.history_place = -1;
}

}  // namespace bolide
