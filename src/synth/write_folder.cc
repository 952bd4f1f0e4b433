#include "synth/write_folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "base/file.h"
#include "base/workers.h"
#include "synth/synth_tokenizer.h"

namespace bolide {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

// Room for headers, tokenizer and index, and for what the file system itself needs.
constexpr uint64_t kSpareBytes = uint64_t{64} << 20;

std::string_view stored_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF8E4M3: return "F8_E4M3";
    case DType::kI32: return "I32";
    default: return "";
  }
}

struct Shard {
  std::vector<std::string> tensors;
  uint64_t bytes = 0;
};

std::vector<Shard> shards_of(const SynthWeights& weights, uint64_t bytes_max) {
  std::vector<Shard> shards;
  for (const std::string& name : weights.in_order()) {
    const uint64_t bytes = weights.find(name)->byte_size();
    if (shards.empty() || (shards.back().bytes > 0 && shards.back().bytes + bytes > bytes_max)) shards.emplace_back();
    shards.back().tensors.push_back(name);
    shards.back().bytes += bytes;
  }
  return shards;
}

// The length of the JSON in 8 bytes, then the JSON, padded so that the tensors begin at a multiple of 64.
std::string header_of(const SynthWeights& weights, const Shard& shard) {
  Json header;
  header["__metadata__"]["format"] = "pt";
  uint64_t at = 0;
  for (const std::string& name : shard.tensors) {
    const WeightInfo& info = *weights.find(name);
    const uint64_t end = at + info.byte_size();
    Json& entry = header[name];
    entry["dtype"] = stored_type(info.dtype);
    entry["shape"] = std::vector<int64_t>(info.shape.span().begin(), info.shape.span().end());
    entry["data_offsets"] = std::vector<uint64_t>{at, end};
    at = end;
  }
  std::string text = header.dump();
  text.resize(round_up(text.size() + 8, 64) - 8, ' ');
  const uint64_t length = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, sizeof length);
  return prefix + text;
}

Result<> check_folder(const Path& folder) {
  std::error_code problem;
  const auto status = std::filesystem::status(folder, problem);
  if (std::filesystem::is_directory(status)) {
    if (std::filesystem::is_empty(folder, problem)) return {};
    return error(Code::kInvalid,
                 fmt::format("{}: is there and not empty; give a folder that is not there yet", folder.string()));
  }
  if (std::filesystem::exists(status))
    return error(Code::kInvalid, fmt::format("{}: is there and no folder", folder.string()));
  return {};
}

Result<> check_space(const Path& folder, uint64_t bytes) {
  std::error_code problem;
  const auto space = std::filesystem::space(folder, problem);
  if (problem || space.available >= bytes + kSpareBytes) return {};
  return error(Code::kUnavailable,
               fmt::format("{}: has {:.1f} GB of free space, {:.1f} GB are needed; fewer layers or a smaller type need "
                           "less, and MODEL may be the synth: name itself, which needs no file",
                           folder.string(), static_cast<double>(space.available) / 1e9,
                           static_cast<double>(bytes + kSpareBytes) / 1e9));
}

// The files of a folder, removed again unless all of them are written.
class FolderWriter {
 public:
  explicit FolderWriter(Path folder) : folder_(std::move(folder)) {}
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;
  ~FolderWriter() {
    std::error_code ignored;
    if (finished_) return;
    for (const Path& file : files_) std::filesystem::remove(file, ignored);
    if (made_) std::filesystem::remove(folder_, ignored);
  }

  Result<> make_folder() {
    std::error_code problem;
    made_ = std::filesystem::create_directory(folder_, problem);
    if (problem) return file_error(folder_, "cannot be made", problem.value());
    return {};
  }

  Result<> write(const std::string& name, std::string_view text) {
    BOLIDE_TRY(write_file_atomically(folder_ / name, as_bytes(text)));
    files_.push_back(folder_ / name);
    return {};
  }

  Result<> write_shard(const std::string& name, const SynthWeights& weights, const Shard& shard, Workers& workers,
                       uint64_t* done, const SynthProgress* progress) {
    BOLIDE_TRY(AtomicFile file, AtomicFile::create(folder_ / name));
    BOLIDE_TRY(file.append(as_bytes(header_of(weights, shard))));
    for (const std::string& tensor : shard.tensors) {
      if (progress != nullptr) (*progress)(*done, weights.byte_size());
      BOLIDE_TRY(const WeightData data, weights.open_with(tensor, workers));
      BOLIDE_TRY(file.append(data.bytes));
      *done += data.bytes.size();
    }
    BOLIDE_TRY(file.commit());
    files_.push_back(folder_ / name);
    return {};
  }

  void finish() { finished_ = true; }

 private:
  Path folder_;
  std::vector<Path> files_;
  bool made_ = false, finished_ = false;
};

}  // namespace

Result<SynthWritten> write_synth_folder(const SynthRequest& wanted, const Path& folder, int threads,
                                        const SynthProgress* progress, uint64_t shard_bytes_max) {
  if (wanted.type->in_folders.empty())
    return error(Code::kInvalid, fmt::format("{} is a type that a folder cannot have; run it without a file: MODEL = "
                                             "{}",
                                             wanted.type->name, to_string(wanted)));
  SynthRequest request = wanted;
  BOLIDE_TRY(request.type, find_synth_type(wanted.type->in_folders));
  BOLIDE_TRY(const auto weights, SynthWeights::create(request));
  Workers workers(threads > 0 ? threads : detect_cpu().cores());
  BOLIDE_TRY(check_folder(folder));
  FolderWriter writer(folder);
  BOLIDE_TRY(writer.make_folder());
  BOLIDE_TRY(check_space(folder, weights->byte_size()));

  const std::vector<Shard> shards = shards_of(*weights, shard_bytes_max);
  Json map = Json::object();
  uint64_t done = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() == 1 ? "model.safetensors"
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    BOLIDE_TRY(writer.write_shard(name, *weights, shards[i], workers, &done, progress));
    for (const std::string& tensor : shards[i].tensors) map[tensor] = name;
  }
  if (shards.size() > 1) {
    Json index;
    index["metadata"]["total_size"] = weights->byte_size();
    index["weight_map"] = std::move(map);
    BOLIDE_TRY(writer.write("model.safetensors.index.json", index.dump(2) + "\n"));
  }
  BOLIDE_TRY(writer.write("tokenizer.json", synth_tokenizer(request.architecture->vocab)));
  BOLIDE_TRY(writer.write("config.json", synth_config(request)));
  writer.finish();
  return SynthWritten{static_cast<int64_t>(weights->in_order().size()), static_cast<int>(shards.size()),
                      weights->byte_size()};
}

}  // namespace bolide
