// gRPC's reflection: what services and messages there are.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/wishes.h"

namespace bolide::server {

// A ServerReflectionResponse to a ServerReflectionRequest. Errors: these bytes are no such request.
Result<std::string> reflect(std::string_view request);

}  // namespace bolide::server
