// ONNX models behind HTTP: real, tiny ones, loaded and unloaded while they are asked.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cli/served_models.h"
#include "formats/onnx_write.h"
#include "formats/test_files.h"
#include "server/api.h"
#include "server/testing/http_client.h"

namespace bolide::cli {
namespace {

using Json = nlohmann::json;
using server::test::Answer;
using server::test::HttpClient;

// sum = a + b and more = a * 2.5, both [N, 3].
std::string write_model(const bolide::test::TemporaryFolder& folder, const std::string& name) {
  OnnxDraft draft;
  draft.name = "graph";
  draft.opsets = {{"", 18}};
  const std::vector<std::variant<int64_t, std::string>> dims = {"N", int64_t{3}};
  draft.inputs = {{"a", DType::kF32, dims}, {"b", DType::kF32, dims}};
  draft.outputs = {{"sum", DType::kF32, dims}, {"more", DType::kF32, dims}};
  draft.nodes = {{"add", "Add", "", {"a", "b"}, {"sum"}, {}}, {"mul", "Mul", "", {"a", "factor"}, {"more"}, {}}};
  const float factor = 2.5;
  OnnxDraftTensor& constant = draft.initializers.emplace_back();
  constant.name = "factor";
  constant.bytes.assign(reinterpret_cast<const char*>(&factor), sizeof factor);
  const std::string path = (folder.path() / name).string();
  EXPECT_TRUE(write_onnx(draft, path).has_value());
  return path;
}

ServedModelOptions options(int sessions = 2) {
  ServedModelOptions options;
  options.network.settings.threads = 1;
  options.network.sessions = sessions;
  return options;
}

// A server over models, which ends before they do.
class Served {
 public:
  explicit Served(ServedModels& models) : models_(models), api_(models, {}, *server::Metrics::make("")) {
    server::HttpOptions http;
    http.port = 0;
    http.threads = 2;
    auto started = server::HttpServer::start(
        http, [this](const auto& exchange) { api_.handle(exchange); }, server::Api::error_body);
    EXPECT_TRUE(started.has_value()) << started.error().text;
    http_ = *std::move(started);
  }
  ~Served() {
    models_.drain();
    EXPECT_TRUE(models_.wait_idle(30'000'000));
    models_.stop();
    http_->drain();
    http_->stop();
  }
  uint16_t port() const { return http_->port(); }

 private:
  ServedModels& models_;
  std::unique_ptr<server::HttpServer> http_;  // outlives what the api's threads have of it
  server::Api api_;
};

Json input(const char* name, const std::vector<float>& data) {
  return {{"name", name}, {"datatype", "FP32"}, {"shape", {data.size() / 3, 3}}, {"data", data}};
}
std::string request(const std::vector<float>& a, const std::vector<float>& b) {
  return Json{{"inputs", {input("a", a), input("b", b)}}}.dump();
}

TEST(ServeNetwork, ManyClientsGetTheirOwnOutputs) {
  const bolide::test::TemporaryFolder folder;
  ServedModels models(options());
  const auto added = models.add(write_model(folder, "adder.onnx"));
  ASSERT_TRUE(added.has_value()) << added.error().text;
  ASSERT_NE(models.find_network("adder"), nullptr);
  EXPECT_EQ(models.find("adder"), nullptr);
  const Served served(models);
  const uint32_t seed = std::random_device()();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      HttpClient client(served.port());
      for (int i = 0; i < 25; ++i) {
        const size_t rows = 1 + random() % 5;
        std::vector<float> a(rows * 3), b(rows * 3);
        for (size_t k = 0; k < a.size(); ++k) a[k] = static_cast<float>(random() % 99), b[k] = static_cast<float>(k);
        const Answer answer = client.post("/v2/models/adder/infer", request(a, b));
        const Json json = Json::parse(answer.body, nullptr, false);
        if (answer.status != 200 || json["outputs"][0]["shape"] != Json({rows, 3})) continue;
        bool same = true;
        for (size_t k = 0; k < a.size(); ++k)
          same = same && json["outputs"][0]["data"][k] == a[k] + b[k] && json["outputs"][1]["data"][k] == a[k] * 2.5f;
        right += same ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100) << "seed " << seed;
  const Answer odd = server::test::post(served.port(), "/v2/models/adder/infer",
                                        request(std::vector<float>(6), std::vector<float>(9)));
  EXPECT_EQ(odd.status, 400) << odd.body;
  EXPECT_NE(odd.body.find("input b: dim 0 (N) is 3, but 2 in input a"), std::string::npos) << odd.body;
}

// Which files there are is for the log.
TEST(ServeNetwork, ErrorsDoNotSayWhereFilesLie) {
  const bolide::test::TemporaryFolder folder;
  OnnxDraft draft;
  draft.name = "graph";
  draft.opsets = {{"", 18}};
  const std::vector<std::variant<int64_t, std::string>> rows = {"N", int64_t{3}}, count = {"K"};
  draft.inputs = {{"a", DType::kF32, rows}, {"at", DType::kI64, count}};
  draft.outputs = {{"some", DType::kF32, {"K", int64_t{3}}}};
  draft.nodes = {{"pick", "Gather", "", {"a", "at"}, {"some"}, {}}};
  const std::string path = (folder.path() / "picker.onnx").string();
  ASSERT_TRUE(write_onnx(draft, path).has_value());
  ServedModels models(options(1));
  ASSERT_TRUE(models.add(path).has_value());
  const Served served(models);
  Json body = {
      {"inputs",
       {input("a", std::vector<float>(6)), {{"name", "at"}, {"datatype", "INT64"}, {"shape", {1}}, {"data", {1}}}}}};
  EXPECT_EQ(server::test::post(served.port(), "/v2/models/picker/infer", body.dump()).status, 200);
  body["inputs"][1]["data"][0] = 77;
  const Answer beyond = server::test::post(served.port(), "/v2/models/picker/infer", body.dump());
  EXPECT_NE(beyond.status, 200);
  EXPECT_NE(beyond.body.find("77"), std::string::npos) << beyond.body;
  EXPECT_EQ(server::test::post(served.port(), "/v2/repository/models/picker/unload", "{}").status, 200);
  std::filesystem::remove(path);
  const Answer gone = server::test::post(served.port(), "/v2/repository/models/picker/load", "{}");
  EXPECT_NE(gone.status, 200);
  const Answer index = server::test::post(served.port(), "/v2/repository/index", "{}");
  const Answer ready = server::test::get(served.port(), "/v2/models/picker/ready");
  for (const Answer* answer : {&beyond, &gone, &index, &ready}) {
    EXPECT_EQ(answer->body.find(folder.path().string()), std::string::npos) << answer->body;
    EXPECT_NE(answer->body.find("picker"), std::string::npos) << answer->body;
  }
}

TEST(ServeNetwork, ModelsComeAndGoWhileTheyAreAsked) {
  const bolide::test::TemporaryFolder folder;
  ServedModels models(options(1));
  const std::string path = write_model(folder, "first.onnx");
  ASSERT_TRUE(models.add(path).has_value());
  ASSERT_TRUE(models.add("second=" + path).has_value());
  const Served served(models);
  const uint16_t port = served.port();
  const std::string body = request({1, 2, 3}, {4, 5, 6});
  std::atomic<bool> over{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i)
    clients.emplace_back([&] {
      HttpClient client(port);
      while (!over) {
        const Answer answer = client.post("/v2/models/first/infer", body);
        EXPECT_TRUE(answer.status == 200 || answer.status == 503) << answer.status << " " << answer.body;
        answered += answer.status == 200 ? 1 : 0;
        EXPECT_EQ(client.post("/v2/models/second/infer", body).status, 200);
      }
    });
  for (int round = 0; round < 5; ++round) {
    const Answer unloaded = server::test::post(port, "/v2/repository/models/first/unload", "{}");
    EXPECT_EQ(unloaded.status, 200) << unloaded.body;
    EXPECT_EQ(models.find_network("first"), nullptr);
    const Json index = Json::parse(server::test::post(port, "/v2/repository/index", "").body);
    EXPECT_EQ(index[0]["state"], "UNAVAILABLE");
    EXPECT_EQ(index[0]["reason"], "unloaded");
    EXPECT_EQ(index[1]["state"], "READY");
    EXPECT_EQ(server::test::post(port, "/v2/models/first/infer", body).status, 503);
    EXPECT_EQ(server::test::get(port, "/v2/health/ready").status, 200) << "what is not wanted is not missed";
    const int before = answered;
    EXPECT_EQ(server::test::post(port, "/v2/repository/models/first/load", "").status, 200);
    EXPECT_EQ(server::test::get(port, "/v2/models/first/ready").status, 200);
    while (answered == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  over = true;
  for (std::thread& client : clients) client.join();
}

TEST(ServeNetwork, AModelThatCannotBeOpenedSaysWhy) {
  const bolide::test::TemporaryFolder folder;
  ServedModels models(options());
  const auto absent = models.add((folder.path() / "absent.onnx").string());
  ASSERT_FALSE(absent.has_value());
  EXPECT_NE(absent.error().text.find("absent.onnx"), std::string::npos) << absent.error().text;
  const auto broken = models.add(folder.write("broken.onnx", "no model").string());
  ASSERT_FALSE(broken.has_value());
  const std::vector<server::ModelEntry> list = models.list();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].state, "UNAVAILABLE");
  EXPECT_EQ("broken.onnx: " + list[1].reason.substr(8), broken.error().text.substr(folder.path().string().size() + 1))
      << "clients do not hear where it lies";
  // Its file may be mended.
  std::filesystem::rename(write_model(folder, "whole.onnx"), folder.path() / "broken.onnx");
  const auto loaded = models.load("broken");
  EXPECT_TRUE(loaded.has_value()) << loaded.error().text;
  EXPECT_NE(models.find_network("broken"), nullptr);
}

TEST(ServeNetwork, NamesOfModels) {
  EXPECT_EQ(split_model_argument("a/b/resnet50.onnx").first, "resnet50");
  EXPECT_EQ(split_model_argument("net=a/b.onnx").second, "a/b.onnx");
}

}  // namespace
}  // namespace bolide::cli
