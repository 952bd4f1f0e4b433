#include <fmt/format.h>

#include <charconv>

#include "formats/gguf.h"

namespace bolide {
namespace {

constexpr int64_t kShardsMax = 10000;  // the name has five digits; nothing near that is published

struct SplitName {
  std::string prefix;  // "model" of "model-00002-of-00003.gguf"
  int64_t index;       // from 0
  int64_t count;
};

std::optional<int64_t> five_digits(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || problem != std::errc() || end != text.data() + 5 || value < 0) return std::nullopt;
  return value;
}

std::optional<SplitName> parse_split_name(std::string_view file) {
  constexpr std::string_view kPattern = "-00001-of-00001.gguf";
  if (file.size() <= kPattern.size()) return std::nullopt;
  const std::string_view tail = file.substr(file.size() - kPattern.size());
  const auto index = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || !index || !count || *index < 1)
    return std::nullopt;
  return SplitName{std::string(file.substr(0, file.size() - kPattern.size())), *index - 1, *count};
}

std::string split_name(const SplitName& name, int64_t index) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, index + 1, name.count);
}

}  // namespace

Result<std::shared_ptr<const GgufSource::Shard>> GgufSource::open_shard(const std::filesystem::path& path) {
  auto shard = std::make_shared<Shard>();
  BOLIDE_TRY(shard->file, MappedFile::open(path));
  shard->bytes = shard->file.bytes();
  shard->label = path.string();
  BOLIDE_TRY(shard->header, GgufHeader::parse(shard->bytes, shard->label));
  return std::shared_ptr<const Shard>(std::move(shard));
}

Result<> GgufSource::add(const std::shared_ptr<const Shard>& shard) {
  for (const GgufTensor& tensor : shard->header.tensors)
    if (!places_.emplace(tensor.info.name, Place{shard, &tensor}).second)
      return error(Code::kInvalid,
                   fmt::format("{}: tensor {} is also in another shard", shard->label, tensor.info.name));
  shards_.push_back(shard);
  return {};
}

Result<std::shared_ptr<const GgufSource>> GgufSource::open_file(const std::filesystem::path& path) {
  auto source = std::make_shared<GgufSource>();
  source->label_ = path.string();
  BOLIDE_TRY(const auto first, open_shard(path));
  BOLIDE_TRY(const auto declared, first->header.integer("split.count", source->label_));
  const int64_t count = declared.value_or(0);
  if (count < 0 || count > kShardsMax)
    return error(Code::kInvalid, fmt::format("{}: split.count is {}", source->label_, count));
  if (count <= 1) {
    BOLIDE_TRY(source->add(first));
    return std::shared_ptr<const GgufSource>(std::move(source));
  }

  const auto name = parse_split_name(path.filename().string());
  if (!name || name->count != count)
    return error(Code::kInvalid,
                 fmt::format("{}: is one of {} shards, but not named NAME-00001-of-{:05}.gguf; give the "
                             "shards their original names",
                             source->label_, count, count));
  for (int64_t i = 0; i < count; ++i) {
    const std::filesystem::path shard_path = path.parent_path() / split_name(*name, i);
    std::shared_ptr<const Shard> shard = first;
    if (i != name->index) {
      auto opened = open_shard(shard_path);
      if (!opened && opened.error().code == Code::kNotFound)
        return error(Code::kNotFound, fmt::format("{}: shard {} of {} is missing; download it into the same folder",
                                                  shard_path.string(), i + 1, count));
      if (!opened) return std::move(opened).error();
      shard = *std::move(opened);
    }
    BOLIDE_TRY(const auto index, shard->header.integer("split.no", shard_path.string()));
    BOLIDE_TRY(const auto its_count, shard->header.integer("split.count", shard_path.string()));
    if (index.value_or(-1) != i || its_count.value_or(0) != count)
      return error(Code::kInvalid,
                   fmt::format("{}: says it is shard {} of {}, its name says {} of {}: the shards are mixed up",
                               shard_path.string(), index.value_or(-1) + 1, its_count.value_or(0), i + 1, count));
    BOLIDE_TRY(source->add(shard));
  }
  BOLIDE_TRY(const auto total, source->header().integer("split.tensors.count", source->label_));
  if (total && static_cast<uint64_t>(*total) != source->places_.size())
    return error(Code::kInvalid, fmt::format("{}: split.tensors.count is {}, the shards have {} tensors",
                                             source->label_, *total, source->places_.size()));
  return std::shared_ptr<const GgufSource>(std::move(source));
}

Result<std::shared_ptr<const GgufSource>> GgufSource::from_bytes(Bytes file, std::string label) {
  auto source = std::make_shared<GgufSource>();
  auto shard = std::make_shared<Shard>();
  shard->bytes = file;
  shard->label = source->label_ = std::move(label);
  BOLIDE_TRY(shard->header, GgufHeader::parse(file, shard->label));
  BOLIDE_TRY(source->add(shard));
  return std::shared_ptr<const GgufSource>(std::move(source));
}

const WeightInfo* GgufSource::find(std::string_view name) const {
  const auto it = places_.find(name);
  return it == places_.end() ? nullptr : &it->second.tensor->info;
}

Result<WeightData> GgufSource::open(std::string_view name) const {
  const auto it = places_.find(name);
  if (it == places_.end()) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label_, name));
  const Place& place = it->second;
  WeightData data;
  data.info = place.tensor->info;
  data.bytes = place.shard->bytes.subspan(place.tensor->offset, place.tensor->size);
  data.owner = place.shard;
  data.mapped = !place.shard->file.bytes().empty();
  return data;
}

std::vector<std::string> GgufSource::names() const {
  std::vector<std::string> list;
  list.reserve(places_.size());
  for (const auto& [name, place] : places_) list.emplace_back(name);
  return list;
}

}  // namespace bolide
