#include "ir/type.h"

#include <fmt/format.h>

#include <charconv>

#include "tensor/tensor.h"

namespace bolide {
namespace {

constexpr std::string_view kSymbolNames = "TSR";

// A type of a file has at most this many elements per unit of its symbol, so that with symbols below 2^20 the bytes of
// any value fit 64 bits.
constexpr uint64_t kElementsMax = uint64_t{1} << 40;

std::string dim_text(Dim dim) {
  if (dim.is_number()) return fmt::format("{}", dim.factor);
  if (dim.factor == 1) return std::string(to_string(dim.symbol));
  return fmt::format("{}*{}", dim.factor, to_string(dim.symbol));
}

// What a file may ask for: bounded sizes, at most one symbol, whole blocks.
Result<> check_dims(const ValueType& type, std::string_view text) {
  uint64_t elements = 1;
  int symbols = 0;
  for (const Dim dim : type.dims) {
    symbols += dim.is_number() ? 0 : 1;
    if (mul_overflows(elements, static_cast<uint64_t>(dim.factor), &elements) || elements > kElementsMax)
      return error(Code::kInvalid, fmt::format("'{}' is too large", text));
  }
  if (type.dims.empty() || symbols > 1)
    return error(Code::kInvalid, fmt::format("'{}' has {}", text, symbols > 1 ? "more than one symbol" : "no dims"));
  if (type.quant != nullptr && (!type.is_static() || type.dims.back().factor % type.quant->block_elements != 0))
    return error(Code::kInvalid,
                 fmt::format("'{}' is not made of whole blocks of {} elements", text, type.quant->block_elements));
  return {};
}

Result<Dim> parse_dim(std::string_view text) {
  Dim dim(1);
  if (!text.empty() && kSymbolNames.find(text.back()) != std::string_view::npos) {
    dim.symbol = static_cast<Symbol>(kSymbolNames.find(text.back()));
    text.remove_suffix(1);
    if (text.empty()) return dim;
    if (!text.ends_with('*')) return error(Code::kInvalid, fmt::format("'{}' is not a dim", text));
    text.remove_suffix(1);
  }
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), dim.factor);
  if (failure != std::errc() || end != text.data() + text.size() || dim.factor < 1)
    return error(Code::kInvalid, fmt::format("'{}' is not a dim", text));
  return dim;
}

}  // namespace

std::string_view to_string(Symbol symbol) { return kSymbolNames.substr(static_cast<size_t>(symbol), 1); }

Shape ValueType::at(const SymbolValues& values) const {
  Shape shape;
  shape.rank = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) shape.dims[i] = dims[i].at(values);
  return shape;
}

size_t ValueType::bytes(const SymbolValues& values) const {
  if (dtype == DType::kNone) return 0;
  const Shape shape = at(values);
  if (shape.rank == 0) return row_bytes(dtype, quant, 1);
  const int64_t cols = shape[-1];
  return cols == 0 ? 0 : static_cast<size_t>(shape.elements() / cols) * row_bytes(dtype, quant, cols);
}

bool ValueType::is_static() const {
  for (const Dim dim : dims)
    if (!dim.is_number()) return false;
  return true;
}

std::string to_string(const ValueType& type) {
  if (type.dtype == DType::kNone) return "none";
  std::string text(type.quant != nullptr ? type.quant->name : to_string(type.dtype));
  text += '[';
  for (size_t i = 0; i < type.dims.size(); ++i) text += (i == 0 ? "" : ",") + dim_text(type.dims[i]);
  return text + ']';
}

Result<ValueType> parse_value_type(std::string_view text) {
  if (text == "none") return order_edge();
  const size_t open = text.find('[');
  if (open == std::string_view::npos || !text.ends_with(']'))
    return error(Code::kInvalid, fmt::format("'{}' is not a type such as f32[T,576]", text));
  ValueType type;
  const std::string_view name = text.substr(0, open);
  if (const QuantScheme* quant = quant_from_string(name)) {
    type.quant = quant;
    type.dtype = quant->code;
  } else if (const auto dtype = dtype_from_string(name)) {
    type.dtype = *dtype;
  } else {
    return error(Code::kInvalid, fmt::format("'{}' is not an element type", name));
  }
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    if (type.dims.size() == kRankMax) return error(Code::kInvalid, fmt::format("more than {} dims", kRankMax));
    BOLIDE_TRY(const Dim dim, parse_dim(rest.substr(0, comma)));
    type.dims.push_back(dim);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  if (type.dtype == DType::kNone) return error(Code::kInvalid, fmt::format("'{}': an ordering edge has no dims", text));
  BOLIDE_TRY(check_dims(type, text));
  return type;
}

}  // namespace bolide
