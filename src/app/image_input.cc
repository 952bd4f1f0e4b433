#include "app/image_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "app/network.h"
#include "base/file.h"
#include "ops/number.h"

namespace bolide {
namespace {

enum class Order : uint8_t { kRgb, kBgr, kGray };
constexpr std::array<std::string_view, 3> kOrders = {"rgb", "bgr", "gray"};

struct Wishes {
  std::optional<bool> channels_last;
  std::optional<Order> order;
  int64_t width = 0, height = 0;  // 0: not said
  std::array<double, 3> mean = {0, 0, 0}, scale = {1, 1, 1};
};

// The path, and the options behind the last colon.
std::pair<std::string_view, std::string_view> split(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.find('=', colon) == std::string_view::npos) return {text, {}};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

template <class T>
bool parse_number(std::string_view text, T* to) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *to);
  return failure == std::errc() && end == text.data() + text.size();
}

// One number for all channels, or three with / between them.
Result<std::array<double, 3>> parse_numbers(std::string_view text) {
  std::array<double, 3> numbers{};
  size_t count = 0;
  for (std::string_view rest = text; count < 3;) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    if (!parse_number(rest.substr(0, slash), &numbers[count]) || !std::isfinite(numbers[count])) break;
    ++count;
    if (slash == rest.size()) {
      if (count == 1) numbers.fill(numbers[0]);
      if (count != 2) return numbers;
      break;
    }
    rest.remove_prefix(slash + 1);
  }
  return error(Code::kInvalid, fmt::format("{:.60}: expected a number, or three as 123.7/116.3/103.5", text));
}

Result<> parse_wish(std::string_view key, std::string_view value, Wishes& wishes) {
  if (key == "layout") {
    if (value != "nchw" && value != "nhwc")
      return error(Code::kInvalid, fmt::format("{:.40}: expected nchw or nhwc", value));
    wishes.channels_last = value == "nhwc";
  } else if (key == "channels") {
    const auto* const found = std::find(kOrders.begin(), kOrders.end(), value);
    if (found == kOrders.end()) return error(Code::kInvalid, fmt::format("{:.40}: expected rgb, bgr or gray", value));
    wishes.order = static_cast<Order>(found - kOrders.begin());
  } else if (key == "size") {
    const size_t x = std::min(value.find('x'), value.size());
    if (!parse_number(value.substr(0, x), &wishes.width) ||
        !parse_number(value.substr(std::min(x + 1, value.size())), &wishes.height) || wishes.width < 1 ||
        wishes.height < 1 || wishes.width > kImageSideMax || wishes.height > kImageSideMax)
      return error(Code::kInvalid, fmt::format("{:.40}: expected WIDTHxHEIGHT, each at most {}", value, kImageSideMax));
  } else if (key == "mean") {
    BOLIDE_TRY(wishes.mean, parse_numbers(value));
  } else if (key == "scale") {
    BOLIDE_TRY(wishes.scale, parse_numbers(value));
  } else {
    return error(Code::kInvalid, "expected layout, channels, size, mean or scale");
  }
  return {};
}

Result<Wishes> parse_wishes(std::string_view text) {
  Wishes wishes;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view one = text.substr(0, comma);
    const size_t equals = std::min(one.find('='), one.size());
    const std::string_view key = one.substr(0, equals);
    BOLIDE_TRY(
        parse_wish(key, one.substr(std::min(equals + 1, one.size())), wishes).context(fmt::format("{:.40}", key)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return wishes;
}

// Where things are in the tensor, from what was said and what the input declares.
struct Place {
  bool channels_last = false;
  int rank = 4;
  std::optional<int64_t> channels, width, height;  // that are fixed
};

Result<Place> place_of(const OnnxProgram::Port& port, const Wishes& wishes) {
  Place place;
  if (!port.type.dims.has_value()) {
    place.channels_last = wishes.channels_last.value_or(false);
    return place;
  }
  const std::vector<OnnxDim>& dims = *port.type.dims;
  place.rank = static_cast<int>(dims.size());
  if (place.rank != 3 && place.rank != 4)
    return error(Code::kInvalid, fmt::format("{} is not of 3 or 4 dims, as an image is", to_string(port.type)));
  const size_t begin = dims.size() - 3;
  const auto may_be_channels = [&](size_t at) { return dims[at].value == 1 || dims[at].value == 3; };
  if (wishes.channels_last.has_value()) {
    place.channels_last = *wishes.channels_last;
  } else if (may_be_channels(begin) || may_be_channels(begin + 2)) {
    place.channels_last = !may_be_channels(begin);
  } else {
    return error(Code::kInvalid,
                 fmt::format("{} does not show where channels are: say :layout=nchw or nhwc", to_string(port.type)));
  }
  if (begin == 1 && dims[0].value.value_or(1) != 1)
    return error(Code::kInvalid, fmt::format("{} is a batch, and a photo is one", to_string(port.type)));
  place.channels = dims[place.channels_last ? begin + 2 : begin].value;
  place.height = dims[place.channels_last ? begin : begin + 1].value;
  place.width = dims[place.channels_last ? begin + 1 : begin + 2].value;
  if (place.channels.has_value() && *place.channels != 1 && *place.channels != 3)
    return error(Code::kInvalid,
                 fmt::format("{} has {} channels, expected 1 or 3", to_string(port.type), *place.channels));
  for (const auto& side : {place.width, place.height})
    if (side.has_value() && (*side < 1 || *side > kImageSideMax))
      return error(Code::kInvalid,
                   fmt::format("{}: an image's sides are 1 to {}", to_string(port.type), kImageSideMax));
  return place;
}

// Pixels [height * width, 3] into channels in their order, (pixel - mean) * scale.
template <class T>
void write_elements(const std::vector<float>& pixels, const Wishes& wishes, Order order, bool channels_last,
                    std::span<T> to) {
  const size_t count = pixels.size() / 3, channels = order == Order::kGray ? 1 : 3;
  for (size_t i = 0; i < count; ++i) {
    const float* rgb = &pixels[3 * i];
    for (size_t c = 0; c < channels; ++c) {
      const double pixel = order == Order::kGray  ? 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
                           : order == Order::kRgb ? rgb[c]
                                                  : rgb[2 - c];
      const double x = (pixel - wishes.mean[c]) * wishes.scale[c];
      T& element = to[channels_last ? i * channels + c : c * count + i];
      if constexpr (std::is_integral_v<T>) {
        // The limits of 64 bits are no f64: 2^62 is far beyond what pixels give.
        const double low = std::max(static_cast<double>(std::numeric_limits<T>::min()), -0x1p62);
        const double high = std::min(static_cast<double>(std::numeric_limits<T>::max()), 0x1p62);
        element = static_cast<T>(std::clamp(std::nearbyint(x), low, high));
      } else {
        element = narrow<T>(static_cast<Wide<T>>(x));
      }
    }
  }
}

std::string numbers_text(const std::array<double, 3>& numbers) {
  if (numbers[0] == numbers[1] && numbers[1] == numbers[2]) return fmt::format("{:g}", numbers[0]);
  return fmt::format("{:g}/{:g}/{:g}", numbers[0], numbers[1], numbers[2]);
}

}  // namespace

bool is_image_input(std::string_view text) {
  const std::string_view path = split(text).first;
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(path.substr(dot));
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png" || ending == ".bmp";
}

std::vector<float> resize_bilinear(const Image& image, int64_t to_width, int64_t to_height) {
  std::vector<float> to(static_cast<size_t>(to_width * to_height * 3));
  struct Tap {
    int64_t low = 0, high = 0;
    float weight = 0;  // of high
  };
  const auto tap = [](int64_t at, int64_t from, int64_t size) {
    const double x = (static_cast<double>(at) + 0.5) * static_cast<double>(from) / static_cast<double>(size) - 0.5;
    const double inside = std::clamp(x, 0.0, static_cast<double>(from - 1));
    const auto low = static_cast<int64_t>(inside);
    return Tap{low, std::min(low + 1, from - 1), static_cast<float>(inside - static_cast<double>(low))};
  };
  std::vector<Tap> columns;
  for (int64_t x = 0; x < to_width; ++x) columns.push_back(tap(x, image.width, to_width));
  for (int64_t y = 0; y < to_height; ++y) {
    const Tap row = tap(y, image.height, to_height);
    for (int64_t x = 0; x < to_width; ++x) {
      const Tap& column = columns[static_cast<size_t>(x)];
      for (int64_t c = 0; c < 3; ++c) {
        const auto pixel = [&](int64_t py, int64_t px) {
          return static_cast<float>(image.rgb[static_cast<size_t>((py * image.width + px) * 3 + c)]);
        };
        const float top = std::lerp(pixel(row.low, column.low), pixel(row.low, column.high), column.weight);
        const float bottom = std::lerp(pixel(row.high, column.low), pixel(row.high, column.high), column.weight);
        to[static_cast<size_t>((y * to_width + x) * 3 + c)] = std::lerp(top, bottom, row.weight);
      }
    }
  }
  return to;
}

Result<Tensor> image_input(const OnnxProgram::Port& port, std::string_view text, std::string* note) {
  const auto [path_text, options] = split(text);
  const std::string path(path_text);
  BOLIDE_TRY(const DType dtype, onnx_dtype(port.type.element));
  BOLIDE_TRY(const Wishes wishes, parse_wishes(options));
  BOLIDE_TRY(const Place place, place_of(port, wishes));
  const Order order = wishes.order.value_or(place.channels == 1 ? Order::kGray : Order::kRgb);
  const int64_t channels = order == Order::kGray ? 1 : 3;
  if (place.channels.value_or(channels) != channels)
    return error(Code::kInvalid, fmt::format("{} has {} channels, channels={} gives {}", to_string(port.type),
                                             *place.channels, kOrders[static_cast<size_t>(order)], channels));
  BOLIDE_TRY(const MappedFile file, MappedFile::open(path));
  BOLIDE_TRY(const Image image, parse_image(file.bytes(), path));
  const int64_t width = wishes.width > 0 ? wishes.width : place.width.value_or(image.width);
  const int64_t height = wishes.height > 0 ? wishes.height : place.height.value_or(image.height);
  if (width * height > kImagePixelsMax)
    return error(Code::kUnsupported, fmt::format("{}x{} is more than {} pixels", width, height, kImagePixelsMax));
  std::vector<int64_t> dims = place.channels_last ? std::vector<int64_t>{height, width, channels}
                                                  : std::vector<int64_t>{channels, height, width};
  if (place.rank == 4) dims.insert(dims.begin(), 1);
  BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, Shape(dims)));
  const std::vector<float> pixels = resize_bilinear(image, width, height);
  BOLIDE_TRY(dispatch(kNumbers, dtype, "it", [&]<class T>() -> Result<> {
    write_elements<T>(pixels, wishes, order, place.channels_last, tensor.mutate<T>());
    return {};
  }));
  if (note != nullptr)
    *note = fmt::format(
        "{}: {}x{} pixels{}, {}, {}, (pixel - {}) * {} as {}{}", path, image.width, image.height,
        width == image.width && height == image.height ? std::string(" as they are")
                                                       : fmt::format(" resized to {}x{} (bilinear)", width, height),
        kOrders[static_cast<size_t>(order)], place.channels_last ? "nhwc" : "nchw", numbers_text(wishes.mean),
        numbers_text(wishes.scale), to_string(dtype), to_string(tensor.shape()));
  return tensor;
}

}  // namespace bolide
