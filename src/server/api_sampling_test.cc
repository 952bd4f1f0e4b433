// Fields that change what is drawn, logit_bias and min_tokens, and log-probabilities of prompts. The scripted model
// draws the largest of random scores from 0 to 10, with their biases.
#include <gtest/gtest.h>

#include "server/testing/api_answers.h"
#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using namespace test;

struct Said {
  std::string text, reason;
  int32_t tokens;
  bool operator==(const Said&) const = default;
};

// As a whole and as a stream.
Said ask(FakeServer& server, Json body) {
  body["prompt"] = {1, 2, 3};
  const Json whole = json_of(test::post(server.port(), kText, body.dump()));
  if (!whole.contains("choices")) return {whole.dump(), "", 0};
  const Json& choice = whole["choices"][0];
  body["stream"] = true;
  const Streamed streamed = put_together(events_of(test::post(server.port(), kText, body.dump())), false);
  const auto text = streamed.text.find(0);
  EXPECT_EQ(choice["text"], text == streamed.text.end() ? "" : text->second);
  EXPECT_EQ(choice["finish_reason"], streamed.reason.at(0));
  return {choice["text"], choice["finish_reason"], whole["usage"]["completion_tokens"]};
}

TEST(Api, LogitBiasForcesAndBans) {
  FakeServer server;
  EXPECT_EQ(ask(server, {{"max_tokens", 5}, {"logit_bias", {{"65", 100}}}}), (Said{"AAAAA", "length", 5}));
  const Said both = ask(server, {{"max_tokens", 40}, {"logit_bias", {{"65", 50}, {"66", 50}, {"67", 100.0}}}});
  EXPECT_EQ(both.text, std::string(40, 'C'));
  const Said two = ask(server, {{"max_tokens", 40}, {"logit_bias", {{"65", 50}, {"66", 50}, {"67", -100}}}});
  EXPECT_EQ(two.text.find_first_not_of("AB"), std::string::npos) << two.text;
  EXPECT_NE(two.text.find('A'), std::string::npos);
  EXPECT_NE(two.text.find('B'), std::string::npos);
  Json all;
  for (int id = 0; id < FakeRunner::kVocab; ++id)
    if (id != 'Z') all[std::to_string(id)] = -100;
  EXPECT_EQ(ask(server, {{"max_tokens", 3}, {"logit_bias", all}}).text, "ZZZ");
}

TEST(Api, AnswersHaveTheirLeastTokens) {
  FakeServer server({.stop_ids = {'A'}});
  const Json bias = {{"65", 100}, {"66", 50}};
  EXPECT_EQ(ask(server, {{"logit_bias", bias}}), (Said{"", "stop", 1}));
  EXPECT_EQ(ask(server, {{"logit_bias", bias}, {"min_tokens", 3}}), (Said{"BBB", "stop", 4}));
  EXPECT_EQ(ask(server, {{"logit_bias", bias}, {"min_tokens", 16}}), (Said{std::string(16, 'B'), "length", 16}));
  EXPECT_EQ(ask(server, {{"logit_bias", {{"66", 100}, {"67", 50}}}, {"min_tokens", 2}, {"stop_token_ids", {66}}}),
            (Said{"CC", "stop", 3}));
  EXPECT_EQ(ask(server, {{"logit_bias", bias}, {"min_tokens", 3}, {"ignore_eos", true}}).text, std::string(16, 'A'))
      << "what does not end an answer is not banned";
  EXPECT_EQ(ask(server, {{"logit_bias", {{"67", 100}}}, {"min_tokens", 3}, {"stop", "CC"}}), (Said{"CCC", "stop", 5}));
}

TEST(Api, BiasesThatCannotBeMeantAreRefused) {
  FakeServer server({.stop_ids = {'A'}});
  const auto expect_refusal = [&](const std::string& fields, const std::string& param, const std::string& what) {
    const Answer answer = test::post(server.port(), kText, R"({"prompt":[1],)" + fields + "}");
    EXPECT_EQ(answer.status, 400) << fields;
    const Json error = json_of(answer)["error"];
    EXPECT_EQ(error["param"], param) << fields;
    EXPECT_NE(error["message"].get<std::string>().find(what), std::string::npos) << error;
  };
  expect_refusal(R"("logit_bias":{"1000":1})", "logit_bias", "vocabulary of 1000");
  expect_refusal(R"("logit_bias":{"5":1,"05":2})", "logit_bias", "twice");
  expect_refusal(R"("logit_bias":{"5":101})", "logit_bias", "from -100 to 100");
  expect_refusal(R"("logit_bias":{"x":1})", "logit_bias", "token ids");
  expect_refusal(R"("min_tokens":17)", "min_tokens", "16");
  expect_refusal(R"("min_tokens":5,"max_tokens":4)", "min_tokens", "4");
  expect_refusal(R"("min_tokens":300,"max_tokens":400)", "min_tokens", "255");
  Json all;
  for (int id = 0; id < FakeRunner::kVocab; ++id)
    if (id != 'A') all[std::to_string(id)] = -100;
  expect_refusal(R"("min_tokens":1,"logit_bias":)" + all.dump(), "min_tokens", "end the answer");
  all["65"] = -100;
  expect_refusal(R"("logit_bias":)" + all.dump(), "logit_bias", "every token");
  for (int id = 1000; id < 1025; ++id) all[std::to_string(id)] = -100;
  expect_refusal(R"("logit_bias":)" + all.dump(), "logit_bias", "at most 1024");
}

// A prompt's tokens come with the log-probabilities that they have after those before them, the first without.
TEST(Api, EchoHasThePromptsLogprobs) {
  FakeServer server;
  for (const int32_t tokens : {0, 1, 5})
    for (const int32_t top : {0, 2})
      for (const std::vector<int32_t>& prompt : {std::vector<int32_t>{300, 65, 66, 0xC3, 0xA9, 67}, {65}}) {
        Json body = {{"prompt", prompt}, {"max_tokens", tokens}, {"echo", true}, {"logprobs", top}, {"n", 2}};
        const Json whole = json_of(test::post(server.port(), kText, body.dump()));
        ASSERT_EQ(whole["choices"].size(), 2u) << whole;
        EXPECT_EQ(whole["usage"]["completion_tokens"], 2 * tokens);
        Request request;
        request.prompt = prompt;
        request.top_logprobs = top;
        const auto scores = FakeRunner::prompt_scores(fake_limits(), request);
        const std::string echo = server.model().tokenizer.decode(prompt);
        for (int32_t n = 0; n < 2; ++n) {
          const Json& choice = whole["choices"][static_cast<size_t>(n)];
          EXPECT_EQ(choice["text"], echo + (tokens == 0 ? "" : server.expected(prompt, tokens, n)));
          EXPECT_EQ(choice["finish_reason"], "length");
          const Json& lists = choice["logprobs"];
          ASSERT_EQ(lists["tokens"].size(), prompt.size() + static_cast<size_t>(tokens));
          ASSERT_EQ(lists["text_offset"].size(), lists["tokens"].size());
          EXPECT_TRUE(lists["token_logprobs"][0].is_null());
          for (size_t i = 1; i < prompt.size(); ++i)
            EXPECT_NEAR(lists["token_logprobs"][i].get<double>(), scores[i - 1].logprob, 1e-4);
          const bool any = top > 0 && (tokens > 0 || prompt.size() > 1);
          EXPECT_EQ(lists["top_logprobs"].is_array(), any);
          if (any) {
            EXPECT_TRUE(lists["top_logprobs"][0].is_null());
            EXPECT_EQ(lists["top_logprobs"].size(), lists["tokens"].size());
          }
          if (prompt.size() > 1) {
            EXPECT_EQ(lists["tokens"][0], "<300>");
            EXPECT_EQ(lists["text_offset"][2], 6);
            EXPECT_EQ(lists["text_offset"][5], 8) << "characters, not bytes";
          }
          if (tokens > 0) {
            EXPECT_EQ(lists["text_offset"][prompt.size()], prompt.size() > 1 ? 9 : 1);
          }
        }
        body["stream"] = true;
        const std::vector<Json> events = events_of(test::post(server.port(), kText, body.dump()));
        for (int32_t n = 0; n < 2; ++n) {
          Json values = Json::array(), offsets = Json::array();
          for (const Json& event : events) {
            const Json& choice = event["choices"][0];
            if (choice["index"] != n || choice["logprobs"].is_null()) continue;
            for (const Json& value : choice["logprobs"]["token_logprobs"]) values.push_back(value);
            for (const Json& value : choice["logprobs"]["text_offset"]) offsets.push_back(value);
          }
          const Json& lists = whole["choices"][static_cast<size_t>(n)]["logprobs"];
          EXPECT_EQ(values, lists["token_logprobs"]);
          EXPECT_EQ(offsets, lists["text_offset"]);
          EXPECT_EQ(whole["choices"][static_cast<size_t>(n)]["text"], put_together(events, false).text.at(n));
        }
      }
}

// A step has 64 such tokens at most: a stream gets them as they come.
TEST(Api, ALongPromptsLogprobsAreStreamedInPieces) {
  FakeServer server;
  std::vector<int32_t> prompt(200);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>('A' + i % 26);
  Json body = {{"prompt", {prompt, {65, 66}}}, {"max_tokens", 3}, {"echo", true}, {"logprobs", 1}, {"n", 2}};
  const Json whole = json_of(test::post(server.port(), kText, body.dump()));
  body["stream"] = true;
  const std::vector<Json> events = events_of(test::post(server.port(), kText, body.dump()));
  const Streamed streamed = put_together(events, false);
  for (int n = 0; n < 4; ++n) {
    const Json& choice = whole["choices"][static_cast<size_t>(n)];
    EXPECT_EQ(choice["text"], streamed.text.at(n));
    Json values = Json::array(), tops = Json::array();
    size_t most = 0;
    for (const Json& event : events) {
      if (event["choices"][0]["index"] != n || event["choices"][0]["logprobs"].is_null()) continue;
      const Json& lists = event["choices"][0]["logprobs"];
      most = std::max(most, lists["tokens"].size());
      for (const Json& value : lists["token_logprobs"]) values.push_back(value);
      for (const Json& value : lists["top_logprobs"]) tops.push_back(value);
    }
    EXPECT_EQ(values, choice["logprobs"]["token_logprobs"]);
    EXPECT_EQ(tops, choice["logprobs"]["top_logprobs"]);
    EXPECT_EQ(values.size(), n < 2 ? 203u : 5u);
    EXPECT_LE(most, 65u);
  }
}

TEST(Api, OnlyAnEchoNeedsNoTokens) {
  FakeServer::Options options;
  options.api.limits.prompt_logprobs_max = 12;
  FakeServer server(options);
  const auto param = [&](const char* fields) {
    const Json json = json_of(test::post(server.port(), kText, std::string(R"({"prompt":[1,2,3],)") + fields + "}"));
    return json.contains("error") ? json["error"]["param"].dump() : "";
  };
  EXPECT_EQ(param(R"("echo":true,"max_tokens":0)"), "");
  EXPECT_EQ(param(R"("max_tokens":0)"), R"("max_tokens")");
  EXPECT_EQ(param(R"("echo":true,"max_tokens":0,"min_tokens":1)"), R"("min_tokens")");
  EXPECT_EQ(param(R"("echo":true,"logprobs":3)"), "");
  EXPECT_EQ(param(R"("echo":true,"logprobs":4)"), R"("logprobs")");
}

}  // namespace
}  // namespace bolide::server
