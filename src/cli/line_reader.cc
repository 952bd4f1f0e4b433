#include "cli/line_reader.h"

#include <editline/readline.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string_view>

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

std::optional<std::string> read_message(const char* prompt, NextLine next_line, bool* unfinished) {
  constexpr const char* kGoesOn = "... ";
  *unfinished = false;
  auto line = next_line(prompt);
  if (!line) return std::nullopt;
  std::string message;
  if (*line == kBlock) {
    while ((line = next_line(kGoesOn)) && *line != kBlock) message += *line + '\n';
  } else {
    while (line && line->ends_with('\\')) {
      message += line->substr(0, line->size() - 1) + '\n';
      line = next_line(kGoesOn);
    }
    if (line) message += *line;
  }
  if (line) return message;
  *unfinished = true;
  return std::nullopt;
}

// libedit decodes what is typed by the locale, and drops what is not ASCII in the "C" locale, which containers have.
LineReader::LineReader() {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  ::using_history();
}

LineReader::~LineReader() { ::clear_history(); }

std::optional<std::string> LineReader::read(const std::string& prompt) {
  bool unfinished = false;
  auto message = read_message(
      prompt.c_str(), [](const char* shown) { return read_line(shown); }, &unfinished);
  if (unfinished) std::fprintf(stderr, "\n[the unfinished message is dropped]");
  if (message && !message->empty()) ::add_history(message->c_str());
  return message;
}

}  // namespace bolide::cli
