// TimingCache: the choices that were measured on one machine, in a JSON file.
//
// A file belongs to a GPU, its driver and the library's version (tuning_fingerprint): where one differs, it is as if
// there were none. Thread rules: a plain value.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "kernels/kernel.h"

namespace bolide {

class TimingCache {
 public:
  struct Entry {
    Tactic tactic;  // all zero: what runs untuned
    double us = 0, untuned_us = 0;
  };

  TimingCache() = default;
  explicit TimingCache(std::string fingerprint) : fingerprint_(std::move(fingerprint)) {}
  // What the file has for this machine. No file, or another machine's: nothing. What is no such file: nothing, and a
  // warning that names it.
  static TimingCache read(const std::filesystem::path& path, std::string fingerprint);
  // For a path that a user names. Errors: a file is there that is none of these, which `write` would replace.
  static Result<> check_is_ours(const std::filesystem::path& path);
  // Replaces the file at once, and makes its folder.
  Result<> write(const std::filesystem::path& path) const;

  // By Kernel::tuning_key; null: not measured.
  const Entry* find(const std::string& key) const;
  void put(const std::string& key, const Entry& entry) { entries_[key] = entry; }
  size_t size() const { return entries_.size(); }
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  Result<> parse(std::string_view text);

  std::string fingerprint_;
  std::map<std::string, Entry> entries_;
};

// What choices depend on beside the problem: "NVIDIA H200, 132 SMs, sm_90, driver 13000, cuBLASLt 130100, format 1".
std::string tuning_fingerprint(const DeviceInfo& device);
// "tuning-nvidia-h200.json".
std::string tuning_file_name(const DeviceInfo& device);

}  // namespace bolide
