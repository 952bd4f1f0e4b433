// WeightUpload: the way of weights into the memory of a device. One slab holds them all; two pinned buffers carry the
// pieces, one being filled by the host while the other is copied, so that the host needs little memory.
//
// Thread rules: one thread.
#pragma once

#include <array>
#include <memory>

#include "base/function_ref.h"
#include "device/device.h"

namespace bolide {

class WeightUpload {
 public:
  struct Options {
    size_t piece_bytes = 64u << 20;  // of a pinned buffer; a piece that cannot be cut has one of its own size
  };
  static constexpr size_t kAlignment = 256;  // of every weight in the slab

  static Result<WeightUpload> make(Device& device, const Options& options);
  static Result<WeightUpload> make(Device& device) { return make(device, Options()); }

  // Makes the slab, once, before anything is packed. kOutOfMemory says how much is needed and how much is free.
  Result<> reserve(size_t bytes);
  // The place of the next weight: memory of the device.
  MutableBytes take(size_t bytes);
  // `fill` writes `there.size()` bytes, into zeroed memory if `zeroed`; they are on the device once finish() returns.
  Result<> put(MutableBytes there, bool zeroed, FunctionRef<Result<>(MutableBytes)> fill);
  // The same of bytes that exist, cut into pieces.
  Result<> copy(MutableBytes there, Bytes from, Workers& workers);
  // Waits for the copies and lets the pinned buffers go.
  Result<> finish();

  size_t piece_bytes() const { return options_.piece_bytes; }
  DeviceId device() const { return device_->info().id; }
  // Keeps the slab alive.
  std::shared_ptr<const void> owner() const { return slab_; }

 private:
  WeightUpload() = default;

  struct Staging {
    Buffer memory;
    std::unique_ptr<Event> copied;
  };

  Device* device_ = nullptr;
  Options options_;
  std::array<Staging, 2> staging_;
  size_t next_ = 0;  // staging buffer
  std::shared_ptr<Buffer> slab_;
  size_t used_ = 0;
  std::unique_ptr<Stream> stream_;  // last: what it copies ends before memory goes
};

}  // namespace bolide
