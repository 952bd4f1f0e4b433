// GGUF files, versions 2 and 3, little-endian; one file or split over shards.
//
// GgufHeader::parse looks at bytes only and copies nothing that is proportional to the file: values are views of it.
// Every size is checked against the bytes that are there before it is used.
// Thread rules: immutable once parsed or opened.
#pragma once

#include <filesystem>
#include <map>
#include <optional>

#include "base/file.h"
#include "formats/weight_source.h"

namespace bolide {

enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
std::string_view to_string(GgufType type);

// A metadata value: a view of the file's bytes. The structure was validated, so walking it cannot leave them.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // arrays: type of the elements
  uint64_t count = 1;                // arrays: number of elements
  Bytes bytes;                       // scalars and arrays: the elements; strings: the characters

  bool is_array() const { return type == GgufType::kArray; }
  // std::nullopt if the value has another type (integer: any integer type that fits; number: integers as well).
  std::optional<int64_t> integer() const;
  std::optional<double> number() const;
  std::optional<bool> boolean() const;
  std::optional<std::string_view> string() const;
  // Elements of an array; std::nullopt if it is no array of that kind.
  std::optional<std::vector<std::string_view>> strings() const;
  std::optional<std::vector<int64_t>> integers() const;
  std::optional<std::vector<double>> numbers() const;
  // An array of arrays: its elements as values.
  std::optional<std::vector<GgufValue>> arrays() const;
};

struct GgufTensor {
  WeightInfo info;  // shape outermost dimension first, the reverse of the file's order
  uint64_t offset;  // of the first byte in the file
  uint64_t size;
};

struct GgufHeader {
  uint32_t version = 0;
  uint64_t alignment = 32;
  std::map<std::string_view, GgufValue> metadata;  // keys are views as well
  std::vector<GgufTensor> tensors;

  // `label` names the file in errors. The header keeps views of `file`.
  static Result<GgufHeader> parse(Bytes file, const std::string& label);

  const GgufValue* find(std::string_view key) const;
  // The value of a key: std::nullopt if it is absent, an error that names `label` and the key if it has another type.
  Result<std::optional<int64_t>> integer(std::string_view key, const std::string& label) const;
  Result<std::optional<double>> number(std::string_view key, const std::string& label) const;
  Result<std::optional<bool>> boolean(std::string_view key, const std::string& label) const;
  Result<std::optional<std::string>> string(std::string_view key, const std::string& label) const;
};

// The tensors of one model under GGUF's own names. `header()` is the first shard's: it has the model's metadata.
class GgufSource final : public WeightSource {
 public:
  // `path` may be any shard of a split model.
  static Result<std::shared_ptr<const GgufSource>> open_file(const std::filesystem::path& path);

  // One whole file in memory, which must outlive the source and what is opened from it.
  static Result<std::shared_ptr<const GgufSource>> from_bytes(Bytes file, std::string label);

  const GgufHeader& header() const { return shards_.front()->header; }
  const WeightInfo* find(std::string_view name) const override;
  Result<WeightData> open(std::string_view name) const override;
  std::vector<std::string> names() const override;
  const std::string& label() const override { return label_; }

 private:
  struct Shard {
    MappedFile file;  // empty if the bytes are somebody else's
    Bytes bytes;
    std::string label;
    GgufHeader header;
  };
  struct Place {
    std::shared_ptr<const Shard> shard;
    const GgufTensor* tensor;
  };

  static Result<std::shared_ptr<const Shard>> open_shard(const std::filesystem::path& path);
  Result<> add(const std::shared_ptr<const Shard>& shard);

  std::vector<std::shared_ptr<const Shard>> shards_;
  std::map<std::string_view, Place> places_;
  std::string label_;
};

// True if the bytes begin as a GGUF file does.
bool looks_like_gguf(Bytes file);

}  // namespace bolide
