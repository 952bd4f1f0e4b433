#include "engine/bias_store.h"

#include <algorithm>
#include <cstring>

namespace bolide {
namespace {

constexpr size_t kPlaceBytes = static_cast<size_t>(kTokenBiasesMax) * sizeof(TokenBias);

}  // namespace

BiasStore::BiasStore(Device& device, int32_t sequences) : device_(&device), places_(static_cast<size_t>(sequences)) {}

Result<> BiasStore::make_room() {
  const size_t bytes = places_.size() * kPlaceBytes;
  BOLIDE_TRY(here_, device_->allocate(bytes, Memory::kPinned).context("biases of logits"));
  BOLIDE_TRY(there_, device_->allocate(bytes, Memory::kDevice).context("biases of logits"));
  return {};
}

size_t BiasStore::offset_of(const Place& place) const {
  return static_cast<size_t>(&place - places_.data()) * kPlaceBytes;
}

Result<> BiasStore::fill(Place& place, const std::shared_ptr<const LogitBiases>& biases, Stream& stream) {
  BOLIDE_CHECK(place.used < step_, "more biases in a step than the runner has sequences");
  // The step before may still be under way, and the copy that it waits for not have been made.
  if (place.content != nullptr && place.used + 1 == step_) BOLIDE_TRY(stream.synchronize());
  place.content = nullptr;
  const size_t bytes = biases->pairs.size() * sizeof(TokenBias), offset = offset_of(place);
  BOLIDE_CHECK(bytes <= kPlaceBytes, "{} biases", biases->pairs.size());
  std::memcpy(here_.data() + offset, biases->pairs.data(), bytes);
  BOLIDE_TRY(copy_bytes(stream, there_.bytes().subspan(offset, bytes), here_.bytes().subspan(offset, bytes)));
  place.content = biases;
  return {};
}

Result<const TokenBias*> BiasStore::find(const std::shared_ptr<const LogitBiases>& biases, Stream& stream) {
  if (there_.size() == 0) BOLIDE_TRY(make_room());
  auto it = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.content == biases; });
  if (it == places_.end()) {
    it = std::min_element(places_.begin(), places_.end(),
                          [](const Place& a, const Place& b) { return a.used < b.used; });
    BOLIDE_TRY(fill(*it, biases, stream));
  }
  it->used = step_;
  return reinterpret_cast<const TokenBias*>(there_.data() + offset_of(*it));
}

}  // namespace bolide
