#include "tensor/caching_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <mutex>
#include <new>

#include "base/bytes.h"

namespace bolide {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kKept = 4 << 20;  // pages that are given back and taken again cost more than so much memory

// Sizes of which there are eight between powers of two: at most an eighth is wasted.
size_t size_class(size_t bytes) {
  bytes = std::max<size_t>(bytes, kAlignment);
  const size_t step = std::max<size_t>(std::bit_floor(bytes) / 8, kAlignment);
  return round_up(bytes, step);
}

void release(std::byte* data) { ::operator delete(data, std::align_val_t{kAlignment}); }

}  // namespace

struct CachingPool::State {
  std::mutex mutex;
  std::multimap<size_t, std::byte*> free;
  size_t in_use = 0, kept = 0, in_use_max = 0;
  Fresh fresh;

  ~State() {
    for (const auto& [size, data] : free) release(data);
  }

  void give(std::byte* data, size_t size) {
    std::multimap<size_t, std::byte*> beyond;
    {
      const std::lock_guard lock(mutex);
      in_use -= size, kept += size;
      free.emplace(size, data);
      while (in_use + kept > in_use_max + std::max(in_use_max / 4, kKept)) {
        const auto largest = std::prev(free.end());
        kept -= largest->first;
        beyond.insert(free.extract(largest));
      }
    }
    for (const auto& [_, unwanted] : beyond) release(unwanted);
  }
};

CachingPool::CachingPool() : state_(std::make_shared<State>()) {}

Result<std::shared_ptr<std::byte>> CachingPool::take(size_t bytes) {
  const size_t size = size_class(bytes);
  std::byte* data = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto it = state_->free.find(size); it != state_->free.end()) {
      data = it->second;
      state_->free.erase(it);
      state_->kept -= size;
    }
    state_->in_use += size;
    state_->in_use_max = std::max(state_->in_use_max, state_->in_use);
  }
  if (data == nullptr) {
    const auto start = std::chrono::steady_clock::now();
    data = static_cast<std::byte*>(::operator new(size, std::align_val_t{kAlignment}, std::nothrow));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const std::lock_guard lock(state_->mutex);
    if (data == nullptr) {
      state_->in_use -= size;
      return error(Code::kOutOfMemory, fmt::format("no memory for a tensor of {} bytes", bytes));
    }
    ++state_->fresh.count, state_->fresh.bytes += size, state_->fresh.seconds += took.count();
  }
  return std::shared_ptr<std::byte>(data, [state = state_, size](std::byte* p) { state->give(p, size); });
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
  return state_->kept;
}
size_t CachingPool::bytes_in_use_max() const {
  const std::lock_guard lock(state_->mutex);
  return state_->in_use_max;
}

}  // namespace bolide
