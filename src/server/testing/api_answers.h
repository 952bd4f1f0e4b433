// What tests of the routes read in answers.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/testing/http_client.h"

namespace bolide::server::test {

using Json = nlohmann::json;

inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kText = "/v1/completions";

inline Json json_of(const Answer& answer) {
  Json json = Json::parse(answer.body, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << answer.status << " " << answer.body;
  return json;
}

// A stream's events; checks that each is JSON, and that the last is [DONE].
inline std::vector<Json> events_of(const Answer& answer) {
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

inline Streamed put_together(const std::vector<Json>& events, bool chat) {
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

}  // namespace bolide::server::test
