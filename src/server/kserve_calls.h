// KserveCalls: what KServe's protocol asks for, in either of its forms: models that are looked for, requests that are
// run, what there is to tell. Kserve translates from and to REST, grpc/ from and to gRPC.
//
// Thread rules: any thread.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/api_keys.h"
#include "server/http.h"
#include "server/kserve_models.h"
#include "server/kserve_request.h"
#include "server/kserve_response.h"
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

// How one form of the protocol writes what requests are answered with.
class KserveDialect {
 public:
  virtual ~KserveDialect() = default;
  // Whether a language model may answer in pieces.
  virtual bool streams() const { return false; }
  virtual Result<HttpResponse> tensors(const KserveHead& head, std::span<const OutputTensor> outputs) const = 0;
  // What is generated, as the tensor text_output of this shape.
  virtual std::shared_ptr<const AnswerFormat> text(const KserveHead& head, const Shape& shape, bool raw) const = 0;
  virtual HttpResponse refusal(const Error& failure) const = 0;
  virtual HttpResponse refusal(int status, std::string_view what) const = 0;
};

// A request for a model.
struct KserveCall {
  std::shared_ptr<HttpExchange> exchange;
  const ApiKey* caller = nullptr;
  std::shared_ptr<const KserveDialect> dialect;
  std::string model;
  int64_t begun_us = 0;
};

class KserveCalls {
 public:
  // `keys`: null: everybody may ask.
  KserveCalls(ModelRegistry& registry, Metrics& metrics, ApiKeys* keys, KserveOptions options, RequestLog& log);

  // Ends what works aside, which uses what reads and answers here.
  void stop() {
    changes_.stop();
    text_.stop();
  }
  const KserveOptions& options() const { return options_; }

  // Errors: kNotFound, there is no such model; kUnavailable, it is not ready, with the reason.
  Result<ModelOutline> outline(const std::string& model) const;
  Result<> check_ready(const std::string& model) const;
  Result<std::vector<NamedTotals>> totals(const std::string& model) const;
  std::vector<NamedTotals> all_totals() const;  // of models that are ready
  std::vector<ModelEntry> index(bool ready_alone) const;

  // What follows answers the exchange, now or later.
  void refuse(const KserveCall& call, const Error& failure) { refuse(call, call.dialect->refusal(failure)); }
  void refuse(const KserveCall& call, int status, std::string_view what) {
    refuse(call, call.dialect->refusal(status, what));
  }
  void refuse(const KserveCall& call, HttpResponse response);
  // Runs it here or, if the body is long, on a thread of its own kind.
  void with_body(const KserveCall& call, const std::function<void()>& work);
  // `read`: the request, for a model that takes these inputs.
  using Read = std::function<Result<InferRequest>(const std::vector<TensorPort>& inputs)>;
  void infer(const KserveCall& call, const Read& read);
  void generate(const KserveCall& call, TextRequest request, std::shared_ptr<const AnswerFormat> format);
  // `done`: the answer when it is done.
  void change(const KserveCall& call, bool load, HttpResponse done);

 private:
  struct Run;

  void infer_network(const KserveCall& call, const std::shared_ptr<const ServedNetwork>& network, const Read& read);
  void infer_text(const KserveCall& call, const std::shared_ptr<const ServedModel>& model, const Read& read);
  Error not_there(const std::string& model) const;

  ModelRegistry& registry_;
  Metrics& metrics_;
  ApiKeys* const keys_;
  const KserveOptions options_;
  RequestLog& log_;
  WorkQueue changes_;  // of the repository, one after the other
  LongWork text_;
};

}  // namespace bolide::server
