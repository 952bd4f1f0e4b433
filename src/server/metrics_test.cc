// What /metrics says, under our names and those of others.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "server/rate_window.h"
#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using test::FakeServer;

// Of the series "name" or "name{labels}"; -1: there is none.
double value_of(const std::string& text, const std::string& series) {
  const size_t at = ("\n" + text).find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + series.size() + 1, nullptr);
}
std::string metrics_of(const FakeServer& server) { return test::get(server.port(), "/metrics").body; }
constexpr const char* kText = "/v1/completions";

TEST(Metrics, MemoryAndTimeOfTheProcess) {
  FakeServer server;
  const std::string before = metrics_of(server);
  EXPECT_GT(value_of(before, "process_cpu_seconds_total"), 0) << before;
  EXPECT_GT(value_of(before, "process_start_time_seconds"), 1.7e9) << before;
  const double resident = value_of(before, "process_resident_memory_bytes");
  EXPECT_GT(resident, 1 << 20) << before;
  constexpr size_t kBytes = 64u << 20;
  const std::vector<char> touched(kBytes, 1);
  const std::string after = metrics_of(server);
  EXPECT_GT(value_of(after, "process_resident_memory_bytes"), resident + kBytes / 2.0) << touched.back();
}

TEST(Metrics, MemoryOfGpusIsThereWhereGpusAre) {
  FakeServer none;
  EXPECT_EQ(metrics_of(none).find("bolide_gpu_memory"), std::string::npos);
  FakeServer::Options options;
  options.devices = {{0, "NVIDIA H200", 5'000'000'000, 140'000'000'000}, {3, "NVIDIA L4", 1, 24'000'000'000}};
  for (const char* compat : {"", "trtllm", "triton"}) {
    options.compat = compat;
    FakeServer server(options);
    const std::string text = metrics_of(server);
    const std::string first = R"({gpu="0",name="NVIDIA H200"})", second = R"({gpu="3",name="NVIDIA L4"})";
    EXPECT_EQ(value_of(text, "bolide_gpu_memory_used_bytes" + first), 5e9) << text;
    EXPECT_EQ(value_of(text, "bolide_gpu_memory_total_bytes" + first), 140e9);
    EXPECT_EQ(value_of(text, "bolide_gpu_memory_used_bytes" + second), 1);
    EXPECT_EQ(value_of(text, "nvidia_smi_memory_used" + first), options.compat == "trtllm" ? 5e9 : -1);
    EXPECT_EQ(value_of(text, "nv_gpu_memory_total_bytes" + second), options.compat == "triton" ? 24e9 : -1);
  }
}

TEST(Metrics, TheNamesOfOthers) {
  FakeServer::Options options;
  options.compat = "trtllm";
  FakeServer trtllm(options);
  options.compat = "triton";
  FakeServer triton(options);
  for (FakeServer* server : {&trtllm, &triton})
    for (const char* body : {R"({"prompt":[1,2],"max_tokens":3})", R"({"prompt":[7,2],"max_tokens":4})"})
      EXPECT_EQ(test::post(server->port(), kText, body).status, 200);
  std::string text = metrics_of(trtllm);
  const std::string fake = R"({model_name="fake"})";
  EXPECT_EQ(value_of(text, R"(trtllm_serve_request_count{finished_reason="length",model_name="fake"})"), 2) << text;
  EXPECT_EQ(value_of(text, R"(trtllm_request_success_total{finished_reason="length",model_name="fake"})"), 2);
  EXPECT_EQ(value_of(text, "trtllm_serve_request_duration_seconds_count" + fake), 2);
  EXPECT_EQ(value_of(text, "trtllm_serve_num_requests_in_queue" + fake), 0);
  EXPECT_EQ(value_of(text, "trtllm_request_prefill_time_seconds_count" + fake), 2);
  EXPECT_EQ(value_of(text, "bolide_request_decode_time_seconds_count" + fake), 2);
  EXPECT_LE(value_of(text, "trtllm_serve_qps" + fake), 0.2);
  EXPECT_GE(value_of(text, "trtllm_serve_qps" + fake), 0) << "it may be long ago";
  EXPECT_EQ(text.find("nv_inference"), std::string::npos);
  text = metrics_of(triton);
  const std::string model = R"({model="fake",version="1"})";
  EXPECT_EQ(value_of(text, "nv_inference_request_success" + model), 2) << text;
  EXPECT_EQ(value_of(text, "nv_inference_pending_request_count" + model), 0);
  EXPECT_EQ(value_of(text, "nv_inference_exec_count" + model), 2);
  EXPECT_GT(value_of(text, "nv_inference_request_duration_us" + model), 0);
  EXPECT_EQ(text.find("trtllm"), std::string::npos);
}

// Against a list of all times.
TEST(RateWindow, CountsTheLastTenSeconds) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  RateWindow window;
  std::vector<int64_t> times;
  int64_t now = static_cast<int64_t>(random());
  for (int i = 0; i < 3000; ++i) {
    now += static_cast<int64_t>(random() % (random() % 50 == 0 ? 30'000'000 : 50'000));
    if (random() % 3 != 0) {
      window.add(now);
      times.push_back(now);
    }
    // A part of a tenth of a second that the window's beginning cuts is left out.
    int64_t surely = 0, at_most = 0;
    for (const int64_t time : times)
      surely += now - time < 9'900'000 ? 1 : 0, at_most += now - time < 10'000'000 ? 1 : 0;
    const double rate = window.per_second(now);
    ASSERT_GE(rate, static_cast<double>(surely) / 10) << i;
    ASSERT_LE(rate, static_cast<double>(at_most) / 10) << i;
  }
}

TEST(Metrics, AListenerOfTheirOwn) {
  FakeServer::Options options;
  options.keys = "alice alice-key-0123456789\n";
  options.api.metrics_listener = ApiOptions::MetricsListener{};
  const std::string_view key = "x-api-key: alice-key-0123456789\r\n";
  for (const bool needs_key : {true, false}) {
    options.api.metrics_listener->needs_key = needs_key;
    FakeServer server(options);
    const uint16_t port = server.metrics_port();
    EXPECT_EQ(test::get(server.port(), "/metrics", key).status, 404);
    EXPECT_EQ(test::get(port, "/metrics", key).status, 200);
    EXPECT_EQ(test::get(port, "/metrics").status, needs_key ? 401 : 200);
    for (const char* path : {"/health", "/health/ready", "/health/live", "/v2/health/ready", "/v2/health/live"}) {
      EXPECT_EQ(test::get(port, path).status, 200) << path;
      EXPECT_EQ(test::get(server.port(), path).status, 200) << path;
    }
    for (const char* path : {"/v1/models", "/v2", "/v2/models/fake", "/playground", "/version"})
      EXPECT_EQ(test::get(port, path, key).status, 404) << path;
    EXPECT_EQ(test::post(port, kText, R"({"prompt":[1]})", key).status, 404);
    server.api().set_draining();
    EXPECT_EQ(test::get(port, "/health/ready").status, 503);
  }
}

// Pages of a browser cannot read them under a name of their own.
TEST(Metrics, AListenerForThisMachineKnowsItsNames) {
  FakeServer::Options options;
  options.api.metrics_listener = ApiOptions::MetricsListener{.needs_key = false, .loopback_names_only = true};
  FakeServer server(options);
  test::HttpClient page(server.metrics_port()), other(server.port());
  page.send("GET /metrics HTTP/1.1\r\nHost: pages.example\r\n\r\n");
  EXPECT_EQ(page.read_answer().status, 403);
  other.send("GET /health HTTP/1.1\r\nHost: pages.example\r\n\r\n");
  EXPECT_EQ(other.read_answer().status, 200) << "that is the other listener's";
}

}  // namespace
}  // namespace bolide::server
