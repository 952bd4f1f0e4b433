// A blocking HTTP client for tests, on plain sockets: it sends whatever bytes it is given.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace bolide::server::test {

struct Answer {
  int status = 0;  // 0: none came
  std::string head, body;
  bool complete = false;  // the body ended as HTTP wants it
};

class HttpClient {
 public:
  HttpClient() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {}
  explicit HttpClient(uint16_t port, int receive_bytes = 0) : HttpClient() {
    if (receive_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    connect(port);
  }
  ~HttpClient() { close(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void connect(uint16_t port) {
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval patience{60, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }
  int socket() const { return socket_; }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void finish_sending() { ::shutdown(socket_, SHUT_WR); }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // More bytes into what was received. False: the connection is over.
  bool receive() {
    char bytes[16384];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    received_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  const std::string& received() const { return received_; }
  // Until so much has come, or nothing more will.
  bool receive_until(std::string_view text) {
    while (received_.find(text) == std::string::npos)
      if (!receive()) return false;
    return true;
  }

  // The next response, its chunks put together.
  Answer read_answer(bool head_only = false) {
    Answer answer;
    while (answer.status < 200) {  // 100 is no answer yet
      answer.status = 0;
      if (!receive_until("\r\n\r\n")) return answer;
      const size_t end = received_.find("\r\n\r\n");
      answer.head = received_.substr(0, end + 2);
      received_.erase(0, end + 4);
      answer.status = std::atoi(answer.head.c_str() + answer.head.find(' '));
    }
    if (head_only) {
      answer.complete = true;
    } else if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      while (receive_until("\r\n")) {
        const size_t line = received_.find("\r\n");
        const size_t bytes = std::strtoul(received_.c_str(), nullptr, 16);
        while (received_.size() < line + 2 + bytes + 2)
          if (!receive()) return answer;
        answer.body += received_.substr(line + 2, bytes);
        received_.erase(0, line + 2 + bytes + 2);
        if (bytes == 0) {
          answer.complete = true;
          break;
        }
      }
    } else if (const size_t at = answer.head.find("Content-Length: "); at != std::string::npos) {
      const size_t bytes = std::strtoul(answer.head.c_str() + at + 16, nullptr, 10);
      while (received_.size() < bytes)
        if (!receive()) return answer;
      answer.body = received_.substr(0, bytes);
      received_.erase(0, bytes);
      answer.complete = true;
    } else {  // the connection's end is the body's
      while (receive()) {
      }
      answer.body = std::exchange(received_, {});
      answer.complete = true;
    }
    return answer;
  }

  Answer get(std::string_view path, std::string_view headers = {}) {
    send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
    return read_answer();
  }
  Answer post(std::string_view path, std::string_view json, std::string_view headers = {}) {
    send_post(path, json, headers);
    return read_answer();
  }
  bool send_post(std::string_view path, std::string_view json, std::string_view headers = {}) {
    return send(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
                    "{}\r\n{}",
                    path, json.size(), headers, json));
  }

 private:
  int socket_ = -1;
  bool connected_ = false;
  std::string received_;
};

// Within 15 s.
template <class Condition>
bool becomes(Condition condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

inline Answer post(uint16_t port, std::string_view path, std::string_view json, std::string_view headers = {}) {
  return HttpClient(port).post(path, json, headers);
}
inline Answer get(uint16_t port, std::string_view path, std::string_view headers = {}) {
  return HttpClient(port).get(path, headers);
}

}  // namespace bolide::server::test
