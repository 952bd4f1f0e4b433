#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "formats/json_limits.h"
#include "formats/safetensors.h"

namespace bolide {
namespace {

// The largest published index (of a model of 10^12 parameters) has about 30 MB.
constexpr size_t kIndexEntriesMax = 400'000;
constexpr size_t kShardsMax = 10'000;

class IndexReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Map = std::vector<std::pair<std::string, std::string>>;
  explicit IndexReader(Map& map) : map_(map) {}
  const std::string& problem() const { return problem_; }
  bool found() const { return found_; }

  bool start_object(size_t) override {
    ++depth_;
    if (depth_ == 2 && top_key_ == "weight_map") found_ = in_map_ = true;
    return !in_map_ || depth_ == 2 || refuse("weight_map must map names to file names");
  }
  bool end_object() override {
    if (depth_-- == 2) in_map_ = false;
    return true;
  }
  bool key(string_t& text) override {
    if (depth_ == 1) top_key_ = text;
    if (in_map_) name_ = std::move(text);
    return true;
  }
  bool string(string_t& text) override {
    if (!in_map_) return true;
    if (map_.size() == kIndexEntriesMax) return refuse(fmt::format("has more than {} tensors", kIndexEntriesMax));
    map_.emplace_back(std::move(name_), std::move(text));
    return true;
  }
  bool start_array(size_t) override { return other(); }
  bool end_array() override { return true; }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool other() { return !in_map_ || refuse("weight_map must map names to file names"); }
  bool refuse(std::string text) {
    problem_ = std::move(text);
    return false;
  }

  Map& map_;
  std::string top_key_, name_, problem_;
  int depth_ = 0;
  bool in_map_ = false, found_ = false;
};

bool lies_under(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto [end, at] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// The path of a shard, if it lies in `folder` when every link is followed. The download cache of huggingface_hub keeps
// its files in ../../blobs and links to them from snapshots/<revision>: links to there are its own and allowed.
Result<std::filesystem::path> shard_path(const std::filesystem::path& folder, const std::string& name,
                                         const std::string& label) {
  const std::filesystem::path relative(name);
  const auto outside = [&] {
    return error(
        Code::kInvalid,
        fmt::format("{}: shard {:.200} leads out of the folder; shards must lie beside the index", label, name));
  };
  if (name.empty() || name.find('\0') != std::string::npos)
    return error(Code::kInvalid, fmt::format("{}: has an empty or malformed file name in weight_map", label));
  if (relative.is_absolute()) return outside();
  for (const auto& part : relative)
    if (part == "..") return outside();
  std::error_code problem;
  const auto root = std::filesystem::canonical(folder.empty() ? "." : folder, problem);
  if (problem) return error(Code::kNotFound, fmt::format("{}: {}", folder.string(), problem.message()));
  const auto target = std::filesystem::canonical(root / relative, problem);
  if (problem)
    return error(Code::kNotFound, fmt::format("{}: shard {:.200} is missing ({}); download it into the same folder",
                                              label, name, problem.message()));
  const bool in_cache =
      root.parent_path().filename() == "snapshots" && lies_under(target, root.parent_path().parent_path() / "blobs");
  if (!lies_under(target, root) && !in_cache) return outside();
  return folder / relative;
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> parse_safetensors_index(std::string_view text,
                                                                                 const std::string& label) {
  std::vector<std::pair<std::string, std::string>> map;
  IndexReader reader(map);
  const bool good = nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  if (!good)
    return error(Code::kInvalid,
                 fmt::format("{}: {}", label, reader.problem().empty() ? describe_json_error(text) : reader.problem()));
  if (!reader.found() || map.empty())
    return error(Code::kInvalid, fmt::format("{}: has no weight_map, or an empty one", label));
  std::sort(map.begin(), map.end());
  for (size_t i = 1; i < map.size(); ++i)
    if (map[i - 1].first == map[i].first)
      return error(Code::kInvalid, fmt::format("{}: tensor {} appears twice", label, map[i].first));
  return map;
}

Result<std::shared_ptr<const SafetensorsSource>> SafetensorsSource::open_index(const std::filesystem::path& index) {
  auto source = std::make_shared<SafetensorsSource>();
  source->label_ = index.string();
  BOLIDE_TRY(const auto file, MappedFile::open(index));
  BOLIDE_TRY(const auto map, parse_safetensors_index(as_text(file.bytes()), source->label_));
  std::set<std::string_view> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  if (shards.size() > kShardsMax)
    return error(Code::kUnsupported,
                 fmt::format("{}: names {} shards, at most {} are read", source->label_, shards.size(), kShardsMax));
  std::map<std::string_view, std::filesystem::path> paths;
  for (const std::string_view shard : shards) {
    BOLIDE_TRY(auto path, shard_path(index.parent_path(), std::string(shard), source->label_));
    BOLIDE_TRY(source->add(path));
    paths.emplace(shard, std::move(path));
  }
  for (const auto& [tensor, shard] : map) {
    const auto it = source->places_.find(tensor);
    if (it == source->places_.end() || it->second.shard->file.path() != paths.at(shard))
      return error(Code::kInvalid,
                   fmt::format("{}: tensor {} is not in {}, where the index puts it", source->label_, tensor, shard));
  }
  return std::shared_ptr<const SafetensorsSource>(std::move(source));
}

}  // namespace bolide
