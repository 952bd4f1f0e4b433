// The server as its clients see it: sockets, a scripted model.
#include "server/api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
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

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

Json json_of(const Answer& answer) {
  Json json = Json::parse(answer.body, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << answer.status << " " << answer.body;
  return json;
}

// A stream's events; checks that each is JSON, and that the last is [DONE].
std::vector<Json> events_of(const Answer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.complete);
  std::vector<Json> events;
  std::string_view rest = answer.body;
  bool done = false;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << rest;
    if (end == std::string_view::npos) break;
    const std::string_view event = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    EXPECT_FALSE(done) << "after [DONE]: " << event;
    if (event.starts_with(':')) continue;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    if (event == "data: [DONE]") {
      done = true;
      continue;
    }
    events.push_back(Json::parse(event.substr(6), nullptr, false));
    EXPECT_FALSE(events.back().is_discarded()) << event;
  }
  EXPECT_TRUE(done) << answer.body;
  return events;
}

struct Streamed {
  std::map<int, std::string> text, reason;
  std::map<int, int> roles;
  Json usage;
};

Streamed put_together(const std::vector<Json>& events, bool chat) {
  Streamed all;
  for (const Json& event : events) {
    if (event.contains("usage") && !event["usage"].is_null()) {
      EXPECT_TRUE(event["choices"].empty());
      all.usage = event["usage"];
      continue;
    }
    EXPECT_EQ(event["choices"].size(), 1u);
    const Json& choice = event["choices"][0];
    const int index = choice["index"];
    EXPECT_EQ(all.reason.count(index), 0u) << "after the end of an answer";
    if (chat) {
      all.roles[index] += choice["delta"].contains("role") ? 1 : 0;
      all.text[index] += choice["delta"].value("content", "");
    } else {
      all.text[index] += choice.value("text", "");
    }
    if (!choice["finish_reason"].is_null()) all.reason[index] = choice["finish_reason"];
  }
  return all;
}

TEST(Api, AStreamIsTheWholeAnswerInPieces) {
  FakeServer server;
  std::mt19937 random(4);
  for (int round = 0; round < 30; ++round) {
    std::vector<int32_t> prompt(1 + random() % 30);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % FakeRunner::kVocab);
    const int32_t tokens = static_cast<int32_t>(1 + random() % 40), n = static_cast<int32_t>(1 + random() % 3);
    Json body = {{"model", "fake"}, {"prompt", prompt}, {"max_tokens", tokens}, {"n", n}, {"ignore_eos", true}};
    const Json whole = json_of(test::post(server.port(), kText, body.dump()));
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const Streamed streamed = put_together(events_of(test::post(server.port(), kText, body.dump())), false);
    ASSERT_EQ(whole["choices"].size(), static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) {
      const std::string text = whole["choices"][static_cast<size_t>(i)]["text"];
      EXPECT_EQ(text, server.expected(prompt, tokens, i));
      EXPECT_EQ(streamed.text.at(i), text);
      EXPECT_EQ(streamed.reason.at(i), "length");
    }
    EXPECT_EQ(whole["usage"]["prompt_tokens"], prompt.size());
    EXPECT_EQ(whole["usage"]["completion_tokens"], tokens * n);
    EXPECT_EQ(streamed.usage["total_tokens"], whole["usage"]["total_tokens"]);
  }
  EXPECT_TRUE(server.wait_idle());
}

TEST(Api, ChatsAreRenderedByTheTemplate) {
  FakeServer server;
  const std::string rendered = "[system]be kind[user]h\xC3\xA9llo[a]";
  std::vector<int32_t> prompt;
  for (const char c : rendered) prompt.push_back(static_cast<unsigned char>(c));
  const Json body = {{"messages",
                      {{{"role", "system"}, {"content", "be kind"}},
                       {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "h\xC3\xA9llo"}}}}}}},
                     {"max_tokens", 9}};
  const Json whole = json_of(test::post(server.port(), kChat, body.dump()));
  EXPECT_EQ(whole["choices"][0]["message"]["content"], server.expected(prompt, 9));
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["model"], "fake");
  Json stream = body;
  stream["stream"] = true;
  const Streamed streamed = put_together(events_of(test::post(server.port(), kChat, stream.dump())), true);
  EXPECT_EQ(streamed.text.at(0), server.expected(prompt, 9));
  EXPECT_EQ(streamed.roles.at(0), 1);
  EXPECT_TRUE(streamed.usage.is_null());
}

// What a model writes as calls comes as calls, whole or streamed; without tools it is text.
TEST(Api, CallsOfToolsAreReadBack) {
  FakeServer::Options options;
  options.limits.context = 1024;
  options.answer =
      "Wait. <tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"\xC3\xA9\"}}</tool_call>\n"
      "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
  options.chat_template = "{% if tools %}{{ tools | tojson }}<tool_call>{% endif %}{{ messages[0].content }}";
  FakeServer server(options);
  Json body = {{"messages", {{{"role", "user"}, {"content", "go"}}}},
               {"max_tokens", 300},
               {"tools", {{{"type", "function"}, {"function", {{"name", "add"}}}}}}};
  const auto expect_calls = [](const Json& calls) {
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0]["function"]["name"], "add");
    EXPECT_EQ(calls[0]["function"]["arguments"], "{\"a\": \"\xC3\xA9\"}");
    EXPECT_EQ(calls[1]["function"]["name"], "now");
    EXPECT_EQ(calls[1]["function"]["arguments"], "{}");
    EXPECT_EQ(calls[0]["type"], "function");
    EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  };
  const Json whole = json_of(test::post(server.port(), kChat, body.dump()));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "Wait. ");
  expect_calls(whole["choices"][0]["message"]["tool_calls"]);

  body["stream"] = true;
  const std::vector<Json> events = events_of(test::post(server.port(), kChat, body.dump()));
  Json calls = Json::array();
  size_t deltas = 0;
  for (const Json& event : events) {
    const Json& delta = event["choices"][0]["delta"];
    if (!delta.contains("tool_calls")) continue;
    const Json& call = delta["tool_calls"][0];
    ++deltas;
    if (call.contains("id")) {
      EXPECT_EQ(call["index"], calls.size());
      calls.push_back(call);
    } else {
      auto& arguments = calls.at(call["index"].get<size_t>())["function"]["arguments"];
      arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
    }
  }
  expect_calls(calls);
  EXPECT_GT(deltas, 6u) << "arguments come as they are written";
  const Streamed streamed = put_together(events, true);
  EXPECT_EQ(streamed.text.at(0), "Wait. ");
  EXPECT_EQ(streamed.reason.at(0), "tool_calls");

  body["max_tokens"] = 40;  // within the first call's arguments
  EXPECT_EQ(put_together(events_of(test::post(server.port(), kChat, body.dump())), true).reason.at(0), "length");
  body["stream"] = false, body["max_tokens"] = 300, body["tool_choice"] = "none";
  EXPECT_EQ(json_of(test::post(server.port(), kChat, body.dump()))["choices"][0]["message"]["content"], options.answer);
  FakeServer without;
  body["tool_choice"] = "auto";
  const Answer refused = test::post(without.port(), kChat, body.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json_of(refused)["error"]["param"], "tools");
}

TEST(Api, ThePlaygroundIsServed) {
  FakeServer server;
  const Answer page = test::get(server.port(), "/playground");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.body.find("<title>"), std::string::npos);
}

TEST(Api, SeveralPromptsAreNumberedThrough) {
  FakeServer server;
  const Json body = {{"prompt", {{1, 2, 3}, {4, 5}}}, {"max_tokens", 4}, {"n", 2}, {"echo", true}};
  const Json whole = json_of(test::post(server.port(), kText, body.dump()));
  ASSERT_EQ(whole["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const std::vector<int32_t> prompt = i < 2 ? std::vector<int32_t>{1, 2, 3} : std::vector<int32_t>{4, 5};
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["text"], server.model().tokenizer.decode(prompt) + server.expected(prompt, 4, i % 2));
  }
}

TEST(Api, StopStringsEndTheTextWhereverTheyAreCut) {
  FakeServer server;
  std::mt19937 random(11);
  int stopped = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<int32_t> prompt(3);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % FakeRunner::kVocab);
    const std::string text = server.expected(prompt, 40);
    // ASCII words only: "<300>"; a stop string from the middle of one to the middle of the next.
    const size_t at = text.find("><", 8);
    if (at == std::string::npos) continue;
    const std::string stop = text.substr(at - 1, 4);
    const std::string before = text.substr(0, text.find(stop));
    Json body = {{"prompt", prompt}, {"max_tokens", 40}, {"stop", {stop, "never to be seen"}}};
    const Json whole = json_of(test::post(server.port(), kText, body.dump()));
    EXPECT_EQ(whole["choices"][0]["text"], before);
    EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
    body["stream"] = true;
    const Streamed streamed = put_together(events_of(test::post(server.port(), kText, body.dump())), false);
    EXPECT_EQ(streamed.text.at(0), before);
    EXPECT_EQ(streamed.reason.at(0), "stop");
    ++stopped;
  }
  EXPECT_GT(stopped, 20);
  EXPECT_TRUE(server.wait_idle());
}

TEST(Api, EndOfTextEndsAnAnswerAndIsNotShown) {
  FakeServer plain;
  const std::vector<int32_t> ids = plain.expected_ids({7, 8}, 20);
  FakeServer server({.stop_ids = {ids[6]}});
  const Json whole = json_of(test::post(server.port(), kText, R"({"prompt":[7,8],"max_tokens":20})"));
  EXPECT_EQ(whole["choices"][0]["text"], plain.model().tokenizer.decode(std::span(ids).first(6)));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  const Json on = json_of(test::post(server.port(), kText, R"({"prompt":[7,8],"max_tokens":20,"ignore_eos":true})"));
  EXPECT_EQ(on["choices"][0]["text"], plain.expected({7, 8}, 20));
  const Json other = json_of(
      test::post(server.port(), kText,
                 fmt::format(R"({{"prompt":[7,8],"max_tokens":20,"ignore_eos":true,"stop_token_ids":[{}]}})", ids[3])));
  EXPECT_EQ(other["choices"][0]["text"], plain.model().tokenizer.decode(std::span(ids).first(3)));
}

TEST(Api, LogprobsComeWithTheirTokens) {
  FakeServer server;
  const Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 12}, {"logprobs", true}};
  const Json whole = json_of(test::post(server.port(), kChat, body.dump()));
  std::string bytes;
  const Json& tokens = whole["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(tokens.size(), 12u);
  for (const Json& token : tokens) {
    EXPECT_EQ(token["logprob"], -1.5);
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  std::vector<int32_t> prompt;
  for (const char c : std::string("[user]x[a]")) prompt.push_back(c);
  std::string all;
  for (const int32_t id : server.expected_ids(prompt, 12)) all += server.model().tokenizer.token_bytes(id);
  EXPECT_EQ(bytes, all);
}

TEST(Api, TheLikeliestTokensComeWithEach) {
  FakeServer server;
  Json body = {{"prompt", {3, 4}}, {"max_tokens", 8}, {"logprobs", 3}};
  const Json whole = json_of(test::post(server.port(), kText, body.dump()));
  const Json& logprobs = whole["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 8u);
  ASSERT_EQ(logprobs["text_offset"].size(), 8u);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  ASSERT_EQ(logprobs["top_logprobs"].size(), 8u);
  for (const Json& top : logprobs["top_logprobs"]) EXPECT_LE(top.size(), 3u);
  body = {
      {"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 8}, {"logprobs", true}, {"top_logprobs", 2}};
  const Json chat = json_of(test::post(server.port(), kChat, body.dump()));
  std::vector<int32_t> prompt;
  for (const char c : std::string("[user]x[a]")) prompt.push_back(c);
  const std::vector<int32_t> drawn = server.expected_ids(prompt, 8);
  const Json& content = chat["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    ASSERT_EQ(content[i]["top_logprobs"].size(), 2u);
    EXPECT_EQ(content[i]["top_logprobs"][0]["logprob"], -1.5);
    EXPECT_EQ(content[i]["top_logprobs"][1]["logprob"], -2.5);
    std::string second;
    for (const Json& byte : content[i]["top_logprobs"][1]["bytes"]) second += static_cast<char>(byte.get<int>());
    EXPECT_EQ(second, server.model().tokenizer.token_bytes((drawn[i] + 1) % FakeRunner::kVocab));
  }
}

TEST(Api, MetricsCountWhatHappened) {
  FakeServer::Options options;
  options.compat = "vllm";
  FakeServer server(std::move(options));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(test::post(server.port(), kText, R"({"prompt":[1,2],"max_tokens":5})").status, 200);
  EXPECT_EQ(test::post(server.port(), kText, R"({"prompt":[]})").status, 400);
  EXPECT_TRUE(server.wait_idle());
  const Answer answer = test::get(server.port(), "/metrics");
  EXPECT_EQ(answer.status, 200);
  for (const char* line :
       {"bolide_requests_total{finished_reason=\"length\",model_name=\"fake\"} 3",
        "bolide_generation_tokens_total{model_name=\"fake\"} 15", "bolide_prompt_tokens_total{model_name=\"fake\"} 6",
        "bolide_time_to_first_token_seconds_count{model_name=\"fake\"} 3",
        "bolide_inter_token_latency_seconds_count{model_name=\"fake\"} 12",
        "vllm:generation_tokens_total{model_name=\"fake\"} 15", "bolide_refused_requests_total{status=\"400\"} 1",
        "bolide_num_requests_running{model_name=\"fake\"} 0", "process_resident_memory_bytes "})
    EXPECT_NE(answer.body.find(line), std::string::npos) << line << "\n" << answer.body;
}

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

TEST(Api, TokensAndBack) {
  FakeServer server;
  const Json tokens = json_of(test::post(server.port(), "/tokenize", R"({"prompt":"ab"})"));
  EXPECT_EQ(tokens["tokens"], Json({97, 98}));
  EXPECT_EQ(tokens["count"], 2);
  EXPECT_EQ(tokens["max_model_len"], 256);
  const Json chat = json_of(test::post(server.port(), "/tokenize",
                                       R"({"messages":[{"role":"u","content":"x"}],"add_generation_prompt":false})"));
  EXPECT_EQ(chat["tokens"], Json({'[', 'u', ']', 'x'}));
  EXPECT_EQ(json_of(test::post(server.port(), "/detokenize", R"({"tokens":[97,300]})"))["prompt"], "a<300>");
  EXPECT_EQ(test::post(server.port(), "/detokenize", R"({"tokens":[1000]})").status, 400);
}

// Lets steps pass once it is open.
class Gate {
 public:
  Result<> pass() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
    return {};
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

template <class Condition>
bool becomes(Condition condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// blocks.cancel
TEST(Api, AClientThatLeavesFreesItsBlocks) {
  FakeServer::Options options;
  options.on_submit = [](const StepBatch&) -> Result<> {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
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
    EXPECT_LT(std::chrono::steady_clock::now() - left, std::chrono::milliseconds(300)) << stream;
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
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send_post(kText, R"({"prompt":[1,2,3],"max_tokens":3})");
  }
  // One is in a step that does not end, four wait.
  int refused = 0;
  ASSERT_TRUE(becomes([&] { return server.engine().stats().queued + server.engine().stats().scheduler.waiting >= 4; }));
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
  EXPECT_GE(answered, 4);
  EXPECT_LE(answered, 6);
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

// streams.order, streams.complete
TEST(Api, ManyClientsAtOnceGetTheirOwnAnswers) {
  FakeServer server;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      HttpClient client(server.port());  // one connection for all its requests
      for (int i = 0; i < 25; ++i) {
        const bool stream = i % 2 == 0;
        const Json body = {{"prompt", {t, i, 5}}, {"max_tokens", 30}, {"stream", stream}};
        const Answer answer = client.post(kText, body.dump());
        const std::string expected = server.expected({t, i, 5}, 30);
        if (stream)
          right += put_together(events_of(answer), false).text.at(0) == expected ? 1 : 0;
        else
          right += json_of(answer)["choices"][0]["text"] == expected ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
}

}  // namespace
}  // namespace bolide::server
