// ConfigFile: the options of `bolide serve` as a YAML file. Keys are flags without their dashes in front, `-` and `_`
// are alike; `models` is a list of [NAME=]MODEL or a mapping of names to models:
//
//   models:
//     small: model.gguf
//     big: ./Qwen2.5-7B-Instruct
//   port: 9000
//   api-key-file: keys.txt
//
// Errors (kInvalid) name the file, the line and the key.
// Thread rules: plain values.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace bolide::cli {

struct ConfigFile {
  struct Entry {
    std::string key, value;  // the key as an option's name: snake_case
    int line = 0;            // from 1
  };
  std::string name;  // of the file, for errors
  std::vector<std::string> models;
  std::vector<Entry> entries;
};

Result<ConfigFile> parse_config(std::string_view yaml, std::string_view name);
Result<ConfigFile> read_config(const std::string& path);

// Sets what the file says of these options, but for those that `is_given` says the command line has set.
Result<> apply_config(const ConfigFile& file, std::span<const BoundOption> options,
                      const std::function<bool(std::string_view name)>& is_given);

struct OptionGroup {
  std::string heading;
  std::vector<BoundOption> options;
};

// A file that says all of this, each value under the sentence that explains it.
std::string config_text(std::span<const OptionGroup> groups, std::span<const std::string> models);

}  // namespace bolide::cli
