// BlockAllocator: hands out the numbers of the KV cache's blocks, with reference counts so that sequences can share.
//
// Owner: one engine; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace bolide {

using BlockId = int32_t;

class BlockAllocator {
 public:
  explicit BlockAllocator(int32_t blocks);

  // A free block with one reference; kOutOfMemory if there is none.
  Result<BlockId> take();
  void share(BlockId block);
  // Drops one reference; the last one frees the block.
  void give(BlockId block);

  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }
  int32_t block_count() const { return static_cast<int32_t>(references_.size()); }
  // Every block is either free or referenced, never both.
  void check_integrity() const;

 private:
  std::vector<BlockId> free_;  // a stack: recently used blocks first, they may still be cached
  std::vector<int32_t> references_;
};

}  // namespace bolide
