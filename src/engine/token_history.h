// TokenHistory: the tokens of sequences in memory of the device, for the penalties of sampling. A sequence gets a place
// when it first needs one; what the place lacks is sent before each step.
//
// Thread rules: one thread, the runner's.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "engine/sequence.h"

namespace bolide {

class TokenHistory {
 public:
  // Places for `sequences` of `context` tokens; memory is taken when the first is needed.
  TokenHistory(Device& device, int32_t sequences, int32_t context);

  // Enqueues what is missing of the sequence's tokens. The result is its tokens on the device.
  Result<const int32_t*> update(Sequence& sequence, Stream& stream);
  // Tokens after the first `keep` are no longer what they were; 0 gives the place back.
  void truncate(Sequence& sequence, int32_t keep);

 private:
  Result<> make_room();

  Device* device_;
  int32_t context_;
  std::vector<int32_t> free_;
  Buffer here_, there_;  // [places, context] i32; the host's is pinned
};

}  // namespace bolide
