// Shell completion, generated from the parser itself: subcommands, flags, choices; file names everywhere else.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"

namespace bolide::cli {

enum class Shell : uint8_t { kBash, kZsh, kFish };

// A script to source (bash), to put in a folder of fpath as _bolide (zsh), or in completions/bolide.fish (fish).
std::string completion_script(const CLI::App& program, Shell shell);

}  // namespace bolide::cli
