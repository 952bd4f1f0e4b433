#include "server/kserve_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/json_string.h"
#include "ops/number.h"

namespace bolide::server {
namespace {

using Json = nlohmann::ordered_json;

struct NamedType {
  std::string_view name;
  DType dtype;
};
constexpr NamedType kTypes[] = {{"BOOL", DType::kBool},  {"UINT8", DType::kU8},    {"UINT16", DType::kU16},
                                {"UINT32", DType::kU32}, {"UINT64", DType::kU64},  {"INT8", DType::kI8},
                                {"INT16", DType::kI16},  {"INT32", DType::kI32},   {"INT64", DType::kI64},
                                {"FP16", DType::kF16},   {"BF16", DType::kBF16},   {"FP32", DType::kF32},
                                {"FP64", DType::kF64},   {"BYTES", DType::kString}};

// Those with a JSON form, but for BYTES.
constexpr auto kJsonNumbers = Types<float, double, Bool>{} + kIntegers;

std::string excerpt(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 40);
}

// A number of JSON as T; false: T does not have it.
template <class T>
bool read_number(const Json& value, T& to) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) return false;
    const double number = value.get<double>();
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<T>::max()))) return false;
    to = static_cast<T>(number);
    return true;
  } else {
    if (value.is_number_unsigned()) {
      const auto number = value.get<uint64_t>();
      to = static_cast<T>(number);
      return std::in_range<T>(number);
    }
    if (value.is_number_integer()) {
      const auto number = value.get<int64_t>();
      to = static_cast<T>(number);
      return std::in_range<T>(number);
    }
    if (!value.is_number_float()) return false;
    const double number = value.get<double>();  // 5.0 is whole, too
    if (std::trunc(number) != number || number < static_cast<double>(std::numeric_limits<T>::min()) ||
        number >= std::ldexp(1.0, std::numeric_limits<T>::digits))
      return false;
    to = static_cast<T>(number);
    return true;
  }
}
bool read_number(const Json& value, Bool& to) {
  if (value.is_boolean()) {
    to.value = value.get<bool>() ? 1 : 0;
    return true;
  }
  return read_number(value, to.value) && to.value <= 1;
}
bool read_number(const Json& value, std::string& to) {
  if (!value.is_string()) return false;
  to = value.get<std::string>();
  return true;
}

// Calls take(element) for all elements in order: those of a flat list, or of lists within lists as the shape has them.
template <class Take>
Result<> each_element(const Json& data, const Shape& shape, int axis, Take&& take) {
  const auto expected = static_cast<size_t>(axis < shape.rank ? shape[axis] : 0);
  if (!data.is_array() || data.size() != expected)
    return error(Code::kInvalid, fmt::format("data: {} where the shape {} has lists of {} at depth {}",
                                             data.is_array() ? fmt::format("a list of {}", data.size()) : excerpt(data),
                                             to_string(shape), expected, axis));
  for (const Json& item : data) {
    if (axis + 1 == shape.rank)
      BOLIDE_TRY(take(item));
    else
      BOLIDE_TRY(each_element(item, shape, axis + 1, take));
  }
  return {};
}

template <class Take>
Result<> each_element(const Json& data, const Shape& shape, Take&& take) {
  const auto count = static_cast<size_t>(shape.elements());
  if (!data.is_array()) return error(Code::kInvalid, "data: must be an array");
  const bool nested = !data.empty() && data.front().is_array();
  if (nested && shape.rank > 1) return each_element(data, shape, 0, take);
  if (data.empty() && count == 0) return {};
  if (data.size() != count)
    return error(Code::kInvalid,
                 fmt::format("data: has {} elements, the shape {} has {}", data.size(), to_string(shape), count));
  for (const Json& item : data) BOLIDE_TRY(take(item));
  return {};
}

Result<> check_texts(const Shape& shape, size_t texts_max) {
  if (static_cast<uint64_t>(shape.elements()) <= texts_max) return {};
  return error(Code::kInvalid, fmt::format("shape: {} elements of BYTES, at most {}", shape.elements(), texts_max));
}

Result<Tensor> texts_of_bytes(const Shape& shape, std::string_view bytes) {
  std::vector<std::string> texts;
  const auto count = static_cast<size_t>(shape.elements());
  texts.reserve(count);
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    if (bytes.size() - at < sizeof(uint32_t))
      return error(Code::kInvalid, fmt::format("its {} bytes end before element {} of {}", bytes.size(), i, count));
    const auto length = load_unaligned<uint32_t>(as_bytes(bytes).data() + at);
    at += sizeof(uint32_t);
    if (bytes.size() - at < length)
      return error(Code::kInvalid,
                   fmt::format("element {} has {} bytes, of which {} are there", i, length, bytes.size() - at));
    texts.emplace_back(bytes.substr(at, length));
    at += length;
  }
  if (at != bytes.size())
    return error(Code::kInvalid, fmt::format("{} bytes are left after {} elements", bytes.size() - at, count));
  return Tensor::strings(shape, std::move(texts));
}

}  // namespace

std::optional<std::string_view> kserve_name(DType dtype) {
  for (const NamedType& type : kTypes)
    if (type.dtype == dtype) return type.name;
  return std::nullopt;
}

std::optional<DType> dtype_of_kserve(std::string_view name) {
  for (const NamedType& type : kTypes)
    if (type.name == name) return type.dtype;
  return std::nullopt;
}

std::string kserve_names() {
  std::string names;
  for (const NamedType& type : kTypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  return names;
}

bool has_json_form(DType dtype) { return dtype != DType::kF16 && dtype != DType::kBF16; }

std::string kserve_type(DType dtype, const std::optional<std::vector<int64_t>>& dims) {
  return fmt::format("{}[{}]", kserve_name(dtype).value_or(to_string(dtype)),
                     dims ? fmt::format("{}", fmt::join(*dims, ",")) : "...");
}

std::string kserve_type(const Tensor& tensor) {
  const auto dims = tensor.shape().span();
  return kserve_type(tensor.dtype(), std::vector<int64_t>(dims.begin(), dims.end()));
}

Result<Shape> checked_shape(std::span<const int64_t> dims) {
  if (dims.size() > kRankMax)
    return error(Code::kUnsupported, fmt::format("shape: has {} dims, at most {}", dims.size(), kRankMax));
  uint64_t elements = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) return error(Code::kInvalid, fmt::format("shape: {} is no size of a dim", dim));
    // Zeros come last: a product of sizes that nothing can have is wrong even where there are no elements.
    if (mul_overflows(elements, static_cast<uint64_t>(std::max<int64_t>(dim, 1)), &elements) ||
        elements > Tensor::kBytesMax)
      return error(Code::kInvalid, fmt::format("shape: [{}] has too many elements", fmt::join(dims, ",")));
  }
  return Shape(dims);
}

Result<Tensor> tensor_of_json(DType dtype, const Shape& shape, const Json& data, size_t texts_max) {
  if (!has_json_form(dtype))
    return error(Code::kUnsupported,
                 fmt::format("data: {} has no form in JSON; send its bytes (binary_data_size)", *kserve_name(dtype)));
  // Before memory is taken for it: elements there are as many as JSON values at most.
  const auto refuse = [&](const Json& item) {
    return error(Code::kInvalid, fmt::format("data: {} is no element of {}", excerpt(item), *kserve_name(dtype)));
  };
  if (dtype == DType::kString) {
    BOLIDE_TRY(check_texts(shape, texts_max));
    std::vector<std::string> texts;
    BOLIDE_TRY(each_element(data, shape, [&](const Json& item) -> Result<> {
      return read_number(item, texts.emplace_back()) ? Result<>() : refuse(item);
    }));
    return Tensor::strings(shape, std::move(texts));
  }
  BOLIDE_TRY(each_element(data, shape, [](const Json&) -> Result<> { return {}; }));
  BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
  BOLIDE_TRY(dispatch(kJsonNumbers, dtype, "it", [&]<class T>() -> Result<> {
    T* to = tensor.mutate<T>().data();
    return each_element(data, shape, [&](const Json& item) -> Result<> {
      return read_number(item, *to++) ? Result<>() : refuse(item);
    });
  }));
  return tensor;
}

Result<Tensor> tensor_of_bytes(DType dtype, const Shape& shape, std::string_view bytes, size_t texts_max) {
  if (dtype == DType::kString) {
    BOLIDE_TRY(check_texts(shape, texts_max));
    return texts_of_bytes(shape, bytes);
  }
  const uint64_t expected = static_cast<uint64_t>(shape.elements()) * element_bytes(dtype);
  if (bytes.size() != expected)
    return error(Code::kInvalid, fmt::format("binary_data_size: {} bytes, {} of shape {} has {}", bytes.size(),
                                             *kserve_name(dtype), to_string(shape), expected));
  BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
  if (expected > 0) std::memcpy(tensor.mutable_data(), bytes.data(), bytes.size());
  // Ops rely on 0 and 1.
  if (dtype == DType::kBool)
    for (Bool& element : tensor.mutate<Bool>()) element.value = element.value != 0 ? 1 : 0;
  return tensor;
}

size_t raw_bytes(const Tensor& tensor) {
  if (!tensor.is_string()) return tensor.bytes();
  size_t bytes = 0;
  for (const std::string& text : tensor.as<std::string>()) bytes += sizeof(uint32_t) + text.size();
  return bytes;
}

void append_raw(std::string& out, const Tensor& tensor) {
  if (!tensor.is_string()) {
    out += as_text({tensor.data(), tensor.bytes()});
    return;
  }
  for (const std::string& text : tensor.as<std::string>()) {
    char length[sizeof(uint32_t)];
    const auto size = static_cast<uint32_t>(text.size());
    std::memcpy(length, &size, sizeof size);
    out.append(length, sizeof length);
    out += text;
  }
}

Result<> append_json_data(std::string& out, const Tensor& tensor) {
  out += '[';
  if (tensor.is_string()) {
    const char* comma = "";
    for (const std::string& text : tensor.as<std::string>()) {
      out += std::exchange(comma, ",");
      append_json_string(out, text);
    }
  } else {
    BOLIDE_TRY(dispatch(kJsonNumbers, tensor.dtype(), "it", [&]<class T>() -> Result<> {
      const char* comma = "";
      for (const T element : tensor.as<T>()) {
        out += std::exchange(comma, ",");
        if constexpr (std::is_same_v<T, Bool>) {
          out += element.value != 0 ? "true" : "false";
        } else {
          if constexpr (std::is_floating_point_v<T>)
            if (!std::isfinite(element))
              return error(Code::kUnsupported,
                           fmt::format("{} is no number of JSON; ask for raw bytes (binary_data: true)", element));
          fmt::format_to(std::back_inserter(out), "{}", element);
        }
      }
      return {};
    }));
  }
  out += ']';
  return {};
}

}  // namespace bolide::server
