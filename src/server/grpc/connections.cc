#include "server/grpc/connections.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace bolide::server::rpc {
namespace {

constexpr int kBacklog = 1024;

std::string address_of(const sockaddr_storage& from) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* at = from.ss_family == AF_INET6
                       ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(from).sin6_addr)
                       : &reinterpret_cast<const sockaddr_in&>(from).sin_addr;
  const char* written = ::inet_ntop(from.ss_family, at, text.data(), text.size());
  return written != nullptr ? written : "";
}

bool watch(int poll, int descriptor, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  return ::epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

}  // namespace

Result<std::unique_ptr<Connections>> Connections::listen(const std::string& host, uint16_t port,
                                                         const ConnectionLimits& limits) {
  std::unique_ptr<Connections> made(new Connections(limits));
  BOLIDE_TRY(made->open(host, port));
  return made;
}

Result<> Connections::open(const std::string& host, uint16_t port) {
  const auto wrong = [&](const char* what) {
    return error(Code::kInvalid, fmt::format("cannot listen on {:.100}, port {}, for gRPC: {}", host, port, what));
  };
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  if (const int failed = ::getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found); failed != 0)
    return wrong(::gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  listening_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (listening_ < 0 || ::setsockopt(listening_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::setsockopt(listening_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||  // those it accepts have it, too
      ::bind(listening_, found->ai_addr, found->ai_addrlen) != 0 || ::listen(listening_, kBacklog) != 0 ||
      ::getsockname(listening_, reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return wrong(std::strerror(errno));
  port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                            : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  poll_ = ::epoll_create1(EPOLL_CLOEXEC);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  if (poll_ < 0 || end_ < 0 || !watch(poll_, listening_, EPOLLIN) || !watch(poll_, end_, EPOLLIN))
    return wrong(std::strerror(errno));
  return {};
}

void Connections::start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { run(); });
}

void Connections::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!::write(end_, &one, sizeof one);
    thread_.join();
  }
  for (const auto& [watched, client] : watched_) ::close(watched);
  watched_.clear();
  for (int* descriptor : {&listening_, &poll_, &end_})
    if (const int open = std::exchange(*descriptor, -1); open >= 0) ::close(open);
}

void Connections::run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = ::epoll_wait(poll_, events.data(), events.size(), -1);
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<size_t>(i)].data.fd;
      if (descriptor == end_) return;
      if (descriptor == listening_)
        accept_all();
      else
        closed(descriptor);
    }
  }
}

void Connections::accept_all() {
  while (true) {
    sockaddr_storage from{};
    socklen_t length = sizeof from;
    const int socket = ::accept4(listening_, reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0) {
      accepted(socket, address_of(from));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // others must end first
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

void Connections::accepted(int socket, const std::string& client) {
  size_t& of_client = by_client_[client];
  const bool fits = count_ < limits_.connections && of_client < limits_.connections_per_client;
  const int watched = fits ? ::fcntl(socket, F_DUPFD_CLOEXEC, 0) : -1;
  if (watched < 0 || !watch(poll_, watched, EPOLLRDHUP)) {
    if (watched >= 0) ::close(watched);
    if (of_client == 0) by_client_.erase(client);
    ++refused_;
    ::close(socket);
    return;
  }
  ++of_client;
  ++count_;
  ++accepted_;
  watched_.emplace(watched, client);
  take_(listening_, socket);
}

// By the client, or by the library, which shuts its sockets down before it closes them.
void Connections::closed(int watched) {
  const auto it = watched_.find(watched);
  if (it == watched_.end()) return;
  const auto client = by_client_.find(it->second);
  if (--client->second == 0) by_client_.erase(client);
  watched_.erase(it);
  --count_;
  ::close(watched);
}

}  // namespace bolide::server::rpc
