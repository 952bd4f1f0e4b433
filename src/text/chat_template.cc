#include "text/chat_template.h"

#include <fmt/format.h>

#include <ctime>

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace bolide {
namespace {

int64_t local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return static_cast<int64_t>(now) + parts.tm_gmtoff;
}

}  // namespace

struct ChatTemplate::Parsed {
  std::string source, name;
  jinja::Template tree;
};

Result<ChatTemplate> ChatTemplate::parse(std::string source, std::string name) {
  BOLIDE_TRY(jinja::Template tree, jinja::parse_template(source).context(name));
  return ChatTemplate(std::make_shared<const Parsed>(Parsed{std::move(source), std::move(name), std::move(tree)}));
}

Result<std::string> ChatTemplate::render(const ChatInput& input) const {
  jinja::Limits limits;
  limits.steps_max = input.limits.steps_max;
  limits.memory_bytes_max = input.limits.memory_bytes_max;
  limits.output_bytes_max = input.limits.output_bytes_max;
  jinja::Interpreter interpreter(parsed_->tree, limits, input.local_seconds ? *input.local_seconds : local_now());
  const auto set = [&](std::string_view variable, const nlohmann::ordered_json& value) {
    return interpreter.set_variable(variable, value).context(parsed_->name);
  };
  for (const auto& [variable, text] : input.special_tokens) BOLIDE_TRY(set(variable, text));
  BOLIDE_TRY(set("messages", input.messages));
  BOLIDE_TRY(set("tools", input.tools));
  BOLIDE_TRY(set("documents", input.documents));
  BOLIDE_TRY(set("add_generation_prompt", input.add_generation_prompt));
  if (input.variables.is_object())
    for (auto it = input.variables.begin(); it != input.variables.end(); ++it) BOLIDE_TRY(set(it.key(), it.value()));
  Result<std::string> text = interpreter.run();
  if (text) return text;
  // The template's own words, marked as such: they can say anything.
  if (interpreter.raised())
    return error(Code::kInvalid,
                 fmt::format("{} refuses the conversation: \"{:.500}\"", parsed_->name, text.error().text));
  return std::move(text).context(parsed_->name);
}

const std::string& ChatTemplate::source() const { return parsed_->source; }
const std::string& ChatTemplate::name() const { return parsed_->name; }

bool ChatTemplate::mentions(std::string_view variable) const {
  for (const std::string& known : parsed_->tree.names)
    if (known == variable) return true;
  return false;
}

}  // namespace bolide
