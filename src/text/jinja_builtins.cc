#include "text/jinja_builtins.h"

#include <fmt/core.h>

namespace bolide::jinja {

Result<> bind(const Args& args, std::string_view function, std::span<const std::string_view> names, size_t required,
              Value* slots) {
  if (args.positional.size() > names.size())
    return template_error(
        fmt::format("{} takes at most {} arguments, not {}", function, names.size(), args.positional.size()));
  for (size_t i = 0; i < args.positional.size(); ++i) slots[i] = args.positional[i];
  for (const auto& [name, value] : args.named) {
    size_t at = 0;
    while (at < names.size() && names[at] != name->bytes) ++at;
    if (at == names.size()) return template_error(fmt::format("{} has no argument '{}'", function, name->bytes));
    if (!slots[at].is(Kind::kMissing))
      return template_error(fmt::format("{} got two values for '{}'", function, name->bytes));
    slots[at] = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (slots[i].is(Kind::kMissing))
      return template_error(fmt::format("{} needs the argument '{}'", function, names[i]));
  return {};
}

Result<> no_arguments(const Args& args, std::string_view function) {
  if (args.positional.empty() && args.named.empty()) return {};
  return template_error(fmt::format("{} takes no arguments", function));
}

Result<int64_t> integer_argument(const Value& value, std::string_view what, int64_t otherwise) {
  if (value.is(Kind::kMissing) || value.is(Kind::kNone)) return otherwise;
  if (value.is_integral()) return value.as_integer();
  return template_error(fmt::format("{} must be an integer, not '{}'", what, type_name(value)));
}

Result<std::string_view> string_argument(const Value& value, std::string_view what) {
  if (value.is_string()) return value.string();
  return template_error(fmt::format("{} must be a string, not '{}'", what, type_name(value)));
}

bool flag_argument(const Value& value, bool otherwise) { return value.is(Kind::kMissing) ? otherwise : truthy(value); }

Filter find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), sequence_filters(), number_filters()})
    for (const auto& entry : table)
      if (entry.name == name) return entry.function;
  return nullptr;
}

BuiltIn find_method(const Value& object, std::string_view name) {
  switch (object.kind) {
    case Kind::kString: return find_string_method(name);
    case Kind::kList: return find_list_method(*object.list, name);
    case Kind::kDict: return find_dict_method(name);
    case Kind::kCycle: return object.cycle->joiner ? nullptr : find_cycler_method(name);
    default: return nullptr;
  }
}

}  // namespace bolide::jinja
