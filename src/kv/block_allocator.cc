#include "kv/block_allocator.h"

#include <fmt/format.h>

namespace bolide {

BlockAllocator::BlockAllocator(int32_t blocks) : references_(static_cast<size_t>(blocks)) {
  for (BlockId block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

Result<BlockId> BlockAllocator::take() {
  if (free_.empty())
    return error(Code::kOutOfMemory, fmt::format("all {} blocks of the KV cache are in use", block_count()));
  const BlockId block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void BlockAllocator::share(BlockId block) {
  BOLIDE_CHECK(references_[static_cast<size_t>(block)] > 0, "block {} is free", block);
  ++references_[static_cast<size_t>(block)];
}

void BlockAllocator::give(BlockId block) {
  BOLIDE_CHECK(references_[static_cast<size_t>(block)] > 0, "block {} is free", block);
  if (--references_[static_cast<size_t>(block)] == 0) free_.push_back(block);
}

void BlockAllocator::check_integrity() const {
  std::vector<bool> free(references_.size());
  for (const BlockId block : free_) {
    BOLIDE_CHECK(!free[static_cast<size_t>(block)], "block {} is free twice", block);
    free[static_cast<size_t>(block)] = true;
  }
  for (size_t i = 0; i < references_.size(); ++i)
    BOLIDE_CHECK(free[i] == (references_[i] == 0), "block {} has {} references", i, references_[i]);
}

}  // namespace bolide
