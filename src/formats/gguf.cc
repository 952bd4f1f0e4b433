#include "formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

namespace bolide {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
// Published files have under 100 entries and under 20,000 tensors. The limits bound what a hostile file can make us
// allocate to some tens of megabytes.
constexpr uint64_t kEntriesMax = 1u << 16;
constexpr uint64_t kTensorsMax = 1u << 17;
constexpr uint64_t kKeyLengthMax = 512;         // the specification allows 65535; keys are quoted in errors
constexpr uint64_t kTensorNameLengthMax = 255;  // ggml itself takes 63
constexpr int kNestingMax = 4;
constexpr int64_t kAlignmentMin = 8;  // from the specification; enough for every element type
constexpr uint64_t kAlignmentMax = 1u << 20;
constexpr uint64_t kTensorRankMax = 4;  // from the specification

// The smallest encodings, to test counts against the bytes that are left.
constexpr uint64_t kEntryBytesMin = 8 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 4 + 8 + 4 + 8;

struct TensorType {
  uint32_t code;
  std::string_view name;
  DType dtype;  // kNone: not supported
  const QuantScheme* quant;
};

constexpr std::array kTensorTypes = {
    TensorType{0, "F32", DType::kF32, nullptr},        TensorType{1, "F16", DType::kF16, nullptr},
    TensorType{2, "Q4_0", kQ4_0.code, &kQ4_0},         TensorType{3, "Q4_1", kQ4_1.code, &kQ4_1},
    TensorType{6, "Q5_0", kQ5_0.code, &kQ5_0},         TensorType{7, "Q5_1", kQ5_1.code, &kQ5_1},
    TensorType{8, "Q8_0", kQ8_0.code, &kQ8_0},         TensorType{9, "Q8_1", DType::kNone, nullptr},
    TensorType{10, "Q2_K", kQ2_K.code, &kQ2_K},        TensorType{11, "Q3_K", kQ3_K.code, &kQ3_K},
    TensorType{12, "Q4_K", kQ4_K.code, &kQ4_K},        TensorType{13, "Q5_K", kQ5_K.code, &kQ5_K},
    TensorType{14, "Q6_K", kQ6_K.code, &kQ6_K},        TensorType{15, "Q8_K", DType::kNone, nullptr},
    TensorType{16, "IQ2_XXS", DType::kNone, nullptr},  TensorType{17, "IQ2_XS", DType::kNone, nullptr},
    TensorType{18, "IQ3_XXS", DType::kNone, nullptr},  TensorType{19, "IQ1_S", DType::kNone, nullptr},
    TensorType{20, "IQ4_NL", kIQ4_NL.code, &kIQ4_NL},  TensorType{21, "IQ3_S", DType::kNone, nullptr},
    TensorType{22, "IQ2_S", DType::kNone, nullptr},    TensorType{23, "IQ4_XS", kIQ4_XS.code, &kIQ4_XS},
    TensorType{24, "I8", DType::kI8, nullptr},         TensorType{25, "I16", DType::kI16, nullptr},
    TensorType{26, "I32", DType::kI32, nullptr},       TensorType{27, "I64", DType::kI64, nullptr},
    TensorType{28, "F64", DType::kF64, nullptr},       TensorType{29, "IQ1_M", DType::kNone, nullptr},
    TensorType{30, "BF16", DType::kBF16, nullptr},     TensorType{31, "Q4_0_4_4", DType::kNone, nullptr},
    TensorType{32, "Q4_0_4_8", DType::kNone, nullptr}, TensorType{33, "Q4_0_8_8", DType::kNone, nullptr},
    TensorType{34, "TQ1_0", DType::kNone, nullptr},    TensorType{35, "TQ2_0", DType::kNone, nullptr},
    TensorType{39, "MXFP4", DType::kNone, nullptr},
};

// Bytes of a scalar; 0 for strings and arrays, whose size depends on their content.
constexpr uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

std::optional<int64_t> load_integer(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::kU8: return load_unaligned<uint8_t>(p);
    case GgufType::kI8: return load_unaligned<int8_t>(p);
    case GgufType::kU16: return load_unaligned<uint16_t>(p);
    case GgufType::kI16: return load_unaligned<int16_t>(p);
    case GgufType::kU32: return load_unaligned<uint32_t>(p);
    case GgufType::kI32: return load_unaligned<int32_t>(p);
    case GgufType::kI64: return load_unaligned<int64_t>(p);
    case GgufType::kU64: {
      const auto value = load_unaligned<uint64_t>(p);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default: return std::nullopt;
  }
}

std::optional<double> load_number(GgufType type, const std::byte* p) {
  if (type == GgufType::kF32) return load_unaligned<float>(p);
  if (type == GgufType::kF64) return load_unaligned<double>(p);
  if (type == GgufType::kU64) return static_cast<double>(load_unaligned<uint64_t>(p));
  if (const auto integer = load_integer(type, p)) return static_cast<double>(*integer);
  return std::nullopt;
}

// Reads forward through the file; every read is checked, `label` begins each error.
class Cursor {
 public:
  Cursor(Bytes file, const std::string& label) : file_(file), label_(label) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return file_.size() - offset_; }

  Result<Bytes> take(uint64_t size, std::string_view what) {
    if (size > left())
      return error(Code::kInvalid,
                   fmt::format("{}: {} at byte {} needs {} bytes, {} are left: the file is truncated or damaged",
                               label_, what, offset_, size, left()));
    const Bytes part = file_.subspan(offset_, size);
    offset_ += size;
    return part;
  }
  template <class T>
  Result<T> read(std::string_view what) {
    BOLIDE_TRY(const Bytes part, take(sizeof(T), what));
    return load_unaligned<T>(part.data());
  }
  Result<std::string_view> string(uint64_t length_max, std::string_view what) {
    BOLIDE_TRY(const auto length, read<uint64_t>(what));
    if (length > length_max)
      return error(Code::kInvalid, fmt::format("{}: {} at byte {} has a length of {}, at most {} are allowed", label_,
                                               what, offset_ - 8, length, length_max));
    BOLIDE_TRY(const Bytes part, take(length, what));
    return as_text(part);
  }
  // A count of things that take at least bytes_each; refused if they cannot be there.
  Result<> check_count(uint64_t count, uint64_t bytes_each, uint64_t count_max, std::string_view what) {
    if (count > left() / bytes_each)
      return error(Code::kInvalid,
                   fmt::format("{}: says it has {} {}, but only {} bytes follow: the file is truncated or damaged",
                               label_, count, what, left()));
    if (count > count_max)
      return error(Code::kUnsupported,
                   fmt::format("{}: has {} {}, at most {} are read", label_, count, what, count_max));
    return {};
  }
  Bytes since(uint64_t start) const { return file_.subspan(start, offset_ - start); }

 private:
  Bytes file_;
  const std::string& label_;
  uint64_t offset_ = 0;
};

Result<GgufType> read_type(Cursor& cursor, const std::string& label, std::string_view key) {
  BOLIDE_TRY(const auto code, cursor.read<uint32_t>(key));
  if (code > static_cast<uint32_t>(GgufType::kF64))
    return error(Code::kInvalid, fmt::format("{}: {}: unknown value type {}", label, key, code));
  return static_cast<GgufType>(code);
}

Result<GgufValue> read_value(Cursor& cursor, const std::string& label, std::string_view key, GgufType type, int depth);

Result<GgufValue> read_array(Cursor& cursor, const std::string& label, std::string_view key, int depth) {
  if (depth > kNestingMax)
    return error(Code::kInvalid, fmt::format("{}: {}: arrays nested deeper than {}", label, key, kNestingMax));
  GgufValue value;
  value.type = GgufType::kArray;
  BOLIDE_TRY(value.element, read_type(cursor, label, key));
  BOLIDE_TRY(value.count, cursor.read<uint64_t>(key));
  const uint64_t each = scalar_bytes(value.element);
  const uint64_t each_min = each != 0 ? each : value.element == GgufType::kString ? 8 : 12;
  BOLIDE_TRY(cursor.check_count(value.count, each_min, UINT64_MAX, fmt::format("elements in {}", key)));
  if (each != 0) {
    BOLIDE_TRY(value.bytes, cursor.take(value.count * each, key));
    return value;
  }
  const uint64_t start = cursor.offset();
  for (uint64_t i = 0; i < value.count; ++i) {
    BOLIDE_TRY(read_value(cursor, label, key, value.element, depth + 1));
  }
  value.bytes = cursor.since(start);
  return value;
}

Result<GgufValue> read_value(Cursor& cursor, const std::string& label, std::string_view key, GgufType type, int depth) {
  if (type == GgufType::kArray) return read_array(cursor, label, key, depth);
  GgufValue value;
  value.type = type;
  if (type == GgufType::kString) {
    BOLIDE_TRY(const auto text, cursor.string(UINT64_MAX, key));
    value.bytes = as_bytes(text);
    return value;
  }
  BOLIDE_TRY(value.bytes, cursor.take(scalar_bytes(type), key));
  return value;
}

Result<> read_metadata(Cursor& cursor, const std::string& label, uint64_t count, GgufHeader& header) {
  for (uint64_t i = 0; i < count; ++i) {
    BOLIDE_TRY(const auto key, cursor.string(kKeyLengthMax, fmt::format("key of metadata entry {}", i)));
    if (key.empty()) return error(Code::kInvalid, fmt::format("{}: metadata entry {} has an empty key", label, i));
    BOLIDE_TRY(const auto type, read_type(cursor, label, key));
    BOLIDE_TRY(const auto value, read_value(cursor, label, key, type, 1));
    if (!header.metadata.emplace(key, value).second)
      return error(Code::kInvalid, fmt::format("{}: metadata key {} appears twice", label, key));
  }
  return {};
}

Result<const TensorType*> tensor_type(uint32_t code, const std::string& where) {
  const auto* const row =
      std::find_if(kTensorTypes.begin(), kTensorTypes.end(), [&](const TensorType& t) { return t.code == code; });
  if (row != kTensorTypes.end() && row->dtype != DType::kNone) return row;
  return error(Code::kUnsupported,
               fmt::format("{}: type {} is not supported; take or make a version of the model in Q4_K_M, Q8_0 or "
                           "another of F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K..Q6_K IQ4_NL IQ4_XS",
                           where, row != kTensorTypes.end() ? std::string(row->name) : fmt::format("number {}", code)));
}

// Sets shape and size; the offset is still relative to the data section.
Result<GgufTensor> read_tensor(Cursor& cursor, const std::string& label, uint64_t index) {
  BOLIDE_TRY(const auto name, cursor.string(kTensorNameLengthMax, fmt::format("name of tensor {}", index)));
  if (name.empty()) return error(Code::kInvalid, fmt::format("{}: tensor {} has an empty name", label, index));
  const std::string where = fmt::format("{}: tensor {}", label, name);
  GgufTensor tensor{};
  tensor.info.name = name;
  BOLIDE_TRY(const auto rank, cursor.read<uint32_t>(where));
  if (rank == 0 || rank > kTensorRankMax)
    return error(Code::kInvalid, fmt::format("{}: has {} dimensions, expected 1 to {}", where, rank, kTensorRankMax));
  tensor.info.shape.rank = static_cast<int32_t>(rank);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    BOLIDE_TRY(const auto dim, cursor.read<int64_t>(where));
    if (dim <= 0) return error(Code::kInvalid, fmt::format("{}: dimension {} is {}", where, i, dim));
    if (mul_overflows(elements, static_cast<uint64_t>(dim), &elements) || elements > static_cast<uint64_t>(INT64_MAX))
      return error(Code::kInvalid, fmt::format("{}: the product of its dimensions overflows", where));
    tensor.info.shape[static_cast<int>(rank - 1 - i)] = dim;
  }
  BOLIDE_TRY(const auto code, cursor.read<uint32_t>(where));
  BOLIDE_TRY(const TensorType* type, tensor_type(code, where));
  tensor.info.dtype = type->dtype;
  tensor.info.quant = type->quant;
  BOLIDE_TRY(tensor.offset, cursor.read<uint64_t>(where));

  const auto per_block = static_cast<uint64_t>(type->quant != nullptr ? type->quant->block_elements : 1);
  const auto block_bytes =
      static_cast<uint64_t>(type->quant != nullptr ? type->quant->block_bytes : bits_of(type->dtype) / 8);
  if (static_cast<uint64_t>(tensor.info.shape[-1]) % per_block != 0)
    return error(Code::kInvalid, fmt::format("{}: rows of {} elements are no multiple of {}'s block of {}", where,
                                             tensor.info.shape[-1], type->name, per_block));
  if (mul_overflows(elements / per_block, block_bytes, &tensor.size))
    return error(Code::kInvalid, fmt::format("{}: the product of its dimensions overflows", where));
  return tensor;
}

// Makes offsets absolute and checks that tensors are aligned, inside the file and apart from each other.
Result<> place_tensors(Bytes file, uint64_t data_begin, const std::string& label, GgufHeader& header) {
  for (GgufTensor& tensor : header.tensors) {
    const std::string_view name = tensor.info.name;
    if (tensor.offset % header.alignment != 0)
      return error(Code::kInvalid, fmt::format("{}: tensor {}: offset {} is no multiple of the alignment, {}", label,
                                               name, tensor.offset, header.alignment));
    uint64_t end = 0;
    if (add_overflows(tensor.offset, data_begin, &tensor.offset) || add_overflows(tensor.offset, tensor.size, &end) ||
        end > file.size())
      return error(Code::kInvalid,
                   fmt::format("{}: tensor {}: its {} bytes lie beyond the end of the file ({} bytes): the file is "
                               "truncated or damaged; download it again",
                               label, name, tensor.size, file.size()));
  }
  std::vector<const GgufTensor*> order;
  order.reserve(header.tensors.size());
  for (const GgufTensor& tensor : header.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->offset + order[i - 1]->size > order[i]->offset)
      return error(Code::kInvalid,
                   fmt::format("{}: tensors {} and {} overlap", label, order[i - 1]->info.name, order[i]->info.name));
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->info.name < b->info.name; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->info.name == order[i]->info.name)
      return error(Code::kInvalid, fmt::format("{}: tensor {} appears twice", label, order[i]->info.name));
  return {};
}

Result<> check_magic(Bytes file, const std::string& label) {
  if (looks_like_gguf(file)) return {};
  std::string start;
  for (const std::byte b : file.first(std::min<size_t>(file.size(), 4))) start += fmt::format(" {:02x}", b);
  return error(Code::kInvalid, fmt::format("{}: is no GGUF file: it begins with{}, expected 47 47 55 46 (\"GGUF\")",
                                           label, start.empty() ? " nothing (it is empty)" : start));
}

Result<> check_version(uint32_t version, const std::string& label) {
  if (version == 2 || version == 3) return {};
  if (const uint32_t swapped = __builtin_bswap32(version); swapped == 2 || swapped == 3)
    return error(Code::kUnsupported,
                 fmt::format("{}: is a big-endian GGUF file; take the little-endian one, or convert "
                             "it with gguf-py's gguf_convert_endian",
                             label));
  return error(Code::kUnsupported, fmt::format("{}: GGUF version {}, only 2 and 3 are read; convert the model again "
                                               "with a current llama.cpp",
                                               label, version));
}

Result<> read_alignment(const std::string& label, GgufHeader& header) {
  BOLIDE_TRY(const auto alignment, header.integer("general.alignment", label));
  if (!alignment) return {};
  if (*alignment < kAlignmentMin || static_cast<uint64_t>(*alignment) > kAlignmentMax ||
      (*alignment & (*alignment - 1)) != 0)
    return error(Code::kInvalid, fmt::format("{}: general.alignment is {}, expected a power of two from {} to {}",
                                             label, *alignment, kAlignmentMin, kAlignmentMax));
  header.alignment = static_cast<uint64_t>(*alignment);
  return {};
}

Error wrong_type(const std::string& label, std::string_view key, const GgufValue& value, std::string_view expected) {
  return error(Code::kInvalid,
               fmt::format("{}: {}: has type {}, expected {}", label, key, to_string(value.type), expected));
}

}  // namespace

bool looks_like_gguf(Bytes file) { return file.size() >= 4 && load_unaligned<uint32_t>(file.data()) == kMagic; }

std::string_view to_string(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                       "int32",  "float32", "bool",   "string", "array",
                                                       "uint64", "int64",   "float64"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<int64_t> GgufValue::integer() const {
  return is_array() || type == GgufType::kString ? std::nullopt : load_integer(type, bytes.data());
}

std::optional<double> GgufValue::number() const {
  return is_array() || type == GgufType::kString ? std::nullopt : load_number(type, bytes.data());
}

std::optional<bool> GgufValue::boolean() const {
  if (type != GgufType::kBool) return std::nullopt;
  return bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufValue::string() const {
  if (type != GgufType::kString) return std::nullopt;
  return as_text(bytes);
}

std::optional<std::vector<std::string_view>> GgufValue::strings() const {
  if (!is_array() || element != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> list;
  list.reserve(count);
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = load_unaligned<uint64_t>(bytes.data() + at);
    list.push_back(as_text(bytes.subspan(at + 8, length)));
    at += 8 + length;
  }
  return list;
}

std::optional<std::vector<int64_t>> GgufValue::integers() const {
  if (!is_array()) return std::nullopt;
  std::vector<int64_t> list;
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = load_integer(element, bytes.data() + i * scalar_bytes(element));
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

std::optional<std::vector<double>> GgufValue::numbers() const {
  if (!is_array()) return std::nullopt;
  std::vector<double> list;
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = load_number(element, bytes.data() + i * scalar_bytes(element));
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

std::optional<std::vector<GgufValue>> GgufValue::arrays() const {
  if (!is_array() || element != GgufType::kArray) return std::nullopt;
  std::vector<GgufValue> list;
  const std::string label;
  Cursor cursor(bytes, label);
  for (uint64_t i = 0; i < count; ++i) {
    auto value = read_array(cursor, label, "", 1);
    if (!value) return std::nullopt;
    list.push_back(*value);
  }
  return list;
}

const GgufValue* GgufHeader::find(std::string_view key) const {
  const auto it = metadata.find(key);
  return it == metadata.end() ? nullptr : &it->second;
}

Result<std::optional<int64_t>> GgufHeader::integer(std::string_view key, const std::string& label) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (const auto integer = value->integer()) return integer;
  return wrong_type(label, key, *value, "an integer");
}

Result<std::optional<double>> GgufHeader::number(std::string_view key, const std::string& label) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto number = value->number()) return number;
  return wrong_type(label, key, *value, "a number");
}

Result<std::optional<bool>> GgufHeader::boolean(std::string_view key, const std::string& label) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto boolean = value->boolean()) return boolean;
  return wrong_type(label, key, *value, "a bool");
}

Result<std::optional<std::string>> GgufHeader::string(std::string_view key, const std::string& label) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (const auto text = value->string()) return std::optional<std::string>(*text);
  return wrong_type(label, key, *value, "a string");
}

Result<GgufHeader> GgufHeader::parse(Bytes file, const std::string& label) {
  BOLIDE_TRY(check_magic(file, label));
  Cursor cursor(file, label);
  BOLIDE_TRY(cursor.read<uint32_t>("magic"));
  GgufHeader header;
  BOLIDE_TRY(header.version, cursor.read<uint32_t>("version"));
  BOLIDE_TRY(check_version(header.version, label));
  BOLIDE_TRY(const auto tensor_count, cursor.read<uint64_t>("tensor count"));
  BOLIDE_TRY(const auto entry_count, cursor.read<uint64_t>("metadata count"));
  BOLIDE_TRY(cursor.check_count(entry_count, kEntryBytesMin, kEntriesMax, "metadata entries"));
  BOLIDE_TRY(cursor.check_count(tensor_count, kTensorBytesMin, kTensorsMax, "tensors"));
  BOLIDE_TRY(read_metadata(cursor, label, entry_count, header));
  BOLIDE_TRY(read_alignment(label, header));
  BOLIDE_TRY(cursor.check_count(tensor_count, kTensorBytesMin, kTensorsMax, "tensors"));
  header.tensors.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    BOLIDE_TRY(auto tensor, read_tensor(cursor, label, i));
    header.tensors.push_back(std::move(tensor));
  }
  BOLIDE_TRY(place_tensors(file, round_up(cursor.offset(), header.alignment), label, header));
  return header;
}

}  // namespace bolide
