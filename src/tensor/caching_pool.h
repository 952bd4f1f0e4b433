// CachingPool: tensors' memory that is kept for the next run, since a network asks for the same sizes again and again.
//
// What is kept stays below what was in use at the highest point and a quarter of it more: with shapes that change, old
// sizes are given back. Any thread may take, and give back by dropping a tensor; tensors may outlive the pool.
#pragma once

#include <memory>

#include "tensor/value.h"

namespace bolide {

class CachingPool final : public TensorPool {
 public:
  CachingPool();
  Result<std::shared_ptr<std::byte>> take(size_t bytes) override;

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

}  // namespace bolide
