// CachingPool: tensors' memory that is kept for the next run. It is cut from slabs of some MB, which have large pages,
// so that tensors of any sizes share them and a network touches few pages; neighbours that are free become one.
//
// Slabs that nobody uses are given back while all of them are more than was in use at the highest point, a quarter of
// it and 8 MB. Any thread may take, and give back by dropping a tensor; tensors may outlive the pool.
#pragma once

#include <memory>

#include "tensor/value.h"

namespace bolide {

class CachingPool final : public TensorPool {
 public:
  // keeps false: every slab that nobody uses is given back.
  explicit CachingPool(bool keeps = true);
  Result<std::shared_ptr<std::byte>> take(size_t bytes) override;

  // At most so many bytes are asked of the system; 0: what it says that it has.
  void set_limit(size_t bytes);

  size_t bytes_in_use() const;
  size_t bytes_kept() const;  // free ones
  size_t bytes_in_use_max() const;

  // What was asked of the system since the pool was made, because nothing kept would do.
  struct Fresh {
    int64_t count = 0;
    size_t bytes = 0;
    double seconds = 0;
  };
  Fresh fresh() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// For weights as kernels have packed them: those of all models, side by side on large pages. Gone with the last of
// them.
TensorPool& packed_pool();

}  // namespace bolide
