#include "cli/line_reader.h"

#include <editline/readline.h>

#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <string_view>

namespace bolide::cli {
namespace {

constexpr std::string_view kBlock = "\"\"\"";

// libedit's own reader drops bytes that are no characters and does not say so. Its hook has no argument of ours.
const std::atomic<bool>* g_interrupted = nullptr;
int g_dropped_bytes = 0;

// The next character, or -1: the input has ended, or Ctrl-C was pressed.
int next_character(std::FILE* stream) {
  std::mbstate_t state{};
  int bytes = 0;  // of the character so far
  while (true) {
    char byte = 0;
    const ssize_t n = ::read(::fileno(stream), &byte, 1);
    if (n < 0 && errno == EINTR && !g_interrupted->load()) continue;  // another signal: the window's size has changed
    if (n <= 0) return -1;
    ++bytes;
    wchar_t character = 0;
    size_t used = std::mbrtowc(&character, &byte, 1, &state);
    if (used == static_cast<size_t>(-1)) {
      // The byte that does not belong to the characters begun may begin another.
      state = {};
      g_dropped_bytes += bytes - 1;
      used = bytes > 1 ? std::mbrtowc(&character, &byte, 1, &state) : used;
      bytes = 1;
      if (used == static_cast<size_t>(-1)) {
        state = {};
        ++g_dropped_bytes;
        bytes = 0;
        continue;
      }
    }
    if (used != static_cast<size_t>(-2)) return static_cast<int>(character);
  }
}

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
LineReader::LineReader(const std::atomic<bool>& interrupted) {
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  g_interrupted = &interrupted;
  rl_getc_function = next_character;
  ::using_history();
}

LineReader::~LineReader() { ::clear_history(); }

std::optional<std::string> LineReader::read(const std::string& prompt) {
  bool unfinished = false;
  g_dropped_bytes = 0;
  auto message = read_message(prompt.c_str(), [](const char* shown) { return read_line(shown); }, &unfinished);
  if (unfinished) std::fprintf(stderr, "\n[the unfinished message is dropped]");
  if (g_dropped_bytes > 0)
    std::fprintf(stderr, "[dropped, as no characters in this terminal's encoding: %d byte%s]\n", g_dropped_bytes,
                 g_dropped_bytes == 1 ? "" : "s");
  if (message && !message->empty()) ::add_history(message->c_str());
  return message;
}

}  // namespace bolide::cli
