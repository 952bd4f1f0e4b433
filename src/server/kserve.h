// Kserve: the routes below /v2 of KServe's Open Inference Protocol, with Triton's extensions for raw bytes, generation,
// statistics and the repository of models.
//
// Thread rules: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/answer_format.h"
#include "server/api_keys.h"
#include "server/http.h"
#include "server/kserve_models.h"
#include "server/kserve_request.h"
#include "server/long_work.h"
#include "server/metrics.h"
#include "server/request_log.h"
#include "server/served_model.h"
#include "server/work_queue.h"

namespace bolide::server {

struct KserveOptions {
  RequestLimits limits;
  std::string version;                   // the program's
  size_t body_bytes_max = 16u << 20;     // of a request
  int64_t request_us_max = 600'000'000;  // from the request to the end of its answer
  int text_threads = 1;                  // for bodies that take long to read
  bool model_control = true;             // requests may load and unload models
};

class Kserve {
 public:
  // `keys`: null: everybody may ask.
  Kserve(ModelRegistry& registry, Metrics& metrics, ApiKeys* keys, KserveOptions options, RequestLog& log);

  // True: what is asked for is answered here, if it is answered at all.
  static bool has(std::string_view path) { return path == "/v2" || path.starts_with("/v2/"); }
  // What those hear who have no key.
  static HttpResponse stranger();
  void handle(const std::shared_ptr<HttpExchange>& exchange, const ApiKey& caller);

 private:
  using Shared = std::shared_ptr<HttpExchange>;
  // A request for a model.
  struct Call {
    Shared exchange;
    const ApiKey* caller = nullptr;
    std::string model;
    int64_t begun_us = 0;
  };
  struct Action;
  static const Action kActions[];
  struct Run;

  void refuse(const Shared& exchange, HttpResponse response);
  void refuse(const Shared& exchange, const Error& failure);
  void refuse_method(const Shared& exchange, std::string_view allowed);
  // False: it was refused. `method`: GET, or POST.
  bool check(const Shared& exchange, std::string_view method);
  void repository(const Shared& exchange, std::string_view path);
  void model(const Shared& exchange, const ApiKey* caller, std::string_view path);

  void metadata(const Call& call);
  void config(const Call& call);
  void ready(const Call& call);
  void statistics(const Call& call);
  void all_statistics(const Shared& exchange);
  void infer(const Call& call);
  void generate(const Call& call);
  void generate_stream(const Call& call);

  void infer_network(const Call& call, const std::shared_ptr<const ServedNetwork>& network);
  void infer_text(const Call& call, const std::shared_ptr<const ServedModel>& model);
  void answer_text(const Call& call, TextRequest request, std::shared_ptr<const AnswerFormat> format);
  void change(const Shared& exchange, const std::string& name, bool load);

  // kNotFound: there is no such model; kUnavailable: it is not ready, with the reason.
  Error not_there(const std::string& model) const;
  Result<ModelOutline> outline(const std::string& model) const;

  ModelRegistry& registry_;
  Metrics& metrics_;
  ApiKeys* const keys_;
  const KserveOptions options_;
  RequestLog& log_;
  WorkQueue changes_;  // of the repository, one after the other
  LongWork text_;
};

}  // namespace bolide::server
