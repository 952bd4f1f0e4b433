// Limits on JSON before it becomes a document: copying, printing and destroying a nlohmann document recurse.
#pragma once

#include <string_view>

namespace bolide {

inline constexpr int kJsonNestingMax = 64;

// True if brackets and braces outside strings nest deeper than `depth`. Works on text that is no valid JSON as well.
bool nests_deeper_than(std::string_view json, int depth);

}  // namespace bolide
