#include "server/batch/batch_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai_response.h"

namespace bolide::server {
namespace {

using Json = nlohmann::ordered_json;

Json good() {
  return {{"custom_id", "a"},
          {"method", "POST"},
          {"url", "/v1/completions"},
          {"body", {{"model", "small"}, {"prompt", "x"}}}};
}

TEST(BatchLine, HasFourFields) {
  const auto line = parse_batch_line(good().dump(2));
  ASSERT_TRUE(line.has_value()) << line.error().text;
  EXPECT_EQ(line->custom_id, "a");
  EXPECT_EQ(line->url, "/v1/completions");
  EXPECT_EQ(line->model, "small");
  EXPECT_EQ(Json::parse(line->body), good()["body"]);
}

TEST(BatchLine, SaysWhatIsWrong) {
  const auto refused = [](const std::string& text, const std::string& says) {
    const auto line = parse_batch_line(text);
    ASSERT_FALSE(line.has_value()) << text;
    EXPECT_NE(line.error().text.find(says), std::string::npos) << text << ": " << line.error().text;
  };
  const auto with = [](const char* name, const Json& value) {
    Json line = good();
    line[name] = value;
    return line.dump();
  };
  for (const char* name : {"custom_id", "method", "url", "body"}) {
    Json line = good();
    line.erase(name);
    refused(line.dump(), std::string(name) + ": is required");
    refused(with(name, 1), name);
    const std::string twice = good().dump();
    refused(twice.substr(0, twice.size() - 1) + ",\"" + name + "\":\"x\"}", std::string(name) + ": is there twice");
  }
  refused(with("custom_id", ""), "custom_id: has 0 bytes");
  refused(with("custom_id", std::string(2000, 'x')), "custom_id: has 2000 bytes");
  refused(with("method", "GET"), "method: is \"GET\"");
  refused(with("url", "/v1/embeddings"), "url: is \"/v1/embeddings\"; a batch has /v1/chat/completions and");
  refused(with("body", {{"stream", true}}), "body.stream");
  refused(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"str\u0065am":false,"stream":true}})",
          "body.stream");
  refused(with("body", Json::array()), "body: must be a JSON object");
  refused(with("more", 1), "more: a line has");
  refused("{}", "custom_id: is required");
  refused("nonsense", "no valid JSON");
}

TEST(BatchLine, AnAnswerIsOneLineOfJson) {
  for (const std::string id : {"a", "\"\n\\", "h\xC3\xA9"}) {
    const std::string text = write_answer_line(id, {200, {}, R"({"choices":[1]})"});
    EXPECT_TRUE(text.starts_with(kAnswerLineBegin));
    EXPECT_EQ(text.find('\n'), text.size() - 1);
    const Json line = Json::parse(text);
    EXPECT_EQ(line["custom_id"], id);
    EXPECT_EQ(line["response"]["status_code"], 200);
    EXPECT_EQ(line["response"]["body"]["choices"][0], 1);
    EXPECT_TRUE(line["response"]["request_id"].get<std::string>().starts_with("req_"));
    EXPECT_TRUE(line["error"].is_null());
    const auto answer = parse_answer_line(text);
    ASSERT_TRUE(answer.has_value()) << answer.error().text;
    EXPECT_EQ(answer->custom_id, id);
    EXPECT_TRUE(answer->answered);
  }
}

TEST(BatchLine, AFailureSaysWhyTwice) {
  const std::string text =
      write_answer_line("a", error_response(error(Code::kInvalid, "n: must be \"5\""), "n", "odd_number"));
  const Json line = Json::parse(text);
  EXPECT_EQ(line["response"]["status_code"], 400);
  EXPECT_EQ(line["response"]["body"]["error"]["param"], "n");
  EXPECT_EQ(line["error"]["code"], "odd_number");
  EXPECT_EQ(line["error"]["message"], "n: must be \"5\"");
  EXPECT_FALSE(parse_answer_line(text)->answered);
}

TEST(BatchLine, ReadsTheAnswersOfOthers) {
  const auto answered = [](const std::string& text) {
    const auto answer = parse_answer_line(text);
    return answer.has_value() ? static_cast<int>(answer->answered) : -1;
  };
  EXPECT_EQ(answered(R"({"id":"x","custom_id":"a","response":{"status_code":200,"body":{}}})"), 1);
  EXPECT_EQ(answered(R"({"id":"x","custom_id":"a","response":null,"error":{"code":"expired","message":""}})"), 0);
  EXPECT_EQ(answered(R"({"custom_id":"a"})"), -1);
  EXPECT_EQ(answered(R"({"response":{}})"), -1);
  EXPECT_EQ(answered("years of work"), -1);
}

}  // namespace
}  // namespace bolide::server
