// A trie over byte strings, each with a number: finds every string that starts at a place in a text.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace bolide {

// Immutable once built; any thread. Children of a node lie side by side, sorted: 12 bytes a node.
class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  ByteTrie() : nodes_(1) {}
  // Values must not be negative. Of equal strings the largest value counts; empty strings are ignored.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings);

  // Calls visit(length, value) for each string that text starts with at `from`, shortest first.
  template <class Visit>
  void prefixes(std::string_view text, size_t from, Visit visit) const {
    uint32_t node = 0;
    for (size_t at = from; at < text.size(); ++at) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) return;
      if (nodes_[node].value != kNone) visit(at + 1 - from, nodes_[node].value);
    }
  }

  bool can_start(unsigned char byte) const { return root_[byte] != 0; }
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    uint32_t first_child = 0;
    int32_t value = kNone;
    uint16_t child_count = 0;
    uint8_t label = 0;
  };

  // 0, the root's number, if there is none.
  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == 0) return root_[byte];
    uint32_t low = nodes_[node].first_child;
    uint32_t high = low + nodes_[node].child_count;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (nodes_[middle].label < byte)
        low = middle + 1;
      else
        high = middle;
    }
    return low < nodes_[node].first_child + nodes_[node].child_count && nodes_[low].label == byte ? low : 0;
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_{};
};

}  // namespace bolide
