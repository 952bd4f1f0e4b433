#include "base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_string.h"

namespace bolide {
namespace {

constexpr size_t kShownMax = 80;  // bytes of a wrong value that an error repeats

// An integer without a limit has that of its type.
BoundOption with_limits_of_type(const BoundOption& option) {
  BoundOption limited = option;
  std::visit(
      [&](const auto* value) {
        using T = std::decay_t<decltype(*value)>;
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
          limited.limits.max = std::min(option.limits.max, static_cast<double>(std::numeric_limits<T>::max()));
      },
      option.value);
  return limited;
}

Error wrong(const BoundOption& option, std::string_view given) {
  const std::string range = range_text(with_limits_of_type(option));
  const std::string_view type = type_name(option);
  return error(Code::kInvalid,
               fmt::format("{} is \"{}\"{}; give {}{}{}", option.name, given.substr(0, kShownMax),
                           given.size() > kShownMax ? "..." : "",
                           type == "integer"  ? "an "
                           : type == "number" ? "a "
                                              : "",
                           type, range.empty() || !option.limits.choices.empty() ? "" : fmt::format(", {}", range)));
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_integer(std::string_view text, bool is_bytes) {
  int64_t unit = 1;
  if (is_bytes) {
    constexpr std::pair<std::string_view, int64_t> kUnits[] = {
        {"KiB", int64_t{1} << 10}, {"MiB", int64_t{1} << 20}, {"GiB", int64_t{1} << 30}, {"TiB", int64_t{1} << 40}};
    for (const auto& [suffix, size] : kUnits) {
      if (!text.ends_with(suffix)) continue;
      text.remove_suffix(suffix.size());
      unit = size;
      break;
    }
  }
  const std::optional<int64_t> value = parse_number<int64_t>(text);
  int64_t product = 0;
  if (!value || __builtin_mul_overflow(*value, unit, &product)) return std::nullopt;
  return product;
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == text) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

bool in_range(const BoundOption& option, double value) {
  return value >= option.limits.min && value <= option.limits.max;  // false for NaN
}

bool is_valid(const BoundOption& option) {
  return std::visit(
      [&](const auto* value) {
        using T = std::decay_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return true;
        } else if constexpr (std::is_same_v<T, std::string>) {
          return option.limits.choices.empty() || is_choice(option.limits.choices, *value);
        } else {
          return in_range(option, static_cast<double>(*value));
        }
      },
      option.value);
}

template <class T>
Result<> store(const BoundOption& option, T* target, T value, std::string_view given) {
  std::swap(*target, value);
  if (is_valid(option)) return {};
  std::swap(*target, value);
  return wrong(option, given);
}

std::string limit_text(double limit) {
  if (limit >= static_cast<double>(INT64_MAX)) return fmt::format("{}", INT64_MAX);
  return std::abs(limit) < 1e15 && limit == std::floor(limit) ? fmt::format("{}", static_cast<int64_t>(limit))
                                                              : fmt::format("{}", limit);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

Error unknown(std::span<const BoundOption> options, std::string_view key) {
  key = key.substr(0, kShownMax);
  std::vector<std::string_view> names;
  for (const BoundOption& option : options) names.push_back(option.name);
  const std::string_view near = nearest_name(key, names);
  return error(Code::kInvalid, fmt::format("there is no option \"{}\"{}", key,
                                           near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

// "|a|b": an empty value is allowed too, which no list of words can show.
std::string_view shown_choices(std::string_view choices) {
  if (choices.starts_with('|')) choices.remove_prefix(1);
  return choices;
}

}  // namespace

std::string_view nearest_name(std::string_view given, std::span<const std::string_view> names) {
  given = given.substr(0, kShownMax);
  std::string_view nearest;
  size_t least = std::max<size_t>(2, given.size() / 3) + 1;
  for (const std::string_view name : names) {
    const size_t distance = edit_distance(given, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::string flag_name(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string_view type_name(const BoundOption& option) {
  if (std::holds_alternative<bool*>(option.value)) return "true|false";
  if (std::holds_alternative<double*>(option.value)) return "number";
  if (!std::holds_alternative<std::string*>(option.value)) return "integer";
  return option.limits.choices.empty() ? "text" : shown_choices(option.limits.choices);
}

std::string range_text(const BoundOption& option) {
  const OptionLimits& limits = option.limits;
  if (!limits.choices.empty()) return std::string(shown_choices(limits.choices));
  const std::string unit = limits.unit.empty() ? "" : fmt::format(" {}", limits.unit);
  if (std::isfinite(limits.min) && std::isfinite(limits.max))
    return fmt::format("{} to {}{}", limit_text(limits.min), limit_text(limits.max), unit);
  if (std::isfinite(limits.min)) return fmt::format("at least {}{}", limit_text(limits.min), unit);
  if (std::isfinite(limits.max)) return fmt::format("at most {}{}", limit_text(limits.max), unit);
  return limits.unit.empty() ? "" : fmt::format("in {}", limits.unit);
}

std::string value_text(const BoundOption& option) {
  return std::visit([](const auto* value) { return fmt::format("{}", *value); }, option.value);
}

Result<> set_option(const BoundOption& option, std::string_view text) {
  return std::visit(
      [&](auto* target) -> Result<> {
        using T = std::decay_t<decltype(*target)>;
        if constexpr (std::is_same_v<T, bool>) {
          if (text != "true" && text != "false" && text != "1" && text != "0") return wrong(option, text);
          *target = text == "true" || text == "1";
          return {};
        } else if constexpr (std::is_same_v<T, double>) {
          const std::optional<double> value = parse_number<double>(text);
          return value ? store(option, target, *value, text) : wrong(option, text);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return store(option, target, std::string(text), text);
        } else {
          const std::optional<int64_t> value = parse_integer(text, option.limits.unit == "bytes");
          if (!value || *value < std::numeric_limits<T>::min() || *value > std::numeric_limits<T>::max())
            return wrong(option, text);
          return store(option, target, static_cast<T>(*value), text);
        }
      },
      option.value);
}

Result<> check_options(std::span<const BoundOption> options) {
  for (const BoundOption& option : options)
    if (!is_valid(option)) return wrong(option, value_text(option));
  return {};
}

Result<> set_options_from_json(std::span<const BoundOption> options, std::string_view json) {
  const nlohmann::json object = nlohmann::json::parse(json, nullptr, false);
  if (object.is_discarded()) return error(Code::kInvalid, "the configuration is not valid JSON");
  if (!object.is_object())
    return error(Code::kInvalid, "the configuration is not a JSON object, {\"name\": value, ...}");
  for (const auto& [key, value] : object.items()) {
    const auto found = std::find_if(options.begin(), options.end(), [&](const auto& o) { return o.name == key; });
    if (found == options.end()) return unknown(options, key);
    const bool wants_text = std::holds_alternative<std::string*>(found->value);
    const bool wants_bool = std::holds_alternative<bool*>(found->value);
    const bool is_size = found->limits.unit == "bytes" && value.is_string();  // "8GiB"
    const bool fits = wants_text ? value.is_string() : wants_bool ? value.is_boolean() : value.is_number() || is_size;
    // Arrays and objects are not printed: they may be nested deeper than the stack is.
    const std::string text = value.is_string()       ? value.get<std::string>()
                             : value.is_structured() ? fmt::format("a JSON {}", value.type_name())
                                                     : value.dump();
    if (!fits) return wrong(*found, text);
    BOLIDE_TRY(set_option(*found, text));
  }
  return {};
}

std::string options_to_json(std::span<const BoundOption> options) {
  std::string json = "{";
  for (const BoundOption& option : options) {
    if (json.size() > 1) json += ',';
    append_json_string(json, option.name);
    json += ':';
    if (const auto* text = std::get_if<std::string*>(&option.value)) {
      append_json_string(json, **text);
    } else if (const auto* number = std::get_if<double*>(&option.value);
               number != nullptr && !std::isfinite(**number)) {
      json += "null";
    } else {
      json += value_text(option);
    }
  }
  return json + "}";
}

std::string list_options(std::span<const BoundOption> options) {
  size_t names = 0, values = 0, ranges = 0;
  for (const BoundOption& option : options) {
    names = std::max(names, option.name.size());
    values = std::max(values, std::min<size_t>(value_text(option).size(), 24));
    ranges = std::max(ranges, range_text(option).size());
  }
  std::string text;
  for (const BoundOption& option : options)
    fmt::format_to(std::back_inserter(text), "{:<{}}  {:<{}}  {:<{}}  {}\n", option.name, names, value_text(option),
                   values, range_text(option), ranges, option.sentence);
  return text;
}

}  // namespace bolide
