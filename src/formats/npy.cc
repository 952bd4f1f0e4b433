#include "formats/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/utf8.h"
#include "formats/zip.h"

namespace bolide {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kHeaderMax = 1 << 20;

struct Descr {
  std::string_view text;
  DType dtype;
};
constexpr Descr kDescrs[] = {
    {"<f8", DType::kF64}, {"<f4", DType::kF32}, {"<f2", DType::kF16}, {"<i8", DType::kI64},
    {"<i4", DType::kI32}, {"<i2", DType::kI16}, {"|i1", DType::kI8},  {"<u8", DType::kU64},
    {"<u4", DType::kU32}, {"<u2", DType::kU16}, {"|u1", DType::kU8},  {"|b1", DType::kBool},
};

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> dims;
};

// The header is a Python dict literal of three known keys: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  Result<Header> parse() {
    Header header;
    if (!take('{')) return wrong();
    while (!take('}')) {
      std::string key;
      if (!text(key) || !take(':')) return wrong();
      if (key == "descr") {
        if (!text(header.descr)) return error(Code::kUnsupported, "a structured array");
      } else if (key == "fortran_order") {
        skip();
        header.fortran = rest_.starts_with("True");
        if (!header.fortran && !rest_.starts_with("False")) return wrong();
        rest_.remove_prefix(header.fortran ? 4 : 5);
      } else if (key == "shape") {
        if (!take('(')) return wrong();
        while (!take(')')) {
          skip();
          int64_t dim = 0;
          const auto [end, failure] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dim);
          if (failure != std::errc() || dim < 0) return wrong();
          rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
          header.dims.push_back(dim);
          take(',');
        }
      } else {
        return wrong();
      }
      take(',');
    }
    return header;
  }

 private:
  static Error wrong() { return error(Code::kInvalid, "a broken .npy header"); }
  void skip() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool text(std::string& to) {
    skip();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return false;
    to = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  std::string_view rest_;
};

Result<Tensor> read_strings(Bytes data, std::string_view descr, const Shape& shape) {
  size_t width = 0;
  const std::string_view digits = descr.substr(2);
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), width);
  const bool wide = descr[1] == 'U';
  uint64_t bytes = 0;
  if (failure != std::errc() || end != digits.data() + digits.size() || width > (1u << 24) ||
      mul_overflows(static_cast<uint64_t>(shape.elements()), width * (wide ? 4 : 1), &bytes) || bytes != data.size())
    return error(Code::kInvalid, fmt::format("texts of '{:.20}' in {} bytes", descr, data.size()));
  std::vector<std::string> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = 0; j < width; ++j) {
      if (wide) {
        const auto point = load_unaligned<uint32_t>(data.data() + (i * width + j) * 4);
        if (point == 0) break;
        if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
          return error(Code::kInvalid, "a text is no Unicode");
        append_utf8(values[i], point);
      } else {
        const char c = static_cast<char>(data[i * width + j]);
        if (c == 0) break;
        values[i] += c;
      }
    }
  return Tensor::strings(shape, std::move(values));
}

// Elements in the order of columns to that of rows.
void turn(Bytes from, size_t element, const Shape& shape, std::byte* to) {
  std::array<int64_t, kRankMax> at{};
  const int64_t total = shape.elements();
  for (int64_t i = 0; i < total; ++i) {
    int64_t place = 0;
    for (int axis = 0; axis < shape.rank; ++axis) place = place * shape[axis] + at[static_cast<size_t>(axis)];
    std::memcpy(to + static_cast<size_t>(place) * element, from.data() + static_cast<size_t>(i) * element, element);
    for (int axis = 0; axis < shape.rank && ++at[static_cast<size_t>(axis)] == shape[axis]; ++axis)
      at[static_cast<size_t>(axis)] = 0;
  }
}

Result<Tensor> parse(Bytes file) {
  if (file.size() < 10 || !as_text(file).starts_with(kMagic)) return error(Code::kInvalid, "is no .npy file");
  const auto version = static_cast<uint8_t>(file[6]);
  if (version < 1 || version > 3) return error(Code::kUnsupported, fmt::format(".npy version {}", version));
  const size_t begin = version == 1 ? 10 : 12;
  if (file.size() < begin) return error(Code::kInvalid, "ends amid its header");
  const size_t size =
      version == 1 ? load_unaligned<uint16_t>(file.data() + 8) : load_unaligned<uint32_t>(file.data() + 8);
  if (size > kHeaderMax || size > file.size() - begin) return error(Code::kInvalid, "ends amid its header");
  BOLIDE_TRY(const Header header, HeaderParser(as_text(file.subspan(begin, size))).parse());
  const Bytes data = file.subspan(begin + size);
  if (header.dims.size() > kRankMax)
    return error(Code::kUnsupported, fmt::format("{} dims: at most {} are supported", header.dims.size(), kRankMax));
  const Shape shape(header.dims);
  uint64_t elements = 1;
  for (const int64_t dim : header.dims)
    if (mul_overflows(elements, static_cast<uint64_t>(dim), &elements) || elements > Tensor::kBytesMax)
      return error(Code::kInvalid, fmt::format("shape {} is too large", to_string(shape)));
  if (header.descr.size() > 2 && (header.descr[1] == 'U' || header.descr[1] == 'S') && header.descr[0] != '>')
    return read_strings(data, header.descr, shape);
  const auto known =
      std::find_if(std::begin(kDescrs), std::end(kDescrs), [&](const Descr& row) { return row.text == header.descr; });
  if (known == std::end(kDescrs))
    return error(Code::kUnsupported, fmt::format("an array of '{:.40}': convert it with .astype first", header.descr));
  const size_t element = element_bytes(known->dtype);
  if (data.size() != elements * element)
    return error(Code::kInvalid, fmt::format("{}{} has {} bytes of data, expected {}", to_string(known->dtype),
                                             to_string(shape), data.size(), elements * element));
  BOLIDE_TRY(Tensor tensor, Tensor::make(known->dtype, shape));
  if (header.fortran && shape.rank > 1)
    turn(data, element, shape, tensor.mutable_data());
  else
    std::copy(data.begin(), data.end(), tensor.mutable_data());
  if (known->dtype == DType::kBool)
    for (uint8_t& value : tensor.mutate<uint8_t>()) value = value != 0;
  return tensor;
}

}  // namespace

Result<Tensor> parse_npy(Bytes file, const std::string& label) { return parse(file).context(label); }

Result<std::map<std::string, Tensor>> parse_npz(Bytes file, const std::string& label) {
  const auto read = [&]() -> Result<std::map<std::string, Tensor>> {
    BOLIDE_TRY(const std::vector<ZipEntry> entries, parse_zip(file));
    std::map<std::string, Tensor> arrays;
    for (const ZipEntry& entry : entries) {
      BOLIDE_TRY(const std::vector<std::byte> bytes, unzip(file, entry));
      std::string name(entry.name.substr(0, entry.name.size() - (entry.name.ends_with(".npy") ? 4 : 0)));
      BOLIDE_TRY(Tensor tensor, parse(bytes).context(std::string(entry.name)));
      if (!arrays.emplace(std::move(name), std::move(tensor)).second)
        return error(Code::kInvalid, fmt::format("{:.100} is there twice", entry.name));
    }
    return arrays;
  };
  return read().context(label);
}

Result<std::vector<std::byte>> write_npy(const Tensor& tensor) {
  std::string descr;
  size_t width = 1;
  if (tensor.is_string()) {
    for (const std::string& value : tensor.as<std::string>()) width = std::max(width, value.size());
    descr = fmt::format("|S{}", width);  // UTF-8 bytes
  } else {
    const auto known = std::find_if(std::begin(kDescrs), std::end(kDescrs),
                                    [&](const Descr& row) { return row.dtype == tensor.dtype(); });
    descr = known != std::end(kDescrs) ? std::string(known->text) : element_bytes(tensor.dtype()) == 2 ? "<u2" : "|u1";
  }
  std::string shape;
  for (const int64_t dim : tensor.shape().span()) shape += fmt::format("{}, ", dim);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::vector<std::byte> file;
  const auto append = [&](Bytes bytes) { file.insert(file.end(), bytes.begin(), bytes.end()); };
  append(as_bytes(kMagic));
  append(as_bytes(std::string_view("\x01\x00", 2)));
  const auto size = static_cast<uint16_t>(header.size());
  append({reinterpret_cast<const std::byte*>(&size), 2});
  append(as_bytes(header));
  if (tensor.is_string()) {
    for (std::string value : tensor.as<std::string>()) {
      value.resize(width);
      append(as_bytes(value));
    }
  } else {
    append({tensor.data(), tensor.bytes()});
  }
  return file;
}

Result<std::vector<std::byte>> write_npz(const std::vector<std::pair<std::string, Tensor>>& arrays) {
  std::vector<std::pair<std::string, std::vector<std::byte>>> files;
  constexpr size_t kNameMax = 65000;  // a zip archive counts a name's bytes in 16 bits
  for (const auto& [name, tensor] : arrays) {
    if (name.size() > kNameMax)
      return error(Code::kUnsupported, fmt::format("array {:.60}...: a name of {} bytes, .npz files have at most {}",
                                                   name, name.size(), kNameMax));
    BOLIDE_TRY(std::vector<std::byte> bytes, write_npy(tensor));
    files.emplace_back(name + ".npy", std::move(bytes));
  }
  return write_zip(files);
}

}  // namespace bolide
