#include "text/byte_trie.h"

#include <algorithm>

namespace bolide {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> strings) : nodes_(1) {
  std::sort(strings.begin(), strings.end());
  // Breadth first: each node covers a range of the sorted strings that share its path.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, strings.size(), 0}};
  for (size_t n = 0; n < nodes_.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    while (begin < end && strings[begin].first.size() == depth) {
      if (n != 0) nodes_[n].value = strings[begin].second;
      ++begin;
    }
    const auto first = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = strings[begin].first[depth];
      size_t stop = begin;
      while (stop < end && strings[stop].first[depth] == label) ++stop;
      nodes_.push_back({.label = static_cast<uint8_t>(label)});
      ranges.push_back({begin, stop, depth + 1});
      begin = stop;
    }
    nodes_[n].first_child = first;
    nodes_[n].child_count = static_cast<uint16_t>(nodes_.size() - first);
  }
  for (uint32_t i = 0; i < nodes_[0].child_count; ++i) {
    root_[nodes_[nodes_[0].first_child + i].label] = nodes_[0].first_child + i;
  }
}

}  // namespace bolide
