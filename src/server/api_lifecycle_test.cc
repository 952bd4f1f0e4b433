// Requests whose client leaves, whose time is over, whose engine ends, fails or hangs.
#include "server/api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "engine/testing/gate.h"
#include "server/testing/api_answers.h"
#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using namespace test;

// blocks.cancel
TEST(Api, AClientThatLeavesFreesItsBlocks) {
  FakeServer::Options options;
  options.on_submit = [](const StepBatch&) -> Result<> {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return {};
  };
  FakeServer server(std::move(options));
  for (const bool stream : {true, false}) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      const Json body = {{"prompt", {i, 2, 3}}, {"max_tokens", 250}, {"stream", stream}, {"n", 2}};
      ASSERT_TRUE(clients.back()->send_post(kText, body.dump()));
    }
    ASSERT_TRUE(becomes([&] { return server.engine().stats().scheduler.running == 16; })) << stream;
    clients.clear();
    const auto left = std::chrono::steady_clock::now();
    EXPECT_TRUE(becomes([&] {
      const SchedulerStats stats = server.engine().stats().scheduler;
      return stats.running == 0 && stats.waiting == 0 && stats.blocks_used == 0;
    })) << stream;
    EXPECT_LT(std::chrono::steady_clock::now() - left, std::chrono::milliseconds(1500)) << stream;
  }
}

TEST(Api, AFullQueueIsSaidAtOnce) {
  Gate gate;
  FakeServer::Options options;
  options.engine.queue_requests_max = 4;
  options.limits.sequences_max = 1;
  options.on_submit = [&](const StepBatch&) { return gate.pass(); };
  FakeServer server(std::move(options));
  std::vector<std::unique_ptr<HttpClient>> clients;
  // One is in a step that does not end, four wait.
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send_post(kText, R"({"prompt":[1,2,3],"max_tokens":3})");
    if (i == 0 && !becomes([&] { return server.engine().stats().step_us > 0; })) gate.open();
  }
  EXPECT_TRUE(becomes([&] { return server.engine().stats().waiting == 4; }));
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer = test::post(server.port(), kText, R"({"prompt":[1,2,3]})");
    EXPECT_EQ(answer.status, 429);
    EXPECT_NE(answer.head.find("Retry-After: 1"), std::string::npos);
    EXPECT_EQ(json_of(answer)["error"]["code"], "queue_full");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(100));
  }
  gate.open();
  int answered = 0;
  for (auto& client : clients) {
    const Answer answer = client->read_answer();
    answered += answer.status == 200 ? 1 : 0;
    refused += answer.status == 429 ? 1 : 0;
  }
  EXPECT_EQ(answered + refused, 12);
  EXPECT_EQ(answered, 5);
}

// lifecycle.drain
TEST(Api, DrainingAnswersWhatWasAcceptedAndRefusesTheRest) {
  Gate gate;
  FakeServer::Options options;
  options.on_submit = [&](const StepBatch&) { return gate.pass(); };
  FakeServer server(std::move(options));
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send_post(kText, Json{{"prompt", {1, 2, i}}, {"max_tokens", 5}, {"stream", i % 2 == 0}}.dump());
  }
  ASSERT_TRUE(becomes([&] {
    const EngineStats stats = server.engine().stats();
    return stats.queued + stats.scheduler.waiting + stats.scheduler.running == 10;
  }));
  HttpClient idle(server.port());
  EXPECT_EQ(idle.get("/health/ready").status, 200);
  server.api().set_draining();
  server.engine().drain();
  EXPECT_EQ(idle.get("/health/ready").status, 503);
  EXPECT_EQ(idle.get("/health/live").status, 200);
  const Answer refused = idle.post(kText, R"({"prompt":[1]})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After"), std::string::npos);
  gate.open();
  for (int i = 0; i < 10; ++i) {
    const Answer answer = clients[static_cast<size_t>(i)]->read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
  }
  EXPECT_TRUE(server.wait_idle());
  server.http().drain();
  EXPECT_TRUE(server.http().wait_closed(std::chrono::seconds(5))) << "an idle connection holds it up";
  EXPECT_FALSE(HttpClient(server.port()).connected());
}

// Whoever asks in the moment in which the server begins to end is told so, and told when to come again.
TEST(Api, WhoAsksWhileItDrainsIsToldSo) {
  FakeServer server;
  HttpClient kept(server.port()), fresh(server.port()), idle(server.port());
  for (HttpClient* client : {&kept, &idle}) EXPECT_EQ(client->get("/health/ready").status, 200);
  server.api().set_draining();
  server.http().retire();
  EXPECT_EQ(test::post(server.port(), kText, R"({"prompt":[1],"max_tokens":1})").status, 200) << "not yet";
  EXPECT_EQ(test::get(server.port(), "/health/ready").status, 503) << "but no longer ready";
  server.engine().drain();
  EXPECT_TRUE(server.wait_idle());
  for (HttpClient* client : {&kept, &fresh, &idle}) {
    if (client == &idle) server.http().drain();
    const Answer answer = client->post(kText, R"({"prompt":[1]})");
    EXPECT_EQ(answer.status, 503);
    EXPECT_NE(answer.head.find("Retry-After: 1"), std::string::npos) << answer.head;
    EXPECT_NE(answer.head.find("Connection: close"), std::string::npos) << answer.head;
    EXPECT_FALSE(client->receive());
  }
  EXPECT_TRUE(server.http().wait_closed(std::chrono::seconds(30)));
}

// lifecycle.failure
TEST(Api, AFailedEngineIsNotReadyAndStreamsSaySo) {
  std::atomic<int> steps{0};
  FakeServer::Options options;
  options.on_submit = [&](const StepBatch&) -> Result<> {
    if (++steps > 5) return error(Code::kUnavailable, "the device is lost");
    return {};
  };
  FakeServer server(std::move(options));
  const Answer stream = test::post(server.port(), kText, R"({"prompt":[1,2],"max_tokens":50,"stream":true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
  EXPECT_NE(stream.body.find(R"(data: {"error":{"message":"the device is lost")"), std::string::npos) << stream.body;
  EXPECT_EQ(test::get(server.port(), "/health/ready").status, 503);
  EXPECT_EQ(test::get(server.port(), "/health/live").status, 200);
  EXPECT_EQ(test::post(server.port(), kText, R"({"prompt":[1,2]})").status, 503);
}

TEST(Api, RequestsHaveADeadline) {
  FakeServer::Options options;
  options.api.request_us_max = 50'000;
  options.on_submit = [](const StepBatch&) -> Result<> {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return {};
  };
  FakeServer server(std::move(options));
  const Answer whole = test::post(server.port(), kText, R"({"prompt":[1,2],"max_tokens":200})");
  EXPECT_EQ(whole.status, 504);
  EXPECT_NE(whole.head.find("x-should-retry: false"), std::string::npos);
  const Answer stream = test::post(server.port(), kText, R"({"prompt":[1,2],"max_tokens":200,"stream":true})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_NE(stream.body.find(R"("code":"deadline")"), std::string::npos);
  EXPECT_TRUE(stream.complete);
}

// lifecycle.stall: the engine cannot say that time is over, so the server does.
TEST(Api, AStepThatHangsKeepsNobodyWaiting) {
  Gate gate;
  FakeServer::Options options;
  options.api.request_us_max = 300'000;
  options.on_submit = [&](const StepBatch&) { return gate.pass(); };
  FakeServer server(std::move(options));
  HttpClient whole(server.port()), stream(server.port());
  whole.send_post(kText, R"({"prompt":[1,2],"max_tokens":5})");
  stream.send_post(kText, R"({"prompt":[1,2],"max_tokens":5,"stream":true})");
  const Answer late = whole.read_answer();
  EXPECT_EQ(late.status, 504);
  EXPECT_EQ(json_of(late)["error"]["code"], "deadline");
  const Answer cut = stream.read_answer();
  EXPECT_TRUE(cut.complete);
  EXPECT_NE(cut.body.find(R"("code":"deadline")"), std::string::npos) << cut.body;
  EXPECT_EQ(test::get(server.port(), "/health/live").status, 200);
  EXPECT_TRUE(becomes([&] { return test::get(server.port(), "/health/ready").status == 503; }));
  gate.open();
  EXPECT_TRUE(server.wait_idle());
  EXPECT_TRUE(becomes([&] { return test::get(server.port(), "/health/ready").status == 200; }));
}

// lifecycle.stop: so is the end.
TEST(Api, AStepThatNeverEndsIsLeftBehind) {
  Gate gate;
  FakeServer::Options options;
  options.on_submit = [&](const StepBatch&) { return gate.pass(); };
  FakeServer server(std::move(options));
  HttpClient whole(server.port()), stream(server.port()), generate(server.port());
  whole.send_post(kText, R"({"prompt":[1,2],"max_tokens":5})");
  stream.send_post(kText, R"({"prompt":[1,2],"max_tokens":5,"stream":true})");
  generate.send_post("/v2/models/fake/generate", R"({"text_input":"x"})");
  EXPECT_TRUE(becomes([&] {
    const EngineStats stats = server.engine().stats();
    return stats.step_us > 0 && stats.queued + stats.scheduler.waiting + stats.scheduler.running >= 3;
  }));
  EXPECT_FALSE(server.engine().stop_within(1000));
  const Answer cut = whole.read_answer();
  EXPECT_EQ(cut.status, 503);
  EXPECT_NE(json_of(cut)["error"]["message"].get<std::string>().find("does not end"), std::string::npos) << cut.body;
  const Answer streamed = stream.read_answer();
  EXPECT_TRUE(streamed.complete);
  EXPECT_NE(streamed.body.find("does not end"), std::string::npos) << streamed.body;
  EXPECT_EQ(generate.read_answer().status, 503);
  gate.open();
}

TEST(Api, AModelThatIsBeingLoadedIsNotAbsent) {
  FakeServer::Options options;
  options.model_state = "LOADING";
  FakeServer loading(options);
  for (const char* body : {R"({"prompt":"x","model":"fake"})", R"({"prompt":"x"})"}) {
    const Answer answer = test::post(loading.port(), kText, body);
    EXPECT_EQ(answer.status, 503) << body;
    EXPECT_NE(answer.head.find("Retry-After: 1"), std::string::npos);
  }
  EXPECT_EQ(test::get(loading.port(), "/v1/models/fake").status, 503);
  EXPECT_EQ(test::get(loading.port(), "/v1/models/other").status, 404);
  EXPECT_EQ(test::get(loading.port(), "/health/ready").status, 503);
  EXPECT_EQ(test::get(loading.port(), "/health/live").status, 200);
  options.model_state = "UNAVAILABLE";
  FakeServer unloaded(options);
  EXPECT_EQ(test::post(unloaded.port(), kText, R"({"prompt":"x","model":"fake"})").status, 404);
  EXPECT_EQ(test::get(unloaded.port(), "/health/ready").status, 200) << "nobody wants it";
}

TEST(Api, AHandlerThatFailsIsAnswered) {
  FakeServer::Options options;
  options.on_find = [] { throw std::bad_alloc(); };
  FakeServer server(std::move(options));
  const std::string long_body = Json{{"prompt", std::string(100'000, 'x')}, {"model", "fake"}}.dump();
  for (const std::string& body : {std::string(R"({"prompt":"x","model":"fake"})"), long_body}) {
    const Answer answer = test::post(server.port(), kText, body);
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(json_of(answer)["error"]["type"], "server_error");
  }
  EXPECT_EQ(test::get(server.port(), "/health/live").status, 200);
}

// A client that has sent all and closed its half waits; one that closed both does not.
TEST(Api, WhoClosesOneHalfGetsTheAnswer) {
  Gate gate;
  FakeServer::Options options;
  options.on_submit = [&](const StepBatch&) { return gate.pass(); };
  FakeServer server(std::move(options));
  HttpClient client(server.port());
  client.send_post(kText, R"({"prompt":[1,2],"max_tokens":5})");
  client.finish_sending();
  ASSERT_TRUE(becomes([&] { return server.engine().stats().step_us > 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  gate.open();
  EXPECT_EQ(json_of(client.read_answer())["choices"][0]["text"], server.expected({1, 2}, 5));
}

}  // namespace
}  // namespace bolide::server
