// The server as its clients see it: sockets, a scripted model.
#include "server/api.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "server/testing/api_answers.h"
#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using namespace test;

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
        "bolide_request_queue_time_seconds_count{model_name=\"fake\"} 3",
        "vllm:request_queue_time_seconds_count{model_name=\"fake\"} 3",
        "bolide_inter_token_latency_seconds_count{model_name=\"fake\"} 12",
        "vllm:generation_tokens_total{model_name=\"fake\"} 15", "bolide_refused_requests_total{status=\"400\"} 1",
        "bolide_num_requests_running{model_name=\"fake\"} 0", "process_resident_memory_bytes "})
    EXPECT_NE(answer.body.find(line), std::string::npos) << line << "\n" << answer.body;
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

// The server's own refusals are counted as those of the routes are; of several answers the first token counts once.
TEST(Api, MetricsCountAnswersByStatusAndFirstTokensByRequest) {
  FakeServer server;
  const uint16_t port = server.port();
  EXPECT_EQ(test::post(port, kText, R"({"prompt":[1,2],"max_tokens":5,"n":4})").status, 200);
  EXPECT_EQ(test::get(port, "/nothing").status, 404);
  EXPECT_EQ(test::get(port, kText).status, 405);
  HttpClient client(port);
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.read_answer().status, 415);
  for (const auto& [head, status] :
       {std::pair("Transfer-Encoding: gzip\r\n", 501), std::pair("Content-Length: x\r\n", 400),
        std::pair("Content-Length: 99999999999\r\n", 413)}) {
    HttpClient attacker(port);
    attacker.send(fmt::format("POST /tokenize HTTP/1.1\r\nHost: x\r\n{}\r\n", head));
    EXPECT_EQ(attacker.read_answer().status, status);
  }
  EXPECT_TRUE(server.wait_idle());
  const std::string text = test::get(port, "/metrics").body;
  for (const int status : {200, 400, 404, 405, 413, 415, 501}) {
    const std::string line = fmt::format("bolide_http_responses_total{{status=\"{}\"}} 1\n", status);
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  for (const char* line :
       {"bolide_refused_requests_total{status=\"404\"} 1", "bolide_refused_requests_total{status=\"415\"} 1",
        "bolide_time_to_first_token_seconds_count{model_name=\"fake\"} 1",
        "bolide_request_queue_time_seconds_count{model_name=\"fake\"} 1",
        "bolide_inter_token_latency_seconds_count{model_name=\"fake\"} 16"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

// Nobody can tell one from another, nor does a restart repeat them; nor seeds, which come from the same place.
TEST(Api, NamesOfRequestsAreRandom) {
  std::set<std::string> ids;
  for (int start = 0; start < 2; ++start) {
    FakeServer server;
    for (int i = 0; i < 20; ++i) {
      const Json whole = json_of(test::post(server.port(), kText, R"({"prompt":[1,2],"max_tokens":1})"));
      const std::string id = whole["id"];
      EXPECT_TRUE(id.starts_with("cmpl-") && id.size() == 5 + 32) << id;
      EXPECT_EQ(id.find_first_not_of("0123456789abcdef", 5), std::string::npos) << id;
      ids.insert(id);
    }
  }
  EXPECT_EQ(ids.size(), 40u);
}

// Clients send the arguments of calls back as text; most templates want the object, some the text.
TEST(Api, CallsThatComeBackAreAsTheTemplateWantsThem) {
  const auto tokens = [](const char* chat_template, const Json& arguments) {
    FakeServer::Options options;
    options.chat_template = chat_template;
    options.limits.context = 1024;
    FakeServer server(std::move(options));
    const Json messages = {
        {{"role", "user"}, {"content", "go"}},
        {{"role", "assistant"},
         {"tool_calls", {{{"type", "function"}, {"function", {{"name", "add"}, {"arguments", arguments}}}}}}}};
    const Json body = {{"messages", messages}};
    const Answer answer = test::post(server.port(), "/tokenize", body.dump());
    if (answer.status != 200) return fmt::format("{} {}", answer.status, answer.body);
    std::string text;
    const Json ids = json_of(answer)["tokens"];
    for (const Json& id : ids) text += static_cast<char>(id.get<int>());
    return text;
  };
  constexpr const char* kObject = "{{ messages[1].tool_calls[0].function.arguments | tojson }}";
  constexpr const char* kItems =
      "{% for k, v in messages[1].tool_calls[0].function.arguments | items %}{{ k }}={{ v }};{% endfor %}";
  constexpr const char* kJoined = "{{ 'call ' + messages[1].tool_calls[0].function.arguments }}";
  const Json object = {{"a", 1}, {"b", "x"}};
  for (const Json& arguments : {object, Json(R"({"a": 1, "b": "x"})")}) {
    EXPECT_EQ(tokens(kObject, arguments), R"({"a": 1, "b": "x"})");
    EXPECT_EQ(tokens(kItems, arguments), "a=1;b=x;");
    const std::string joined = tokens(kJoined, arguments);
    ASSERT_TRUE(joined.starts_with("call ")) << joined;
    EXPECT_EQ(Json::parse(joined.substr(5), nullptr, false), object) << joined;
  }
  EXPECT_EQ(tokens(kObject, ""), "{}");
  EXPECT_EQ(tokens(kObject, "no {object"), R"("no {object")");
  EXPECT_TRUE(tokens(kObject, 5).starts_with("400 "));
}

}  // namespace
}  // namespace bolide::server
