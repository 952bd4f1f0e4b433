#include "tune/timing_cache.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"

namespace bolide {
namespace {

constexpr uint64_t kFileMax = 16 << 20;
constexpr size_t kEntriesMax = 65536;
// What a key or a tactic means; raised when that changes.
constexpr int kFormat = 1;

std::string hex_of(const Tactic& tactic) {
  std::string hex;
  for (const std::byte byte : tactic.bytes) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return hex;
}

bool parse_hex(std::string_view hex, Tactic* tactic) {
  if (hex.size() != 2 * tactic->bytes.size()) return false;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (size_t i = 0; i < tactic->bytes.size(); ++i) {
    const int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    tactic->bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return true;
}

Error broken(std::string_view what) { return error(Code::kInvalid, std::string(what)); }

}  // namespace

Result<> TimingCache::parse(std::string_view text) {
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, false);
  if (!file.is_object()) return broken("it is not JSON, or no object");
  const auto machine = file.find("machine"), entries = file.find("entries");
  if (machine == file.end() || !machine->is_string()) return broken("machine: expected a text");
  if (machine->get_ref<const std::string&>() != fingerprint_) {
    log::debug("tuned choices of another machine",
               {{"theirs", std::string_view(machine->get_ref<const std::string&>())},
                {"ours", std::string_view(fingerprint_)}});
    return {};
  }
  if (entries == file.end() || !entries->is_object() || entries->size() > kEntriesMax)
    return broken(fmt::format("entries: expected an object of at most {} fields", kEntriesMax));
  for (const auto& [key, value] : entries->items()) {
    Entry entry;
    const auto number = [&](const char* name, double* out) {
      const auto it = value.find(name);
      if (it == value.end() || !it->is_number()) return false;
      *out = it->get<double>();
      return true;
    };
    if (!value.is_object() || !number("us", &entry.us) || !number("untuned_us", &entry.untuned_us))
      return broken(fmt::format("entries.{:.80}: expected numbers us and untuned_us", key));
    const auto tactic = value.find("tactic");
    if (tactic == value.end() || !tactic->is_string() ||
        !parse_hex(tactic->get_ref<const std::string&>(), &entry.tactic))
      return broken(
          fmt::format("entries.{:.80}.tactic: expected {} hexadecimal digits", key, 2 * entry.tactic.bytes.size()));
    entries_[key] = entry;
  }
  return {};
}

TimingCache TimingCache::read(const std::filesystem::path& path, std::string fingerprint) {
  TimingCache cache(std::move(fingerprint));
  const auto text = read_file(path, kFileMax);
  if (!text && text.error().code == Code::kNotFound) return cache;
  const auto parsed = text ? cache.parse(*text) : Result<>(text.error());
  if (!parsed) {
    cache.entries_.clear();
    log::warning("tuned choices cannot be read and are left out: remove the file, or tune again",
                 {{"file", std::string_view(path.native())}, {"reason", std::string_view(parsed.error().text)}});
  }
  return cache;
}

Result<> TimingCache::check_is_ours(const std::filesystem::path& path) {
  const auto text = read_file(path, kFileMax);
  if (!text && text.error().code == Code::kNotFound) return {};
  if (text) {
    const nlohmann::json file = nlohmann::json::parse(*text, nullptr, false);
    if (file.is_object() && file.contains("machine") && file.contains("entries")) return {};
  }
  return error(Code::kInvalid,
               fmt::format("--tuning-cache {}: is there already and is no file of tuned choices; choose another name",
                           path.string()));
}

Result<> TimingCache::write(const std::filesystem::path& path) const {
  nlohmann::ordered_json entries = nlohmann::ordered_json::object();
  for (const auto& [key, entry] : entries_)
    entries[key] = {{"us", entry.us}, {"untuned_us", entry.untuned_us}, {"tactic", hex_of(entry.tactic)}};
  const nlohmann::ordered_json file = {{"machine", fingerprint_}, {"entries", std::move(entries)}};
  if (path.has_parent_path()) {
    std::error_code failure;
    std::filesystem::create_directories(path.parent_path(), failure);
    if (failure) return file_error(path.parent_path(), "cannot make the folder", failure.value());
  }
  const std::string text = file.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return write_file_atomically(path, as_bytes(text));
}

const TimingCache::Entry* TimingCache::find(const std::string& key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

std::string tuning_fingerprint(const DeviceInfo& device) {
  if (!device.gpu.has_value()) return fmt::format("{}, format {}", device.name, kFormat);
  const GpuInfo& gpu = *device.gpu;
  return fmt::format("{}, {} SMs, sm_{}, driver {}, cuBLASLt {}, format {}", gpu.name, gpu.multiprocessors,
                     gpu.compute_capability, gpu.driver_version, gpu.cublaslt_version, kFormat);
}

std::string tuning_file_name(const DeviceInfo& device) {
  std::string name = "tuning-";
  for (const char c : device.gpu.has_value() ? device.gpu->name : std::string("cpu")) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += letter ? static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) : '-';
  }
  return name + ".json";
}

}  // namespace bolide
