// Clients that mean harm, or read badly: what they get, and that others get on.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "server/http.h"
#include "server/testing/echo_server.h"
#include "server/testing/http_client.h"

namespace bolide::server {
namespace {

using std::chrono::seconds;
using test::Answer;
using test::answer_to;
using test::becomes;
using test::Echo;
using test::HttpClient;

constexpr const char* kPost = "POST /echo HTTP/1.1\r\nHost: x\r\n";

// A proxy before this server may take the last line of each for the beginning of another request, or not: whoever finds
// two readings of a request can hide one in it.
TEST(HttpAttacks, WhereABodyEndsHasOneReading) {
  Echo echo;
  const std::string hidden = "GET /stream/1 HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::pair<const char*, int> heads[] = {
      {"Transfer-Encoding: gzip\r\n", 501},
      {"Transfer-Encoding: identity\r\n", 501},
      {"Transfer-Encoding: gzip, chunked\r\n", 501},
      {"Transfer-Encoding: chunked, chunked\r\n", 501},
      {"Transfer-Encoding: chunked, identity\r\n", 501},
      {"Transfer-Encoding: xchunked\r\n", 501},
      {"Transfer-Encoding: chunked;q=1\r\n", 501},
      {"Transfer-Encoding:\r\n", 501},
      {"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", 501},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
      {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Content-Length: 5\r\nTransfer-Encoding: gzip\r\n", 400},
      {"Content-Length: 5\r\nContent-Length: 6\r\n", 400},
      {"Content-Length: 5\r\nContent-Length: 5\r\n", 400},
      {"Content-Length: 5, 5\r\n", 400},
      {"Content-Length: 5, 6\r\n", 400},
      {"Content-Length: +5\r\n", 400},
      {"Content-Length: 0x5\r\n", 400},
      {"Content-Length: 5 5\r\n", 400},
      {"Content-Length:\r\n", 400},
      {"Content-Length : 5\r\n", 400},
      {"Transfer-Encoding : chunked\r\n", 400},
      {"Transfer\tEncoding: chunked\r\n", 400},
      {"X: y\nContent-Length: 5\r\n", 400},
  };
  for (const auto& [head, status] : heads) {
    HttpClient client(echo.port());
    client.send(std::string(kPost) + head + "\r\n" + hidden);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, status) << head;
    EXPECT_NE(answer.head.find("Connection: close"), std::string::npos) << head;
    while (client.receive()) {
    }
    EXPECT_EQ(client.received(), "") << "more than one answer: " << head;
  }
  EXPECT_EQ(echo.handled, 0);
  EXPECT_EQ(answer_to(echo.port(), "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").status, 400);
  EXPECT_EQ(answer_to(echo.port(), std::string(kPost) + "transfer-encoding:  Chunked \r\n\r\n1\r\na\r\n0\r\n\r\n").body,
            "a");
  EXPECT_EQ(answer_to(echo.port(), "GET /echo HTTP/1.1\r\n\r\n").status, 400) << "without a Host";
}

// What comes behind a body is no header of it.
TEST(HttpAttacks, TrailersAreNoHeaders) {
  HttpOptions options;
  std::atomic<int> seen{0};
  Echo echo(options, [&](const HttpRequest& head, uint64_t*) -> std::optional<HttpResponse> {
    seen += head.header("x-key").empty() ? 0 : 1;
    return std::nullopt;
  });
  HttpClient client(echo.port());
  client.send("POST /hang HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Key: k\r\n\r\n");
  ASSERT_TRUE(echo.hang(1));
  EXPECT_EQ(echo.hanging[0]->request().body, "a");
  EXPECT_EQ(echo.hanging[0]->request().header("x-key"), "");
  EXPECT_EQ(seen, 0);
}

TEST(HttpAttacks, WhoMayNotAskIsToldBeforeTheBody) {
  Echo echo(HttpOptions(), [](const HttpRequest& head, uint64_t* body_bytes_max) -> std::optional<HttpResponse> {
    EXPECT_EQ(head.body, "");
    *body_bytes_max = 10;
    if (head.header("x-key") == "yes") return std::nullopt;
    return HttpResponse{401, {}, "no"};
  });
  for (const char* more : {"", "Expect: 100-continue\r\n"}) {
    HttpClient client(echo.port());
    const auto begun = std::chrono::steady_clock::now();
    client.send(fmt::format("{}Content-Length: 10\r\n{}\r\n", kPost, more));
    EXPECT_TRUE(client.receive_until("\r\n"));
    EXPECT_TRUE(client.received().starts_with("HTTP/1.1 401")) << client.received();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(8)) << "it waited for the body";
  }
  EXPECT_EQ(echo.handled, 0);
  HttpClient kept(echo.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(kept.get("/echo").status, 401) << "without a body the connection stays";
  EXPECT_EQ(kept.post("/echo", "0123456789", "x-key: yes\r\n").body, "0123456789");
  EXPECT_EQ(kept.post("/echo", "0123456789a", "x-key: yes\r\n").status, 413);
  const std::string chunked = std::string(kPost) + "x-key: yes\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(answer_to(echo.port(), chunked + "5\r\nabcde\r\n5\r\nabcde\r\n0\r\n\r\n").status, 200);
  EXPECT_EQ(answer_to(echo.port(), chunked + "5\r\nabcde\r\n6\r\nabcdef\r\n0\r\n\r\n").status, 413);
  EXPECT_EQ(echo.server->stats().answers[401], 5u);
  EXPECT_EQ(echo.server->stats().answers[413], 2u);
}

size_t address_space_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(HttpAttacks, AnAnnouncedBodyTakesNoMemory) {
  Echo echo;
  const size_t before = address_space_bytes();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<HttpClient>(echo.port()));
    clients.back()->send(std::string(kPost) + "Content-Length: 60000000\r\n\r\na");
  }
  size_t most = 0;
  for (int i = 0; i < 50; ++i) {
    most = std::max(most, address_space_bytes());
    EXPECT_EQ(answer_to(echo.port(), std::string(kPost) + "Content-Length: 1\r\n\r\na").status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_LT(most, before + (1u << 30)) << "40 bodies of 60 MB were announced";
}

TEST(HttpAttacks, AllBodiesTogetherAreBounded) {
  HttpLimits limits;
  limits.bodies_bytes = 200'000;
  Echo echo(limits);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<HttpClient>(echo.port()));
    clients.back()->send(std::string(kPost) + "Content-Length: 50001\r\n\r\n" + std::string(50'000, 'b'));
  }
  // Four of them fit at most; the others are not waited for.
  EXPECT_TRUE(becomes([&] { return echo.server->stats().answers[503] > 0; }));
  std::map<int, int> statuses;
  for (const auto& client : clients) {
    client->send("b");
    ++statuses[client->read_answer().status];
  }
  EXPECT_GT(statuses[503], 0);
  EXPECT_EQ(statuses[200] + statuses[503], 10);
  clients.clear();
  EXPECT_TRUE(becomes([&] { return HttpClient(echo.port()).post("/echo", std::string(150'000, 'b')).status == 200; }));
}

TEST(HttpAttacks, FloodsOfChunksAreRefused) {
  Echo echo;
  const std::string head = std::string(kPost) + "Transfer-Encoding: chunked\r\n\r\n";
  const auto tiny = [](int count) {
    std::string chunks;
    for (int i = 0; i < count; ++i) chunks += "1\r\nx\r\n";
    return chunks + "0\r\n\r\n";
  };
  EXPECT_EQ(answer_to(echo.port(), head + tiny(10'000)).body, std::string(10'000, 'x'));
  const Answer many = answer_to(echo.port(), head + tiny(20'000));
  EXPECT_EQ(many.status, 400);
  EXPECT_NE(many.body.find("too many chunks"), std::string::npos) << many.body;
  std::string extended;
  for (int i = 0; i < 20; ++i) extended += "1;" + std::string(1000, 'e') + "\r\nx\r\n";
  const Answer extensions = answer_to(echo.port(), head + extended + "0\r\n\r\n");
  EXPECT_EQ(extensions.status, 400);
  EXPECT_NE(extensions.body.find("extensions"), std::string::npos) << extensions.body;
  // A line that does not end is not kept.
  EXPECT_EQ(answer_to(echo.port(), head + "1;" + std::string(2 << 20, 'e')).status, 431);
  EXPECT_EQ(HttpClient(echo.port()).get("/echo").status, 200);
}

TEST(HttpAttacks, AHandlerThatFailsEndsItsRequestAlone) {
  Echo echo;
  HttpClient client(echo.port());
  EXPECT_EQ(client.get("/throw").status, 500);
  EXPECT_EQ(client.get("/throw/later").status, 500);
  EXPECT_EQ(echo.gone, 2) << "what works for the answer hears of it";
  const Answer begun = client.get("/throw/begun");
  EXPECT_FALSE(begun.complete);
  EXPECT_EQ(HttpClient(echo.port()).get("/echo").status, 200);
  Echo gate(HttpOptions(),
            [](const HttpRequest&, uint64_t*) -> std::optional<HttpResponse> { throw std::bad_alloc(); });
  EXPECT_EQ(HttpClient(gate.port()).get("/echo").status, 500);
}

TEST(HttpAttacks, AReaderThatStallsIsGivenUpAndHoldsNobodyUp) {
  HttpLimits limits;
  limits.write_time = seconds(1);
  limits.unsent_bytes = 64 << 20;
  Echo echo(limits, /*threads=*/1);
  HttpClient stalled(echo.port(), /*receive_bytes=*/4096);
  stalled.send("GET /fill HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(echo.hang(1));
  HttpClient other(echo.port());
  int answered = 0;
  EXPECT_TRUE(becomes([&] {
    answered += other.get("/echo").status == 200 ? 1 : 0;
    return echo.gone == 1;
  }));
  EXPECT_GT(answered, 0);
  EXPECT_FALSE(echo.hanging[0]->write("more"));
}

TEST(HttpAttacks, OutOfDescriptorsTheServerWaitsAndGoesOn) {
  Echo echo;
  HttpClient early(echo.port());
  EXPECT_EQ(early.get("/echo").status, 200);
  // Connections are made by the kernel; to accept them needs a descriptor.
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{1, limit.rlim_max};
  HttpClient late;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  late.connect(echo.port());
  late.send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  const int during = early.get("/echo").status;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const uint64_t accepted = echo.server->stats().accepted;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(during, 200);
  EXPECT_EQ(accepted, 1u);
  EXPECT_EQ(late.read_answer().status, 200);
}

}  // namespace
}  // namespace bolide::server
