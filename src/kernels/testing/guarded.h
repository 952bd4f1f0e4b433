// Guarded: memory of tests whose neighbours tell when a kernel wrote outside.
#pragma once

#include <sys/mman.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace bolide::testing {

inline constexpr size_t kGuard = 4096;
inline constexpr std::byte kGuardByte{0xa5};
inline constexpr std::byte kPoison{0xff};  // NaN in every float type

// Memory filled with NaN, with a guard band before it and, at its end rounded up to 64 bytes, a page that faults when
// it is read or written.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes) {
    const size_t rounded = round_up(bytes, 64);
    front_ = round_up(rounded + kGuard, kPage);
    void* memory = mmap(nullptr, front_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BOLIDE_CHECK(memory != MAP_FAILED, "{} bytes", front_ + kPage);
    memory_ = static_cast<std::byte*>(memory);
    std::fill(memory_, memory_ + front_, kGuardByte);
    BOLIDE_CHECK(mprotect(memory_ + front_, kPage, PROT_NONE) == 0, "mprotect");
    data_ = memory_ + front_ - rounded;
    std::fill(data_, data_ + bytes, kPoison);
  }
  Guarded(const Guarded&) = delete;
  ~Guarded() { munmap(memory_, front_ + kPage); }
  std::byte* data() const { return data_; }
  MutableBytes bytes() const { return {data_, bytes_}; }
  // With the guard band before it and the padding after it.
  MutableBytes all() const { return {memory_, front_}; }
  bool intact() const {
    const auto kept = [](std::byte b) { return b == kGuardByte; };
    return std::all_of(memory_, data_, kept) && std::all_of(data_ + bytes_, memory_ + front_, kept);
  }

 private:
  static inline constexpr size_t kPage = 4096;
  size_t bytes_, front_ = 0;
  std::byte* memory_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace bolide::testing
