// Api: what the server answers at which address: OpenAI's routes, health, and what belongs to them. KServe's are
// Kserve's.
//
// Thread rules: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/api_keys.h"
#include "server/http.h"
#include "server/kserve.h"
#include "server/long_work.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/wishes.h"

namespace bolide::server {

// Where a request came in.
enum class Listener : uint8_t { kMain, kMetrics };

struct ApiOptions {
  RequestLimits limits;
  std::string version;
  size_t body_bytes_max = 16u << 20;     // of OpenAI's routes
  int64_t request_us_max = 600'000'000;  // from the request to the end of its answers
  int text_threads = 1;                  // for what takes long to tokenise
  size_t long_body_bytes = 64 * 1024;    // that is bodies beyond this: below it is less than a few milliseconds
  bool model_control = true;             // requests may load and unload models
  // Refuse requests that call this machine by another name: a browser sends a page's requests here under the page's own
  // name once that name's address has been changed to this one (DNS rebinding).
  bool loopback_names_only = false;
  // Of Listener::kMetrics, which has /metrics and health alone; without it /metrics is on the main one.
  struct MetricsListener {
    bool needs_key = true;  // as the main one does: where there are keys
    bool loopback_names_only = false;
  };
  std::optional<MetricsListener> metrics_listener;
};

class Api {
 public:
  // `keys`: null: everybody may ask.
  Api(ModelRegistry& registry, const ApiOptions& options, std::unique_ptr<Metrics> metrics,
      std::unique_ptr<ApiKeys> keys = nullptr);
  ~Api() {
    text_.stop();
    calls_.stop();
  }

  void handle(const std::shared_ptr<HttpExchange>& exchange, Listener listener = Listener::kMain);
  // For HttpServer: what is refused by its head alone, and how long its body may be.
  std::optional<HttpResponse> admit(const HttpRequest& head, uint64_t* body_bytes_max,
                                    Listener listener = Listener::kMain);
  // The keys of this text from now on. Errors: those of ApiKeys::parse, and then nothing has changed; kInvalid: there
  // were none before.
  Result<> replace_keys(std::string_view text, std::string_view label, uint64_t secret);
  // Who asks, for as long as the keys are; null: nobody that may, and `refusal` says why, with its status. Who calls
  // this machine by a wrong name may not, whatever the key.
  const ApiKey* caller_of(const HttpRequest& head, int* status, std::string* refusal) const;
  // Whether it may ask for what is open to all.
  bool calls_us_rightly(const HttpRequest& head, std::string* refusal) const;
  // "ready", or why not.
  std::string state() const;
  KserveCalls& kserve_calls() { return calls_; }
  void count_refusal(int status) { metrics_->refused(status); }
  // From now on not ready.
  void set_draining() { draining_ = true; }
  bool is_draining() const { return draining_; }
  // Where the metrics of connections come from; set before the first request.
  void set_http_stats(std::function<HttpStats()> stats) { http_stats_ = std::move(stats); }
  // For HttpServer: as the API has it that the path belongs to.
  static HttpResponse error_body(int status, std::string_view what, std::string_view path);

 private:
  struct Route;
  static const Route kRoutes[], kKserve;
  using Shared = std::shared_ptr<HttpExchange>;

  void live(const Shared& exchange, const ApiKey& caller);
  void ready(const Shared& exchange, const ApiKey& caller);
  void version(const Shared& exchange, const ApiKey& caller);
  void metrics(const Shared& exchange, const ApiKey& caller);
  void kserve(const Shared& exchange, const ApiKey& caller);
  void timeline(const Shared& exchange, const ApiKey& caller);
  void models(const Shared& exchange, const ApiKey& caller);
  void model(const Shared& exchange, const ApiKey& caller);
  void chat(const Shared& exchange, const ApiKey& caller);
  void completions(const Shared& exchange, const ApiKey& caller);
  void playground(const Shared& exchange, const ApiKey& caller);
  void tokenize(const Shared& exchange, const ApiKey& caller);
  void detokenize(const Shared& exchange, const ApiKey& caller);

  // With no keys at all somebody without a name.
  const ApiKey* key_of(const HttpRequest& request) const;
  bool calls_us_rightly(const HttpRequest& request, Listener listener, std::string* refusal) const;
  const Route* route_of(const HttpRequest& request, Listener listener, HttpResponse* refusal,
                        const ApiKey** caller) const;
  bool has(Listener listener, const Route& route) const;
  size_t body_limit(const Route& route) const;
  // Answers, and counts, what no engine saw.
  void refuse(const Shared& exchange, HttpResponse response);
  // Runs it here or, if the body is long, on a thread of its own.
  void with_body(const Shared& exchange, const Route& route, const ApiKey& caller);
  Result<std::shared_ptr<const ServedModel>> find(const std::string& name, std::string* param) const;
  template <class Parsed, class Ids>
  void generate(const Shared& exchange, const ApiKey& caller, const Parsed& parsed, bool chat, Ids&& ids_of);

  ModelRegistry& registry_;
  const ApiOptions options_;
  const std::unique_ptr<Metrics> metrics_;
  const std::unique_ptr<ApiKeys> keys_;
  std::function<HttpStats()> http_stats_;
  std::atomic<bool> draining_{false};
  RequestLog log_{512};
  LongWork text_;
  KserveCalls calls_;
  Kserve kserve_;
};

}  // namespace bolide::server
