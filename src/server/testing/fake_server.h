// A server over a FakeRunner: real sockets, a scripted model.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "engine/testing/fake_runner.h"
#include "formats/tokenizer_json.h"
#include "server/api.h"
#include "server/served_network.h"
#include "server/testing/http_client.h"

namespace bolide::server::test {

// Token i below 256 is byte i (as GPT-2 writes bytes), those above are words: "<300>".
inline Tokenizer fake_tokenizer() {
  std::string vocab;
  int32_t others = 0;
  for (int32_t id = 0; id < FakeRunner::kVocab; ++id) {
    std::string text;
    if (id < 256) {
      const bool plain = (id >= 0x21 && id <= 0x7e) || (id >= 0xa1 && id <= 0xac) || id >= 0xae;
      text = fmt::format("\\u{:04x}", plain ? id : 256 + others);
      others += plain ? 0 : 1;
    } else {
      text = fmt::format("<{}>", id);
    }
    vocab += fmt::format("{}\"{}\":{}", id == 0 ? "" : ",", text, id);
  }
  auto spec = parse_tokenizer_json(
      R"({"model":{"type":"BPE","merges":[],"vocab":{)" + vocab +
      R"(}},"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}})");
  EXPECT_TRUE(spec.has_value()) << spec.error().text;
  auto made = Tokenizer::create(*std::move(spec));
  EXPECT_TRUE(made.has_value()) << made.error().text;
  return *std::move(made);
}

inline SchedulerOptions fake_limits() {
  SchedulerOptions options;
  options.blocks = 4000;
  options.block_tokens = 4;
  options.context = 256;
  options.sequences_max = 64;
  options.tokens_per_step = 512;
  return options;
}

class FakeRegistry final : public ModelRegistry {
 public:
  std::shared_ptr<const ServedModel> find(std::string_view name) const override {
    if (on_find) on_find();
    return name == model->name && state == "READY" ? model : nullptr;
  }
  std::shared_ptr<const ServedNetwork> find_network(std::string_view name) const override {
    return network != nullptr && name == network->name ? network : nullptr;
  }
  std::vector<ModelEntry> list() const override {
    std::vector<ModelEntry> all = {{model->name, state, state == "READY" ? "" : "is not"},
                                   {"absent", "UNAVAILABLE", "unloaded"}};
    if (network != nullptr) all.push_back({network->name, "READY", ""});
    return all;
  }
  Result<> load(std::string_view name) override { return change(name, "load"); }
  Result<> unload(std::string_view name) override { return change(name, "unload"); }
  std::vector<DeviceMemory> device_memory() const override { return devices; }

  std::shared_ptr<ServedModel> model;
  std::shared_ptr<ServedNetwork> network;  // may be null
  std::function<Result<>(std::string_view name, std::string_view what)> change = [](auto, auto) { return ok(); };
  std::string state = "READY";    // set before anybody asks, as what follows
  std::function<void()> on_find;  // may throw
  std::vector<DeviceMemory> devices;
};

// Its parts end in the order that `bolide serve` has: handlers, engine, connections.
class FakeServer {
 public:
  static constexpr int32_t kEnd = 256;

  struct Options {
    EngineOptions engine;
    ApiOptions api;
    HttpOptions http;
    SchedulerOptions limits = fake_limits();
    std::string keys, compat;
    std::function<Result<>(const StepBatch&)> on_submit;
    std::shared_ptr<ServedNetwork> network;
    std::function<Result<>(std::string_view name, std::string_view what)> on_change;
    std::string model_state = "READY";
    std::function<void()> on_find;  // of the registry
    std::vector<DeviceMemory> devices;
    std::vector<int32_t> stop_ids;
    std::string answer;  // what every answer is, and then an end of text; empty: what the runner makes up
    std::string chat_template =
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}";
  };
  FakeServer() : FakeServer(Options()) {}
  explicit FakeServer(Options options) : options_(std::move(options)) {
    auto runner = std::make_unique<FakeRunner>(options_.limits);
    runner->on_submit = options_.on_submit;
    if (!options_.answer.empty()) {
      options_.stop_ids = {kEnd};
      runner->script = [answer = options_.answer](const Request&, int32_t at) {
        return at < static_cast<int32_t>(answer.size()) ? static_cast<unsigned char>(answer[static_cast<size_t>(at)])
                                                        : kEnd;
      };
    }
    engine_ = std::make_shared<Engine>(std::move(runner), options_.engine);
    static const Tokenizer tokenizer = fake_tokenizer();
    auto chat_template = ChatTemplate::parse(options_.chat_template, "test");
    registry_.model = std::make_shared<ServedModel>(ServedModel{.name = "fake",
                                                                .format = "fake",
                                                                .device = "none",
                                                                .created = 1,
                                                                .tokenizer = tokenizer,
                                                                .chat_template = *std::move(chat_template),
                                                                .generation = {},
                                                                .stop_ids = options_.stop_ids,
                                                                .context = options_.limits.context,
                                                                .vocab = FakeRunner::kVocab,
                                                                .engine = engine_});
    registry_.network = options_.network;
    if (options_.on_change) registry_.change = options_.on_change;
    std::unique_ptr<ApiKeys> keys;
    if (!options_.keys.empty()) {
      auto parsed = ApiKeys::parse(options_.keys, "keys", 99);
      EXPECT_TRUE(parsed.has_value()) << parsed.error().text;
      keys = *std::move(parsed);
    }
    registry_.state = options_.model_state;
    registry_.on_find = options_.on_find;
    registry_.devices = options_.devices;
    options_.http.port = 0;
    options_.http.threads = 2;
    api_ = std::make_unique<Api>(registry_, options_.api, *Metrics::make(options_.compat), std::move(keys));
    api_->set_http_stats([this] {
      const HttpServer* server = listening_;
      return server != nullptr ? server->stats() : HttpStats();
    });
    http_ = start(Listener::kMain);
    listening_ = http_.get();
    if (options_.api.metrics_listener) watched_ = start(Listener::kMetrics);
  }
  ~FakeServer() {
    engine_->stop();
    if (registry_.network != nullptr) registry_.network->queue->stop();
    for (HttpServer* server : {http_.get(), watched_.get()}) {
      if (server == nullptr) continue;
      server->drain();
      server->stop();
    }
    api_.reset();
    http_.reset();
  }

  uint16_t port() const { return http_->port(); }
  uint16_t metrics_port() const { return watched_->port(); }  // if there is a listener of metrics
  Engine& engine() { return *engine_; }
  HttpServer& http() { return *http_; }
  Api& api() { return *api_; }
  const ServedModel& model() const { return *registry_.model; }
  const ModelRegistry& models() const { return registry_; }

  // The ids that the engine gives for this prompt.
  std::vector<int32_t> expected_ids(std::vector<int32_t> prompt, int32_t tokens_max, int32_t choice = 0) const {
    Request request;
    request.prompt = std::move(prompt);
    request.tokens_max = tokens_max;
    request.stop_ids = options_.stop_ids;
    return FakeRunner::answer(options_.limits, request, choice);
  }
  std::string expected(std::vector<int32_t> prompt, int32_t tokens_max, int32_t choice = 0) const {
    std::vector<int32_t> ids = expected_ids(std::move(prompt), tokens_max, choice);
    if (!ids.empty() &&
        std::find(options_.stop_ids.begin(), options_.stop_ids.end(), ids.back()) != options_.stop_ids.end())
      ids.pop_back();
    return model().tokenizer.decode(ids);
  }
  // Until the engine has nothing to do.
  bool wait_idle() { return engine_->wait_idle(30'000'000); }

 private:
  std::unique_ptr<HttpServer> start(Listener listener) {
    auto started = HttpServer::start(
        options_.http, [this, listener](const auto& exchange) { api_->handle(exchange, listener); }, Api::error_body,
        [this, listener](const HttpRequest& head, uint64_t* bytes) { return api_->admit(head, bytes, listener); });
    EXPECT_TRUE(started.has_value()) << started.error().text;
    return *std::move(started);
  }

  Options options_;
  FakeRegistry registry_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<HttpServer> http_, watched_;
  std::atomic<HttpServer*> listening_{nullptr};  // the same, for the server's threads
  std::unique_ptr<Api> api_;
};

}  // namespace bolide::server::test
