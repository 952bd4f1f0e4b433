// BiasStore: the LogitBiases of requests in memory of the device, for sampling. They never change, so each is sent
// once, before the first step that needs it, and stays until its place is needed for others.
//
// Thread rules: one thread, the runner's.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "engine/logit_biases.h"

namespace bolide {

class BiasStore {
 public:
  // Places for those of `sequences`; memory is taken when the first is needed.
  BiasStore(Device& device, int32_t sequences);

  // A step begins: places of earlier steps may be taken for others.
  void begin_step() { ++step_; }
  // Where the pairs are on the device, once what is enqueued before has run. At most `sequences` of them in a step.
  Result<const TokenBias*> find(const std::shared_ptr<const LogitBiases>& biases, Stream& stream);

 private:
  struct Place {
    std::shared_ptr<const LogitBiases> content;
    uint64_t used = 0;  // the last step that needs it
  };

  Result<> make_room();
  Result<> fill(Place& place, const std::shared_ptr<const LogitBiases>& biases, Stream& stream);
  size_t offset_of(const Place& place) const;

  Device* device_;
  uint64_t step_ = 1;
  std::vector<Place> places_;
  Buffer here_, there_;  // [places, kTokenBiasesMax] TokenBias; the host's is pinned
};

}  // namespace bolide
