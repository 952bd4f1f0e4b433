// KvCache: the pools of keys and values of all layers, in blocks of P tokens: [blocks, G, P, D] per layer for each.
//
// Owner: one engine; memory is reserved when it is made and touched only as blocks are used.
#pragma once

#include <vector>

#include "device/device.h"
#include "kv/block_allocator.h"

namespace bolide {

struct KvLayout {
  int32_t layers = 0;
  int32_t kv_heads = 0;       // G
  int32_t head_dim = 0;       // D
  int32_t block_tokens = 16;  // P
  DType dtype = DType::kBF16;
  int32_t blocks = 0;
  int32_t context = 0;  // tokens of a sequence, so that errors name what is too large; 0: unknown

  // The flag that would need less memory when smaller: blocks larger than a sequence are mostly empty.
  std::string_view flag_at_fault() const {
    return context > 0 && block_tokens > context ? "--block-tokens" : "--context";
  }
  // Bytes of all pools; false if a number is not positive or the bytes do not fit 64 bits.
  bool bytes(uint64_t* out) const;
};

class KvCache {
 public:
  // kOutOfMemory says how much the layout needs and what would need less.
  static Result<KvCache> make(const KvLayout& layout, Device& device);
  // The same errors without making one, if `others` further bytes are to be had at the same time.
  static Result<> check(const KvLayout& layout, Device& device, size_t others);

  const KvLayout& layout() const { return layout_; }
  size_t bytes() const { return memory_.size(); }
  MutableBytes memory() const { return memory_.bytes(); }  // all pools
  BlockAllocator& allocator() { return allocator_; }

  struct LayerPools {
    std::byte* k;
    std::byte* v;
  };
  std::span<const LayerPools> layers() const { return pools_; }

 private:
  KvCache(const KvLayout& layout, Buffer memory);

  KvLayout layout_;
  Buffer memory_;
  std::vector<LayerPools> pools_;
  BlockAllocator allocator_;
};

}  // namespace bolide
