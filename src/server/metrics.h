// Metrics: what the server counts, in the text format that Prometheus reads.
//
// Thread rules: every function may be called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"
#include "server/served_model.h"

namespace bolide::server {

// Of one request that generated, when it ended.
struct RequestFigures {
  std::string_view reason;  // "stop", "length", "cancelled", "error"
  double seconds = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  double prefill_seconds = -1;  // from its first step to its first token; below 0: it had none
  double decode_seconds = 0;    // from there to its last token
};

// Of one run of a network, when it was answered.
struct RunFigures {
  std::string_view reason;  // "stop": it ended; "cancelled", "error"
  // From the request to its answer; of which: reading the inputs, waiting, the run, writing the outputs.
  int64_t all_us = 0, input_us = 0, queue_us = 0, run_us = 0, output_us = 0;
};

// All requests to a model so far, as Triton's statistics have them.
struct ModelTotals {
  struct Duration {
    uint64_t count = 0, us = 0;
  };
  int64_t last_ms = 0;  // when the last request began: milliseconds since 1970; 0: there was none
  Duration success, fail, queue, input, run, output;
};

class ModelMetrics {
 public:
  virtual ~ModelMetrics() = default;
  virtual void queued(double seconds) = 0;       // from when the request was accepted to its first step
  virtual void first_token(double seconds) = 0;  // since the request was accepted; once a request
  virtual void inter_token(double seconds) = 0;  // between two tokens of one answer
  virtual void request_ended(const RequestFigures& figures) = 0;
  virtual void run_ended(const RunFigures& figures) = 0;
};

class Metrics {
 public:
  // `compat`: also the names that others use: "vllm", "trtllm", "triton"; empty: ours alone. Errors: another word.
  static Result<std::unique_ptr<Metrics>> make(std::string_view compat);
  virtual ~Metrics() = default;

  virtual std::shared_ptr<ModelMetrics> of_model(const std::string& name) = 0;
  virtual ModelTotals totals(const std::string& name) = 0;
  virtual void refused(int status) = 0;  // a request that no engine saw
  // All of it, with what engines and the process are at now.
  virtual std::string text(const ModelRegistry& models, const HttpStats& http) = 0;
};

}  // namespace bolide::server
