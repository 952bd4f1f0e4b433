// Where a server is: "http://host:port/base" taken apart, and the address behind it.
//
// Thread rules: plain values; resolve waits for the name service and for a connection.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace bolide::http {

struct Url {
  std::string host;  // without the brackets of an IPv6 address
  int port = 80;
  std::string path;  // what comes before a route: "" or "/base", never a slash at the end
};

// The scheme may be left out. kUnsupported: https; kInvalid: anything else that is no URL of a server.
Result<Url> parse_url(std::string_view text);

std::string authority(const Url& url);  // "host:port", "[::1]:8000"

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// The first of the host's addresses that takes a connection. kUnavailable says what each answered.
Result<Address> resolve(const Url& url, double timeout_s);

}  // namespace bolide::http
