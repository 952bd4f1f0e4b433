#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "app/image_input.h"
#include "app/network.h"
#include "base/file.h"
#include "formats/npy.h"
#include "ops/number.h"

namespace bolide {
namespace {

using nlohmann::json;

constexpr auto kAll = kNumbers + Types<Bool>{};

Result<DType> dtype_of(const OnnxProgram::Port& port) {
  if (port.type.kind != OnnxType::Kind::kTensor)
    return error(Code::kUnsupported, fmt::format("is {}: only tensors can be given here", to_string(port.type)));
  return onnx_dtype(port.type.element);
}

// Nested lists of one length at each depth.
Result<> flatten(const json& value, size_t depth, std::vector<int64_t>& dims, std::vector<const json*>& to) {
  if (!value.is_array()) {
    if (depth != dims.size()) return error(Code::kInvalid, "lists of different depths");
    to.push_back(&value);
    return {};
  }
  if (depth >= kRankMax) return error(Code::kUnsupported, fmt::format("more than {} dims", kRankMax));
  if (depth == dims.size()) {
    if (!to.empty()) return error(Code::kInvalid, "lists of different depths");
    dims.push_back(static_cast<int64_t>(value.size()));
  }
  if (dims[depth] != static_cast<int64_t>(value.size())) return error(Code::kInvalid, "lists of different lengths");
  for (const json& item : value) BOLIDE_TRY(flatten(item, depth + 1, dims, to));
  return {};
}

// Whether T has this number: it is whole, and not too large.
template <class T>
bool fits(const json& element) {
  if (element.is_number_unsigned()) return std::in_range<T>(element.get<uint64_t>());
  if (element.is_number_integer()) return std::in_range<T>(element.get<int64_t>());
  if (!element.is_number()) return true;
  const double number = element.get<double>();
  return std::trunc(number) == number && number >= static_cast<double>(std::numeric_limits<T>::min()) &&
         number < std::ldexp(1.0, std::numeric_limits<T>::digits);
}

Result<Tensor> from_json(const json& value, DType dtype) {
  std::vector<int64_t> dims;
  std::vector<const json*> elements;
  BOLIDE_TRY(flatten(value, 0, dims, elements));
  const Shape shape(dims);
  if (dtype == DType::kString) {
    std::vector<std::string> texts;
    for (const json* element : elements) {
      if (!element->is_string())
        return error(Code::kInvalid, fmt::format("{} is no text", element->dump().substr(0, 40)));
      texts.push_back(element->get<std::string>());
    }
    return Tensor::strings(shape, std::move(texts));
  }
  BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
  BOLIDE_TRY(dispatch(kAll, dtype, "it", [&]<class T>() -> Result<> {
    const auto to = tensor.mutate<T>();
    for (size_t i = 0; i < to.size(); ++i) {
      const json& element = *elements[i];
      if (!element.is_number() && !element.is_boolean())
        return error(Code::kInvalid, fmt::format("{} is no number", element.dump().substr(0, 40)));
      if constexpr (std::is_same_v<T, Bool>) {
        to[i].value = element.is_boolean() ? element.get<bool>() : element.get<double>() != 0;
      } else if constexpr (std::is_integral_v<T>) {
        if (!fits<T>(element))
          return error(Code::kInvalid,
                       fmt::format("{} is no number of {}", element.dump().substr(0, 40), to_string(dtype)));
        to[i] = element.is_boolean() ? static_cast<T>(element.get<bool>()) : element.get<T>();
      } else {
        const double number = element.is_boolean() ? static_cast<double>(element.get<bool>()) : element.get<double>();
        to[i] = narrow<T>(static_cast<Wide<T>>(number));
      }
    }
    return {};
  }));
  return tensor;
}

// "1x3x224x224", or what the model declares.
Result<Shape> random_shape(const OnnxProgram::Port& port, std::string_view text) {
  if (!text.empty()) return parse_shape(text);
  if (!port.type.dims.has_value())
    return error(Code::kInvalid, "has no rank of its own: say random:SHAPE, as 1x3x224x224");
  std::vector<int64_t> dims;
  for (const OnnxDim& dim : *port.type.dims) dims.push_back(dim.value.value_or(1));
  if (dims.size() > kRankMax) return error(Code::kUnsupported, fmt::format("more than {} dims", kRankMax));
  return Shape(dims);
}

// Floats are normal, integers 0 or 1 (valid as ids, masks and types), texts empty.
Result<Tensor> random_input(DType dtype, const Shape& shape, uint64_t seed) {
  BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
  if (dtype == DType::kString) return tensor;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  BOLIDE_TRY(dispatch(kAll, dtype, "it", [&]<class T>() -> Result<> {
    for (T& element : tensor.mutate<T>()) {
      if constexpr (std::is_same_v<T, Bool>)
        element.value = random() & 1;
      else if constexpr (std::is_integral_v<T>)
        element = static_cast<T>(random() & 1);
      else
        element = narrow<T>(static_cast<Wide<T>>(normal(random)));
    }
    return {};
  }));
  return tensor;
}

Result<Tensor> read_input(const OnnxProgram::Port& port, std::string_view text, uint64_t seed, std::string* note) {
  BOLIDE_TRY(const DType dtype, dtype_of(port));
  if (is_image_input(text)) return image_input(port, text, note);
  if (text == "random" || text.starts_with("random:")) {
    BOLIDE_TRY(const Shape shape, random_shape(port, text.substr(std::min<size_t>(text.size(), 7))));
    return random_input(dtype, shape, seed);
  }
  const size_t colon = text.rfind(':');
  const std::string path(text.substr(0, text.find(".npz:") != std::string_view::npos ? colon : text.size()));
  if (path.ends_with(".npy")) {
    BOLIDE_TRY(const MappedFile file, MappedFile::open(path));
    return parse_npy(file.bytes(), path);
  }
  if (path.ends_with(".npz")) {
    BOLIDE_TRY(const MappedFile file, MappedFile::open(path));
    BOLIDE_TRY(const auto arrays, parse_npz(file.bytes(), path));
    const std::string name = path.size() < text.size() ? std::string(text.substr(colon + 1)) : port.name;
    const auto it = arrays.find(name);
    if (it != arrays.end()) return it->second;
    std::string names;
    for (const auto& [key, _] : arrays) names += (names.empty() ? "" : ", ") + key;
    return error(Code::kNotFound,
                 fmt::format("{}: has no array {}, only {:.300}; say {}:ARRAY", path, name, names, path));
  }
  std::string content(text);
  if (path.ends_with(".json")) {
    BOLIDE_TRY(content, read_file(path));
  }
  json value = json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    if (path.ends_with(".json"))
      return error(Code::kInvalid,
                   fmt::format("{}: is no JSON (it has no NaN and no Infinity: give those in a .npy file)", path));
    if (dtype != DType::kString)
      return error(
          Code::kInvalid,
          fmt::format(
              "'{:.60}' is no .npy, .npz, .json, .jpg, .png or .bmp file, no list of numbers, and not random[:SHAPE]",
              text));
    value = content;
  }
  return from_json(value, dtype);
}

}  // namespace

Result<Shape> parse_shape(std::string_view text) {
  const auto refuse = [&] {
    return error(Code::kInvalid, fmt::format("{:.60}: a shape is numbers with x between them, as 1x3x224x224", text));
  };
  std::vector<int64_t> dims;
  std::string_view rest = text;
  do {
    int64_t dim = 0;
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), dim);
    if (failure != std::errc() || dim < 0) return refuse();
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    dims.push_back(dim);
    if (rest.empty()) break;
    if (rest[0] != 'x') return refuse();
    rest.remove_prefix(1);
  } while (true);
  if (dims.size() > kRankMax) return error(Code::kUnsupported, fmt::format("more than {} dims", kRankMax));
  return Shape(dims);
}

Result<AnyValue> network_input(const OnnxProgram::Port& port, std::string_view text, uint64_t seed, std::string* note) {
  auto tensor = read_input(port, text, seed, note).context(fmt::format("input {}", port.name));
  if (!tensor) return std::move(tensor).error();
  return AnyValue(*std::move(tensor));
}

}  // namespace bolide
