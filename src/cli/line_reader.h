// Lines of an interactive terminal, with editing and history (libedit).
#pragma once

#include <optional>
#include <string>

namespace bolide::cli {

class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // One message. A line that ends in a backslash goes on in the next; a line of three double quotes begins a block that
  // the same line ends. std::nullopt: end of input (Ctrl-D). Ctrl-C gives an empty message.
  std::optional<std::string> read(const std::string& prompt);
};

}  // namespace bolide::cli
