#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace bolide {
namespace {

// The format allows 100 MB; headers of published files have under 2 MB and under 20,000 tensors. The limits bound what
// a hostile header can make us allocate to some tens of megabytes.
constexpr uint64_t kHeaderBytesMax = 24u << 20;
constexpr size_t kTensorsMax = 200'000;
constexpr size_t kNameLengthMax = 1024;

struct Type {
  std::string_view name;
  DType dtype;
};
constexpr std::array kTypes = {
    Type{"F64", DType::kF64},   Type{"F32", DType::kF32},        Type{"F16", DType::kF16},
    Type{"BF16", DType::kBF16}, Type{"F8_E4M3", DType::kF8E4M3}, Type{"F8_E5M2", DType::kF8E5M2},
    Type{"I64", DType::kI64},   Type{"I32", DType::kI32},        Type{"I16", DType::kI16},
    Type{"I8", DType::kI8},     Type{"U64", DType::kU64},        Type{"U32", DType::kU32},
    Type{"U16", DType::kU16},   Type{"U8", DType::kU8},          Type{"BOOL", DType::kBool},
};

// Receives the header's JSON piece by piece, so that no document is built that a hostile header could blow up:
// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"key": "value"}}
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::vector<SafetensorsEntry>& entries) : entries_(entries) {}

  const std::string& problem() const { return problem_; }
  std::optional<Code> code() const { return code_; }

  bool start_object(size_t) override {
    if (depth_ == 0) return ++depth_, true;
    if (depth_ != 1 || !list_.empty()) return refuse("an object where none is expected");
    depth_ = 2;
    in_metadata_ = name_ == "__metadata__";
    seen_ = {};
    numbers_ = 0;
    if (!in_metadata_) {
      if (name_.empty() || name_.size() > kNameLengthMax)
        return refuse(fmt::format("a tensor name of {} bytes, expected 1 to {}", name_.size(), kNameLengthMax));
      if (entries_.size() == kTensorsMax) return refuse(fmt::format("more than {} tensors", kTensorsMax));
      entries_.push_back({});
      entries_.back().info.name = name_;
    }
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_ && !(seen_[0] && seen_[1] && seen_[2]))
      return refuse("must have dtype, shape and data_offsets");
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) name_ = std::move(text);
    if (depth_ == 2 && !in_metadata_) {
      field_ = text == "dtype" ? 0 : text == "shape" ? 1 : text == "data_offsets" ? 2 : 3;
      if (field_ == 3) return refuse(fmt::format("unknown field {:.40}", text));
      if (seen_[field_]) return refuse(fmt::format("{} appears twice", text));
      seen_[field_] = true;
    }
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) return true;
    if (depth_ != 2 || field_ != 0 || !list_.empty()) return refuse("a string where none is expected");
    const auto* const type = std::find_if(kTypes.begin(), kTypes.end(), [&](const Type& t) { return t.name == text; });
    if (type == kTypes.end()) {
      code_ = Code::kUnsupported;
      return refuse(fmt::format("dtype {:.20} is not supported", text));
    }
    entries_.back().info.dtype = type->dtype;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || !list_.empty() || (field_ != 1 && field_ != 2))
      return refuse("an array where none is expected");
    list_ = field_ == 1 ? "shape" : "data_offsets";
    numbers_ = 0;
    return true;
  }
  bool end_array() override {
    if (list_ == "data_offsets" && numbers_ != 2) return refuse("data_offsets must have two numbers");
    list_ = {};
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_.empty()) return refuse("a number where none is expected");
    if (value > static_cast<uint64_t>(INT64_MAX)) return refuse(fmt::format("{} {} is too large", list_, value));
    SafetensorsEntry& entry = entries_.back();
    if (list_ == "shape") {
      if (numbers_ == kRankMax) return refuse(fmt::format("has more than {} dimensions", kRankMax));
      entry.info.shape.dims[numbers_] = static_cast<int64_t>(value);
      entry.info.shape.rank = static_cast<int32_t>(++numbers_);
      return true;
    }
    if (numbers_ == 2) return refuse("data_offsets must have two numbers");
    (numbers_++ == 0 ? entry.offset : entry.size) = value;  // size holds the end until the entry is checked
    return true;
  }
  bool number_integer(number_integer_t value) override { return refuse(fmt::format("{} is negative", value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse(fmt::format("{:.40} is no whole number that fits", text));
  }
  bool null() override { return refuse("null where none is expected"); }
  bool boolean(bool) override { return refuse("a bool where none is expected"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("is no valid JSON at byte {}", position));
  }

 private:
  bool refuse(std::string text) {
    if (problem_.empty()) problem_ = depth_ == 2 ? fmt::format("tensor {:.200}: {}", name_, text) : std::move(text);
    return false;
  }

  std::vector<SafetensorsEntry>& entries_;
  std::string name_;       // of the tensor being read
  std::string_view list_;  // of the array being read
  std::array<bool, 3> seen_{};
  size_t field_ = 3;
  size_t numbers_ = 0;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string problem_;
  std::optional<Code> code_;
};

// Turns (begin, end) in the data section into (offset in the file, size), checked against shape and dtype.
Result<> check_entry(SafetensorsEntry& entry, uint64_t data_begin, uint64_t data_bytes, const std::string& label) {
  const std::string where = fmt::format("{}: tensor {}", label, entry.info.name);
  uint64_t bytes = static_cast<uint64_t>(bits_of(entry.info.dtype) / 8);
  // A zero among the dims must not hide that the others overflow.
  bool empty = false;
  for (const int64_t dim : entry.info.shape.span()) {
    empty = empty || dim == 0;
    if (mul_overflows(bytes, static_cast<uint64_t>(std::max<int64_t>(dim, 1)), &bytes) ||
        bytes > static_cast<uint64_t>(INT64_MAX))
      return error(Code::kInvalid, fmt::format("{}: the product of its dimensions overflows", where));
  }
  if (empty) bytes = 0;
  const uint64_t begin = entry.offset;
  const uint64_t end = entry.size;
  if (end < begin || end - begin != bytes)
    return error(Code::kInvalid,
                 fmt::format("{}: data_offsets [{}, {}] do not fit shape {} of type {} ({} bytes)", where, begin, end,
                             to_string(entry.info.shape), to_string(entry.info.dtype), bytes));
  if (end > data_bytes)
    return error(Code::kInvalid, fmt::format("{}: ends at byte {} of the data, but only {} are there: the file is "
                                             "truncated or damaged; download it again",
                                             where, end, data_bytes));
  entry.offset = data_begin + begin;
  entry.size = bytes;
  return {};
}

Result<> check_layout(std::vector<SafetensorsEntry>& entries, uint64_t data_begin, uint64_t data_end,
                      const std::string& label) {
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.offset != b.offset ? a.offset < b.offset : a.size < b.size; });
  uint64_t expected = data_begin;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != expected)
      return error(Code::kInvalid, fmt::format("{}: tensor {}: begins at byte {}, the tensor before it ends at {}: {}",
                                               label, entry.info.name, entry.offset, expected,
                                               entry.offset < expected ? "they overlap" : "a hole"));
    expected = entry.offset + entry.size;
  }
  if (expected != data_end)
    return error(Code::kInvalid, fmt::format("{}: has {} bytes behind its last tensor", label, data_end - expected));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  for (size_t i = 1; i < entries.size(); ++i)
    if (entries[i - 1].info.name == entries[i].info.name)
      return error(Code::kInvalid, fmt::format("{}: tensor {} appears twice", label, entries[i].info.name));
  return {};
}

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors(Bytes file, const std::string& label) {
  if (file.size() < 8)
    return error(Code::kInvalid, fmt::format("{}: has {} bytes: too short for a safetensors file", label, file.size()));
  const auto header_bytes = load_unaligned<uint64_t>(file.data());
  if (file.size() == 8 || (header_bytes > 0 && file[8] != std::byte{'{'}))
    return error(Code::kInvalid, fmt::format("{}: is no safetensors file: its header does not begin with '{{'", label));
  if (header_bytes > file.size() - 8)
    return error(Code::kInvalid, fmt::format("{}: its header of {} bytes is longer than the file ({} bytes): it is no "
                                             "safetensors file, or truncated",
                                             label, header_bytes, file.size()));
  if (header_bytes > kHeaderBytesMax)
    return error(Code::kUnsupported, fmt::format("{}: has a header of {} bytes, at most {} are read", label,
                                                 header_bytes, kHeaderBytesMax));

  std::vector<SafetensorsEntry> entries;
  const std::string_view header = as_text(file.subspan(8, header_bytes));
  HeaderReader reader(entries);
  const bool good = nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  if (!good || !reader.problem().empty())
    return error(
        reader.code().value_or(Code::kInvalid),
        fmt::format("{}: header: {}", label, reader.problem().empty() ? "is no valid JSON" : reader.problem()));
  const uint64_t data_begin = 8 + header_bytes;
  for (SafetensorsEntry& entry : entries) BOLIDE_TRY(check_entry(entry, data_begin, file.size() - data_begin, label));
  BOLIDE_TRY(check_layout(entries, data_begin, file.size(), label));
  return entries;
}

Result<std::shared_ptr<const SafetensorsSource>> SafetensorsSource::open_file(const std::filesystem::path& path) {
  auto source = std::make_shared<SafetensorsSource>();
  source->label_ = path.string();
  BOLIDE_TRY(source->add(path));
  return std::shared_ptr<const SafetensorsSource>(std::move(source));
}

Result<> SafetensorsSource::add(const std::filesystem::path& path) {
  auto shard = std::make_shared<Shard>();
  BOLIDE_TRY(shard->file, MappedFile::open(path));
  BOLIDE_TRY(shard->entries, parse_safetensors(shard->file.bytes(), path.string()));
  for (const SafetensorsEntry& entry : shard->entries)
    if (!places_.emplace(entry.info.name, Place{shard, &entry}).second)
      return error(Code::kInvalid,
                   fmt::format("{}: tensor {} is also in another shard", path.string(), entry.info.name));
  return {};
}

const WeightInfo* SafetensorsSource::find(std::string_view name) const {
  const auto it = places_.find(name);
  return it == places_.end() ? nullptr : &it->second.entry->info;
}

Result<WeightData> SafetensorsSource::open(std::string_view name) const {
  const auto it = places_.find(name);
  if (it == places_.end()) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label_, name));
  const Place& place = it->second;
  WeightData data;
  data.info = place.entry->info;
  data.bytes = place.shard->file.bytes().subspan(place.entry->offset, place.entry->size);
  data.owner = place.shard;
  data.mapped = true;
  const auto element_bytes = static_cast<uint64_t>(bits_of(data.info.dtype) / 8);
  if (reinterpret_cast<uint64_t>(data.bytes.data()) % element_bytes == 0) return data;
  BOLIDE_TRY(auto copy, allocate_weight(data.info));
  std::copy(data.bytes.begin(), data.bytes.end(), copy.bytes.begin());
  return std::move(copy.data);
}

std::vector<std::string> SafetensorsSource::names() const {
  std::vector<std::string> list;
  list.reserve(places_.size());
  for (const auto& [name, place] : places_) list.emplace_back(name);
  return list;
}

}  // namespace bolide
