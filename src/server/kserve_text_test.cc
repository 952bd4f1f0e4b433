// Language models by KServe's routes: infer, generate and generate_stream over a scripted model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using Json = nlohmann::json;
using test::Answer;
using test::FakeServer;
using test::HttpClient;

constexpr const char* kInfer = "/v2/models/fake/infer";
constexpr const char* kGenerate = "/v2/models/fake/generate";
constexpr const char* kStream = "/v2/models/fake/generate_stream";

Json json_of(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text;
  return json;
}

FakeServer::Options saying(const std::string& answer) {
  FakeServer::Options options;
  options.answer = answer;
  return options;
}

// The events of a stream, each `data: JSON`.
std::vector<Json> events_of(const Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.complete);
  EXPECT_NE(answer.head.find("text/event-stream"), std::string::npos);
  std::vector<Json> events;
  std::string_view rest = answer.body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << rest;
    if (end == std::string_view::npos) break;
    const std::string_view event = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    if (event.starts_with(':')) continue;
    EXPECT_TRUE(event.starts_with("data: {")) << event;
    events.push_back(json_of(event.substr(6)));
  }
  return events;
}

TEST(KserveText, GenerateAnswersAsAWhole) {
  FakeServer server(saying("h\xC3\xA9llo, STOP world"));
  for (const char* name : {"text_input", "text"}) {
    const Json body = {{"id", "a"}, {name, "hi"}, {"parameters", {{"max_tokens", 100}, {"temperature", 0}}}};
    const Answer answer = test::post(server.port(), kGenerate, body.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json json = json_of(answer.body);
    EXPECT_EQ(json["id"], "a");
    EXPECT_EQ(json["model_name"], "fake");
    EXPECT_EQ(json["model_version"], "1");
    EXPECT_EQ(json["text_output"], "h\xC3\xA9llo, STOP world");
    EXPECT_EQ(json["finish_reason"], "stop");
  }
  const Json cut = json_of(test::post(server.port(), kGenerate, R"({"text":"hi","max_tokens":3})").body);
  EXPECT_EQ(cut["text_output"], "h\xC3\xA9");
  EXPECT_EQ(cut["finish_reason"], "length");
  const Json stopped = json_of(test::post(server.port(), kGenerate, R"({"text":"hi","stop":"STOP"})").body);
  EXPECT_EQ(stopped["text_output"], "h\xC3\xA9llo, ");
  EXPECT_FALSE(stopped.contains("id"));
  const Json late = json_of(test::post(server.port(), kGenerate, R"({"text":"hi","stop":"l","min_tokens":4})").body);
  EXPECT_EQ(late["text_output"], "h\xC3\xA9l") << "the first l is the fourth token";
  EXPECT_EQ(
      json_of(test::post(server.port(), "/v2/models/fake/versions/1/generate", R"({"text":"hi"})").body)["text_"
                                                                                                         "output"],
      "h\xC3\xA9llo, STOP world");
}

TEST(KserveText, AStreamIsTheWholeAnswerInPieces) {
  FakeServer server(saying("one two \xE2\x82\xAC three"));
  for (const auto& [path, body] :
       {std::pair{kStream, Json{{"text_input", "hi"}}},
        std::pair{kGenerate, Json{{"text_input", "hi"}, {"stream", true}}},
        std::pair{kStream, Json{{"text_input", "hi"}, {"parameters", {{"stream", true}}}}}}) {
    const std::vector<Json> events = events_of(test::post(server.port(), path, body.dump()));
    ASSERT_GT(events.size(), 3u);
    std::string text;
    for (const Json& event : events) {
      EXPECT_EQ(event["model_name"], "fake");
      EXPECT_EQ(event.contains("finish_reason"), &event == &events.back());
      text += event["text_output"];
    }
    EXPECT_EQ(text, "one two \xE2\x82\xAC three");
    EXPECT_EQ(events.back()["finish_reason"], "stop");
  }
}

TEST(KserveText, InferTakesAndGivesTextAsTensors) {
  FakeServer server(saying("fine"));
  const Json text = {{"name", "text_input"}, {"datatype", "BYTES"}, {"shape", {1, 1}}, {"data", {"hi"}}};
  const Json tokens = {{"name", "max_tokens"}, {"datatype", "INT32"}, {"shape", {1}}, {"data", {3}}};
  const Json json =
      json_of(test::post(server.port(), kInfer, Json{{"id", "b"}, {"inputs", {text, tokens}}}.dump()).body);
  EXPECT_EQ(json["id"], "b");
  ASSERT_EQ(json["outputs"].size(), 1u) << json;
  EXPECT_EQ(json["outputs"][0],
            (Json{{"name", "text_output"}, {"datatype", "BYTES"}, {"shape", {1, 1}}, {"data", {"fin"}}}));

  Json raw = {
      {"inputs",
       {{{"name", "text_input"}, {"datatype", "BYTES"}, {"shape", {1}}, {"parameters", {{"binary_data_size", 6}}}}}},
      {"parameters", {{"binary_data_output", true}, {"temperature", 0}}}};
  using namespace std::string_view_literals;
  const std::string head = raw.dump();
  const Answer answer = test::post(server.port(), kInfer, head + std::string("\2\0\0\0hi"sv),
                                   fmt::format("Inference-Header-Content-Length: {}\r\n", head.size()));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.body.ends_with("\4\0\0\0fine"sv)) << answer.body;
  EXPECT_EQ(test::post(server.port(), kInfer, "hi", "Inference-Header-Content-Length: 0\r\n").status, 200);
}

TEST(KserveText, WhatIsWrongIsSaid) {
  FakeServer server;
  const uint16_t port = server.port();
  const struct {
    const char *path, *body;
    int status;
    const char* part;
  } kCases[] = {{kGenerate, "{}", 400, "text_input: is required"},
                {kGenerate, R"({"text":""})", 400, "the prompt has no tokens"},
                {kGenerate, R"({"text":"a","top_p":7})", 400, "top_p: must be from 0 to 1"},
                {kStream, R"({"text":"a","best":1})", 400, "best: this server does not have it"},
                {kInfer, R"({"inputs":[]})", 400, "input text_input: is not given"},
                {kInfer, R"({"inputs":[],"outputs":[{"name":"x"}]})", 400, "output x: the model has none"},
                {"/v2/models/none/generate", R"({"text":"a"})", 404, "there is no model none"},
                {"/v2/models/absent/generate", R"({"text":"a"})", 503, "model absent is UNAVAILABLE"}};
  for (const auto& c : kCases) {
    const Answer answer = test::post(port, c.path, c.body);
    EXPECT_EQ(answer.status, c.status) << c.body;
    const Json json = json_of(answer.body);
    ASSERT_TRUE(json["error"].is_string()) << answer.body;
    EXPECT_NE(json["error"].get<std::string>().find(c.part), std::string::npos) << answer.body;
  }
  const std::string long_text = Json{{"text_input", std::string(300, 'a')}}.dump();
  EXPECT_NE(test::post(port, kGenerate, long_text).body.find("the context of 256 tokens holds 255"), std::string::npos);
  const Json metadata = json_of(test::get(port, "/v2/models/fake").body);
  EXPECT_EQ(metadata["platform"], "bolide_fake");
  EXPECT_EQ(metadata["inputs"], Json::array({{{"name", "text_input"}, {"datatype", "BYTES"}, {"shape", {1}}}}));
  EXPECT_EQ(metadata["outputs"], Json::array({{{"name", "text_output"}, {"datatype", "BYTES"}, {"shape", {1}}}}));
}

TEST(KserveText, AFailureAmidAStreamIsItsLastEvent) {
  FakeServer::Options options;
  std::atomic<int> steps{0};
  options.on_submit = [&](const StepBatch&) -> Result<> {
    return ++steps > 5 ? Result<>(error(Code::kInternal, "the device is gone")) : Result<>();
  };
  FakeServer server(std::move(options));
  const std::vector<Json> events =
      events_of(test::post(server.port(), kStream, R"({"text":"abc","max_tokens":100,"ignore_eos":true})"));
  ASSERT_GT(events.size(), 1u);
  ASSERT_TRUE(events.back()["error"].is_string()) << events.back();
  EXPECT_NE(events.back()["error"].get<std::string>().find("the device is gone"), std::string::npos);
  const Answer ready = test::get(server.port(), "/v2/models/fake/ready");
  EXPECT_EQ(ready.status, 503) << ready.body;
}

TEST(KserveText, WhoLeavesCancels) {
  FakeServer server;
  {
    HttpClient client(server.port());
    client.send_post(kStream, R"({"text":"abc","max_tokens":200,"ignore_eos":true})");
    ASSERT_TRUE(client.receive_until("data: "));
  }
  EXPECT_TRUE(server.wait_idle());
  const auto count = [&](const char* what) {
    return json_of(test::get(server.port(), "/v2/models/fake/stats")
                       .body)["model_stats"][0]["inference_stats"][what]["count"]
        .get<int>();
  };
  // The stream may have been complete before its client left.
  while (count("fail") + count("success") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(test::post(server.port(), "/v1/completions", R"({"prompt":[1],"max_tokens":2})").status, 200);
  while (count("fail") + count("success") < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(count("success"), 1) << "those of all dialects count";
}

}  // namespace
}  // namespace bolide::server
