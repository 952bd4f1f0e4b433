#include "synth/scratch.h"

namespace bolide {

Result<Buffer> Scratch::smallest_that_holds(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->size() >= bytes && (best == free_.end() || it->size() < best->size())) best = it;
    if (best != free_.end()) {
      Buffer buffer = std::move(*best);
      free_.erase(best);
      free_bytes_ -= buffer.size();
      return buffer;
    }
  }
  return Buffer::host(bytes);
}

void Scratch::give(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (buffer.size() > kKeptBytesMax - free_bytes_) return;
  free_bytes_ += buffer.size();
  free_.push_back(std::move(buffer));
}

Result<Scratch::Lent> Scratch::take(size_t bytes) {
  BOLIDE_TRY(Buffer buffer, smallest_that_holds(bytes));
  const MutableBytes part = buffer.bytes().first(bytes);
  auto* lent = new Buffer(std::move(buffer));
  return Lent{part, std::shared_ptr<const void>(lent, [self = shared_from_this()](Buffer* returned) {
                self->give(std::move(*returned));
                delete returned;
              })};
}

}  // namespace bolide
