// What the routes refuse: by field, by address, by key, by size.
#include "server/api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "server/testing/api_answers.h"
#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using namespace test;

// What is wrong is said by status, code and field; nothing of it reaches the engine.
TEST(Api, WrongRequestsAreRefusedByName) {
  FakeServer server;
  const struct {
    const char *path, *body;
    int status;
    const char *code, *param;
  } cases[] = {
      {kText, R"({"prompt":"x","best_off":3})", 400, "unsupported_parameter", "best_off"},
      {kText, R"({"prompt":"x","max_tokens":0})", 400, "invalid_value", "max_tokens"},
      {kText, R"({"prompt":"x","max_tokens":1e400})", 400, "invalid_value", ""},
      {kText, R"({"prompt":"x","max_tokens":"5"})", 400, "invalid_value", "max_tokens"},
      {kText, R"({"prompt":"x","temperature":-0.1})", 400, "invalid_value", "temperature"},
      {kText, R"({"prompt":"x","temperature":"hot"})", 400, "invalid_value", "temperature"},
      {kText, R"({"prompt":"x","top_p":1.5})", 400, "invalid_value", "top_p"},
      {kText, R"({"prompt":"x","n":1000000000})", 400, "invalid_value", "n"},
      {kText, R"({"prompt":"x","n":1.5})", 400, "invalid_value", "n"},
      {kText, R"({"prompt":"x","seed":99999999999999999999})", 400, "invalid_value", "seed"},
      {kText, R"({"prompt":"x","stop":[1]})", 400, "invalid_value", "stop"},
      {kText, R"({"prompt":"x","stream_options":{"include_usage":true}})", 400, "invalid_value", "stream_options"},
      {kText, R"({"prompt":"x","stop_token_ids":[1000]})", 400, "invalid_value", "stop_token_ids"},
      {kText, R"({"prompt":[1,1000]})", 400, "invalid_value", "prompt"},
      {kText, R"({"prompt":[1,-1]})", 400, "invalid_value", "prompt"},
      {kText, R"({"prompt":[]})", 400, "invalid_value", "prompt"},
      {kText, R"({"prompt":""})", 400, "invalid_value", "prompt"},
      {kText, R"({"prompt":{"a":1}})", 400, "invalid_value", "prompt"},
      {kText, R"({})", 400, "invalid_value", "prompt"},
      {kText, R"([])", 400, "invalid_value", ""},
      {kText, R"({"prompt":"x")", 400, "invalid_value", ""},
      {kText, "", 400, "invalid_value", ""},
      {kText, R"({"prompt":"x","model":"other"})", 404, "model_not_found", "model"},
      {kText, R"({"prompt":"x","model":"../fake"})", 404, "model_not_found", "model"},
      {kText, R"({"prompt":"x","model":7})", 400, "invalid_value", "model"},
      {kChat, R"({"messages":[]})", 400, "invalid_value", "messages"},
      {kChat, R"({"messages":"hi"})", 400, "invalid_value", "messages"},
      {kChat, R"({"messages":[{"role":"user"}]})", 400, "invalid_value", "messages[0].content"},
      {kChat, R"({"messages":[{"content":"x"}]})", 400, "invalid_value", "messages[0].role"},
      {kChat, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", 400, "unsupported_parameter",
       "messages[0].content"},
      {kChat, R"({"messages":[{"role":"user","content":[{"type":5}]}]})", 400, "unsupported_parameter",
       "messages[0].content"},
      {kChat, R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required"})", 400, "unsupported_parameter",
       "tool_choice"},
      {kChat, R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}})", 400,
       "unsupported_parameter", "response_format"},
      {kChat, R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}]})", 400, "invalid_value",
       "tools"},
      {kChat, R"({"messages":[{"role":"user","content":"x"}],"top_logprobs":2})", 400, "invalid_value", "top_logprobs"},
  };
  for (const auto& c : cases) {
    const Answer answer = test::post(server.port(), c.path, c.body);
    EXPECT_EQ(answer.status, c.status) << c.body;
    const Json json = json_of(answer);
    EXPECT_EQ(json["error"]["code"], c.code) << c.body;
    if (*c.param != 0) {
      EXPECT_EQ(json["error"]["param"], c.param) << c.body;
    }
    EXPECT_FALSE(json["error"]["message"].get<std::string>().empty());
  }
  const std::string long_prompt(1000, 'x');
  const Json too_long = json_of(test::post(server.port(), kText, Json{{"prompt", long_prompt}}.dump()));
  EXPECT_EQ(too_long["error"]["code"], "context_length_exceeded");
  EXPECT_NE(too_long["error"]["message"].get<std::string>().find("1000"), std::string::npos);
  EXPECT_NE(too_long["error"]["message"].get<std::string>().find("256"), std::string::npos);
  EXPECT_EQ(server.engine().stats().steps, 0);
}

TEST(Api, HostileBodiesAreRefused) {
  FakeServer server;
  std::string deep = R"({"prompt":)";
  deep += std::string(100'000, '[') + std::string(100'000, ']') + "}";
  std::string stops = R"({"prompt":"x","stop":["a")";
  for (int i = 0; i < 100'000; ++i) stops += ",\"a\"";
  std::string many = R"({"prompt":[1)";
  for (int i = 0; i < 1'100'000; ++i) many += ",1";
  const std::pair<std::string, int> bodies[] = {
      {deep, 400},
      {stops + "]}", 400},
      {many + "]}", 400},
      {"{\"prompt\":\"\xff\xfe\"}", 400},
      {R"({"prompt":"\ud800"})", 400},
      {R"({"prompt":"x","prompt":[1,2],"max_tokens":1})", 200},
      {R"({"prompt":"x","max_tokens":NaN})", 400},
      {"{\"prompt\":\"" + std::string(3 << 20, 'x') + "\"}", 400},
      {std::string("{\"prompt\":\"a\0b\"}", 16), 400},
      {"{\"prompt\":\"" + std::string(17 << 20, 'x') + "\"}", 413},
  };
  for (const auto& [body, status] : bodies) {
    const Answer answer = test::post(server.port(), kText, body);
    EXPECT_EQ(answer.status, status) << body.substr(0, 60) << " ... " << answer.body.substr(0, 200);
  }
  EXPECT_EQ(test::get(server.port(), "/health").status, 200);
}

TEST(Api, AddressesAndMethods) {
  FakeServer server;
  for (const char* path : {"/health", "/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready", "/ping",
                           "/version", "/v1/models", "/v1/models/fake"})
    EXPECT_EQ(test::get(server.port(), path).status, 200) << path;
  EXPECT_EQ(test::get(server.port(), "/v1/models/fake?x=1").status, 200);
  EXPECT_EQ(test::get(server.port(), "/v1/models/f%61ke").status, 200);
  EXPECT_EQ(test::get(server.port(), "/").status, 404);
  EXPECT_EQ(test::get(server.port(), "/v1/models/").status, 404);
  EXPECT_EQ(test::get(server.port(), "/v1/models/other").status, 404);
  EXPECT_EQ(test::get(server.port(), "/../etc/passwd").status, 400);
  EXPECT_EQ(test::get(server.port(), "/%2e%2e/etc/passwd").status, 400);
  EXPECT_EQ(test::get(server.port(), "/%00").status, 400);
  const Answer wrong = test::get(server.port(), kChat);
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("Allow: POST"), std::string::npos);
  HttpClient client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.read_answer().status, 415);
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_answer(/*head_only=*/true).status, 200);
  EXPECT_EQ(client.get("/version").status, 200);  // nothing of a body came before it
}

TEST(Api, KeysGuardEveryRouteButHealth) {
  FakeServer::Options options;
  options.keys =
      "# two keys\nalice alice-key-0123456789\n\nbob bob-key-0123456789 concurrent=1 requests-per-minute=3\n";
  FakeServer server(std::move(options));
  const uint16_t port = server.port();
  const std::string alice = "Authorization: Bearer alice-key-0123456789\r\n", bob = "x-api-key: bob-key-0123456789\r\n";
  for (const char* path : {"/health", "/health/ready", "/health/live", "/v2/health/live"})
    EXPECT_EQ(test::get(port, path).status, 200) << path;
  for (const char* path : {"/v1/models", "/version", "/nothing", kChat}) {
    const Answer answer = test::get(port, path);
    EXPECT_EQ(answer.status, 401) << path;
    EXPECT_EQ(json_of(answer)["error"]["code"], "invalid_api_key");
  }
  EXPECT_EQ(test::get(port, "/v1/models", "Authorization: Bearer alice-key-0123456788\r\n").status, 401);
  EXPECT_EQ(test::get(port, "/v1/models", "Authorization: Basic alice-key-0123456789\r\n").status, 401);
  EXPECT_EQ(test::get(port, "/v1/models", alice).status, 200);
  EXPECT_EQ(test::get(port, "/v1/models", bob).status, 200);
  EXPECT_EQ(test::post(port, kText, R"({"prompt":[1]})").status, 401);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(test::post(port, kText, R"({"prompt":[1]})", bob).status, i < 3 ? 200 : 429) << i;
    EXPECT_EQ(test::post(port, kText, R"({"prompt":[1]})", alice).status, 200);
  }
}

// A prefix that one key computed is not found by another: its time would tell what others ask.
TEST(Api, KeysDoNotSharePrefixes) {
  FakeServer::Options options;
  options.keys = "alice alice-key-0123456789\nbob bob-key-0123456789\n";
  FakeServer server(std::move(options));
  std::vector<int32_t> prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i);
  const std::string body = Json{{"prompt", prompt}, {"max_tokens", 2}}.dump();
  const auto cached = [&](const char* key) {
    const Json json =
        json_of(test::post(server.port(), kText, body, fmt::format("x-api-key: {}-key-0123456789\r\n", key)));
    return json["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached("alice"), 0);
  EXPECT_EQ(cached("alice"), 36);
  EXPECT_EQ(cached("bob"), 0);
  EXPECT_EQ(cached("bob"), 36);
}

TEST(Api, StrangersAreRefusedBeforeTheirBody) {
  FakeServer::Options options;
  options.keys = "alice alice-key-0123456789\n";
  FakeServer server(std::move(options));
  for (const char* path : {kText, kChat, "/tokenize", "/nothing", "/metrics"}) {
    HttpClient client(server.port());
    client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", path));
    EXPECT_EQ(client.read_answer().status, 401) << path;
  }
  HttpClient client(server.port());
  client.send(
      "POST /nothing HTTP/1.1\r\nHost: x\r\nx-api-key: alice-key-0123456789\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 404);
}

TEST(Api, BodiesAreAsLongAsTheirRouteNeeds) {
  FakeServer server;
  const auto status = [&](const char* path, size_t bytes) {
    HttpClient client(server.port());
    client.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    "Content-Length: {}\r\n\r\n",
                    path, bytes));
    return client.read_answer().status;
  };
  EXPECT_EQ(status("/tokenize", (1u << 20) + 1), 413);
  EXPECT_EQ(status(kText, (16u << 20) + 1), 413);
  EXPECT_EQ(test::post(server.port(), "/tokenize", Json{{"prompt", std::string(900'000, 'x')}}.dump()).status, 200);
  HttpClient client(server.port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 413);
}

// A page whose name was turned into this machine's address (DNS rebinding) still calls it by that name.
TEST(Api, WithoutKeysOnlyNamesOfThisMachineAreAnswered) {
  FakeServer::Options options;
  options.api.loopback_names_only = true;
  FakeServer server(std::move(options));
  const auto status = [&](std::string_view host) {
    HttpClient client(server.port());
    client.send(fmt::format("GET /v1/models HTTP/1.1\r\nHost: {}\r\n\r\n", host));
    return client.read_answer().status;
  };
  for (const char* own : {"localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000"}) EXPECT_EQ(status(own), 200);
  for (const char* other : {"evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1"})
    EXPECT_EQ(status(other), 403) << other;
  HttpClient client(server.port());
  client.send("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  const Answer refused = client.read_answer();
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(json_of(refused)["error"]["message"].get<std::string>().find("evil.example"), std::string::npos);
  FakeServer any;
  HttpClient anywhere(any.port());
  anywhere.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(anywhere.read_answer().status, 200);
}

// Objects keep the order of their keys, at a price that grows with the square of their number.
TEST(Api, ManyKeysAreRefusedBeforeTheyCost) {
  FakeServer server;
  const auto object = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += fmt::format("{}\"k{}\":{{}}", i == 0 ? "" : ",", i);
    return text + "}";
  };
  const auto refusal = [&](const std::string& value) {
    const Answer answer = test::post(server.port(), kText, R"({"prompt":"x","logit_bias":)" + value + "}");
    EXPECT_EQ(answer.status, 400);
    return json_of(answer)["error"]["message"].get<std::string>();
  };
  EXPECT_NE(refusal(object(100'000)).find("16384 keys"), std::string::npos);
  EXPECT_NE(refusal(object(2049)).find("2048 keys"), std::string::npos);
  EXPECT_NE(refusal("[" + object(2000) + "," + object(2000) + "]").find("must be an object"), std::string::npos);
  // What looks like a key inside a string is none.
  std::string colons;
  for (int i = 0; i < 20'000; ++i) colons += "\\\":{";
  EXPECT_EQ(test::post(server.port(), kText, R"({"max_tokens":1,"prompt":")" + colons + "\"}").status, 400);
  EXPECT_EQ(test::post(server.port(), "/tokenize", R"({"prompt":")" + colons + "\"}").status, 200);
}

TEST(Api, OnlyUrgentKeysGoBeforeOthers) {
  FakeServer::Options options;
  options.keys = "alice alice-key-0123456789 urgent\nbob bob-key-0123456789\n";
  FakeServer server(std::move(options));
  const auto ask = [&](const char* key, int priority) {
    return test::post(server.port(), kText, Json{{"prompt", {1}}, {"max_tokens", 1}, {"priority", priority}}.dump(),
                      fmt::format("x-api-key: {}-key-0123456789\r\n", key));
  };
  for (const int priority : {-1000, -1, 0, 5}) EXPECT_EQ(ask("alice", priority).status, 200) << priority;
  for (const int priority : {0, 5}) EXPECT_EQ(ask("bob", priority).status, 200) << priority;
  const Answer refused = ask("bob", -1);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json_of(refused)["error"]["param"], "priority");
}

}  // namespace
}  // namespace bolide::server
