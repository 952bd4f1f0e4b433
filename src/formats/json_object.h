// One object of a parsed JSON text with its path, so that every error names the field: "model.merges[3]: ...".
// Each getter checks the type; a missing key or null gives the fallback, or an error if there is none.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace bolide {

class JsonObject {
 public:
  static Result<JsonObject> of(const nlohmann::json& value, std::string path);

  // Null if the key is absent or its value is null.
  const nlohmann::json* find(std::string_view key) const;
  Result<const nlohmann::json*> require(std::string_view key) const;

  Result<std::string> string(std::string_view key) const;
  Result<std::optional<std::string>> optional_string(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<int64_t> integer(std::string_view key) const;
  Result<int64_t> integer(std::string_view key, int64_t fallback) const;
  Result<JsonObject> object(std::string_view key) const;
  Result<const nlohmann::json*> array(std::string_view key) const;

  // "path.key".
  std::string at(std::string_view key) const;
  const std::string& path() const { return path_; }
  const nlohmann::json& json() const { return *value_; }

 private:
  JsonObject(const nlohmann::json* value, std::string path) : value_(value), path_(std::move(path)) {}

  const nlohmann::json* value_;  // the caller keeps the document alive
  std::string path_;
};

// Parses a text; errors name line and column. Texts over `bytes_max`, and deep ones, are refused.
Result<nlohmann::json> parse_json(std::string_view text, size_t bytes_max);

}  // namespace bolide
