// The connections of a gRPC server: accepted, counted and bounded here, because the library does not, and handed over.
//
// Thread rules: made and stopped by one thread; `take` is called on the one that is made here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"

namespace bolide::server::rpc {

struct ConnectionLimits {
  size_t connections = 20'000, connections_per_client = 1'000;
};

class Connections {
 public:
  // Gets a socket, which it owns from then on.
  using Take = std::function<void(int listening, int socket)>;

  // `port` 0: any free one. Errors: the address is in use, or not this machine's.
  static Result<std::unique_ptr<Connections>> listen(const std::string& host, uint16_t port,
                                                     const ConnectionLimits& limits);
  ~Connections() { stop(); }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  uint16_t port() const { return port_; }
  size_t count() const { return count_; }
  uint64_t accepted() const { return accepted_; }
  uint64_t refused() const { return refused_; }
  // From now on they are accepted.
  void start(Take take);
  // No further ones; those that there are stay.
  void stop();

 private:
  explicit Connections(const ConnectionLimits& limits) : limits_(limits) {}
  Result<> open(const std::string& host, uint16_t port);
  void run();
  void accept_all();
  void accepted(int socket, const std::string& client);
  void closed(int watched);

  const ConnectionLimits limits_;
  int listening_ = -1, poll_ = -1, end_ = -1;
  uint16_t port_ = 0;
  std::atomic<size_t> count_{0};
  std::atomic<uint64_t> accepted_{0}, refused_{0};
  Take take_;  // what follows: of the thread
  // By a second descriptor of the socket, which tells when the connection ends; whose client it is.
  std::map<int, std::string> watched_;
  std::map<std::string, size_t> by_client_;
  std::thread thread_;
};

}  // namespace bolide::server::rpc
