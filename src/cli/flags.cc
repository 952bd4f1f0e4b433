#include "cli/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/knobs.h"
#include "base/utf8.h"

namespace bolide::cli {
namespace {

// Errors quote files, and a hostile one's names can be long.
constexpr size_t kErrorBytesMax = 1000;

std::string help_text(const BoundOption& option) {
  std::string text(option.sentence);
  if (const std::string range = range_text(option); !range.empty()) text += fmt::format(" ({})", range);
  const std::string value = value_text(option);
  if (!std::holds_alternative<bool*>(option.value) && !value.empty() && value != "\"\"")
    text += fmt::format(" [{}]", value);
  return text;
}

}  // namespace

void add_options(CLI::App& app, std::span<const BoundOption> options, const std::string& group) {
  for (const BoundOption& option : options) {
    CLI::Option* flag = nullptr;
    if (const auto* value = std::get_if<bool*>(&option.value)) {
      flag = app.add_flag(flag_name(option.name), **value, help_text(option));
    } else {
      flag = app.add_option_function<std::string>(
          flag_name(option.name),
          [option](const std::string& text) {
            const std::string name = flag_name(option.name);
            BoundOption named = option;
            named.name = name;  // errors then name the flag as it is typed
            if (const auto set = set_option(named, text); !set) throw CLI::ValidationError(set.error().text);
          },
          help_text(option));
      flag->type_name(std::string(type_name(option)));
      flag->take_last();  // a repeated flag replaces, so that an alias's defaults can be overridden
    }
    flag->group(group);
  }
}

bool given(const CLI::App& app, std::string_view option_name) { return app.count(flag_name(option_name)) > 0; }

void print_error(std::string_view text) {
  std::string line = printable(text.substr(0, kErrorBytesMax));
  if (text.size() > kErrorBytesMax) line += "...";
  std::fprintf(stderr, "bolide: error: %s\n", line.c_str());
}

int report(const Error& failure) {
  print_error(failure.text);
  return failure.code == Code::kInternal ? 125 : 1;
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

bool can_erase(int descriptor) {
  static const bool wanted = escapes_wanted();
  return wanted && is_terminal(descriptor);
}

void ProgressLine::show(std::string_view text) {
  const std::chrono::seconds between_lines(is_terminal(STDERR_FILENO) ? 2 : 10);
  constexpr std::chrono::milliseconds kBetweenUpdates(100);
  const bool erases = can_erase(STDERR_FILENO);
  const auto now = Clock::now();
  if (now < begin_) return;
  if (erases ? last_ && now - *last_ < kBetweenUpdates : now - last_.value_or(begin_) < between_lines) return;
  last_ = now;
  const std::string line = printable(text);
  shown_ = erases;
  std::fprintf(stderr, erases ? "\r\x1b[K%s" : "%s\n", line.c_str());
}

void PromptProgress::show(int32_t done, int32_t all) {
  if (done < all) return line_.show(fmt::format("prompt: {}/{} tokens", done, all));
  line_.clear();
}

void ProgressLine::clear() {
  if (shown_) std::fprintf(stderr, "\r\x1b[K");
  shown_ = false;
}

Result<Model> open_with_progress(const std::string& path, const ModelOptions& options, const OutlineCheck* check) {
  ProgressLine line;
  const auto show = [&](PackProgress progress) {
    line.show(fmt::format("packing weights {}/{}", progress.done, progress.total));
  };
  const FunctionRef<void(PackProgress)> reference(show);
  return open_model(path, options, &reference, check);
}

}  // namespace bolide::cli
