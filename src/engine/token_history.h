// TokenHistory: the tokens of sequences in memory of the device, for the penalties of sampling. A sequence gets a place
// when it first needs one; what the place lacks is sent before each step. If all places are taken, one goes that the
// step does not need.
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

  // A step begins: places of earlier steps may be taken for others.
  void begin_step() { ++step_; }
  // Enqueues what is missing of the sequence's first `count` tokens. The result is where they are on the device.
  Result<const int32_t*> update(Sequence& sequence, int32_t count, Stream& stream);
  // Tokens after the first `keep` are no longer what they were; 0 gives the place back.
  void truncate(Sequence& sequence, int32_t keep);

 private:
  struct Place {
    Sequence* owner = nullptr;
    uint64_t used = 0;  // the last step that needs it
  };

  Result<> make_room();
  Result<> take_place(Sequence& sequence, Stream& stream);

  Device* device_;
  int32_t context_;
  uint64_t step_ = 0;
  std::vector<Place> places_;
  Buffer here_, there_;  // [places, context] i32; the host's is pinned
};

}  // namespace bolide
