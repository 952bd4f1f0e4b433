#include "engine/token_history.h"

#include <fmt/format.h>

#include <algorithm>

namespace bolide {

TokenHistory::TokenHistory(Device& device, int32_t sequences, int32_t context) : device_(&device), context_(context) {
  for (int32_t place = sequences; place-- > 0;) free_.push_back(place);
}

Result<> TokenHistory::make_room() {
  const size_t bytes = free_.size() * static_cast<size_t>(context_) * sizeof(int32_t);
  BOLIDE_TRY(here_, device_->allocate(bytes, Memory::kPinned).context("tokens for penalties"));
  BOLIDE_TRY(there_, device_->allocate(bytes, Memory::kDevice).context("tokens for penalties"));
  return {};
}

Result<const int32_t*> TokenHistory::update(Sequence& sequence, Stream& stream) {
  if (there_.size() == 0) BOLIDE_TRY(make_room());
  if (sequence.history_place < 0) {
    if (free_.empty()) return error(Code::kOutOfMemory, "more sequences with penalties than the runner has sequences");
    sequence.history_place = free_.back();
    sequence.history_sent = 0;
    free_.pop_back();
  }
  BOLIDE_CHECK(sequence.size() <= context_, "{} tokens in a context of {}", sequence.size(), context_);
  const size_t place = static_cast<size_t>(sequence.history_place) * static_cast<size_t>(context_) * sizeof(int32_t);
  if (sequence.history_sent < sequence.size()) {
    const auto begin = static_cast<size_t>(sequence.history_sent), end = static_cast<size_t>(sequence.size());
    const size_t offset = place + begin * sizeof(int32_t), bytes = (end - begin) * sizeof(int32_t);
    std::copy(sequence.tokens.begin() + sequence.history_sent, sequence.tokens.end(),
              reinterpret_cast<int32_t*>(here_.data() + offset));
    BOLIDE_TRY(copy_bytes(stream, there_.bytes().subspan(offset, bytes), here_.bytes().subspan(offset, bytes)));
    sequence.history_sent = sequence.size();
  }
  return reinterpret_cast<const int32_t*>(there_.data() + place);
}

void TokenHistory::truncate(Sequence& sequence, int32_t keep) {
  sequence.history_sent = std::min(sequence.history_sent, keep);
  if (keep > 0 || sequence.history_place < 0) return;
  free_.push_back(sequence.history_place);
  sequence.history_place = -1;
}

}  // namespace bolide
