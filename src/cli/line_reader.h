// Lines of an interactive terminal, with editing and history (libedit).
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/function_ref.h"

namespace bolide::cli {

// One message of lines: a line that ends in a backslash goes on in the next; a line of three double quotes begins a
// block that the same line ends. std::nullopt: the lines ended; `unfinished` says that they did within a message, which
// is dropped.
using NextLine = FunctionRef<std::optional<std::string>(const char* prompt)>;
std::optional<std::string> read_message(const char* prompt, NextLine next_line, bool* unfinished);

class LineReader {
 public:
  // `interrupted`: set by the handler of Ctrl-C, which then ends the line; must live as long as the reader.
  explicit LineReader(const std::atomic<bool>& interrupted);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // One message, as read_message has it. std::nullopt: end of input (Ctrl-D), or Ctrl-C; what of a message was typed
  // before is dropped, with a line that says so; so are bytes that are no characters in the terminal's encoding.
  std::optional<std::string> read(const std::string& prompt);
};

}  // namespace bolide::cli
