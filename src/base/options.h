// Options: one table of rows describes a configuration struct, and everything that shows or sets it comes from there:
// command-line flags, JSON configuration files, validation errors, listings, fingerprints.
//
//   struct ServeConfig { int32_t port = 8000; int64_t kv_bytes = 0; };
//   constexpr Option<ServeConfig> kServeOptions[] = {
//       {"port", &ServeConfig::port, {.min = 1, .max = 65535}, "TCP port to listen on"},
//       {"kv_bytes", &ServeConfig::kv_bytes, {.unit = "bytes", .min = 0}, "memory for the KV cache; 0: what is free"},
//   };
//
// Defaults are the struct's own initialisers. Names are snake_case; the flag of kv_bytes is --kv-bytes.
// Thread rules: tables are constants; a BoundOption points into its config, which one thread changes at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/result.h"

namespace bolide {

struct OptionLimits {
  std::string_view unit = "";  // "bytes" also accepts 512KiB, 64MiB, 8GiB
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view choices = "";  // for text: "a|b|c"; empty: any
};

template <class Config>
struct Option {
  using Member =
      std::variant<bool Config::*, int32_t Config::*, int64_t Config::*, double Config::*, std::string Config::*>;
  std::string_view name;
  Member member;
  OptionLimits limits;
  std::string_view sentence;
};

// A row together with one struct's member: what code that knows no configuration type works on.
struct BoundOption {
  std::string_view name;
  OptionLimits limits;
  std::string_view sentence;
  std::variant<bool*, int32_t*, int64_t*, double*, std::string*> value;
};

template <class Config, size_t kCount>
std::vector<BoundOption> bind_options(Config& config, const Option<Config> (&table)[kCount]) {
  std::vector<BoundOption> bound;
  bound.reserve(kCount);
  for (const Option<Config>& row : table)
    std::visit([&](auto member) { bound.push_back({row.name, row.limits, row.sentence, &(config.*member)}); },
               row.member);
  return bound;
}

// ", did you mean X?" material: the name nearest to what was given, or "" if none is near.
std::string_view nearest_name(std::string_view given, std::span<const std::string_view> names);

std::string flag_name(std::string_view name);           // "kv_bytes" > "--kv-bytes"
std::string_view type_name(const BoundOption& option);  // "true|false", "integer", "number", "text" or the choices
std::string range_text(const BoundOption& option);      // "1 to 65535", "at least 0 bytes", "a|b|c", ""
std::string value_text(const BoundOption& option);

// Parses and checks; on an error (kInvalid, naming the option, what was given and the range) the value is unchanged.
Result<> set_option(const BoundOption& option, std::string_view text);

// Checks the values that are there, for structs filled in by code.
Result<> check_options(std::span<const BoundOption> options);

// Sets from one JSON object; keys are option names. Errors name the key; an unknown key gets the nearest known one.
// Values set before the error stay set.
Result<> set_options_from_json(std::span<const BoundOption> options, std::string_view json);

// {"port":8000,"kv_bytes":0}: a configuration file that restores these values.
std::string options_to_json(std::span<const BoundOption> options);

// An aligned listing, one option a line: name, value, range, sentence.
std::string list_options(std::span<const BoundOption> options);

}  // namespace bolide
