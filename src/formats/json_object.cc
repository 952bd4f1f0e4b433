#include "formats/json_object.h"

#include <fmt/format.h>

#include "formats/json_limits.h"

namespace bolide {
namespace {

Error wrong_type(std::string_view path, std::string_view wanted, const nlohmann::json& got) {
  return error(Code::kInvalid,
               fmt::format("{}{}is {}, expected {}", path, path.empty() ? "" : ": ", got.type_name(), wanted));
}

}  // namespace

Result<JsonObject> JsonObject::of(const nlohmann::json& value, std::string path) {
  if (!value.is_object()) return wrong_type(path, "an object", value);
  return JsonObject(&value, std::move(path));
}

std::string JsonObject::at(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const nlohmann::json* JsonObject::find(std::string_view key) const {
  const auto it = value_->find(std::string(key));
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

Result<const nlohmann::json*> JsonObject::require(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return error(Code::kInvalid, fmt::format("{}: is missing", at(key)));
  return value;
}

Result<std::optional<std::string>> JsonObject::optional_string(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong_type(at(key), "a string", *value);
  return std::optional<std::string>(value->get_ref<const std::string&>());
}

Result<std::string> JsonObject::string(std::string_view key) const {
  BOLIDE_TRY(const nlohmann::json* value, require(key));
  if (!value->is_string()) return wrong_type(at(key), "a string", *value);
  return value->get_ref<const std::string&>();
}

Result<bool> JsonObject::boolean(std::string_view key) const {
  BOLIDE_TRY(const nlohmann::json* value, require(key));
  if (!value->is_boolean()) return wrong_type(at(key), "true or false", *value);
  return value->get<bool>();
}

Result<bool> JsonObject::boolean(std::string_view key, bool fallback) const {
  if (find(key) == nullptr) return fallback;
  return boolean(key);
}

Result<int64_t> JsonObject::integer(std::string_view key) const {
  BOLIDE_TRY(const nlohmann::json* value, require(key));
  if (!value->is_number_integer()) return wrong_type(at(key), "an integer", *value);
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return error(Code::kInvalid, fmt::format("{}: {} is too large", at(key), value->get<uint64_t>()));
  return value->get<int64_t>();
}

Result<int64_t> JsonObject::integer(std::string_view key, int64_t fallback) const {
  if (find(key) == nullptr) return fallback;
  return integer(key);
}

Result<JsonObject> JsonObject::object(std::string_view key) const {
  BOLIDE_TRY(const nlohmann::json* value, require(key));
  return of(*value, at(key));
}

Result<const nlohmann::json*> JsonObject::array(std::string_view key) const {
  BOLIDE_TRY(const nlohmann::json* value, require(key));
  if (!value->is_array()) return wrong_type(at(key), "an array", *value);
  return value;
}

Result<nlohmann::json> parse_json(std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max)
    return error(Code::kInvalid, fmt::format("has {} bytes of JSON; at most {} are read", text.size(), bytes_max));
  if (nests_deeper_than(text, kJsonNestingMax))
    return error(Code::kInvalid, fmt::format("nests deeper than {}", kJsonNestingMax));
  nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) return error(Code::kInvalid, describe_json_error(text));
  return document;
}

}  // namespace bolide
