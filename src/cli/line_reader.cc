#include "cli/line_reader.h"

#include <editline/readline.h>

#include <clocale>
#include <cstdlib>

namespace bolide::cli {
namespace {

constexpr std::string_view kBlock = "\"\"\"";

std::optional<std::string> read_line(const char* prompt) {
  char* line = ::readline(prompt);
  if (line == nullptr) return std::nullopt;
  std::string text(line);
  std::free(line);
  return text;
}

}  // namespace

// libedit decodes what is typed by the locale, and drops what is not ASCII in the "C" locale, which containers have.
LineReader::LineReader() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  ::using_history();
}

LineReader::~LineReader() { ::clear_history(); }

std::optional<std::string> LineReader::read(const std::string& prompt) {
  auto line = read_line(prompt.c_str());
  if (!line) return std::nullopt;
  std::string message;
  if (*line == kBlock) {
    while ((line = read_line("... ")) && *line != kBlock) message += *line + '\n';
  } else {
    while (line && line->ends_with('\\')) {
      message += line->substr(0, line->size() - 1) + '\n';
      line = read_line("... ");
    }
    message += line.value_or("");
  }
  if (!message.empty()) ::add_history(message.c_str());
  return message;
}

}  // namespace bolide::cli
