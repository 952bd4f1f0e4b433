#include "formats/model_config.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/json_limits.h"

namespace bolide {

using Json = nlohmann::json;

struct ModelConfig::Document {
  std::string source;
  Json root;
  std::map<std::string, std::string, std::less<>> own_names;  // what the file calls a standard field

  // nullptr if the field is absent or null.
  const Json* find(std::string_view key) const {
    const auto it = root.find(std::string(key));
    return it == root.end() || it->is_null() ? nullptr : &*it;
  }
};

namespace {

std::string_view kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a bool";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number with a fraction";
    default: return "null";
  }
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  // Some writers give whole numbers as 4096.0.
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) < 0x1p53 && number == std::floor(number)) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

std::optional<double> as_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<bool> as_boolean(const Json& value) {
  return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
}

std::optional<std::string> as_string(const Json& value) {
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

template <class T, class Convert>
std::optional<std::vector<T>> as_list(const Json& value, Convert convert) {
  if (!value.is_array()) return std::nullopt;
  std::vector<T> list;
  for (const Json& element : value) {
    auto converted = convert(element);
    if (!converted) return std::nullopt;
    list.push_back(*std::move(converted));
  }
  return list;
}

std::string expected(const Json& value, std::string_view what) {
  return fmt::format("is {}, expected {}", kind(value), what);
}

}  // namespace

Result<ModelConfig> ModelConfig::parse(std::string_view text, std::string source) {
  if (text.size() > kConfigBytesMax)
    return error(Code::kInvalid,
                 fmt::format("{}: has {} bytes, at most {} are read", source, text.size(), kConfigBytesMax));
  if (nests_deeper_than(text, kJsonNestingMax))
    return error(Code::kInvalid, fmt::format("{}: nests deeper than {}", source, kJsonNestingMax));
  auto document = std::make_shared<Document>();
  document->root = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (document->root.is_discarded())
    return error(Code::kInvalid, fmt::format("{}: {}", source, describe_json_error(text)));
  if (!document->root.is_object())
    return error(Code::kInvalid, fmt::format("{}: {} at the top", source, expected(document->root, "an object")));
  document->source = std::move(source);
  ModelConfig config;
  config.document_ = std::move(document);
  return config;
}

ModelConfig ModelConfig::with_aliases(std::span<const FieldAlias> aliases) const {
  if (aliases.empty()) return *this;
  auto document = std::make_shared<Document>(*document_);
  for (const FieldAlias& alias : aliases) {
    const std::string standard(alias.standard), own(alias.own);
    if (const Json* value = document_->find(own); value != nullptr) {
      document->root[standard] = *value;
      document->own_names[standard] = own;
    } else if (document->find(standard) == nullptr) {
      document->own_names.emplace(standard, own);  // for the error that says that it is missing
    }
  }
  ModelConfig config;
  config.document_ = std::move(document);
  return config;
}

const std::string& ModelConfig::source() const { return document_->source; }
bool ModelConfig::has(std::string_view key) const { return document_->find(key) != nullptr; }

std::vector<std::string> ModelConfig::keys() const {
  std::vector<std::string> list;
  for (const auto& [key, value] : document_->root.items()) list.push_back(key);
  return list;
}

std::string ModelConfig::to_text() const {
  return document_->root.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Error ModelConfig::field_error(std::string_view key, std::string_view what, Code code) const {
  const auto own = document_->own_names.find(key);
  if (own == document_->own_names.end()) return error(code, fmt::format("{}: {}: {}", document_->source, key, what));
  return error(code, fmt::format("{}: {} ({}): {}", document_->source, own->second, key, what));
}

// The getters differ in the conversion and in the words for what was expected.
#define BOLIDE_CONFIG_GETTER(type, name, convert, words)                                 \
  Result<std::optional<type>> ModelConfig::optional_##name(std::string_view key) const { \
    const Json* value = document_->find(key);                                            \
    if (value == nullptr) return std::optional<type>();                                  \
    auto converted = convert(*value);                                                    \
    if (!converted) return field_error(key, expected(*value, words));                    \
    return converted;                                                                    \
  }                                                                                      \
  Result<type> ModelConfig::name##_or(std::string_view key, type other) const {          \
    BOLIDE_TRY(auto value, optional_##name(key));                                        \
    return value ? *std::move(value) : std::move(other);                                 \
  }                                                                                      \
  Result<type> ModelConfig::name(std::string_view key) const {                           \
    BOLIDE_TRY(auto value, optional_##name(key));                                        \
    if (!value) return field_error(key, fmt::format("is missing, expected {}", words));  \
    return *std::move(value);                                                            \
  }
BOLIDE_CONFIG_GETTER(int64_t, integer, as_integer, "an integer")
BOLIDE_CONFIG_GETTER(double, number, as_number, "a finite number")
BOLIDE_CONFIG_GETTER(bool, boolean, as_boolean, "true or false")
BOLIDE_CONFIG_GETTER(std::string, string, as_string, "a string")
#undef BOLIDE_CONFIG_GETTER

Result<int64_t> ModelConfig::integer_in(std::string_view key, int64_t least, int64_t most) const {
  BOLIDE_TRY(const int64_t value, integer(key));
  if (value < least || value > most)
    return field_error(key, fmt::format("is {}, expected {} to {}", value, least, most));
  return value;
}

std::string range_problem(double value, NumberRange range) {
  if (value >= range.least && value <= range.most) return {};
  return fmt::format("is {}, expected {:g} to {:g}", value, range.least, range.most);
}

Result<std::optional<double>> ModelConfig::optional_number_in(std::string_view key, NumberRange range) const {
  BOLIDE_TRY(const auto value, optional_number(key));
  if (!value) return value;
  if (const std::string problem = range_problem(*value, range); !problem.empty()) return field_error(key, problem);
  return value;
}

Result<double> ModelConfig::number_in(std::string_view key, double other, NumberRange range) const {
  BOLIDE_TRY(const auto value, optional_number_in(key, range));
  return value.value_or(other);
}

Result<std::optional<int64_t>> ModelConfig::optional_integer_in(std::string_view key, int64_t least,
                                                                int64_t most) const {
  BOLIDE_TRY(const auto value, optional_integer(key));
  if (value && (*value < least || *value > most))
    return field_error(key, fmt::format("is {}, expected {} to {}", *value, least, most));
  return value;
}

Result<std::vector<int64_t>> ModelConfig::integers(std::string_view key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return field_error(key, "is missing, expected a list of integers");
  if (const auto single = as_integer(*value)) return std::vector<int64_t>{*single};
  auto list = as_list<int64_t>(*value, as_integer);
  if (!list) return field_error(key, "expected a list of integers");
  return *std::move(list);
}

Result<std::vector<double>> ModelConfig::numbers(std::string_view key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return field_error(key, "is missing, expected a list of numbers");
  auto list = as_list<double>(*value, as_number);
  if (!list) return field_error(key, "expected a list of finite numbers");
  return *std::move(list);
}

Result<std::vector<std::string>> ModelConfig::strings(std::string_view key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return field_error(key, "is missing, expected a list of strings");
  auto list = as_list<std::string>(*value, as_string);
  if (!list) return field_error(key, "expected a list of strings");
  return *std::move(list);
}

Result<ModelConfig> ModelConfig::object(std::string_view key) const {
  const Json* value = document_->find(key);
  if (value == nullptr) return field_error(key, "is missing, expected an object");
  if (!value->is_object()) return field_error(key, expected(*value, "an object"));
  auto document = std::make_shared<Document>();
  document->source = fmt::format("{}: {}", document_->source, key);
  document->root = *value;
  ModelConfig config;
  config.document_ = std::move(document);
  return config;
}

Result<std::optional<ModelConfig>> ModelConfig::optional_object(std::string_view key) const {
  if (!has(key)) return std::optional<ModelConfig>();
  BOLIDE_TRY(auto config, object(key));
  return std::optional(std::move(config));
}

Result<std::string> ModelConfig::architecture() const {
  BOLIDE_TRY(auto list, strings("architectures"));
  if (list.empty()) return field_error("architectures", "is empty, expected the name of a model class");
  return std::move(list.front());
}

Result<std::optional<std::string>> ModelConfig::dtype() const {
  BOLIDE_TRY(auto name, optional_string(has("dtype") ? "dtype" : "torch_dtype"));
  if (name && name->starts_with("torch.")) name->erase(0, 6);
  return name;
}

Result<std::vector<std::string>> ModelConfig::layer_types() const {
  if (!has("layer_types")) return std::vector<std::string>();
  return strings("layer_types");
}

}  // namespace bolide
