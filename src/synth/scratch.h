// Scratch: host memory that is used again: pages that a tensor was made in serve the next one, since new pages cost
// more time than their contents.
//
// Thread rules: any thread. Memory that is lent keeps the Scratch alive.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "tensor/tensor.h"

namespace bolide {

class Scratch : public std::enable_shared_from_this<Scratch> {
 public:
  struct Lent {
    MutableBytes bytes;  // what was there before
    std::shared_ptr<const void> owner;
  };
  Result<Lent> take(size_t bytes);

 private:
  static constexpr size_t kKeptBytesMax = size_t{1} << 30;

  Result<Buffer> smallest_that_holds(size_t bytes);
  void give(Buffer buffer);

  std::mutex mutex_;
  std::vector<Buffer> free_;
  size_t free_bytes_ = 0;
};

}  // namespace bolide
