#include "server/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace bolide::server {
namespace {

using Kind = ToolEvent::Kind;

// An answer as a client sees it in the end.
struct Seen {
  std::string text;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  bool operator==(const Seen&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Seen& seen) {
  out << "text '" << seen.text << "'";
  for (const auto& [name, arguments] : seen.calls) out << "; " << name << "(" << arguments << ")";
  return out;
}

Seen seen_of(const std::vector<ToolEvent>& events) {
  Seen seen;
  for (const ToolEvent& event : events) {
    if (event.kind == Kind::kText) seen.text += event.text;
    if (event.kind == Kind::kBegin) {
      EXPECT_EQ(event.call, seen.calls.size()) << "calls begin in order, each once";
      seen.calls.emplace_back(event.text, "");
    }
    if (event.kind == Kind::kArguments) {
      EXPECT_EQ(event.call + 1, seen.calls.size());
      if (!seen.calls.empty()) seen.calls.back().second += event.text;
    }
  }
  return seen;
}

// Whole, byte by byte and in random pieces: the same.
Seen parse(ToolFormat format, const std::string& answer) {
  const auto in_pieces = [&](auto next) {
    ToolCallParser parser(format);
    std::vector<ToolEvent> events;
    for (size_t at = 0; at < answer.size();) {
      const size_t n = std::min<size_t>(next(), answer.size() - at);
      parser.push(std::string_view(answer).substr(at, n), &events);
      at += n;
    }
    parser.finish(&events);
    const Seen seen = seen_of(events);
    EXPECT_EQ(parser.calls(), seen.calls.size());
    return seen;
  };
  const Seen whole = in_pieces([] { return size_t{1} << 30; });
  EXPECT_EQ(in_pieces([] { return size_t{1}; }), whole) << answer;
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(in_pieces([&] { return 1 + random() % 9; }), whole) << answer;
  return whole;
}

Seen calls(std::vector<std::pair<std::string, std::string>> list) { return {"", std::move(list)}; }

TEST(ToolCalls, Hermes) {
  const auto f = ToolFormat::kHermes;
  EXPECT_EQ(
      parse(f, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2, {\"c\": \"}\"}]}}\n</tool_call>"),
      calls({{"add", "{\"a\": 1, \"b\": [2, {\"c\": \"}\"}]}"}}));
  EXPECT_EQ(
      parse(f,
            "Let me see. <tool_call>{\"arguments\": {\"q\": \"a \\\"b\\\" \\\\\"}, \"name\": \"find\"}</tool_call>\n"
            "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> Done."),
      (Seen{"Let me see. Done.", {{"find", "{\"q\": \"a \\\"b\\\" \\\\\"}"}, {"now", "{}"}}}));
  EXPECT_EQ(parse(f, "<tool_call>{\"name\": \"now\"}</tool_call>"), calls({{"now", "{}"}}));
  EXPECT_EQ(
      parse(f, "<tool_call>{\"name\": \"f\", \"id\": 12, \"ok\": true, \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>"),
      calls({{"f", "{\"x\": 1}"}}));
  EXPECT_EQ(parse(f, "<tool_call>{\"name\": \"caf\\u00e9\", \"arguments\": {\"city\": \"Zürich 🙂\"}}</tool_call>"),
            calls({{"café", "{\"city\": \"Zürich 🙂\"}"}}));
}

TEST(ToolCalls, Llama3) {
  const auto f = ToolFormat::kLlama3;
  EXPECT_EQ(parse(f, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}"), calls({{"add", "{\"a\": 1}"}}));
  EXPECT_EQ(
      parse(
          f,
          "<|python_tag|>{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"sub\", "
          "\"parameters\": {}}"),
      calls({{"add", "{\"a\": 1}"}, {"sub", "{}"}}));
  EXPECT_EQ(parse(f, "An object: {\"name\": \"add\", \"parameters\": {}}"),
            (Seen{"An object: {\"name\": \"add\", \"parameters\": {}}", {}}));
  EXPECT_EQ(parse(f, "{\"name\": \"Ada\", \"age\": 36}"), (Seen{"{\"name\": \"Ada\", \"age\": 36}", {}}));
  EXPECT_EQ(parse(f, "{\"age\": 36} and more"), (Seen{"{\"age\": 36} and more", {}}));
}

TEST(ToolCalls, Mistral) {
  const auto f = ToolFormat::kMistral;
  const Seen both = calls({{"add", "{\"a\": [1]}"}, {"sub", "{\"b\": \"]\"}"}});
  const std::string list =
      "[{\"name\": \"add\", \"arguments\": {\"a\": [1]}}, {\"name\": \"sub\", \"arguments\": {\"b\": \"]\"}, \"id\": "
      "\"abc\"}]";
  EXPECT_EQ(parse(f, "[TOOL_CALLS] " + list), both);
  EXPECT_EQ(parse(f, list), both);
  EXPECT_EQ(parse(f, "[TOOL_CALLS]add[ARGS]{\"a\": [1]}[TOOL_CALLS]sub[ARGS]{\"b\": \"]\"}"), both);
  EXPECT_EQ(parse(f, "[1, 2] is a list"), (Seen{"[1, 2] is a list", {}}));
  EXPECT_EQ(parse(f, "[TOOL_CALLS]nothing of the kind\n"), (Seen{"[TOOL_CALLS]nothing of the kind\n", {}}));
}

TEST(ToolCalls, WhatIsNoCallIsText) {
  for (const auto f : {ToolFormat::kNone, ToolFormat::kHermes, ToolFormat::kLlama3, ToolFormat::kMistral})
    for (const char* text : {"", " ", "plain", "  two words\n", "<tool", "[TOOL", "a < b <tool_ b", "<|python", "é🙂"})
      EXPECT_EQ(parse(f, text), (Seen{text, {}})) << static_cast<int>(f);
  const auto f = ToolFormat::kHermes;
  for (const char* text : {"<tool_call>no object</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>",
                           "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>", "<tool_call>{name: 3}",
                           "<tool_call>{\"name\"", "<tool_call>[1]", "<tool_call>{\"name\": \"\", \"arguments\": {}}"})
    EXPECT_EQ(parse(f, text), (Seen{text, {}}));
}

// An answer that is cut: the call is there with as much of its arguments as came.
TEST(ToolCalls, CutAnswers) {
  const std::string whole = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"1}2\"}}</tool_call>";
  const std::string arguments = "{\"a\": \"1}2\"}";
  for (size_t n = 0; n <= whole.size(); ++n) {
    const Seen seen = parse(ToolFormat::kHermes, whole.substr(0, n));
    if (seen.calls.empty()) {
      EXPECT_EQ(seen.text, whole.substr(0, n));
    } else {
      EXPECT_EQ(seen.text, "");
      EXPECT_EQ(seen.calls[0].first, "add");
      EXPECT_EQ(seen.calls[0].second, arguments.substr(0, seen.calls[0].second.size()));
    }
  }
}

// The name and the first arguments are shown before the rest is there.
TEST(ToolCalls, AreStreamed) {
  ToolCallParser parser(ToolFormat::kHermes);
  std::vector<ToolEvent> events;
  parser.push("<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": ", &events);
  EXPECT_EQ(events, (std::vector<ToolEvent>{{Kind::kBegin, 0, "add"}, {Kind::kArguments, 0, "{\"a\": "}}));
}

// Random calls, written out with a JSON library of someone else's, come back.
TEST(ToolCalls, RandomCallsComeBack) {
  std::mt19937 random(std::random_device{}());
  const std::vector<std::string> letters = {"a",  "{", "}", "[", "]", "\"",          ",",
                                            "\\", ":", ";", "é", "<", "</tool_call>"};
  const auto word = [&] {
    std::string s;
    for (size_t n = random() % 6; n-- > 0;) s += letters[random() % letters.size()];
    return s;
  };
  for (int round = 0; round < 60; ++round) {
    Seen want;
    std::string hermes, llama, mistral = "[TOOL_CALLS] [";
    for (size_t n = 1 + random() % 3; n-- > 0;) {
      nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
      for (size_t k = random() % 4; k-- > 0;)
        arguments[word()] =
            random() % 2 ? nlohmann::ordered_json(word()) : nlohmann::ordered_json({1.5, {{"x", word()}}, nullptr});
      const std::string name = "n" + std::to_string(random() % 100), text = arguments.dump(random() % 2 ? -1 : 1);
      const std::string quoted = "\"name\": \"" + name + "\"";
      hermes += "<tool_call>\n{" +
                (random() % 2 ? quoted + ", \"arguments\": " + text : "\"arguments\": " + text + "," + quoted) +
                "}\n</tool_call>";
      llama += (llama.empty() ? "" : "; ") + std::string("{") + quoted + ", \"parameters\": " + text + "}";
      mistral += (want.calls.empty() ? "" : ", ") + std::string("{") + quoted + ", \"arguments\": " + text + "}";
      want.calls.emplace_back(name, text);
    }
    ASSERT_EQ(parse(ToolFormat::kHermes, hermes), want);
    ASSERT_EQ(parse(ToolFormat::kLlama3, llama), want);
    ASSERT_EQ(parse(ToolFormat::kMistral, mistral + "]"), want);
  }
}

TEST(ToolCalls, FormatOfATemplate) {
  EXPECT_EQ(tool_format_of("{{ '<tool_call>' }}"), ToolFormat::kHermes);
  EXPECT_EQ(tool_format_of("{{ '[TOOL_CALLS]' }}"), ToolFormat::kMistral);
  EXPECT_EQ(tool_format_of("<|start_header_id|> {\"name\": x, \"parameters\": y}"), ToolFormat::kLlama3);
  EXPECT_EQ(tool_format_of("{{ message.content }}"), ToolFormat::kNone);
}

}  // namespace
}  // namespace bolide::server
