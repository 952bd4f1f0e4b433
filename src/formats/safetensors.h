// safetensors: one file, or a folder's shards listed in model.safetensors.index.json. Mapped, never copied (but for
// tensors that a file has put at an address that does not suit their type).
// Thread rules: immutable once parsed or opened.
#pragma once

#include <filesystem>
#include <map>

#include "base/file.h"
#include "formats/weight_source.h"

namespace bolide {

struct SafetensorsEntry {
  WeightInfo info;
  uint64_t offset;  // of the first byte in the file
  uint64_t size;
};

// Reads the header of a file given whole. Tensors must lie one behind another and fill the file.
// `label` names the file in errors. Sorted by name.
Result<std::vector<SafetensorsEntry>> parse_safetensors(Bytes file, const std::string& label);

// The `weight_map` of an index: tensor name to file name. Sorted by tensor name.
Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(std::string_view text,
                                                                                 const std::string& label);

class SafetensorsSource final : public WeightSource {
 public:
  static Result<std::shared_ptr<const SafetensorsSource>> open_file(const std::filesystem::path& path);
  // Every shard that the index names; each must lie in the index's folder.
  static Result<std::shared_ptr<const SafetensorsSource>> open_index(const std::filesystem::path& index);

  const WeightInfo* find(std::string_view name) const override;
  Result<WeightData> open(std::string_view name) const override;
  std::vector<std::string> names() const override;
  const std::string& label() const override { return label_; }

 private:
  struct Shard {
    MappedFile file;
    std::vector<SafetensorsEntry> entries;
  };
  struct Place {
    std::shared_ptr<const Shard> shard;
    const SafetensorsEntry* entry;
  };

  Result<> add(const std::filesystem::path& path);

  std::map<std::string_view, Place> places_;
  std::string label_;
};

}  // namespace bolide
