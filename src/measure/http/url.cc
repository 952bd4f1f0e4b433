#include "measure/http/url.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace bolide::http {
namespace {

constexpr size_t kUrlBytesMax = 2048;

Error bad(std::string_view text, std::string_view what) {
  return error(Code::kInvalid, fmt::format("URL \"{}\": {}; give it as http://host:8000", text.substr(0, 80), what));
}

// 0, or why no connection came about.
int try_connect(const addrinfo& at, double timeout_s) {
  const int socket = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return errno;
  int reason = ::connect(socket, at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
  if (reason == EINPROGRESS) {
    pollfd waiting{socket, POLLOUT, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(timeout_s * 1000));
    socklen_t size = sizeof reason;
    if (ready < 0)
      reason = errno;
    else if (ready == 0)
      reason = ETIMEDOUT;
    else
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &reason, &size);
  }
  ::close(socket);
  return reason;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kUrlBytesMax) return bad(text, "is too long");
  std::string_view rest = text;
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    const std::string_view name = text.substr(0, scheme);
    if (name == "https")
      return error(Code::kUnsupported,
                   fmt::format("URL \"{}\": https is not supported; measure the server's plain port, or a local proxy "
                               "that does the TLS (then its cost is measured too)",
                               text.substr(0, 80)));
    if (name != "http") return bad(text, fmt::format("scheme \"{}\" is not http", name));
    rest.remove_prefix(scheme + 3);
  }
  for (const char c : rest)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return bad(text, "has a space or control character in it");
  if (rest.find_first_of("?#@") != std::string_view::npos) return bad(text, "has a '?', '#' or '@' in it");
  Url url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view server = rest.substr(0, slash);
  url.path = rest.substr(slash);
  while (!url.path.empty() && url.path.back() == '/') url.path.pop_back();
  // People give the base that clients of OpenAI's take.
  if (url.path.ends_with("/v1")) url.path.resize(url.path.size() - 3);
  std::string_view port;
  if (server.starts_with('[')) {
    const size_t close = server.find(']');
    if (close == std::string_view::npos) return bad(text, "has a '[' without its ']'");
    url.host = server.substr(1, close - 1);
    port = server.substr(close + 1);
    if (!port.empty() && !port.starts_with(':')) return bad(text, "has something behind ']' that is no port");
  } else {
    const size_t colon = std::min(server.find(':'), server.size());
    url.host = server.substr(0, colon);
    port = server.substr(colon);
  }
  if (url.host.empty()) return bad(text, "has no host");
  if (port.size() == 1) return bad(text, "has no port behind ':'");
  if (!port.empty()) {
    const char* end = port.data() + port.size();
    const auto parsed = std::from_chars(port.data() + 1, end, url.port);
    if (parsed.ec != std::errc() || parsed.ptr != end || url.port < 1 || url.port > 65535)
      return bad(text, fmt::format("\"{}\" is no port", port.substr(1)));
  }
  return url;
}

std::string authority(const Url& url) {
  return url.host.find(':') == std::string::npos ? fmt::format("{}:{}", url.host, url.port)
                                                 : fmt::format("[{}]:{}", url.host, url.port);
}

Result<Address> resolve(const Url& url, double timeout_s) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int code = ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &list); code != 0)
    return error(Code::kUnavailable, fmt::format("{}: no such host: {}", url.host, ::gai_strerror(code)));
  std::string reasons;
  Address found;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (const int reason = try_connect(*at, timeout_s); reason != 0) {
      const std::string text = std::strerror(reason);
      if (reasons.find(text) == std::string::npos) reasons += (reasons.empty() ? "" : ", ") + text;
      continue;
    }
    std::memcpy(&found.storage, at->ai_addr, at->ai_addrlen);
    found.length = at->ai_addrlen;
    break;
  }
  ::freeaddrinfo(list);
  if (found.length > 0) return found;
  return error(Code::kUnavailable,
               fmt::format("{}: no connection: {}; is the server running?", authority(url), reasons));
}

}  // namespace bolide::http
