#include "server/batch/batch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/file.h"
#include "formats/test_files.h"
#include "server/testing/fake_server.h"

namespace bolide::server {
namespace {

using Json = nlohmann::json;
using Path = std::filesystem::path;
using bolide::test::TemporaryFolder;
using test::FakeServer;

struct Asked {
  std::string line, text;  // the answer's; empty: the request fails
  int status = 200;
  int64_t prompt_tokens = 0, completion_tokens = 0;
};
using AllAsked = std::map<std::string, Asked>;

std::vector<int32_t> ids_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

Asked random_request(const FakeServer& server, const std::string& id, std::mt19937& random) {
  Asked asked;
  const auto tokens = static_cast<int32_t>(1 + random() % 20);
  const bool chat = random() % 2 == 0;
  const std::string said = "request " + id + std::string(random() % 20, '!');
  const std::vector<int32_t> prompt = ids_of(chat ? "[user]" + said + "[a]" : said);
  Json body = {{"max_tokens", tokens}};
  if (chat)
    body["messages"] = {{{"role", "user"}, {"content", said}}};
  else
    body["prompt"] = said;
  if (random() % 2 == 0) body["model"] = "fake";
  asked.text = server.expected(prompt, tokens);
  asked.prompt_tokens = static_cast<int64_t>(prompt.size());
  asked.completion_tokens = tokens;
  switch (random() % 12) {
    case 0: body["best"] = true, asked.status = 400; break;
    case 1: body["model"] = "other", asked.status = 404; break;
    case 2: body["stop"] = Json::array({1}), asked.status = 400; break;
    default: break;
  }
  asked.line = Json{
      {"custom_id", id},
      {"method", "POST"},
      {"url", chat ? "/v1/chat/completions" : "/v1/completions"},
      {"body",
       body}}.dump();
  return asked;
}

AllAsked random_requests(const FakeServer& server, size_t count, std::mt19937& random) {
  AllAsked all;
  for (size_t i = 0; i < count; ++i) {
    const std::string id = "r" + std::to_string(i);
    all[id] = random_request(server, id, random);
  }
  return all;
}

std::string file_of(const AllAsked& all, std::mt19937& random) {
  std::vector<std::string> lines;
  for (const auto& [id, asked] : all) lines.push_back(asked.line + (random() % 2 == 0 ? "\r\n" : "\n"));
  std::shuffle(lines.begin(), lines.end(), random);
  std::string file = "\xEF\xBB\xBF";
  for (const std::string& line : lines) file += line + (random() % 5 == 0 ? " \n" : "");
  return file;
}

struct Ran {
  Result<bool> done;
  BatchCounts counts;
};

// One run over the file, as the program has it.
Ran run(FakeServer& server, const Path& requests, const Path& answers, const BatchOptions& options,
        FunctionRef<BatchOrder(const BatchCounts&)> order, bool retry_errors = false) {
  IdTable ids;
  const auto checked = check_batch_file(requests, &ids, [](const BatchLine&) { return ok(); }, [](uint64_t) {});
  if (!checked) return {checked.error(), {}};
  auto ledger = Ledger::open(answers, {retry_errors}, &ids, [](uint64_t) {});
  if (!ledger) return {ledger.error(), {}};
  Batch batch(server.api(), server.models(), **ledger, options);
  auto done = batch.run(requests, &ids, order);
  if (!done || !*done) server.engine().stop();
  return {std::move(done), batch.counts()};
}

const auto kGoOn = [](const BatchCounts&) { return BatchOrder::kGo; };

std::map<std::string, Json> answers_in(const Path& path) {
  std::map<std::string, Json> answers;
  const auto content = read_file(path);
  EXPECT_TRUE(content.has_value());
  std::string_view rest = *content;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    EXPECT_NE(end, std::string_view::npos) << rest;
    Json line = Json::parse(rest.substr(0, end));
    const std::string id = line["custom_id"];
    EXPECT_TRUE(answers.emplace(id, std::move(line)).second) << id << " is there twice";
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return answers;
}

void expect_answered(const AllAsked& all, const Path& path) {
  const auto answers = answers_in(path);
  EXPECT_EQ(answers.size(), all.size());
  for (const auto& [id, asked] : all) {
    const auto answer = answers.find(id);
    ASSERT_NE(answer, answers.end()) << id;
    const Json& response = answer->second["response"];
    EXPECT_EQ(response["status_code"], asked.status) << response;
    if (asked.status != 200) {
      EXPECT_EQ(answer->second["error"]["message"], response["body"]["error"]["message"]);
      continue;
    }
    const Json& choice = response["body"]["choices"][0];
    EXPECT_EQ(choice.contains("message") ? choice["message"]["content"] : choice["text"], asked.text) << id;
    EXPECT_TRUE(answer->second["error"].is_null());
  }
}

FakeServer::Options server_options() {
  FakeServer::Options options;
  options.api.long_body_bytes = std::numeric_limits<size_t>::max();
  return options;
}

TEST(Batch, EveryRequestGetsItsAnswer) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  FakeServer server(server_options());
  const AllAsked all = random_requests(server, 300, random);
  const Path requests = folder.write("requests", file_of(all, random)), answers = folder.path() / "answers";
  BatchOptions options;
  options.under_way_max = 7;
  size_t most = 0;
  const auto watch = [&](const BatchCounts& counts) {
    most = std::max(most, counts.under_way);
    return BatchOrder::kGo;
  };
  const Ran ran = run(server, requests, answers, options, watch);
  ASSERT_TRUE(ran.done.has_value()) << ran.done.error().text;
  EXPECT_TRUE(*ran.done);
  EXPECT_LE(most, 7u);
  expect_answered(all, answers);
  BatchCounts expected;
  for (const auto& [id, asked] : all) {
    (asked.status == 200 ? expected.answered : expected.failed) += 1;
    if (asked.status != 200) continue;
    expected.prompt_tokens += asked.prompt_tokens;
    expected.completion_tokens += asked.completion_tokens;
  }
  EXPECT_EQ(ran.counts.answered, expected.answered);
  EXPECT_EQ(ran.counts.failed, expected.failed);
  EXPECT_EQ(ran.counts.prompt_tokens, expected.prompt_tokens);
  EXPECT_EQ(ran.counts.completion_tokens, expected.completion_tokens);
  EXPECT_EQ(ran.counts.under_way, 0u);

  const std::string before = *read_file(answers);
  const Ran again = run(server, requests, answers, options, kGoOn);
  ASSERT_TRUE(again.done.has_value() && *again.done);
  EXPECT_EQ(again.counts.answered + again.counts.failed, 0) << "who has an answer is not asked again";
  EXPECT_EQ(*read_file(answers), before);
  const Ran retried = run(server, requests, answers, options, kGoOn, /*retry_errors=*/true);
  ASSERT_TRUE(retried.done.has_value() && *retried.done);
  EXPECT_EQ(retried.counts.answered, 0);
  EXPECT_EQ(retried.counts.failed, expected.failed);
  expect_answered(all, answers);
}

// Ended at any place, by either order, by an engine that fails: what has no answer gets one from the next run.
TEST(Batch, GoesOnWhereItWasEnded) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const TemporaryFolder folder;
  const AllAsked all = random_requests(FakeServer(server_options()), 200, random);
  const Path requests = folder.write("requests", file_of(all, random)), answers = folder.path() / "answers";
  BatchOptions options;
  options.under_way_max = 1 + random() % 20;
  options.sync_every = std::chrono::seconds(0);
  for (int round = 0; round < 6; ++round) {
    std::atomic<int> steps{0};
    const int fails_at = round % 3 == 2 ? static_cast<int>(5 + random() % 20) : 1 << 30;
    FakeServer::Options slow = server_options();
    slow.on_submit = [&](const StepBatch&) -> Result<> {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (++steps > fails_at) return error(Code::kInternal, "the device is gone");
      return {};
    };
    FakeServer server(slow);
    const BatchOrder last = round % 3 == 0 ? BatchOrder::kEnd : BatchOrder::kEndNow;
    int looks = round % 3 == 2 ? 1 << 30 : 1 + static_cast<int>(random() % 2);
    const Ran ran = run(server, requests, answers, options,
                        [&](const BatchCounts&) { return looks-- > 0 ? BatchOrder::kGo : last; });
    if (ran.done.has_value()) continue;
    EXPECT_EQ(ran.done.error().code, Code::kUnavailable);
    EXPECT_NE(ran.done.error().text.find("the device is gone"), std::string::npos) << ran.done.error().text;
  }
  for (const auto& [id, answer] : answers_in(answers)) {
    const int status = answer["response"]["status_code"];
    EXPECT_EQ(status, all.at(id).status) << "what befell the program is no answer: " << answer;
  }
  FakeServer server(server_options());
  const Ran ran = run(server, requests, answers, options, kGoOn);
  ASSERT_TRUE(ran.done.has_value()) << ran.done.error().text;
  EXPECT_TRUE(*ran.done);
  expect_answered(all, answers);
}

TEST(Batch, LargeRequestsGoOneByOne) {
  std::mt19937 random(1);
  const TemporaryFolder folder;
  std::atomic<size_t> most{0};
  FakeServer::Options counting = server_options();
  counting.on_submit = [&](const StepBatch& batch) -> Result<> {
    most = std::max(most.load(), batch.items.size());
    return {};
  };
  FakeServer server(counting);
  const AllAsked all = random_requests(server, 40, random);
  BatchOptions options;
  options.bytes_max = 10;
  const Path answers = folder.path() / "answers";
  const Ran ran = run(server, folder.write("requests", file_of(all, random)), answers, options, kGoOn);
  ASSERT_TRUE(ran.done.has_value()) << ran.done.error().text;
  EXPECT_EQ(most, 1u);
  expect_answered(all, answers);
}

TEST(Batch, FaultsOfTheFileAreFoundFirst) {
  const TemporaryFolder folder;
  const auto line = [](const std::string& id) {
    return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})" + "\n";
  };
  const auto refused = [&](const std::string& content, const std::string& says) {
    IdTable ids;
    const auto checked = check_batch_file(
        folder.write("requests", content), &ids,
        [](const BatchLine& one) { return one.custom_id == "bad" ? error(Code::kInvalid, "is bad") : Result<>(); },
        [](uint64_t) {});
    ASSERT_FALSE(checked.has_value()) << content;
    EXPECT_NE(checked.error().text.find(says), std::string::npos) << checked.error().text;
  };
  refused(line("a") + "\n" + line("b") + line("c") + line("b"), "requests:5: custom_id \"b\" is that of line 3 too");
  refused(line("a") + line("bad"), "requests:2: is bad");
  refused(line("a") + "{}\n", "requests:2: custom_id: is required");
  refused(line("a") + line("b").substr(0, 30), "requests:2: is no valid JSON: it ends at");
}

}  // namespace
}  // namespace bolide::server
