#include "formats/image.h"

#include <fmt/format.h>

#include <limits>
#include <memory>

// The decoders that are wanted alone, and none of them for the rest of the program.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_PNM
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_MAX_DIMENSIONS 16384
#include <stb/stb_image.h>

namespace bolide {

static_assert(kImageSideMax == STBI_MAX_DIMENSIONS);

Result<Image> parse_image(Bytes file, const std::string& label) {
  if (file.size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    return error(Code::kUnsupported, fmt::format("{}: an image of more than 2 GiB", label));
  const auto* bytes = reinterpret_cast<const stbi_uc*>(file.data());
  const auto size = static_cast<int>(file.size());
  const auto broken = [&] {
    const char* why = stbi_failure_reason();
    return error(Code::kInvalid, fmt::format("{}: is no JPEG, PNG, BMP or PNM that can be read ({})", label,
                                             why == nullptr ? "for no stated reason" : why));
  };
  int width = 0, height = 0, channels = 0;
  if (stbi_info_from_memory(bytes, size, &width, &height, &channels) == 0) return broken();
  if (width < 1 || height < 1 || width > kImageSideMax || height > kImageSideMax ||
      int64_t{width} * height > kImagePixelsMax)
    return error(Code::kUnsupported, fmt::format("{}: an image of {}x{} pixels: sides may have {}, the whole {}", label,
                                                 width, height, kImageSideMax, kImagePixelsMax));
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(bytes, size, &width, &height, &channels, 3), stbi_image_free);
  if (pixels == nullptr) return broken();
  Image image{width, height, {}};
  image.rgb.assign(pixels.get(), pixels.get() + size_t{3} * static_cast<size_t>(width) * static_cast<size_t>(height));
  return image;
}

}  // namespace bolide
