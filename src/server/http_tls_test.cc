// HTTPS, with a certificate that is made for the test.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "server/testing/fake_server.h"
#include "server/testing/own_certificate.h"

namespace bolide::server {
namespace {

using test::FakeServer;
using test::Free;
using test::HttpClient;
using test::OwnCertificate;

using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX, SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Free<SSL, SSL_free>>;

FakeServer::Options with(const OwnCertificate& certificate) {
  FakeServer::Options options;
  options.http.tls_certificate = certificate.path();
  options.http.tls_key = certificate.key_path();
  return options;
}

// Trusts this certificate and no other.
class TlsClient {
 public:
  TlsClient(uint16_t port, const OwnCertificate& trusted) : client_(port), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), trusted.x509());
    session_.reset(SSL_new(context_.get()));
    SSL_set1_host(session_.get(), "localhost");
    SSL_set_fd(session_.get(), client_.socket());
    connected_ = SSL_connect(session_.get()) == 1;
  }
  bool connected() const { return connected_; }
  int version() const { return SSL_version(session_.get()); }
  // All that comes until the connection ends; `whole`: it ended as TLS wants it.
  std::string ask(std::string_view bytes, bool* whole) {
    EXPECT_EQ(SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size())), static_cast<int>(bytes.size()));
    std::string all;
    char some[4096];
    int n = 0;
    while ((n = SSL_read(session_.get(), some, sizeof some)) > 0) all.append(some, static_cast<size_t>(n));
    *whole = SSL_get_error(session_.get(), n) == SSL_ERROR_ZERO_RETURN;
    return all;
  }

 private:
  HttpClient client_;
  Context context_;
  Session session_;
  bool connected_ = false;
};

TEST(HttpTls, AnswersComeThroughTls) {
  const OwnCertificate certificate;
  FakeServer server(with(certificate));
  TlsClient client(server.port(), certificate);
  ASSERT_TRUE(client.connected());
  EXPECT_GE(client.version(), TLS1_2_VERSION);
  bool whole = false;
  const std::string answer = client.ask(
      "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
      &whole);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find(R"({"status":"live"})"), std::string::npos) << answer;
  EXPECT_NE(answer.find(R"("id":"fake")"), std::string::npos) << answer;
  EXPECT_TRUE(whole) << "a cut-off answer looks like this one";
}

TEST(HttpTls, StreamsOfHttp10EndWithTls) {
  const OwnCertificate certificate;
  FakeServer server(with(certificate));
  TlsClient client(server.port(), certificate);
  ASSERT_TRUE(client.connected());
  const std::string body = R"({"prompt":[1,2],"max_tokens":5,"stream":true})";
  bool whole = false;
  const std::string answer = client.ask(
      fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body),
      &whole);
  EXPECT_TRUE(answer.ends_with("data: [DONE]\n\n")) << answer;
  EXPECT_TRUE(whole);
}

// Whoever is refused must see that the refusal is whole, though the rest of the request was not read.
TEST(HttpTls, RefusalsEndWithTls) {
  const OwnCertificate certificate;
  FakeServer server(with(certificate));
  for (const char* bytes : {"GET /health/live HTTP/2.5\r\nHost: localhost\r\n\r\n",
                            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            "Content-Length: 99999999999\r\n\r\n{\"prompt\":",
                            "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12"}) {
    TlsClient client(server.port(), certificate);
    ASSERT_TRUE(client.connected());
    bool whole = false;
    const std::string answer = client.ask(bytes, &whole);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 505")) << answer;
    EXPECT_NE(answer.find("Connection: close"), std::string::npos) << answer;
    EXPECT_TRUE(whole) << bytes;
  }
}

TEST(HttpTls, WhatIsNoTlsOrAnotherCertificateIsNotServed) {
  const OwnCertificate certificate, other;
  FakeServer server(with(certificate));
  EXPECT_FALSE(TlsClient(server.port(), other).connected());
  HttpClient plain(server.port());
  EXPECT_NE(plain.get("/health/live").status, 200);
  EXPECT_TRUE(TlsClient(server.port(), certificate).connected());
  HttpOptions mixed;
  mixed.port = 0;
  mixed.tls_certificate = certificate.path();
  mixed.tls_key = other.key_path();
  const auto started = HttpServer::start(mixed, [](const auto&) {}, Api::error_body);
  ASSERT_FALSE(started.has_value());
  EXPECT_NE(started.error().text.find("key.pem"), std::string::npos) << started.error().text;
}

}  // namespace
}  // namespace bolide::server
