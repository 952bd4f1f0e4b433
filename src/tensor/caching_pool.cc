#include "tensor/caching_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/memory.h"
#include "tensor/pages.h"

namespace bolide {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSlab = 8 << 20;  // of a pool that has as much already; larger ones for larger tensors

// Sizes of whole cache lines. Larger ones are a few lines longer, so that tensors of whole pages do not all begin at
// the same place of a page: their elements would compete for the same lines of L1.
size_t padded(size_t bytes) {
  return round_up(std::max<size_t>(bytes, 1), kAlignment) + (bytes >= 4096 ? 5 * kAlignment : 0);
}

}  // namespace

struct CachingPool::State {
  struct Slab {
    std::byte* data = nullptr;
    size_t size = 0, used = 0;
    std::map<size_t, size_t> free;  // offset > size; no two of them touch
  };

  bool keeps = true;
  std::mutex mutex;
  std::list<Slab> slabs;
  size_t in_use = 0, reserved = 0, in_use_max = 0;
  size_t limit = 0;    // of reserved; 0: none
  size_t unasked = 0;  // bytes that slabs were given since the system was asked what it has
  Fresh fresh;

  ~State() {
    for (const Slab& slab : slabs) unmap_pages(slab.data, slab.size);
  }

  // The smallest free part that has room; null: there is none.
  std::byte* cut(size_t size, Slab** from) {
    Slab* best = nullptr;
    std::map<size_t, size_t>::iterator at;
    for (Slab& slab : slabs)
      for (auto it = slab.free.begin(); it != slab.free.end(); ++it)
        if (it->second >= size && (best == nullptr || it->second < at->second)) best = &slab, at = it;
    if (best == nullptr) return nullptr;
    const auto [offset, length] = *at;
    best->free.erase(at);
    if (length > size) best->free.emplace(offset + size, length - size);
    best->used += size;
    *from = best;
    return best->data + offset;
  }

  // What slabs have that was never written: the system counts it as available still.
  size_t untouched() const {
    constexpr size_t kPage = 4096, kSmallest = 16 << 20;  // of slabs that are looked at
    size_t bytes = 0;
    std::vector<unsigned char> pages;
    for (const Slab& slab : slabs) {
      if (slab.size < kSmallest) continue;
      pages.assign(slab.size / kPage, 0);
      if (::mincore(slab.data, slab.size, pages.data()) != 0) continue;
      bytes +=
          kPage * static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](auto in) { return !(in & 1); }));
    }
    return bytes;
  }

  // kOutOfMemory: so many bytes more are beyond the limit, or are not to be had.
  Result<> expect(size_t bytes) {
    if (limit > 0 && bytes > limit - std::min(limit, reserved))
      return error(Code::kOutOfMemory, fmt::format("{} more are beyond the limit of {}, of which {} are in use",
                                                   size_text(bytes), size_text(limit), size_text(in_use)));
    unasked += bytes;
    if (unasked < kMemoryAskedFrom) return {};
    BOLIDE_TRY(expect_memory(std::max(bytes, kMemoryAskedFrom) + untouched()));
    unasked = 0;
    return {};
  }

  // Slabs that nobody uses; they are to be released outside of the lock.
  std::list<Slab> take_unused() {
    std::list<Slab> unused;
    for (auto it = slabs.begin(); it != slabs.end();) {
      const auto here = it++;
      if (here->used > 0) continue;
      reserved -= here->size;
      unused.splice(unused.end(), slabs, here);
    }
    return unused;
  }

  Result<> grow(size_t size) {
    const auto start = std::chrono::steady_clock::now();
    const size_t usual = std::clamp(round_up(reserved, kLargePage), kLargePage, kSlab),
                 least = round_up(size, kLargePage);
    Slab slab;
    slab.size = std::max(least, usual);
    if (!expect(slab.size)) {  // without what is kept for the next run, and what tensors to come might use
      for (const Slab& one : take_unused()) unmap_pages(one.data, one.size);
      slab.size = least;
      BOLIDE_TRY(expect(slab.size));
    }
    slab.data = map_pages(slab.size, kLargePage);
    if (slab.data == nullptr)
      return error(Code::kOutOfMemory, fmt::format("no memory for {}{}", size_text(size), address_limit_note()));
    // The first slab has small pages: small networks need few.
    if (slab.size > kLargePage || !slabs.empty()) prefer_large_pages(slab.data, slab.size);
    slab.free.emplace(0, slab.size);
    reserved += slab.size;
    ++fresh.count, fresh.bytes += slab.size;
    slabs.push_back(std::move(slab));
    fresh.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {};
  }

  void give(std::byte* data, size_t size, Slab* slab) {
    std::list<Slab> unwanted;
    {
      const std::lock_guard lock(mutex);
      in_use -= size, slab->used -= size;
      const auto offset = static_cast<size_t>(data - slab->data);
      auto at = slab->free.emplace(offset, size).first;
      if (const auto next = std::next(at); next != slab->free.end() && offset + size == next->first) {
        at->second += next->second;
        slab->free.erase(next);
      }
      if (at != slab->free.begin()) {
        if (const auto before = std::prev(at); before->first + before->second == offset) {
          before->second += at->second;
          slab->free.erase(at);
        }
      }
      const size_t most = keeps ? in_use_max + in_use_max / 4 + kSlab : 0;
      for (auto it = slabs.begin(); slab->used == 0 && it != slabs.end() && reserved > most;) {
        const auto here = it++;
        if (here->used > 0) continue;
        reserved -= here->size;
        unwanted.splice(unwanted.end(), slabs, here);
      }
    }
    for (const Slab& one : unwanted) unmap_pages(one.data, one.size);
  }
};

CachingPool::CachingPool(bool keeps) : state_(std::make_shared<State>()) { state_->keeps = keeps; }

Result<std::shared_ptr<std::byte>> CachingPool::take(size_t bytes) {
  if (bytes > Tensor::kBytesMax / 2)  // some allocators abort
    return error(Code::kOutOfMemory, fmt::format("no machine has {}", size_text(bytes)));
  const size_t size = padded(bytes);
  State::Slab* slab = nullptr;
  const std::lock_guard lock(state_->mutex);
  std::byte* data = state_->cut(size, &slab);
  if (data == nullptr) {
    BOLIDE_TRY(state_->grow(size));
    data = state_->cut(size, &slab);
  }
  state_->in_use += size;
  state_->in_use_max = std::max(state_->in_use_max, state_->in_use);
  return std::shared_ptr<std::byte>(data, [state = state_, size, slab](std::byte* p) { state->give(p, size, slab); });
}

void CachingPool::set_limit(size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
}

CachingPool::Fresh CachingPool::fresh() const {
  const std::lock_guard lock(state_->mutex);
  return state_->fresh;
}
size_t CachingPool::bytes_in_use() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_use;
}
size_t CachingPool::bytes_kept() const {
  const std::lock_guard lock(state_->mutex);
  return state_->reserved - state_->in_use;
}
size_t CachingPool::bytes_in_use_max() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_use_max;
}

TensorPool& packed_pool() {
  static auto* const pool = new CachingPool(false);  // tensors of static lifetime may outlive other statics
  return *pool;
}

}  // namespace bolide
