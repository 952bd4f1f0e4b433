#include "server/request_log.h"

#include <gtest/gtest.h>

#include "server/api.h"
#include "server/testing/api_answers.h"
#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using namespace test;

Json timeline_of(FakeServer& server, const std::string& id, std::string_view headers = {}) {
  return json_of(test::get(server.port(), "/v1/requests/" + id + "/timeline", headers));
}

TEST(RequestLog, ATimelineHasEveryTokenOfEveryAnswer) {
  FakeServer::Options options;
  options.limits.tokens_per_step = options.limits.sequences_max;
  FakeServer server(std::move(options));
  std::vector<int> prompt(100);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int>(i * 7 % 900);
  for (const bool stream : {false, true}) {
    const Json body = {{"prompt", {prompt, {4, 5}}}, {"max_tokens", 9}, {"stream", stream}, {"n", 2}};
    const Answer answer = test::post(server.port(), kText, body.dump());
    ASSERT_EQ(answer.status, 200);
    const std::string id = stream ? std::string(events_of(answer).front()["id"]) : std::string(json_of(answer)["id"]);
    ASSERT_TRUE(becomes([&] { return timeline_of(server, id)["state"] == "length"; }));
    const Json timeline = timeline_of(server, id);
    EXPECT_EQ(timeline["id"], id);
    EXPECT_EQ(timeline["model"], "fake");
    EXPECT_EQ(timeline["route"], kText);
    EXPECT_GE(timeline["submitted_ms"].get<double>(), 0);
    EXPECT_GE(timeline["first_step_ms"].get<double>(), 0);
    EXPECT_GE(timeline["over_ms"].get<double>(), timeline["first_step_ms"].get<double>());
    std::map<std::pair<int, int>, int> draws;
    int prefill = 0;
    for (const Json& step : timeline["steps"]) {
      draws[{step["prompt"], step["choice"]}] += step["draws"] ? 1 : 0;
      if (step["kind"] == "prefill" && step["prompt"] == 0 && step["choice"] == 0) ++prefill;
      EXPECT_LE(step["begin_ms"].get<double>(), step["end_ms"].get<double>());
    }
    // The first answer's first token is drawn with the prompt's end; others begin there.
    EXPECT_GE((draws[{0, 0}]), 9);
    EXPECT_GE((draws[{1, 1}]), 8);
    if (!stream) {
      EXPECT_GT(prefill, 1) << "the prompt is longer than a step";
    }
    int tokens = 0;
    for (const Json& delivery : timeline["deliveries"]) tokens += delivery["tokens"].get<int>();
    EXPECT_EQ(tokens, 4 * 9);
  }
}

TEST(RequestLog, IsForThoseWhoAsked) {
  FakeServer::Options options;
  options.keys = "alice alice-key-0123456789\nbob bob-key-0123456789\n";
  FakeServer server(std::move(options));
  const std::string alice = "x-api-key: alice-key-0123456789\r\n", bob = "x-api-key: bob-key-0123456789\r\n";
  const Answer answer = test::post(server.port(), kText, R"({"prompt":[1,2,3],"max_tokens":3})", alice);
  const std::string path = "/v1/requests/" + std::string(json_of(answer)["id"]);
  EXPECT_EQ(test::get(server.port(), path + "/timeline", alice).status, 200);
  EXPECT_EQ(test::get(server.port(), path + "/timeline", bob).status, 404);
  EXPECT_EQ(test::get(server.port(), path + "/timeline").status, 401);
  EXPECT_EQ(test::get(server.port(), path, alice).status, 404);
  EXPECT_EQ(test::get(server.port(), "/v1/requests/cmpl-0/timeline", alice).status, 404);
}

TEST(RequestLog, KeepsTheLast) {
  FakeServer server;
  const auto model = std::shared_ptr<const ServedModel>(&server.model(), [](const ServedModel*) {});
  RequestLog log(3);
  for (int i = 0; i < 10; ++i) log.add(std::make_shared<RequestRecord>("r" + std::to_string(i), "/", model, 0, 0));
  EXPECT_EQ(log.find("r6"), nullptr);
  for (int i = 7; i < 10; ++i) EXPECT_NE(log.find("r" + std::to_string(i)), nullptr);

  RequestRecord record("r", "/", model, 0, 1000);
  for (int i = 0; i < 3000; ++i) record.delivered({.at_us = 2000 + i, .tokens = 1, .text_us = 2, .write_us = 1});
  const Json json = Json::parse(record.to_json());
  EXPECT_EQ(json["state"], "running");
  EXPECT_TRUE(json["first_step_ms"].is_null());
  ASSERT_EQ(json["deliveries"].size(), 1024u);
  EXPECT_EQ(json["deliveries"][0]["at_ms"], 1.0);
  EXPECT_EQ(json["deliveries"][1023]["tokens"], 3000 - 1023);
}

}  // namespace
}  // namespace bolide::server
