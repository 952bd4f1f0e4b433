// Bodies of JSON, from clients that nobody has chosen.
//
// Thread rules: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"
#include "server/wishes.h"

namespace bolide::server {

// An object. What would take long, or much memory, is refused before it is parsed. Errors: kInvalid.
Result<nlohmann::ordered_json> parse_json_body(std::string_view body, const RequestLimits& limits);

}  // namespace bolide::server
