// PrefixKey: what a block of the KV cache holds, as a hash of its tokens and of all tokens before them.
//
// 128 bits, keyed by a number that nobody outside the process knows: keys of different content are taken to be
// different.
#pragma once

#include <cstdint>
#include <span>

namespace bolide {

struct PrefixKey {
  uint64_t a = 0, b = 0;
  bool operator==(const PrefixKey&) const = default;
};

struct PrefixKeyHash {
  size_t operator()(const PrefixKey& key) const { return static_cast<size_t>(key.a); }
};

// The key of no tokens. Sequences with different salts share nothing.
PrefixKey prefix_root(uint64_t secret, uint64_t salt);
// The key of what `parent` stands for with a block's tokens behind it.
PrefixKey prefix_next(const PrefixKey& parent, std::span<const int32_t> tokens);

}  // namespace bolide
