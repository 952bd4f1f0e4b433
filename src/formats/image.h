// Photos: JPEG, PNG, BMP and PNM files, decoded by stb_image.
//
// Hostile bytes in: dims are checked before anything is decoded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace bolide {

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3], the top row first
};

inline constexpr int64_t kImageSideMax = 16384;
inline constexpr int64_t kImagePixelsMax = int64_t{1} << 26;

// Grey becomes RGB, an alpha channel is dropped, 16 bits a channel become 8, an orientation in a JPEG's metadata is not
// heeded. kInvalid: no such file, or a broken one; kUnsupported: more than the limits above.
Result<Image> parse_image(Bytes file, const std::string& label);

}  // namespace bolide
