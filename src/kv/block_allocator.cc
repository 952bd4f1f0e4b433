#include "kv/block_allocator.h"

#include <fmt/format.h>

namespace bolide {

BlockAllocator::BlockAllocator(int32_t blocks) : blocks_(static_cast<size_t>(blocks)) {
  for (BlockId block = blocks - 1; block >= 0; --block) empty_.push_back(block);
}

Result<BlockId> BlockAllocator::take() {
  BlockId block = oldest_;
  if (!empty_.empty()) {
    block = empty_.back();
    empty_.pop_back();
  } else if (block != kNoBlock) {
    leave_kept(block);
    unpublish(block);
  } else {
    return error(Code::kOutOfMemory, fmt::format("all {} blocks of the KV cache are in use", block_count()));
  }
  at(block).references = 1;
  return block;
}

void BlockAllocator::share(BlockId block) {
  BOLIDE_CHECK(at(block).references > 0, "block {} is free", block);
  ++at(block).references;
}

void BlockAllocator::give(BlockId block) {
  BOLIDE_CHECK(at(block).references > 0, "block {} is free", block);
  if (--at(block).references > 0) return;
  if (at(block).published)
    keep(block);
  else
    empty_.push_back(block);
}

void BlockAllocator::publish(BlockId block, const PrefixKey& holds) {
  BOLIDE_CHECK(at(block).references > 0 && !at(block).published, "block {} is free or published", block);
  at(block).published = published_.try_emplace(holds, block).second;
  at(block).holds = holds;
}

BlockId BlockAllocator::find(const PrefixKey& holds) {
  const auto it = published_.find(holds);
  if (it == published_.end()) return kNoBlock;
  if (at(it->second).references++ == 0) leave_kept(it->second);
  return it->second;
}

void BlockAllocator::forget() {
  while (oldest_ != kNoBlock) {
    const BlockId block = oldest_;
    leave_kept(block);
    empty_.push_back(block);
  }
  for (Block& block : blocks_) block.published = false;
  published_.clear();
}

void BlockAllocator::keep(BlockId block) {
  at(block).older = newest_;
  at(block).newer = kNoBlock;
  (newest_ == kNoBlock ? oldest_ : at(newest_).newer) = block;
  newest_ = block;
  ++kept_count_;
}

void BlockAllocator::leave_kept(BlockId block) {
  const Block& b = at(block);
  (b.older == kNoBlock ? oldest_ : at(b.older).newer) = b.newer;
  (b.newer == kNoBlock ? newest_ : at(b.newer).older) = b.older;
  --kept_count_;
}

void BlockAllocator::unpublish(BlockId block) {
  published_.erase(at(block).holds);
  at(block).published = false;
}

void BlockAllocator::check_integrity() const {
  std::vector<bool> free(blocks_.size());
  const auto see = [&](BlockId block) {
    BOLIDE_CHECK(!free[static_cast<size_t>(block)], "block {} is free twice", block);
    free[static_cast<size_t>(block)] = true;
  };
  for (const BlockId block : empty_) {
    see(block);
    BOLIDE_CHECK(!blocks_[static_cast<size_t>(block)].published, "block {} holds something and is empty", block);
  }
  int32_t kept = 0;
  for (BlockId block = oldest_, older = kNoBlock; block != kNoBlock; ++kept) {
    see(block);
    const Block& b = blocks_[static_cast<size_t>(block)];
    BOLIDE_CHECK(b.published && b.older == older, "block {} is kept and holds nothing", block);
    older = block;
    block = b.newer;
    BOLIDE_CHECK(block != kNoBlock || newest_ == older, "the newest kept block is not the last");
  }
  BOLIDE_CHECK(kept == kept_count_, "{} kept blocks, {} counted", kept, kept_count_);
  size_t published = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    BOLIDE_CHECK(free[i] == (blocks_[i].references == 0), "block {} has {} references", i, blocks_[i].references);
    if (!blocks_[i].published) continue;
    ++published;
    const auto it = published_.find(blocks_[i].holds);
    BOLIDE_CHECK(it != published_.end() && it->second == static_cast<BlockId>(i), "block {} is not found", i);
  }
  BOLIDE_CHECK(published == published_.size(), "{} published blocks, {} found", published, published_.size());
}

}  // namespace bolide
