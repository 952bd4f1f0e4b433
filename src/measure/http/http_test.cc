// The client's parsers on what servers send, whole and in pieces, and on what they should not send.
#include <gtest/gtest.h>

#include <random>

#include "measure/http/event_stream.h"
#include "measure/http/response_parser.h"
#include "measure/http/url.h"

namespace bolide::http {
namespace {

struct Parsed {
  std::string body;
  ResponseFault fault = ResponseFault::kNone;
  int status = 0;
  bool done = false, keep_alive = false;
};

Parsed parse(std::string_view bytes, size_t piece, bool closed = false) {
  ResponseParser parser;
  Parsed out;
  parser.start();
  const auto take = [&](std::string_view part) {
    out.body += part;
    return true;
  };
  for (size_t at = 0; at < bytes.size(); at += piece)
    if (!parser.push(bytes.substr(at, piece), take)) break;
  if (closed) parser.close();
  out.fault = parser.fault();
  out.status = parser.status();
  out.done = parser.done();
  out.keep_alive = parser.keep_alive();
  return out;
}

TEST(HttpResponse, ChunkedInPiecesOfEverySize) {
  const std::string text =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Parsed parsed = parse(text, piece);
    EXPECT_EQ(parsed.body, "hello0123456789") << piece;
    EXPECT_TRUE(parsed.done && parsed.keep_alive) << piece;
    EXPECT_EQ(parsed.status, 200);
    EXPECT_EQ(parsed.fault, ResponseFault::kNone);
  }
}

TEST(HttpResponse, EndsByLengthOrByTheConnection) {
  EXPECT_EQ(parse("HTTP/1.1 404 Not Found\nContent-Length: 3\n\nabc", 2).body, "abc");
  EXPECT_TRUE(parse("HTTP/1.1 204 None\r\n\r\n", 99).done);
  const Parsed open = parse("HTTP/1.0 200 OK\r\n\r\nabc", 1);
  EXPECT_FALSE(open.done);
  const Parsed closed = parse("HTTP/1.0 200 OK\r\n\r\nabc", 1, true);
  EXPECT_TRUE(closed.done);
  EXPECT_FALSE(closed.keep_alive);
  EXPECT_EQ(parse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", 4, true).fault, ResponseFault::kClosedEarly);
  EXPECT_FALSE(parse("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 9).keep_alive);
}

TEST(HttpResponse, Hostile) {
  const std::string head = "HTTP/1.1 200 OK\r\n", chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  const auto fault = [](const std::string& text, size_t piece) { return parse(text, piece).fault; };
  for (const size_t piece : {1, 7, 100000}) {
    EXPECT_EQ(fault("SSH-2.0-OpenSSH\r\n", piece), ResponseFault::kBadStatusLine);
    EXPECT_EQ(fault("HTTP/1.1 2x0 OK\r\n", piece), ResponseFault::kBadStatusLine);
    EXPECT_EQ(fault("HTTP/2.0 200 OK\r\n", piece), ResponseFault::kBadStatusLine);
    EXPECT_EQ(fault(std::string(70000, 'x'), piece), ResponseFault::kHeadersTooLong);
    EXPECT_EQ(fault(head + std::string(70000, 'x'), piece), ResponseFault::kHeadersTooLong);
    std::string many = head;
    for (int i = 0; i < 10000; ++i) many += "a: b\r\n";
    many += many;
    EXPECT_NE(fault(many, piece), ResponseFault::kNone);
    EXPECT_EQ(fault(head + "no colon\r\n", piece), ResponseFault::kBadHeader);
    EXPECT_EQ(fault(head + " folded: x\r\n", piece), ResponseFault::kBadHeader);
    EXPECT_EQ(fault(head + "Transfer-Encoding: gzip\r\n", piece), ResponseFault::kBadHeader);
    EXPECT_EQ(fault(head + "Content-Length: -1\r\n", piece), ResponseFault::kBadLength);
    EXPECT_EQ(fault(head + "Content-Length: 99999999999999999999\r\n", piece), ResponseFault::kBadLength);
    EXPECT_EQ(fault(head + "Content-Length: 1\r\nContent-Length: 2\r\n", piece), ResponseFault::kBadLength);
    for (const char* size : {"-5", "xyz", "", "0x5", "fffffffffffffffff", "5 5"})
      EXPECT_EQ(fault(chunked + size + "\r\nhello\r\n", piece), ResponseFault::kBadChunk) << size;
    EXPECT_EQ(fault(chunked + "5\r\nhelloX\r\n", piece), ResponseFault::kBadChunk);
    EXPECT_EQ(fault(chunked + "5;" + std::string(1000, 'e') + "\r\n", piece), ResponseFault::kBadChunk);
    EXPECT_EQ(fault(chunked + "0\r\n" + std::string(70000, 't'), piece), ResponseFault::kHeadersTooLong);
    EXPECT_EQ(fault(head + "Content-Length: 0\r\n\r\nmore", piece), ResponseFault::kSurplus);
    std::string interim;
    for (int i = 0; i < 20; ++i) interim += "HTTP/1.1 103 Early\r\n\r\n";
    EXPECT_EQ(fault(interim, piece), ResponseFault::kHeadersTooLong);
  }
}

TEST(HttpResponse, AnyBytesEndInSomething) {
  std::mt19937_64 random(std::random_device{}());
  const std::string good = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n";
  for (int run = 0; run < 3000; ++run) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) text[random() % text.size()] = static_cast<char>(random());
    const Parsed whole = parse(text, text.size(), true), pieces = parse(text, 1 + random() % 9, true);
    EXPECT_EQ(whole.body, pieces.body);
    EXPECT_EQ(whole.fault, pieces.fault);
    EXPECT_EQ(whole.done, pieces.done);
  }
}

std::vector<std::string> events(std::string_view text, size_t piece, bool finish = false) {
  EventStream stream;
  std::vector<std::string> out;
  stream.start();
  const auto take = [&](std::string_view data) {
    out.emplace_back(data);
    return true;
  };
  for (size_t at = 0; at < text.size(); at += piece) stream.push(text.substr(at, piece), take);
  if (finish) stream.finish(take);
  return out;
}

TEST(HttpEvents, EveryLineEndAndPiece) {
  const std::string text =
      ": ping\n\ndata: one\n\ndata:two\r\n\r\nevent: x\rdata: a\rdata: b\r\rdata\n\nid: 1\ndatax: no\n\ndata: "
      "{\"a\":1}\n\n";
  const std::vector<std::string> expected{"one", "two", "a\nb", "", "{\"a\":1}"};
  for (size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(events(text, piece), expected) << piece;
  EXPECT_EQ(events("data: cut", 3), std::vector<std::string>{});
  EXPECT_EQ(events("data: cut", 3, true), std::vector<std::string>{"cut"});
}

TEST(HttpEvents, ALongEventIsAFault) {
  EventStream stream;
  stream.start();
  const auto take = [](std::string_view) { return true; };
  const std::string part = "data: " + std::string(1000, 'x') + "\n";
  bool good = true;
  int pushed = 0;
  while (good && pushed < 5000) good = stream.push(part, take), ++pushed;
  EXPECT_FALSE(good);
  EXPECT_TRUE(stream.too_long());
  EXPECT_LT(pushed, 1100);
}

TEST(HttpUrl, TakenApart) {
  const auto url = parse_url("http://[::1]:8000/base/v1/");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 8000);
  EXPECT_EQ(url->path, "/base");
  EXPECT_EQ(authority(*url), "[::1]:8000");
  EXPECT_EQ(parse_url("localhost")->port, 80);
  EXPECT_EQ(parse_url("localhost:81/")->path, "");
  EXPECT_EQ(parse_url("https://host").error().code, Code::kUnsupported);
  for (const char* text :
       {"", "http://", "ftp://host", "http://host:0", "http://host:99999", "http://host:8a",
        "http://host:", "http://ho st", "http://[::1", "http://user@host", "http://host/?q", "http://host\r\nX: y"})
    EXPECT_FALSE(parse_url(text)) << text;
}

}  // namespace
}  // namespace bolide::http
