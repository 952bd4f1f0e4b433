// Tensors of ONNX files as Tensors: from raw bytes, typed fields, external data and sparse ones.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "formats/onnx_file.h"

namespace bolide {
namespace {

struct DataType {
  DType dtype;
  std::string_view name;
};
constexpr DataType kDataTypes[] = {
    {DType::kNone, "UNDEFINED"},
    {DType::kF32, "FLOAT"},
    {DType::kU8, "UINT8"},
    {DType::kI8, "INT8"},
    {DType::kU16, "UINT16"},
    {DType::kI16, "INT16"},
    {DType::kI32, "INT32"},
    {DType::kI64, "INT64"},
    {DType::kString, "STRING"},
    {DType::kBool, "BOOL"},
    {DType::kF16, "FLOAT16"},
    {DType::kF64, "DOUBLE"},
    {DType::kU32, "UINT32"},
    {DType::kU64, "UINT64"},
    {DType::kNone, "COMPLEX64"},
    {DType::kNone, "COMPLEX128"},
    {DType::kBF16, "BFLOAT16"},
    {DType::kF8E4M3, "FLOAT8E4M3FN"},
    {DType::kF8E4M3FNUZ, "FLOAT8E4M3FNUZ"},
    {DType::kF8E5M2, "FLOAT8E5M2"},
    {DType::kF8E5M2FNUZ, "FLOAT8E5M2FNUZ"},
    {DType::kU4, "UINT4"},
    {DType::kI4, "INT4"},
    {DType::kF4E2M1, "FLOAT4E2M1"},
    {DType::kF8E8M0, "FLOAT8E8M0"},
    {DType::kU2, "UINT2"},
    {DType::kI2, "INT2"},
};

// Elements of less than a byte lie in the file from the lowest bits up.
void unpack(Bytes from, DType dtype, std::span<uint8_t> to) {
  const auto bits = static_cast<unsigned>(bits_of(dtype));
  const unsigned in_byte = 8 / bits, mask = (1u << bits) - 1, sign = 1u << (bits - 1);
  const bool is_signed = dtype == DType::kI4 || dtype == DType::kI2;
  for (size_t i = 0; i < to.size(); ++i) {
    const unsigned code = static_cast<unsigned>(from[i / in_byte]) >> (i % in_byte * bits) & mask;
    to[i] = static_cast<uint8_t>(is_signed && (code & sign) != 0 ? code | ~mask : code);
  }
}

size_t stored_bytes(DType dtype, int64_t elements) {
  const auto bits = static_cast<size_t>(bits_of(dtype));
  return bits < 8 ? (static_cast<size_t>(elements) * bits + 7) / 8 : static_cast<size_t>(elements) * (bits / 8);
}

Result<Tensor> from_bytes(Bytes bytes, DType dtype, const Shape& shape, const std::shared_ptr<const void>& owner) {
  if (dtype == DType::kString) return error(Code::kInvalid, "strings in raw_data");
  const size_t expected = stored_bytes(dtype, shape.elements());
  if (bytes.size() != expected)
    return error(Code::kInvalid, fmt::format("{}{} has {} bytes of data, expected {}", to_string(dtype),
                                             to_string(shape), bytes.size(), expected));
  const size_t element = element_bytes(dtype);
  if (bits_of(dtype) >= 8 && owner != nullptr && reinterpret_cast<uintptr_t>(bytes.data()) % element == 0)
    return Tensor::over(owner, bytes.data(), dtype, shape);
  BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
  if (bits_of(dtype) < 8)
    unpack(bytes, dtype, {reinterpret_cast<uint8_t*>(tensor.mutable_data()), tensor.bytes()});
  else
    std::copy(bytes.begin(), bytes.end(), tensor.mutable_data());
  release_mapped(bytes);  // else what is not aligned would be in memory twice
  return tensor;
}

template <class To, class From>
void convert(const std::vector<From>& from, Tensor& tensor) {
  const auto to = tensor.mutate<To>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<To>(from[i]);
}

// int32_data and int64_data hold the numbers, or the bits of what is no number there; sub-byte types as packed bytes.
Result<Tensor> from_integers(const std::vector<int64_t>& values, DType dtype, const Shape& shape) {
  const bool packed = bits_of(dtype) < 8;
  if (packed ? values.size() < stored_bytes(dtype, shape.elements())
             : static_cast<int64_t>(values.size()) != shape.elements())
    return error(Code::kInvalid, fmt::format("has {} elements, its shape {} wants {}", values.size(), to_string(shape),
                                             shape.elements()));
  BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
  if (packed) {
    std::vector<std::byte> bytes(values.size());
    for (size_t i = 0; i < values.size(); ++i) bytes[i] = static_cast<std::byte>(values[i]);
    unpack(bytes, dtype, {reinterpret_cast<uint8_t*>(tensor.mutable_data()), tensor.bytes()});
    return tensor;
  }
  switch (element_bytes(dtype)) {
    case 1: convert<uint8_t>(values, tensor); break;
    case 2: convert<uint16_t>(values, tensor); break;
    case 4: convert<uint32_t>(values, tensor); break;
    default: convert<uint64_t>(values, tensor); break;
  }
  return tensor;
}

// A file of external data: beside the model or below it, and no link on the way.
Result<std::shared_ptr<const MappedFile>> external_file(const std::filesystem::path& folder,
                                                        std::string_view location) {
  namespace fs = std::filesystem;
  const fs::path relative(location);
  const auto refuse = [&](std::string_view why) {
    return error(Code::kInvalid, fmt::format("external data in {:.200}: {}", location, why));
  };
  if (folder.empty()) return refuse("there is no folder that it could be in");
  if (location.find('\0') != std::string_view::npos) return refuse("has a zero byte in its name");
  if (location.empty() || relative.is_absolute()) return refuse("expected a path relative to the model's folder");
  fs::path at = folder;
  for (const fs::path& part : relative) {
    if (part == "..") return refuse("leads out of the model's folder");
    if (part == "." || part.empty()) continue;
    at /= part;
    std::error_code failure;
    if (fs::is_symlink(fs::symlink_status(at, failure))) return refuse("is a link, or lies behind one");
  }
  BOLIDE_TRY(MappedFile file, MappedFile::open(at));
  return std::make_shared<const MappedFile>(std::move(file));
}

Result<Tensor> from_external(const OnnxTensor& stored, DType dtype, const Shape& shape, const OnnxData& data) {
  std::string_view location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (const auto& [key, value] : stored.external_data) {
    if (key == "location") location = value;
    if (key != "offset" && key != "length") continue;
    uint64_t number = 0;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (failure != std::errc() || end != value.data() + value.size())
      return error(Code::kInvalid, fmt::format("external data: {} is '{:.40}', expected a number", key, value));
    if (key == "offset") offset = number;
    if (key == "length") length = number;
  }
  BOLIDE_TRY(const std::shared_ptr<const MappedFile> file, external_file(data.folder, location));
  const uint64_t size = length.value_or(stored_bytes(dtype, shape.elements()));
  uint64_t end = 0;
  if (add_overflows(offset, size, &end) || end > file->bytes().size())
    return error(Code::kInvalid, fmt::format("external data: {} bytes at {} of {:.200}, which has {}", size, offset,
                                             location, file->bytes().size()));
  return from_bytes(file->bytes().subspan(offset, size), dtype, shape, file);
}

Result<Shape> checked_shape(std::span<const int64_t> dims, DType dtype) {
  if (dims.size() > kRankMax)
    return error(Code::kUnsupported, fmt::format("has {} dims: at most {} are supported", dims.size(), kRankMax));
  uint64_t bytes = std::max<size_t>(element_bytes(dtype), 1);
  bool empty = false, beyond = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return error(Code::kInvalid, fmt::format("has a dim of {}", dim));
    empty = empty || dim == 0;
    beyond =
        beyond || (dim > 0 && (mul_overflows(bytes, static_cast<uint64_t>(dim), &bytes))) || bytes > Tensor::kBytesMax;
  }
  if (beyond && !empty) return error(Code::kInvalid, "is too large");
  return Shape(dims);
}

}  // namespace

Result<DType> onnx_dtype(int64_t data_type) {
  if (data_type < 0 || data_type >= static_cast<int64_t>(std::size(kDataTypes)))
    return error(Code::kUnsupported, fmt::format("elements of data type {}", data_type));
  const DataType& row = kDataTypes[data_type];
  if (row.dtype == DType::kNone) return error(Code::kUnsupported, fmt::format("elements of type {}", row.name));
  return row.dtype;
}

Result<Tensor> onnx_tensor(const OnnxTensor& stored, const OnnxData& data) {
  const auto make = [&]() -> Result<Tensor> {
    BOLIDE_TRY(const DType dtype, onnx_dtype(stored.data_type));
    BOLIDE_TRY(const Shape shape, checked_shape(stored.dims, dtype));
    if (stored.external) return from_external(stored, dtype, shape, data);
    if (stored.raw.has_value()) return from_bytes(*stored.raw, dtype, shape, data.owner);
    const auto count = [&](size_t there) -> Result<> {
      if (static_cast<int64_t>(there) != shape.elements())
        return error(Code::kInvalid,
                     fmt::format("has {} elements, its shape {} wants {}", there, to_string(shape), shape.elements()));
      return {};
    };
    if (dtype == DType::kString) {
      BOLIDE_TRY(count(stored.strings.size()));
      return Tensor::strings(shape, {stored.strings.begin(), stored.strings.end()});
    }
    if (dtype == DType::kF32) {
      BOLIDE_TRY(count(stored.floats.size()));
      BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
      convert<float>(stored.floats, tensor);
      return tensor;
    }
    if (dtype == DType::kF64) {
      BOLIDE_TRY(count(stored.doubles.size()));
      BOLIDE_TRY(Tensor tensor, Tensor::make(dtype, shape));
      convert<double>(stored.doubles, tensor);
      return tensor;
    }
    return from_integers(stored.integers, dtype, shape);
  };
  return make().context(fmt::format("tensor {}", stored.name));
}

Result<Tensor> onnx_tensor(const OnnxSparseTensor& stored, const OnnxData& data) {
  BOLIDE_TRY(const Tensor values, onnx_tensor(stored.values, data));
  BOLIDE_TRY(const Tensor indices, onnx_tensor(stored.indices, data));
  const auto make = [&]() -> Result<Tensor> {
    BOLIDE_TRY(const Shape shape, checked_shape(stored.dims, values.dtype()));
    if (values.is_string() || values.rank() != 1 || indices.dtype() != DType::kI64)
      return error(Code::kInvalid, "values or indices of a wrong type");
    const bool linear = indices.rank() == 1;
    if (indices.rank() < 1 || indices.rank() > 2 || indices.dim(0) != values.dim(0) ||
        (!linear && indices.dim(1) != shape.rank))
      return error(Code::kInvalid,
                   fmt::format("{} indices for {} values", to_string(indices.shape()), values.elements()));
    BOLIDE_TRY(Tensor tensor, Tensor::make(values.dtype(), shape));
    std::fill_n(tensor.mutable_data(), tensor.bytes(), std::byte{0});
    const size_t size = element_bytes(values.dtype());
    const auto at = indices.as<int64_t>();
    for (int64_t i = 0; i < values.elements(); ++i) {
      int64_t place = linear ? at[static_cast<size_t>(i)] : 0;
      for (int axis = 0; !linear && axis < shape.rank; ++axis) {
        const int64_t k = at[static_cast<size_t>(i * shape.rank + axis)];
        if (k < 0 || k >= shape[axis]) return error(Code::kInvalid, fmt::format("an index of {}", k));
        place = place * shape[axis] + k;
      }
      if (place < 0 || place >= tensor.elements()) return error(Code::kInvalid, fmt::format("an index of {}", place));
      std::copy_n(values.data() + static_cast<size_t>(i) * size, size,
                  tensor.mutable_data() + static_cast<size_t>(place) * size);
    }
    return tensor;
  };
  return make().context(fmt::format("sparse tensor {}", stored.values.name));
}

}  // namespace bolide
