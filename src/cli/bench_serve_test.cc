// bolide bench serve as it is typed, against servers that know and do not know its fields.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/cli.h"
#include "measure/load/scripted_server.h"

namespace bolide::cli {
namespace {

struct Said {
  int code = 0;
  std::string out, err;
};

Said run(std::vector<std::string> words) {
  words.insert(words.begin(), {"bolide", "bench", "serve"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Said said;
  said.code = run_program(static_cast<int>(argv.size()), argv.data(), Version{});
  said.out = ::testing::internal::GetCapturedStdout();
  said.err = ::testing::internal::GetCapturedStderr();
  return said;
}

void answer_json(load::Peer& peer, int status, std::string_view body) {
  peer.send(fmt::format("HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status,
                        body.size(), body));
}

// Lists one model; refuses requests that have `refused` in them.
std::function<void(load::Peer&)> server_without(const std::string& refused) {
  return [refused](load::Peer& peer) {
    for (std::string request = peer.next_request(); !request.empty(); request = peer.next_request()) {
      if (request.starts_with("GET /v1/models"))
        answer_json(peer, 200, R"({"object":"list","data":[{"id":"tiny"}]})");
      else if (!refused.empty() && request.find(refused) != std::string::npos)
        answer_json(peer, 400, R"({"error":{"message":"unknown field"}})");
      else if (!peer.answer(4, 1))
        return;
    }
  };
}

TEST(BenchServe, ReportsAsTextJsonAndPage) {
  load::ScriptedServer server(server_without(""));
  const auto page = std::filesystem::temp_directory_path() / fmt::format("bolide_load.{}.html", ::getpid());
  const Said said = run({server.url(), "--concurrency", "1,3", "--rate", "40", "--count", "60", "--duration", "3",
                         "--promise", "ttft=5s", "--json", "--html", page.string()});
  ASSERT_EQ(said.code, 0) << said.err;
  const auto json = nlohmann::json::parse(said.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << said.out;
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_TRUE(json["notes"].empty());
  ASSERT_EQ(json["points"].size(), 3u);
  EXPECT_EQ(json["points"][1]["load"]["concurrency"], 3);
  EXPECT_EQ(json["points"][2]["load"]["kind"], "open");
  for (const auto& point : json["points"]) {
    EXPECT_EQ(point["requests"]["ok"], 60);
    EXPECT_EQ(point["output_tokens_per_request"], 4);
    EXPECT_EQ(point["prompt_tokens_per_request"], 9);
    EXPECT_EQ(point["goodput"]["share"], 1);
    EXPECT_GT(point["ttft_ms"]["p99"]["value"].get<double>(), 0.5);
    EXPECT_GT(point["generator"]["processor_us_per_event"].get<double>(), 0);
  }
  const auto html = read_file(page);
  ASSERT_TRUE(html);
  EXPECT_NE(html->find("<svg"), std::string::npos);
  EXPECT_EQ(html->find("<script"), std::string::npos);
  EXPECT_EQ(html->find("src="), std::string::npos);
  EXPECT_EQ(html->find("nan"), std::string::npos);
  std::filesystem::remove(page);
}

TEST(BenchServe, LeavesOutWhatTheServerRefuses) {
  for (const char* field : {"ignore_eos", "stream_options"}) {
    load::ScriptedServer server(server_without(field));
    const Said said = run({server.url(), "--count", "3", "--output-tokens", "9"});
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_NE(said.out.find(std::string("note: the server refuses ") + field), std::string::npos) << said.out;
  }
}

TEST(BenchServe, AsksWhatAFileSays) {
  std::vector<std::string> seen;
  std::mutex mutex;
  load::ScriptedServer server([&](load::Peer& peer) {
    for (std::string request = peer.next_request(); !request.empty(); request = peer.next_request()) {
      const std::scoped_lock lock(mutex);
      seen.push_back(request);
      peer.answer(1, 0);
    }
  });
  const auto file = std::filesystem::temp_directory_path() / fmt::format("bolide_load.{}.jsonl", ::getpid());
  std::ofstream(file) << "{\"prompt\":\"first one\",\"output_tokens\":7}\n\n"
                         "{\"messages\":[{\"role\":\"system\",\"content\":\"second\"}]}\n";
  const Said said = run({server.url(), "--model", "m", "--count", "2", "--requests", file.string(), "--header",
                         "Authorization: Bearer k", "--extra", R"({"temperature":0})"});
  EXPECT_EQ(said.code, 0) << said.err;
  ASSERT_EQ(seen.size(), 3u);  // one to try
  EXPECT_NE(seen[1].find("first one"), std::string::npos);
  EXPECT_NE(seen[1].find("\"max_tokens\":7"), std::string::npos);
  EXPECT_NE(seen[1].find("Authorization: Bearer k\r\n"), std::string::npos);
  EXPECT_NE(seen[2].find(R"("messages":[{"role":"system","content":"second"}])"), std::string::npos);
  EXPECT_NE(seen[2].find("\"temperature\":0"), std::string::npos);
  std::ofstream(file) << "{\"prompt\":\"a\"}\n{\"prompt\":3}\n";
  const Said bad = run({server.url(), "--model", "m", "--requests", file.string()});
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find(":2: has neither"), std::string::npos) << bad.err;
  std::ofstream(file) << "{\"prompt\":\"a\",\"max_tokens\":99999999999999999999}\n";
  EXPECT_NE(run({server.url(), "--model", "m", "--requests", file.string()}).err.find("is not a number from 1"),
            std::string::npos);
  std::filesystem::remove(file);
}

TEST(BenchServe, RefusesWithAReason) {
  load::ScriptedServer server([](load::Peer& peer) {
    while (!peer.next_request().empty()) answer_json(peer, 401, R"({"error":{"message":"no key"}})");
  });
  const auto refused = [](std::vector<std::string> words, std::string_view says) {
    const Said said = run(std::move(words));
    EXPECT_EQ(said.code, 1);
    EXPECT_NE(said.err.find(says), std::string::npos) << said.err;
  };
  refused({"https://localhost"}, "https is not supported");
  refused({"http://localhost:1"}, "Connection refused; is the server running?");
  refused({server.url()}, "HTTP 401: no key); give --model");
  refused({server.url(), "--model", "m"}, "HTTP 401: no key");
  refused({server.url(), "--concurrency", "1,x"}, "--concurrency: \"x\"");
  refused({server.url(), "--concurrency", "1.5"}, "users come whole");
  refused({server.url(), "--rate", "-1"}, "--rate: \"-1\"");
  refused({server.url(), "--promise", "ttft=1"}, "--promise");
  refused({server.url(), "--extra", "[]"}, "--extra");
  refused({server.url(), "--header", "x\r\ny: z"}, "--header");
  load::ScriptedServer plain([](load::Peer& peer) {
    while (!peer.next_request().empty()) answer_json(peer, 200, "{}");
  });
  refused({plain.url(), "--model", "m"}, "no stream of events but application/json");
}

}  // namespace
}  // namespace bolide::cli
