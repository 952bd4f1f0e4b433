// The template language against Jinja2 itself: tests/golden/jinja/*.json, made by tools/golden/jinja.py.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "base/sanitizers.h"
#include "text/chat_template.h"

namespace bolide {
namespace {

using Json = nlohmann::ordered_json;

// Of processor time, for a template that never ends. Sanitizers multiply times by about ten.
#if BOLIDE_ADDRESS_SANITIZER || BOLIDE_THREAD_SANITIZER
constexpr double kSecondsMax = 20;
#else
constexpr double kSecondsMax = 2;
#endif

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A template with plain variables; messages, tools and the like come with them.
Result<std::string> render(const std::string& source, const Json& variables = Json::object(), ChatLimits limits = {}) {
  auto parsed = ChatTemplate::parse(source, "t");
  if (!parsed) return std::move(parsed).error();
  ChatInput input;
  input.variables = variables;
  input.local_seconds = 1'735'787'045;  // Thursday, 2 January 2025, 03:04:05
  input.limits = limits;
  return parsed->render(input);
}

std::string error_of(const std::string& source, const Json& variables = Json::object()) {
  auto text = render(source, variables);
  return text ? "no error: " + *text : text.error().text;
}

TEST(Jinja, AgreesWithJinja2) {
  const auto folder = std::filesystem::path(BOLIDE_SOURCE_DIR) / "tests/golden/jinja";
  ASSERT_TRUE(std::filesystem::is_directory(folder)) << folder;
  size_t cases = 0, failures = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    Json golden = Json::parse(file_text(entry.path()), nullptr, false);
    ASSERT_FALSE(golden.is_discarded()) << entry.path();
    for (const Json& one : golden["cases"]) {
      ++cases;
      const std::string source =
          one.contains("template") ? one["template"] : golden["templates"][one["family"].get<std::string>()];
      const Json& variables =
          one.contains("scenario") ? golden["scenarios"][one["scenario"].get<std::string>()] : golden["variables"];
      const auto text = render(source, variables);
      std::string got = text ? *text : "ERROR";
      const bool raises = one.contains("raises");
      if (!text && raises) got = text.error().text;
      std::string want = "ERROR";
      if (raises)
        want = fmt::format("t refuses the conversation: \"{}\"", one["raises"].get<std::string>());
      else if (one.contains("expected"))
        want = one["expected"];
      if (got == want) continue;
      if (++failures > 40) continue;
      ADD_FAILURE() << entry.path().filename() << ": " << source.substr(0, 300) << "\nvariables: " << variables.dump()
                    << "\nwant: " << want << "\ngot:  " << got << (text ? "" : "\n" + text.error().text);
    }
  }
  EXPECT_GT(cases, 500U);
  EXPECT_EQ(failures, 0U);
}

TEST(Jinja, ErrorsSayWhere) {
  EXPECT_EQ(error_of("ab\n  {{ x + }}"), "t: line 2, column 10: expected an expression, found '}}'");
  EXPECT_EQ(error_of("{% if x %}\na"), "t: line 2, column 1: the block that starts here has no 'endif'");
  EXPECT_EQ(error_of("{{ 'abc }}"), "t: line 1, column 4: this string has no end");
  EXPECT_EQ(error_of("\n\n{{ x.y }}"), "t: line 3: 'x' is undefined");
  EXPECT_EQ(error_of("{% include 'other' %}"), "t: line 1, column 4: the tag 'include' is not supported");
  EXPECT_EQ(ChatTemplate::parse("{% extends 'a' %}", "t").error().code, Code::kUnsupported);
  EXPECT_EQ(error_of("{{ raise_exception('roles must alternate') }}"),
            "t refuses the conversation: \"roles must alternate\"");
}

TEST(Jinja, EndlessTemplatesEndWithinSeconds) {
  const std::string sources[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace(s='x') %}{% for a in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='xy') %}{% for a in range(25) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"
      "{% for a in range(99999) %}{% set y = ns.s.find('yy') %}{% endfor %}",
      "{{ 'x' * 999999999999 }}",
      "{{ [0] * 999999999999 }}",
      "{{ '%999999999d' % 1 }}",
      "{{ 'x'.center(999999999) }}",
      "{{ 'a' | indent(999999999, true) }}",
      "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
      "{% set l = [1] %}{% set x = l.append(l) %}{{ l }}",
      "{% set ns = namespace(l=[1]) %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[1]) %}{% set ns.m = [1] %}{% for a in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "{% set ns = namespace(l=[]) %}{% for a in range(99999) %}{% set ns.l = ns.l + [a] %}{% endfor %}",
      "{% for a in range(99999) %}{% set x = range(99999) | list | tojson %}{% endfor %}",
  };
  for (const std::string& source : sources) {
    const std::clock_t start = std::clock();  // of the processor: the machine may be busy
    const auto text = render(source);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_FALSE(text.has_value()) << source;
    EXPECT_LT(seconds, kSecondsMax) << source << ": " << seconds;
  }
}

TEST(Jinja, DeepSourcesAreRefused) {
  const auto times = [](const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  EXPECT_FALSE(render("{{ " + times("(", 100000) + "1" + times(")", 100000) + " }}").has_value());
  EXPECT_FALSE(render("{{ " + times("[", 5000) + times("]", 5000) + " }}").has_value());
  EXPECT_FALSE(render("{{ " + times("-", 100000) + "1 }}").has_value());
  EXPECT_FALSE(render("{{ " + times("not ", 100000) + "1 }}").has_value());
  EXPECT_FALSE(render("{{ 1" + times(" + 1", 100000) + " }}").has_value());
  EXPECT_FALSE(render("{{ x" + times(".x", 100000) + " }}").has_value());
  EXPECT_FALSE(render("{{ x" + times("|list", 100000) + " }}").has_value());
  EXPECT_FALSE(render("{{ 1" + times(" if 1 else 1", 100000) + " }}").has_value());
  EXPECT_FALSE(render(times("{% if 1 %}", 50000)).has_value());
  EXPECT_FALSE(render(times("{% for x in y %}", 50000)).has_value());
  EXPECT_EQ(*render("{{ 1" + times(" + 1", 200) + " }}"), "201");
  // The deepest recursion that is allowed fits the stack of a small thread.
  std::thread([] {
    const std::string deep = "[[[[[[[[[[[[[[[[[[[[m(n - 1)]]]]]]]]]]]]]]]]]]]]";
    const auto text =
        render("{% macro m(n) %}{% if 1 %}{{ " + deep + " | first }}{% endif %}{% endmacro %}{{ m(99999) }}");
    EXPECT_FALSE(text.has_value());
  }).join();
}

TEST(Jinja, RendersFromManyThreads) {
  const auto parsed = ChatTemplate::parse(
      "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim }}{% if not loop.last %}{{ '\n' }}{% endif %}"
      "{% endfor %}",
      "t");
  ASSERT_TRUE(parsed.has_value());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&parsed, i] {
      for (int k = 0; k < 200; ++k) {
        ChatInput input;
        input.messages = Json::array({{{"role", "user"}, {"content", "  " + std::to_string(i * 1000 + k) + " "}},
                                      {{"role", "tool"}, {"content", "x"}}});
        const auto text = parsed->render(input);
        ASSERT_TRUE(text.has_value());
        EXPECT_EQ(*text, "<user>" + std::to_string(i * 1000 + k) + "\n<tool>x");
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace bolide
