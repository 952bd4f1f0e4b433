// KServe's routes as their clients see them: sockets, and a network that a function stands for. Language models are in
// kserve_text_test.cc.
#include "server/kserve.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using Json = nlohmann::json;
using test::Answer;
using test::FakeServer;
using test::HttpClient;
using Values = NetworkQueue::Values;

constexpr const char* kInfer = "/v2/models/net/infer";

Json json_of(const Answer& answer) {
  Json json = Json::parse(answer.body, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << answer.status << " " << answer.body;
  return json;
}
void expect_error(const Answer& answer, int status, std::string_view part) {
  EXPECT_EQ(answer.status, status) << answer.body;
  const Json json = json_of(answer);
  ASSERT_TRUE(json.contains("error") && json["error"].is_string()) << answer.body;
  EXPECT_NE(json["error"].get<std::string>().find(part), std::string::npos) << answer.body;
}

// x [N] f32 and t [M] texts; y is twice x, half is x in f16, u is t.
Result<Values> twice(Values inputs) {
  const Tensor& x = *inputs[0].tensor();
  Tensor y = *Tensor::make(DType::kF32, x.shape()), half = *Tensor::make(DType::kF16, x.shape());
  for (size_t i = 0; i < static_cast<size_t>(x.elements()); ++i) {
    y.mutate<float>()[i] = 2 * x.as<float>()[i];
    half.mutate<uint16_t>()[i] = f32_to_f16(x.as<float>()[i]);
  }
  return Values{AnyValue(y), AnyValue(half), inputs[1]};
}

std::shared_ptr<ServedNetwork> network(NetworkQueue::Run run = twice, NetworkQueue::Options options = {}) {
  const std::vector<int64_t> open = {-1};
  auto made = std::make_shared<ServedNetwork>();
  made->name = "net";
  made->inputs = {{"x", DType::kF32, open}, {"t", DType::kString, open}};
  made->outputs = {{"y", DType::kF32, open}, {"half", DType::kF16, open}, {"u", DType::kString, open}};
  made->queue = std::make_unique<NetworkQueue>(std::vector<NetworkQueue::Run>{std::move(run)}, options);
  return made;
}
FakeServer::Options with_network(std::shared_ptr<ServedNetwork> made = network()) {
  FakeServer::Options options;
  options.network = std::move(made);
  return options;
}

Json request(const std::vector<float>& x, const Json& outputs = {{{"name", "y"}}, {{"name", "u"}}}) {
  return {{"id", "42"},
          {"inputs",
           {{{"name", "t"}, {"datatype", "BYTES"}, {"shape", {2}}, {"data", {"a", "h\xC3\xA9"}}},
            {{"name", "x"}, {"datatype", "FP32"}, {"shape", {x.size()}}, {"data", x}}}},
          {"outputs", outputs}};
}

size_t header_length(const Answer& answer) {
  const size_t at = answer.head.find("Inference-Header-Content-Length: ");
  return at == std::string::npos ? 0 : std::strtoul(answer.head.c_str() + at + 33, nullptr, 10);
}

TEST(Kserve, TensorsAsJson) {
  FakeServer server(with_network());
  const Answer answer = test::post(server.port(), kInfer, request({1, -0.25f, 3e20f}).dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = json_of(answer);
  EXPECT_EQ(json["id"], "42");
  EXPECT_EQ(json["model_name"], "net");
  EXPECT_EQ(json["model_version"], "1");
  ASSERT_EQ(json["outputs"].size(), 2u);
  EXPECT_EQ(json["outputs"][0]["name"], "y");
  EXPECT_EQ(json["outputs"][0]["datatype"], "FP32");
  EXPECT_EQ(json["outputs"][0]["shape"], Json({3}));
  EXPECT_EQ(json["outputs"][0]["data"][1], -0.5);
  EXPECT_EQ(json["outputs"][0]["data"][2].get<float>(), 6e20f);
  EXPECT_EQ(json["outputs"][1]["data"], Json({"a", "h\xC3\xA9"}));
  EXPECT_EQ(test::post(server.port(), "/v2/models/net/versions/1/infer", request({1}).dump()).status, 200);
}

TEST(Kserve, TensorsAsRawBytes) {
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  FakeServer server(with_network());
  HttpClient client(server.port());
  for (int round = 0; round < 10; ++round) {
    std::vector<float> x(random() % 50'000);  // beyond what is read at once, too
    for (float& element : x) element = static_cast<float>(random()) / 1024;
    Json body = request({}, {{{"name", "y"}, {"parameters", {{"binary_data", true}}}},
                             {{"name", "half"}, {"parameters", {{"binary_data", true}}}},
                             {{"name", "u"}}});
    body["inputs"][1] = {{"name", "x"},
                         {"datatype", "FP32"},
                         {"shape", {x.size()}},
                         {"parameters", {{"binary_data_size", x.size() * 4}}}};
    const std::string head = body.dump();
    const std::string bytes(reinterpret_cast<const char*>(x.data()), x.size() * 4);
    const Answer answer =
        client.post(kInfer, head + bytes, fmt::format("Inference-Header-Content-Length: {}\r\n", head.size()));
    ASSERT_EQ(answer.status, 200) << answer.body.substr(0, 500) << " seed " << seed;
    const size_t length = header_length(answer);
    const Json json = Json::parse(answer.body.substr(0, length), nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    EXPECT_NE(answer.head.find("application/octet-stream"), std::string::npos);
    EXPECT_EQ(json["outputs"][0]["parameters"]["binary_data_size"], x.size() * 4);
    EXPECT_EQ(json["outputs"][1]["parameters"]["binary_data_size"], x.size() * 2);
    EXPECT_EQ(json["outputs"][2]["data"][0], "a");
    ASSERT_EQ(answer.body.size(), length + x.size() * 6);
    for (size_t i = 0; i < x.size(); ++i) {
      float y = 0;
      std::memcpy(&y, answer.body.data() + length + i * 4, 4);
      ASSERT_EQ(y, 2 * x[i]) << i << " seed " << seed;
    }
  }
}

TEST(Kserve, WhatIsWrongIsSaid) {
  FakeServer server(with_network());
  const uint16_t port = server.port();
  expect_error(test::post(port, kInfer, "{"), 400, "is no valid JSON");
  expect_error(test::post(port, kInfer, ""), 400, "the body");
  Json body = request({1});
  body["inputs"][1]["shape"] = {1, 1};
  expect_error(test::post(port, kInfer, body.dump()), 400, "input x: FP32[1,1], expected FP32[-1]");
  expect_error(test::post(port, kInfer, request({1}, {{{"name", "half"}}}).dump()), 400, "output half: FP16");
  expect_error(test::post(port, kInfer, request({1e38f, 3e38f}).dump()), 400, "output y: inf is no number of JSON");
  body = request({1});
  body["parameters"] = {{"sequence_id", 1}};
  expect_error(test::post(port, kInfer, body.dump()), 400, "parameters.sequence_id: ");
  expect_error(test::post(port, kInfer, "{}", "Inference-Header-Content-Length: x\r\n"), 400, "is no number of bytes");
  expect_error(test::post(port, kInfer, "{}", "Content-Encoding: gzip\r\n"), 415, "gzip");
  expect_error(test::post(port, kInfer, "{}", "Origin: http://elsewhere\r\n"), 403, "other origins");
  expect_error(test::post(port, "/v2/models/none/infer", "{}"), 404, "there is no model none");
  expect_error(test::post(port, "/v2/models/absent/infer", "{}"), 503, "model absent is UNAVAILABLE: unloaded");
  expect_error(test::post(port, "/v2/models/net/versions/2/infer", "{}"), 404, "has version 1 alone, not 2");
  expect_error(test::post(port, "/v2/models/net/generate", R"({"text_input":"a"})"), 400, "generates no text");
  expect_error(test::get(port, kInfer), 405, "takes POST");
  expect_error(test::post(port, "/v2/models/net", "{}"), 405, "takes GET");
  for (const char* path : {"/v2/nothing", "/v2/repository/x", "/v2/repository/models/net", "/v2/models/"})
    EXPECT_EQ(test::get(port, path).status, 404) << path;
  EXPECT_EQ(test::get(port, "/v2x").status, 404);
}

TEST(Kserve, ErrorsOfARunAreItsAnswer) {
  FakeServer server(with_network(
      network([](const Values&) -> Result<Values> { return error(Code::kInvalid, "node mul: shapes do not fit"); })));
  expect_error(test::post(server.port(), kInfer, request({1}).dump()), 400, "node mul: shapes do not fit");
}

TEST(Kserve, WhoComesWhileTooMuchWaitsIsSentAway) {
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::atomic<int> begun{0};
  const auto slow = [&, opened](Values inputs) -> Result<Values> {
    ++begun;
    opened.wait();
    return twice(std::move(inputs));
  };
  const auto net = network(slow, {.requests_max = 1, .bytes_max = 1 << 20});
  FakeServer server(with_network(net));
  HttpClient runs(server.port()), waits(server.port()), leaves(server.port());
  const auto until = [](auto&& done) {
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  runs.send_post(kInfer, request({1}).dump());
  until([&] { return begun == 1; });
  leaves.send_post(kInfer, request({2}).dump());
  until([&] { return net->queue->stats().waiting == 1; });
  const Answer refused = test::post(server.port(), kInfer, request({3}).dump());
  expect_error(refused, 429, "wait already");
  EXPECT_NE(refused.head.find("Retry-After: "), std::string::npos);
  // Who leaves makes room.
  leaves.close();
  until([&] { return net->queue->stats().waiting == 0; });
  Json late = request({4});
  late["parameters"] = {{"timeout", 1000}};  // us
  expect_error(test::post(server.port(), kInfer, late.dump()), 504, "took longer than it may");
  waits.send_post(kInfer, request({5}).dump());
  gate.set_value();
  EXPECT_EQ(json_of(runs.read_answer())["outputs"][0]["data"], Json({2}));
  EXPECT_EQ(json_of(waits.read_answer())["outputs"][0]["data"], Json({10}));
}

TEST(Kserve, ModelsTellOfThemselves) {
  FakeServer server(with_network());
  const uint16_t port = server.port();
  const Json all = json_of(test::get(port, "/v2"));
  EXPECT_EQ(all["name"], "bolide");
  EXPECT_TRUE(all["version"].is_string());
  for (const char* extension : {"binary_tensor_data", "model_repository", "statistics", "generate"})
    EXPECT_NE(std::find(all["extensions"].begin(), all["extensions"].end(), extension), all["extensions"].end());
  const Json net = json_of(test::get(port, "/v2/models/net"));
  EXPECT_EQ(net, json_of(test::get(port, "/v2/models/net/versions/1")));
  EXPECT_EQ(net["name"], "net");
  EXPECT_EQ(net["versions"], Json({"1"}));
  EXPECT_EQ(net["platform"], "onnx_onnxv1");
  EXPECT_EQ(net["inputs"][0], (Json{{"name", "x"}, {"datatype", "FP32"}, {"shape", {-1}}}));
  EXPECT_EQ(net["outputs"].size(), 3u);
  EXPECT_EQ(json_of(test::get(port, "/v2/models/net/config"))["input"][1]["data_type"], "TYPE_STRING");
  EXPECT_EQ(test::get(port, "/v2/models/net/ready").status, 200);
  EXPECT_EQ(test::get(port, "/v2/models/net/versions/1/ready").status, 200);
  EXPECT_EQ(test::get(port, "/v2/models/absent/ready").status, 503);
  EXPECT_EQ(test::get(port, "/v2/models/none/ready").status, 404);
  for (const char* path : {"/v2/health/live", "/v2/health/ready"}) EXPECT_EQ(test::get(port, path).status, 200);
}

TEST(Kserve, StatisticsCount) {
  FakeServer server(with_network());
  const uint16_t port = server.port();
  const auto of_net = [&] { return json_of(test::get(port, "/v2/models/net/stats"))["model_stats"][0]; };
  EXPECT_EQ(of_net()["inference_count"], 0);
  for (int i = 0; i < 3; ++i) test::post(port, kInfer, request({1}).dump());
  test::post(port, kInfer, request({3e38f}).dump());  // fails, when it is written
  const Json stats = of_net();
  EXPECT_EQ(stats["name"], "net");
  EXPECT_EQ(stats["version"], "1");
  EXPECT_EQ(stats["inference_count"], 3);
  EXPECT_EQ(stats["execution_count"], 3);
  EXPECT_GT(stats["last_inference"], 1'700'000'000'000);
  const Json& times = stats["inference_stats"];
  EXPECT_EQ(times["success"]["count"], 3);
  EXPECT_EQ(times["fail"]["count"], 1);
  EXPECT_GT(times["success"]["ns"], 0);
  for (const char* part : {"queue", "compute_input", "compute_infer", "compute_output"}) {
    EXPECT_EQ(times[part]["count"], 3) << part;
    EXPECT_LE(times[part]["ns"], times["success"]["ns"]) << part;
  }
  EXPECT_EQ(stats["batch_stats"][0]["batch_size"], 1);
  EXPECT_EQ(json_of(test::get(port, "/v2/models/stats"))["model_stats"].size(), 2u) << "those that are ready";
  const std::string metrics = test::get(port, "/metrics").body;
  EXPECT_NE(metrics.find(R"(bolide_ready{model_name="net"} 1)"), std::string::npos);
  EXPECT_NE(metrics.find(R"(bolide_requests_total{finished_reason="stop",model_name="net"} 3)"), std::string::npos);
}

TEST(Kserve, TheRepositoryIsIndexedAndChanged) {
  FakeServer::Options options = with_network();
  std::vector<std::string> changes;
  options.on_change = [&](std::string_view name, std::string_view what) -> Result<> {
    if (name == "none") return error(Code::kNotFound, "no model is called none");
    changes.push_back(fmt::format("{} {}", what, name));
    return {};
  };
  FakeServer server(std::move(options));
  const uint16_t port = server.port();
  const Json index = json_of(test::post(port, "/v2/repository/index", ""));
  ASSERT_EQ(index.size(), 3u);
  EXPECT_EQ(index[1], (Json{{"name", "absent"}, {"version", "1"}, {"state", "UNAVAILABLE"}, {"reason", "unloaded"}}));
  EXPECT_EQ(json_of(test::post(port, "/v2/repository/index", R"({"ready":true})")).size(), 2u);
  expect_error(test::post(port, "/v2/repository/index", R"({"raedy":true})"), 400, "raedy");
  expect_error(test::get(port, "/v2/repository/index"), 405, "takes POST");

  EXPECT_EQ(test::post(port, "/v2/repository/models/net/unload", R"({"parameters":{"unload_dependents":true}})").status,
            200);
  EXPECT_EQ(test::post(port, "/v2/repository/models/net/load", "").status, 200);
  EXPECT_EQ(changes, (std::vector<std::string>{"unload net", "load net"}));
  expect_error(test::post(port, "/v2/repository/models/none/load", "{}"), 404, "none");
  expect_error(test::post(port, "/v2/repository/models/net/load", R"({"parameters":{"file:1/model.onnx":"QQ=="}})"),
               400, "parameters.file:1/model.onnx: models are those that the server was started with");
  expect_error(test::post(port, "/v2/repository/models/net/unload", "", "Origin: null\r\n"), 403, "other origins");

  FakeServer::Options shut;
  shut.api.model_control = false;
  FakeServer other(std::move(shut));
  expect_error(test::post(other.port(), "/v2/repository/models/fake/unload", ""), 403, "--no-model-control");
  EXPECT_EQ(test::post(other.port(), "/v2/repository/index", "").status, 200);
}

TEST(Kserve, KeysAreAskedFor) {
  FakeServer::Options options = with_network();
  options.keys = "alice alice-key-0123456789\nbob bob-key-0123456789 requests-per-minute=2\n";
  FakeServer server(std::move(options));
  const uint16_t port = server.port();
  for (const char* path : {"/v2", "/v2/models/net", "/v2/models/stats", "/v2/nothing"})
    expect_error(test::get(port, path), 401, "needs an API key");
  expect_error(test::post(port, kInfer, request({1}).dump()), 401, "needs an API key");
  expect_error(test::post(port, "/v2/repository/models/net/unload", ""), 401, "needs an API key");
  const auto infer = [&](const char* key) {
    return test::post(port, kInfer, request({1}).dump(),
                      fmt::format("Authorization: Bearer {}-key-0123456789\r\n", key))
        .status;
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(infer("alice"), 200);
    EXPECT_EQ(infer("bob"), i < 2 ? 200 : 429) << i;
  }
}

// What HTTP itself refuses has the protocol's form, too.
TEST(Kserve, RefusalsOfHttpAreErrorsOfTheProtocol) {
  FakeServer::Options options = with_network();
  options.http.limits.header_time = std::chrono::seconds(1);
  FakeServer server(std::move(options));
  const std::string begin = "GET /v2/models/net HTTP/1.1\r\nHost: localhost\r\n";
  std::string many = begin;
  for (int i = 0; i < 200; ++i) many += fmt::format("x{}: y\r\n", i);
  const std::pair<std::string, int> cases[] = {
      {begin + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {begin + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {begin + "x: " + std::string(70'000, 'x') + "\r\n\r\n", 431},
      {many + "\r\n", 431},
      {"GET /v2/" + std::string(9000, 'x') + "?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n", 414},
      {"POST /v2/models/net/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n", 413},
      {begin + "x: y", 408},  // and no more
  };
  for (const auto& [bytes, status] : cases) {
    HttpClient client(server.port());
    client.send(bytes);
    const Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 200) << answer.body;
    const Json json = json_of(answer);
    EXPECT_TRUE(json.is_object() && json["error"].is_string()) << bytes.substr(0, 200) << answer.body;
  }
  HttpClient other(server.port());
  other.send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n");
  EXPECT_TRUE(json_of(other.read_answer())["error"].is_object()) << "OpenAI's";
}

TEST(Kserve, DimsOfOneNameHaveOneSize) {
  auto made = network();
  made->inputs[0].dim_names = {"N"};
  made->inputs[1].dim_names = {"N"};
  std::atomic<int> runs{0};
  made->queue = std::make_unique<NetworkQueue>(std::vector<NetworkQueue::Run>{[&](Values inputs) {
                                                 ++runs;
                                                 return twice(std::move(inputs));
                                               }},
                                               NetworkQueue::Options());
  FakeServer server(with_network(made));
  EXPECT_EQ(test::post(server.port(), kInfer, request({1, 2}).dump()).status, 200);
  expect_error(test::post(server.port(), kInfer, request({1, 2, 3}).dump()), 400,
               "input t: dim 0 (N) is 2, but 3 in input x");
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace bolide::server
