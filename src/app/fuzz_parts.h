// Named parts in one fuzz input, for fuzz targets only: u8 name bytes, name, u32 bytes, contents (little endian), again
// and again. What is cut short ends the list; a length beyond the input is cut.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace bolide {

struct FuzzPart {
  std::string name;
  Bytes bytes;  // of the input
};

inline std::vector<FuzzPart> fuzz_parts(Bytes input) {
  std::vector<FuzzPart> parts;
  while (!input.empty()) {
    const auto name_bytes = std::to_integer<size_t>(input[0]);
    if (input.size() < 5 + name_bytes) break;
    const size_t left = input.size() - 5 - name_bytes;
    const size_t bytes = std::min<size_t>(load_unaligned<uint32_t>(&input[1 + name_bytes]), left);
    parts.push_back({std::string(as_text(input.subspan(1, name_bytes))), input.subspan(5 + name_bytes, bytes)});
    input = input.subspan(5 + name_bytes + bytes);
  }
  return parts;
}

}  // namespace bolide
