// HTTP by itself, with whatever bytes a client may send.
#include <gtest/gtest.h>

#include <future>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "server/http.h"
#include "server/http_text.h"
#include "server/testing/echo_server.h"
#include "server/testing/http_client.h"

namespace bolide::server {
namespace {

using test::Answer;
using test::answer_to;
using test::becomes;
using test::Echo;
using test::echo_error_body;
using test::HttpClient;
using Exchange = std::shared_ptr<HttpExchange>;

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

// What a load balancer sees between the signal to end and the end.
TEST(HttpServer, RetiringEndsConnectionsWithTheirAnswers) {
  Echo echo;
  HttpClient idle(echo.port()), busy(echo.port()), stream(echo.port());
  EXPECT_EQ(idle.get("/echo").status, 200);
  busy.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
  stream.send("GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(echo.hang(2));
  echo.server->retire();
  const Answer last = idle.get("/echo");
  EXPECT_EQ(last.status, 200) << "a request may have been on its way";
  EXPECT_NE(last.head.find("Connection: close"), std::string::npos);
  EXPECT_FALSE(idle.receive());
  for (const auto& exchange : echo.hanging)
    exchange->request().path == "/ping" ? exchange->end() : exchange->respond({200, {}, "late"});
  const Answer late = busy.read_answer();
  EXPECT_EQ(late.body, "late");
  EXPECT_NE(late.head.find("Connection: close"), std::string::npos);
  EXPECT_FALSE(busy.receive());
  EXPECT_TRUE(stream.read_answer().complete);
  EXPECT_FALSE(stream.receive());
  HttpClient fresh(echo.port());
  const Answer answer = fresh.get("/echo");
  EXPECT_EQ(answer.status, 200) << "somebody must say that it ends";
  EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
  EXPECT_FALSE(fresh.receive());
}

// The thread that accepts connections is busy when the server ends: they have connected all the same.
TEST(HttpServer, WhoHasConnectedBeforeTheEndIsAnswered) {
  std::promise<void> promise;
  const std::shared_future<void> opened = promise.get_future().share();
  std::atomic<bool> held{false};
  HttpOptions options;
  options.threads = 1;
  Echo echo(options, [&](const HttpRequest& head, uint64_t*) -> std::optional<HttpResponse> {
    if (head.path == "/hold") held = true, opened.wait();
    return std::nullopt;
  });
  HttpClient kept(echo.port()), busy(echo.port());
  EXPECT_EQ(kept.get("/echo").status, 200);
  busy.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(becomes([&] { return held.load(); }));
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<HttpClient>(echo.port()));
    EXPECT_TRUE(clients.back()->send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"));
  }
  kept.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  echo.server->drain();
  promise.set_value();
  for (auto& client : clients) {
    const Answer answer = client->read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
  }
  EXPECT_EQ(kept.read_answer().status, 200);
}

TEST(HttpServer, WhoComesWhileItEndsIsAnsweredOrRefused) {
  for (int round = 0; round < 20; ++round) {
    Echo echo({}, 3);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        while (!over) {
          const int status = HttpClient(echo.port()).get("/echo").status;
          EXPECT_TRUE(status == 200 || status == 0) << status;
        }
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 5));
    echo.server->drain();
    EXPECT_TRUE(echo.server->wait_closed(std::chrono::seconds(30)));
    EXPECT_FALSE(HttpClient(echo.port()).connected());
    over = true;
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(HttpServer, ClientsOfHttp10GetNoChunksAndKeepWhatTheyAskFor) {
  Echo echo;
  HttpClient stream(echo.port());
  stream.send("GET /stream/3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const Answer streamed = stream.read_answer();
  EXPECT_EQ(streamed.status, 200);
  EXPECT_EQ(streamed.head.find("Transfer-Encoding"), std::string::npos) << streamed.head;
  EXPECT_NE(streamed.head.find("Connection: close"), std::string::npos) << streamed.head;
  EXPECT_EQ(streamed.body, "0\n1\n2\n");
  EXPECT_EQ(answer_to(echo.port(), "GET /stream/0 HTTP/1.0\r\n\r\n").body, "");
  HttpClient plain(echo.port());
  plain.send("POST /echo HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(plain.read_answer().body, "abc");
  EXPECT_FALSE(plain.receive());
  HttpClient kept(echo.port());
  for (int i = 0; i < 3; ++i) {
    kept.send("POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc");
    const Answer answer = kept.read_answer();
    EXPECT_EQ(answer.body, "abc");
    EXPECT_NE(answer.head.find("Connection: keep-alive"), std::string::npos) << answer.head;
  }
}

// `printf ... | nc` and their like close their half with the request's last byte.
TEST(HttpServer, WhoHasSentAllIsStillAnswered) {
  Echo echo;
  HttpClient client(echo.port()), stream(echo.port()), two(echo.port());
  client.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
  client.finish_sending();
  stream.send("GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
  stream.finish_sending();
  ASSERT_TRUE(echo.hang(2));
  two.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na"
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nb");
  two.finish_sending();
  EXPECT_EQ(two.read_answer().body, "a");
  EXPECT_EQ(two.read_answer().body, "b");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(echo.gone, 0);
  for (const auto& exchange : echo.hanging) {
    const bool streams = exchange->request().path == "/ping";
    streams ? static_cast<void>(exchange->write("late")) : exchange->respond({200, {}, "late"});
    if (streams) exchange->end();
  }
  EXPECT_EQ(client.read_answer().body, "late");
  const Answer streamed = stream.read_answer();
  EXPECT_TRUE(streamed.complete);
  EXPECT_TRUE(streamed.body.ends_with("late"));
  EXPECT_EQ(echo.gone, 0);
}

TEST(HttpServer, WhatIsPostedForATimeRunsThenUnlessTheAnswerIsOver) {
  Echo echo;
  HttpClient late(echo.port()), early(echo.port());
  late.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(echo.hang(1));
  early.send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(echo.hang(2));
  const auto begun = std::chrono::steady_clock::now();
  const auto at = begun + std::chrono::milliseconds(200);
  std::atomic<int> ran{0};
  for (const auto& exchange : echo.hanging)
    exchange->post_at(at, [&ran, weak = std::weak_ptr(exchange)] {
      ++ran;
      if (const auto e = weak.lock()) e->respond({504, {}, "too late"});
    });
  echo.hanging[1]->respond({200, {}, "in time"});
  EXPECT_EQ(early.read_answer().body, "in time");
  EXPECT_EQ(late.read_answer().status, 504);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(200));
  EXPECT_EQ(ran, 1);
}

TEST(HttpServer, APortThatIsTakenIsSaid) {
  Echo echo;
  HttpOptions options;
  options.port = echo.port();
  const auto second = HttpServer::start(options, [](const Exchange&) {}, echo_error_body);
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().text.find("in use"), std::string::npos);
  options.host = "not an address";
  EXPECT_FALSE(HttpServer::start(options, [](const Exchange&) {}, echo_error_body).has_value());
  options.host = "127.0.0.1";
  options.port = 0;
  options.tls_certificate = options.tls_key = "/nothing/there.pem";
  EXPECT_FALSE(HttpServer::start(options, [](const Exchange&) {}, echo_error_body).has_value());
}

TEST(HttpText, NamesOfThisMachine) {
  for (const char* own : {"localhost", "LocalHost:8000", "127.0.0.1", "127.0.0.1:1", "127.8.9.1", "[::1]", "[::1]:80"})
    EXPECT_TRUE(is_loopback_host(own)) << own;
  for (const char* other : {"", "x", "127.0.0.1.example.com", "localhost.example.com", "127.1", "10.0.0.1", "[::2]",
                            "[::1", "example.com:127", "0.0.0.0", "[::ffff:10.0.0.1]"})
    EXPECT_FALSE(is_loopback_host(other)) << other;
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
