// BlockAllocator: hands out the numbers of the KV cache's blocks, with reference counts so that sequences can share.
// A full block can be published by what it holds. It is then found by that, and when nobody refers to it any more its
// content is kept until the memory is needed: of such blocks the one that was given back first goes first.
//
// Owner: one engine; one thread.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/prefix_key.h"

namespace bolide {

using BlockId = int32_t;
constexpr BlockId kNoBlock = -1;

class BlockAllocator {
 public:
  explicit BlockAllocator(int32_t blocks);

  // A block with one reference: one that holds nothing, else a kept one, which is forgotten. kOutOfMemory if there is
  // neither.
  Result<BlockId> take();
  void share(BlockId block);
  // Drops one reference; the last one frees the block.
  void give(BlockId block);

  // Says what a full block, which somebody refers to and nobody will write again, holds. Nothing happens if that is
  // known of another block.
  void publish(BlockId block, const PrefixKey& holds);
  // The block that holds this, with a reference for the caller; kNoBlock.
  BlockId find(const PrefixKey& holds);
  // Forgets what blocks hold, whether somebody refers to them or not.
  void forget();

  // One reference, and not published: what it holds may be overwritten.
  bool writable(BlockId block) const { return references(block) == 1 && !published(block); }
  int32_t references(BlockId block) const { return blocks_[static_cast<size_t>(block)].references; }
  bool published(BlockId block) const { return blocks_[static_cast<size_t>(block)].published; }
  // Blocks that nobody refers to, and those of them whose content is kept.
  int32_t free_count() const { return static_cast<int32_t>(empty_.size()) + kept_count_; }
  int32_t kept_count() const { return kept_count_; }
  int32_t block_count() const { return static_cast<int32_t>(blocks_.size()); }
  // Every block is free or referenced, never both, and found under what it holds.
  void check_integrity() const;

 private:
  struct Block {
    int32_t references = 0;
    bool published = false;
    PrefixKey holds;
    BlockId older = kNoBlock, newer = kNoBlock;  // neighbours in the list of kept blocks
  };
  Block& at(BlockId block) { return blocks_[static_cast<size_t>(block)]; }
  void keep(BlockId block);
  void leave_kept(BlockId block);
  void unpublish(BlockId block);

  std::vector<Block> blocks_;
  std::vector<BlockId> empty_;  // a stack: recently used blocks first, they may still be in the processor's cache
  BlockId oldest_ = kNoBlock, newest_ = kNoBlock;  // of the kept
  int32_t kept_count_ = 0;
  std::unordered_map<PrefixKey, BlockId, PrefixKeyHash> published_;
};

}  // namespace bolide
