// HTTP by itself, with whatever bytes a client may send.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "server/http.h"
#include "server/http_text.h"
#include "server/testing/http_client.h"

namespace bolide::server {
namespace {

using test::Answer;
using test::HttpClient;
using Exchange = std::shared_ptr<HttpExchange>;

HttpResponse error_body(int status, std::string_view what) { return {status, {}, std::string(what)}; }

// "/echo" answers with the body; "/stream/N" with N chunks; "/hang" never does.
class Echo {
 public:
  explicit Echo(HttpLimits limits = {}, int threads = 2) {
    HttpOptions options;
    options.port = 0;
    options.threads = threads;
    options.limits = limits;
    auto started = HttpServer::start(options, [this](const Exchange& e) { handle(e); }, error_body);
    EXPECT_TRUE(started.has_value()) << started.error().text;
    server = *std::move(started);
  }
  ~Echo() {
    server->stop();
    hanging.clear();
  }
  uint16_t port() const { return server->port(); }

  std::unique_ptr<HttpServer> server;
  std::mutex mutex;
  std::vector<Exchange> hanging;
  std::atomic<int> gone{0};
  std::atomic<int> written{0};

 private:
  void handle(const Exchange& e) {
    const std::string& path = e->request().path;
    if (path == "/echo") return e->respond({200, {}, e->request().body});
    e->on_gone([this] { ++gone; });
    if (path == "/flood") {
      e->begin(200, {});
      std::thread([this, e] {
        while (e->write(std::string(16384, 'x'))) ++written;
      }).detach();
      return;
    }
    if (path.starts_with("/stream/")) {
      e->begin(200, {}, ": ping\n\n");
      const int count = std::atoi(path.c_str() + 8);
      for (int i = 0; i < count; ++i) e->write(fmt::format("{}\n", i));
      return path.ends_with("abort") ? e->abort() : e->end();
    }
    if (path == "/ping") e->begin(200, {}, ": ping\n\n");
    const std::lock_guard lock(mutex);
    hanging.push_back(e);
  }
};

template <class Condition>
bool becomes(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// One connection, the answer to these bytes.
Answer answer_to(uint16_t port, std::string_view bytes) {
  HttpClient client(port);
  client.send(bytes);
  return client.read_answer();
}

TEST(HttpServer, BodiesOfAnySizeComeBack) {
  Echo echo;
  HttpClient client(echo.port());
  for (const size_t bytes : {0, 1, 1000, 65536, 3 << 20}) {
    const std::string body(bytes, 'b');
    const Answer answer = client.post("/echo", body);
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body == body) << bytes;
  }
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_answer().body, "abcde");
  EXPECT_EQ(client.get("/echo").status, 200);
}

TEST(HttpServer, RequestsThatDoNotWaitAreAnsweredInOrder) {
  Echo echo;
  HttpClient client(echo.port());
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const std::string body = fmt::format("number {}", i);
    all += fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  }
  std::thread sender([&] { client.send(all); });
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.read_answer().body, fmt::format("number {}", i));
  sender.join();
}

TEST(HttpServer, StreamsComeWholeAndAbortedOnesDoNotLookSo) {
  Echo echo;
  HttpClient client(echo.port());
  for (const int count : {0, 1, 500}) {
    const Answer answer = client.get(fmt::format("/stream/{}", count));
    EXPECT_TRUE(answer.complete);
    std::string expected;
    for (int i = 0; i < count; ++i) expected += fmt::format("{}\n", i);
    EXPECT_EQ(answer.body, expected);
  }
  EXPECT_FALSE(client.get("/stream/10/abort").complete);
  EXPECT_EQ(HttpClient(echo.port()).get("/stream/3").complete, true);
}

TEST(HttpServer, WhatIsNoHttpIsRefused) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  Echo echo(limits);
  const std::string long_header = "GET /echo HTTP/1.1\r\nHost: x\r\nA: " + std::string(40'000, 'a') + "\r\n\r\n";
  std::string many_headers = "GET /echo HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 150; ++i) many_headers += fmt::format("H{}: 1\r\n", i);
  const std::pair<std::string, int> cases[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET / HTTP/0.9\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", 400},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x'), 413},
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n", 414},
      {"GET http://other/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: x\r\n bad: 1\r\n\r\n", 200},  // a folded line: a space, says RFC 7230
      {"GET /echo HTTP/1.1\r\nHo st: x\r\n\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", 27), 400},
      {long_header, 431},
      {many_headers + "\r\n", 431},
  };
  for (const auto& [bytes, status] : cases)
    EXPECT_EQ(answer_to(echo.port(), bytes).status, status) << bytes.substr(0, 80);
  EXPECT_EQ(HttpClient(echo.port()).post("/echo", std::string(1000, 'x')).status, 200) << "at the limit";
}

TEST(HttpServer, SlowRequestsRunOutOfTime) {
  HttpLimits limits;
  limits.header_time = std::chrono::seconds(1);
  limits.idle_time = std::chrono::seconds(1);
  limits.body_bytes_per_second = 1'000'000;
  Echo echo(limits);
  HttpClient header(echo.port()), body(echo.port()), idle(echo.port()), silent(echo.port());
  header.send("GET /echo HTT");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(idle.get("/echo").status, 200);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(header.read_answer().status, 408);
  EXPECT_EQ(body.read_answer().status, 408);
  EXPECT_FALSE(idle.receive());
  EXPECT_FALSE(silent.receive());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
  EXPECT_TRUE(echo.server->wait_closed(std::chrono::seconds(10)));
}

TEST(HttpServer, AClientThatReadsNothingIsGivenUp) {
  HttpLimits limits;
  limits.unsent_bytes = 100'000;
  Echo echo(limits);
  HttpClient client(echo.port(), /*receive_bytes=*/4096);
  client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(becomes([&] { return echo.gone == 1; }));
  EXPECT_LT(echo.written, 2000);  // the kernel's buffers take some megabytes
  EXPECT_EQ(HttpClient(echo.port()).get("/echo").status, 200);
}

TEST(HttpServer, ThatAClientIsGoneIsSeenAtOnce) {
  Echo echo;
  for (int i = 1; i <= 20; ++i) {
    HttpClient client(echo.port());
    client.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_TRUE(becomes([&] {
      const std::lock_guard lock(echo.mutex);
      return echo.hanging.size() == static_cast<size_t>(i);
    }));
    client.close();
    ASSERT_TRUE(becomes([&] { return echo.gone == i; }));
  }
  EXPECT_TRUE(becomes([&] { return echo.server->stats().connections == 0; }));
}

TEST(HttpServer, SilentStreamsArePinged) {
  HttpLimits limits;
  limits.ping_time = std::chrono::seconds(1);
  Echo echo(limits);
  HttpClient client(echo.port());
  client.send("GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.receive_until(": ping\n\n\r\n"));
  EXPECT_TRUE(becomes([&] {
    const std::lock_guard lock(echo.mutex);
    return echo.hanging.size() == 1;
  }));
  echo.hanging[0]->write("done");
  echo.hanging[0]->end();
  const Answer answer = client.read_answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(answer.body.ends_with("done"));
}

TEST(HttpServer, ConnectionsAreCounted) {
  HttpLimits limits;
  limits.connections_per_client = 3;
  Echo echo(limits);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(echo.port()));
    EXPECT_EQ(clients.back()->get("/echo").status, 200);
  }
  HttpClient fourth(echo.port());
  EXPECT_EQ(fourth.read_answer().status, 503);
  clients.pop_back();
  EXPECT_TRUE(becomes([&] { return HttpClient(echo.port()).get("/echo").status == 200; }));
}

TEST(HttpServer, DrainingClosesIdleConnectionsAndLetsTheOthersEnd) {
  Echo echo;
  HttpClient idle(echo.port()), busy(echo.port());
  EXPECT_EQ(idle.get("/echo").status, 200);
  busy.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(becomes([&] {
    const std::lock_guard lock(echo.mutex);
    return echo.hanging.size() == 1;
  }));
  echo.server->drain();
  EXPECT_FALSE(idle.receive());
  EXPECT_FALSE(echo.server->wait_closed(std::chrono::milliseconds(50)));
  echo.hanging[0]->respond({200, {}, "late"});
  EXPECT_EQ(busy.read_answer().body, "late");
  EXPECT_TRUE(echo.server->wait_closed(std::chrono::seconds(5)));
}

TEST(HttpServer, APortThatIsTakenIsSaid) {
  Echo echo;
  HttpOptions options;
  options.port = echo.port();
  const auto second = HttpServer::start(options, [](const Exchange&) {}, error_body);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().text.find("in use"), std::string::npos);
  options.host = "not an address";
  EXPECT_FALSE(HttpServer::start(options, [](const Exchange&) {}, error_body).has_value());
  options.host = "127.0.0.1";
  options.port = 0;
  options.tls_certificate = options.tls_key = "/nothing/there.pem";
  EXPECT_FALSE(HttpServer::start(options, [](const Exchange&) {}, error_body).has_value());
}

TEST(HttpText, Targets) {
  EXPECT_EQ(split_target("/a/b%20c?x=%20")->path, "/a/b c");
  EXPECT_EQ(split_target("/a?x=%20")->query, "x=%20");
  for (const char* wrong : {"", "a", "*", "/a/../b", "/..", "/%2e%2e/x", "/%", "/%4", "/%00", "/a\\b", "/%ff"})
    EXPECT_FALSE(split_target(wrong).has_value()) << wrong;
  EXPECT_TRUE(split_target("/a..b/...").has_value());
}

}  // namespace
}  // namespace bolide::server
