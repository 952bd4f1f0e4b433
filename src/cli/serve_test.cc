// The whole server over a real, tiny model: as a registry in this process, and as a process of its own.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/cli.h"
#include "cli/served_models.h"
#include "engine/generator.h"
#include "formats/test_files.h"
#include "server/api.h"
#include "server/testing/http_client.h"

namespace bolide::cli {
namespace {

using Json = nlohmann::json;
using server::test::Answer;
using server::test::HttpClient;

std::string golden(const std::string& name) { return std::string(BOLIDE_SOURCE_DIR) + "/tests/golden/models/" + name; }

ServedModelOptions options() {
  ServedModelOptions options;
  options.model.threads = 1;
  options.model.context = 160;
  options.model.sequences = 4;
  options.model.deterministic = true;
  return options;
}

std::vector<int32_t> prompt_of(uint32_t seed, size_t count) {
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((seed * 7919 + i * 104729) % 200));
  return ids;
}

// What `bolide run` would answer.
std::string text_alone(const std::string& path, const std::vector<int32_t>& prompt, int32_t tokens) {
  auto model = open_model(path, options().model);
  EXPECT_TRUE(model.has_value()) << model.error().text;
  Generator generator(*model->runner, model->tokenizer);
  GenerateRequest request;
  request.prompt = prompt;
  request.tokens_max = tokens;
  std::string text;
  const auto done = generator.generate(request, [&](std::string_view piece) { text += piece; });
  EXPECT_TRUE(done.has_value()) << done.error().text;
  return text;
}

TEST(Serve, NamesOfModels) {
  const auto name = [](const std::string& argument) { return split_model_argument(argument).first; };
  EXPECT_EQ(name("a/b/model.gguf"), "model");
  EXPECT_EQ(name("a/folder/"), "folder");
  EXPECT_EQ(name("synth:smollm2-135m"), "smollm2-135m");
  EXPECT_EQ(split_model_argument("synth:smollm2-135m:layers=1").second, "synth:smollm2-135m:layers=1");
  EXPECT_EQ(split_model_argument("a=synth:smollm2-135m:seed=1").second, "synth:smollm2-135m:seed=1");
  EXPECT_EQ(name("small=a/b.gguf"), "small");
  EXPECT_EQ(split_model_argument("small=a/b.gguf").second, "a/b.gguf");
  EXPECT_EQ(name("a/x=y.gguf"), "x=y");
}

TEST(Serve, AnswersAreThoseOfTheModelAlone) {
  ServedModels models(options());
  ASSERT_TRUE(models.add("a=" + golden("qwen2")).has_value());
  ASSERT_TRUE(models.add("b=" + golden("qwen3")).has_value());
  EXPECT_FALSE(models.add("a=" + golden("qwen3")).has_value()) << "two of one name";
  EXPECT_FALSE(models.add("c=" + golden("absent")).has_value());
  EXPECT_FALSE(models.add("c d=" + golden("qwen3")).has_value());
  std::unique_ptr<server::HttpServer> http;
  server::Api api(models, {}, *server::Metrics::make(""));
  server::HttpOptions http_options;
  http_options.port = 0;
  auto started = server::HttpServer::start(
      http_options, [&](const auto& exchange) { api.handle(exchange); }, server::Api::error_body);
  ASSERT_TRUE(started.has_value()) << started.error().text;
  http = *std::move(started);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      const bool first = i % 2 == 0;
      const std::vector<int32_t> prompt = prompt_of(i, 5 + i * 9);
      const Json body = {{"model", first ? "a" : "b"},
                         {"prompt", prompt},
                         {"max_tokens", 12},
                         {"temperature", 0},
                         {"ignore_eos", true}};
      const Answer answer = server::test::post(http->port(), "/v1/completions", body.dump());
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(Json::parse(answer.body)["choices"][0]["text"],
                text_alone(golden(first ? "qwen2" : "qwen3"), prompt, 12));
    });
  for (std::thread& thread : threads) thread.join();

  EXPECT_TRUE(models.unload("b").has_value());
  EXPECT_EQ(models.find("b"), nullptr);
  EXPECT_EQ(server::test::post(http->port(), "/v1/completions", R"({"model":"b","prompt":[1]})").status, 404);
  EXPECT_EQ(server::test::get(http->port(), "/health/ready").status, 200) << "what is not wanted is not missed";
  EXPECT_TRUE(models.load("b").has_value());
  EXPECT_EQ(server::test::post(http->port(), "/v1/completions", R"({"model":"b","prompt":[1]})").status, 200);
  EXPECT_FALSE(models.unload("c").has_value());
  models.drain();
  EXPECT_TRUE(models.wait_idle(5'000'000));
  models.stop();
  http->drain();
  http->stop();
}

// `bolide serve` in a child; what it says on standard error is read up to the address.
class Process {
 public:
  explicit Process(std::vector<std::string> words) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      ::_exit(run_program(static_cast<int>(argv.size()), argv.data(), Version{}));
    }
    ::close(ends[1]);
    errors_ = ends[0];
    const std::string_view before = "http://127.0.0.1:";
    char bytes[4096];
    for (ssize_t n = 0;
         said_.find("Ctrl-C ends") == std::string::npos && (n = ::read(errors_, bytes, sizeof bytes)) > 0;)
      said_.append(bytes, static_cast<size_t>(n));
    if (const size_t at = said_.find(before); at != std::string::npos)
      port_ = static_cast<uint16_t>(std::atoi(said_.c_str() + at + before.size()));
  }
  ~Process() {
    if (child_ > 0) ::kill(child_, SIGKILL);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
    ::close(errors_);
  }
  uint16_t port() const { return port_; }
  const std::string& said() const { return said_; }
  void signal(int number) const { ::kill(child_, number); }
  // All that it says, until it ends.
  const std::string& rest() {
    char bytes[4096];
    for (ssize_t n = 0; (n = ::read(errors_, bytes, sizeof bytes)) > 0;) said_.append(bytes, static_cast<size_t>(n));
    return said_;
  }
  // The exit code, or 1000 and the signal.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t child_ = -1;
  int errors_ = -1;
  uint16_t port_ = 0;
  std::string said_;
};

std::vector<std::string> words(std::vector<std::string> more = {}) {
  std::vector<std::string> all = {"bolide", "serve",     golden("qwen2"), "--port",   "0",  "--threads",
                                  "1",      "--context", "160",           "--device", "cpu"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Serve, TermLetsStreamsEnd) {
  Process process(words());
  ASSERT_NE(process.port(), 0) << process.said();
  EXPECT_EQ(server::test::get(process.port(), "/health/ready").status, 200);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<HttpClient>(process.port()));
    const Json body = {{"prompt", {i, 2, 3}}, {"max_tokens", 120}, {"stream", true}, {"ignore_eos", true}};
    clients.back()->send_post("/v1/completions", body.dump());
    ASSERT_TRUE(clients.back()->receive_until("data: "));
  }
  process.signal(SIGTERM);
  for (auto& client : clients) {
    const Answer answer = client->read_answer();
    EXPECT_TRUE(answer.complete);
    EXPECT_NE(answer.body.find("data: [DONE]"), std::string::npos);
  }
  EXPECT_EQ(process.wait(), 0);
}

TEST(Serve, ASecondSignalEndsAtOnce) {
  Process process(words({"--drain-seconds", "100", "--context", "100000", "--cache-tokens", "100000"}));
  ASSERT_NE(process.port(), 0) << process.said();
  HttpClient client(process.port());
  client.send_post("/v1/completions", R"({"prompt":[1,2],"max_tokens":90000,"stream":true,"ignore_eos":true})");
  ASSERT_TRUE(client.receive_until("data: "));
  process.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 1000 + SIGTERM);
}

// A step of many seconds, as far as anybody knows for ever.
TEST(Serve, AStepThatDoesNotEndIsLeftBehind) {
  Process process(words(
      {"--drain-seconds", "0.2", "--context", "100000", "--cache-tokens", "100000", "--tokens-per-step", "100000"}));
  ASSERT_NE(process.port(), 0) << process.said();
  HttpClient whole(process.port()), stream(process.port());
  const Json body = {{"prompt", prompt_of(1, 90'000)}, {"max_tokens", 5}};
  Json streamed = body;
  streamed["stream"] = true;
  whole.send_post("/v1/completions", body.dump());
  stream.send_post("/v1/completions", streamed.dump());
  ASSERT_TRUE(stream.receive_until("text/event-stream"));
  ASSERT_TRUE(server::test::becomes([&] {
    const std::string metrics = server::test::get(process.port(), "/metrics").body;
    return metrics.find("bolide_num_requests_waiting{model_name=\"qwen2\"} 1\n") != std::string::npos;
  })) << "one is in the step, one waits";
  const auto begun = std::chrono::steady_clock::now();
  process.signal(SIGTERM);
  const Answer cut = whole.read_answer();
  EXPECT_EQ(cut.status, 503) << cut.body;
  EXPECT_NE(stream.read_answer().body.find(R"({"error":)"), std::string::npos);
  EXPECT_EQ(process.wait(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  EXPECT_NE(process.rest().find("bolide: error: a step of qwen2 did not end"), std::string::npos) << process.said();
}

// Load balancers see that it ends before it refuses anything.
TEST(Serve, ReadinessIsRedBeforeRequestsAreRefused) {
  Process process(words({"--drain-delay", "4", "--metrics-port", "0"}));
  ASSERT_NE(process.port(), 0) << process.said();
  const size_t at = process.said().find("/metrics is on port ");
  ASSERT_NE(at, std::string::npos) << process.said();
  const auto metrics_port = static_cast<uint16_t>(std::atoi(process.said().c_str() + at + 20));
  EXPECT_EQ(server::test::get(process.port(), "/metrics").status, 404);
  EXPECT_EQ(server::test::get(metrics_port, "/metrics").status, 200);
  process.signal(SIGTERM);
  for (const uint16_t port : {process.port(), metrics_port})
    EXPECT_TRUE(server::test::becomes([&] { return server::test::get(port, "/health/ready").status == 503; }));
  const Answer answer = server::test::post(process.port(), "/v1/completions", R"({"prompt":[1],"max_tokens":2})");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
  EXPECT_EQ(process.wait(), 0);
}

TEST(Serve, AHangupReadsModelsAndKeysAnew) {
  const ::bolide::test::TemporaryFolder folder;
  const auto configure = [&](const std::string& models, const std::string& keys) {
    folder.write("keys", keys);
    return folder.write("serve.yaml", "models: {" + models + "}\nport: 0\nthreads: 1\ncontext: 160\ndevice: cpu\n" +
                                          "api-key-file: " + (folder.path() / "keys").string() + "\n");
  };
  const std::string alice = "alice alice-key-0123456789\n", bob = "bob bob-key-0123456789\n";
  const std::string a = "a: " + golden("qwen2"), b = "b: " + golden("qwen3");
  const std::string path = configure(a, alice);
  Process process({"bolide", "serve", "--config", path});
  ASSERT_NE(process.port(), 0) << process.said();
  const auto models_of = [&](const std::string& name) -> std::vector<std::string> {
    const Answer answer = server::test::get(process.port(), "/v1/models", "x-api-key: " + name + "-key-0123456789\r\n");
    if (answer.status != 200) return {std::to_string(answer.status)};
    std::vector<std::string> names;
    const Json body = Json::parse(answer.body);
    for (const Json& model : body["data"]) names.push_back(model["id"]);
    return names;
  };
  const auto becomes = [&](const std::string& key, const std::vector<std::string>& wanted) {
    for (int i = 0; i < 1000 && models_of(key) != wanted; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return models_of(key) == wanted;
  };
  EXPECT_EQ(models_of("alice"), std::vector<std::string>{"a"});
  EXPECT_EQ(models_of("bob"), std::vector<std::string>{"401"});

  configure(a + ", " + b, alice + bob);
  process.signal(SIGHUP);
  EXPECT_TRUE(becomes("bob", {"a", "b"}));
  EXPECT_EQ(models_of("alice"), (std::vector<std::string>{"a", "b"}));

  // A fault changes nothing, and does not end the server.
  configure("c: [", bob);
  process.signal(SIGHUP);
  configure(b + ", absent: /no/such/model", bob);
  process.signal(SIGHUP);
  EXPECT_TRUE(becomes("bob", {"b"}));
  EXPECT_TRUE(becomes("alice", {"401"}));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 0);
}

// A page cannot turn its own name into this machine's address and ask on the user's behalf.
TEST(Serve, ByAnotherNameItAnswersOnlyIfEverybodyMayAsk) {
  for (const bool anybody : {false, true}) {
    Process process(words(anybody ? std::vector<std::string>{"--no-auth"} : std::vector<std::string>()));
    ASSERT_NE(process.port(), 0) << process.said();
    HttpClient own(process.port()), other(process.port());
    EXPECT_EQ(own.get("/v1/models").status, 200);
    other.send("GET /v1/models HTTP/1.1\r\nHost: pages.example\r\n\r\n");
    EXPECT_EQ(other.read_answer().status, anybody ? 200 : 403);
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 0);
  }
}

TEST(Serve, AnOpenServerMustBeMeant) {
  for (const auto& more : std::vector<std::vector<std::string>>{{"--host", "0.0.0.0"},
                                                                {"--tls-cert", "x.pem"},
                                                                {"--no-auth", "--api-key-file", "x"},
                                                                {"--grpc-port", "0", "--grpc-host", "0.0.0.0"},
                                                                {"--grpc-host", "127.0.0.1"},
                                                                {"--host", "nowhere"},
                                                                {"--metrics-host", "127.0.0.1"},
                                                                {"--metrics-port", "0", "--metrics-host", "0.0.0.0"}}) {
    Process process(words(more));
    EXPECT_EQ(process.port(), 0);
    EXPECT_EQ(process.wait(), 1) << process.said();
    EXPECT_NE(process.said().find("bolide: error: --"), std::string::npos) << process.said();
  }
}

}  // namespace
}  // namespace bolide::cli
