#include "measure/http/fetch.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "measure/http/response_parser.h"

namespace bolide::http {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

Error failed(std::string_view what, int reason) {
  return error(Code::kUnavailable, fmt::format("{}: {}", what, std::strerror(reason)));
}

Result<> wait_for(int socket, short events, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return error(Code::kUnavailable, "no answer in time");
    pollfd waiting{socket, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return failed("waiting", errno);
  }
}

}  // namespace

std::string request_text(const Url& url, std::string_view method, std::string_view route, std::string_view headers,
                         std::string_view body) {
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nUser-Agent: bolide-bench\r\n{}",
                                 method, url.path, route, authority(url), headers);
  if (!body.empty()) text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  text += "\r\n";
  text += body;
  return text;
}

Result<Answer> fetch(const Address& address, std::string_view request, double timeout_s, size_t body_max) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  const Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return failed("no socket", errno);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 &&
      errno != EINPROGRESS)
    return failed("no connection", errno);
  while (!request.empty()) {
    BOLIDE_TRY(wait_for(socket.get(), POLLOUT, end));
    const ssize_t sent = ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent > 0) request.remove_prefix(static_cast<size_t>(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return failed("no connection", errno);
  }
  ResponseParser parser;
  Answer answer;
  std::array<char, 16384> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): recv fills it
  while (!parser.done()) {
    BOLIDE_TRY(wait_for(socket.get(), POLLIN, end));
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return failed("reading the answer", errno);
    bool fits = true;
    const auto take = [&](std::string_view piece) {
      fits = answer.body.size() + piece.size() <= body_max;
      if (fits) answer.body += piece;
      return fits;
    };
    const bool good = got == 0 ? parser.close() : parser.push({buffer.data(), static_cast<size_t>(got)}, take);
    if (!fits) return error(Code::kInvalid, fmt::format("the answer is longer than {} bytes", body_max));
    if (!good) return error(Code::kInvalid, std::string(to_string(parser.fault())));
  }
  answer.status = parser.status();
  answer.content_type = parser.content_type();
  return answer;
}

}  // namespace bolide::http
