// HTTP's statuses as gRPC's, and what goes with them.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace bolide::server {

// The number of gRPC's code for this status: 200 is OK (0).
int grpc_code(int http_status);

// google.rpc.Status with a RetryInfo: when a client that was refused for now may try again.
std::string retry_details(int grpc_code, std::string_view text, int seconds);

}  // namespace bolide::server
