// Debug knobs: settings for developers, read from the environment (BOLIDE_...) in one place. What users should set is
// an option with a flag (base/options.h), not a knob.
//
// Thread rules: read once at start-up and pass on; a Knobs is a plain value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/options.h"
#include "base/result.h"

namespace bolide {

struct Knobs {
  std::string log = "warning";  // BOLIDE_LOG
};

// The knob of row `name` is the environment variable BOLIDE_NAME.
inline constexpr Option<Knobs> kKnobs[] = {
    {"log", &Knobs::log, {.choices = "debug|info|warning|error|off"}, "lowest level of log records that are shown"},
};

// kInvalid names the variable and its range. The first form asks the process's environment.
Result<Knobs> read_knobs();
Result<Knobs> read_knobs(FunctionRef<const char*(const char* variable)> environment);

// False if the environment asks for plain text: TERM is "dumb", or NO_COLOR is set and not empty.
bool escapes_wanted();
bool escapes_wanted(FunctionRef<const char*(const char* variable)> environment);

// The folders of a variable that holds a list of them separated by colons, such as PATH; empty if it is not set.
std::vector<std::filesystem::path> folders_of(const char* variable);

// Where this user's programs keep what they can make again: XDG_CACHE_HOME, or ~/.cache; empty if neither is set.
std::filesystem::path user_cache_folder();

// One knob a line: variable, value, range, sentence.
std::string list_knobs(const Knobs& knobs);

}  // namespace bolide
