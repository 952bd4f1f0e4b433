#include "server/json_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "formats/json_limits.h"

namespace bolide::server {
namespace {

// Of a text of JSON, outside its strings.
struct Counts {
  size_t values = 0, keys = 0, keys_of_one = 0;  // at least so many values; keys of all objects, and of the largest
};

Counts count(std::string_view text) {
  Counts counts;
  std::vector<size_t> keys(1);  // of each object or array that is open
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') inside = !inside;
    if (inside && c == '\\') ++i;
    if (inside) continue;
    counts.values += c == ',' || c == ':' ? 1 : 0;
    if (c == '{' || c == '[') keys.push_back(0);
    if ((c == '}' || c == ']') && keys.size() > 1) keys.pop_back();
    if (c != ':') continue;
    ++counts.keys;
    counts.keys_of_one = std::max(counts.keys_of_one, ++keys.back());
  }
  return counts;
}

}  // namespace

Result<nlohmann::ordered_json> parse_json_body(std::string_view body, const RequestLimits& limits) {
  if (nests_deeper_than(body, kJsonNestingMax))
    return error(Code::kInvalid, fmt::format("the body nests deeper than {}", kJsonNestingMax));
  const Counts counts = count(body);
  if (counts.values >= limits.nodes_max)
    return error(Code::kInvalid, fmt::format("the body has more than {} values", limits.nodes_max));
  if (counts.keys > limits.keys_max)
    return error(Code::kInvalid, fmt::format("the body has more than {} keys", limits.keys_max));
  // Objects that keep the order of their keys look through all of them for each one they get.
  if (counts.keys_of_one > limits.object_keys_max)
    return error(Code::kInvalid, fmt::format("an object of the body has more than {} keys", limits.object_keys_max));
  if (utf8_invalid_at(body) != kUtf8Valid) return error(Code::kInvalid, "the body is not UTF-8");
  auto json = nlohmann::ordered_json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return error(Code::kInvalid, "the body " + describe_json_error(body));
  if (!json.is_object()) return error(Code::kInvalid, "the body must be a JSON object");
  return json;
}

}  // namespace bolide::server
