#include "plan/weight_upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace bolide {
namespace {

double megabytes(size_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

Result<WeightUpload> WeightUpload::make(Device& device, const Options& options) {
  BOLIDE_CHECK(options.piece_bytes > 0, "pieces of no bytes");
  WeightUpload upload;
  upload.device_ = &device;
  upload.options_ = options;
  BOLIDE_TRY(upload.stream_, device.make_stream());
  for (Staging& staging : upload.staging_) {
    BOLIDE_TRY(staging.copied, device.make_event());
  }
  return upload;
}

Result<> WeightUpload::reserve(size_t bytes) {
  BOLIDE_CHECK(slab_ == nullptr, "a second slab");
  BOLIDE_TRY(const size_t free, device_->free_memory());
  if (bytes > free)
    return error(Code::kOutOfMemory, fmt::format("the weights need {:.1f} MB of memory, {} has {:.1f} MB free",
                                                 megabytes(bytes), device_->info().name, megabytes(free)));
  BOLIDE_TRY(Buffer slab, device_->allocate(bytes, Memory::kDevice).context("weights"));
  slab_ = std::make_shared<Buffer>(std::move(slab));
  return {};
}

MutableBytes WeightUpload::take(size_t bytes) {
  BOLIDE_CHECK(slab_ != nullptr && bytes <= slab_->size() - used_, "weights beyond what was reserved");
  const MutableBytes place = slab_->bytes().subspan(used_, bytes);
  used_ += std::min<size_t>(round_up(bytes, kAlignment), slab_->size() - used_);
  return place;
}

Result<> WeightUpload::put(MutableBytes there, bool zeroed, FunctionRef<Result<>(MutableBytes)> fill) {
  if (there.empty()) return {};
  Staging& staging = staging_[next_];
  next_ = (next_ + 1) % staging_.size();
  BOLIDE_TRY(staging.copied->synchronize());
  if (staging.memory.size() < there.size()) {
    staging.memory = {};
    const size_t bytes = std::max(there.size(), options_.piece_bytes);
    BOLIDE_TRY(staging.memory, device_->allocate(bytes, Memory::kPinned).context("a buffer for copies to the device"));
  }
  const MutableBytes here = staging.memory.bytes().first(there.size());
  if (zeroed) std::memset(here.data(), 0, here.size());
  BOLIDE_TRY(fill(here));
  BOLIDE_TRY(copy_bytes(*stream_, there, here));
  return stream_->record(*staging.copied);
}

Result<> WeightUpload::copy(MutableBytes there, Bytes from, Workers& workers) {
  BOLIDE_CHECK(there.size() == from.size(), "{} bytes for {}", from.size(), there.size());
  for (size_t done = 0; done < from.size(); done += options_.piece_bytes) {
    const Bytes piece = from.subspan(done, std::min(options_.piece_bytes, from.size() - done));
    const auto fill = [&](MutableBytes here) -> Result<> {
      // Reading is what costs: pages of a file that is mapped.
      constexpr size_t kPart = 1u << 20;
      workers.run(static_cast<int64_t>(ceil_div(piece.size(), kPart)), [&](int64_t part, int) {
        const size_t begin = static_cast<size_t>(part) * kPart;
        std::memcpy(here.data() + begin, piece.data() + begin, std::min(kPart, piece.size() - begin));
      });
      return {};
    };
    BOLIDE_TRY(put(there.subspan(done, piece.size()), false, fill));
  }
  return {};
}

Result<> WeightUpload::finish() {
  BOLIDE_TRY(stream_->synchronize());
  for (Staging& staging : staging_) staging.memory = {};
  return {};
}

}  // namespace bolide
