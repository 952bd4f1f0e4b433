#include "cli/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

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

void ProgressLine::show(std::string_view text) {
  constexpr std::chrono::seconds kBetweenLines(10);
  const std::string line = printable(text);
  if (is_terminal(STDERR_FILENO)) {
    std::fprintf(stderr, "\r\x1b[K%s", line.c_str());
    shown_ = true;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kBetweenLines) return;
  last_ = now;
  std::fprintf(stderr, "%s\n", line.c_str());
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
