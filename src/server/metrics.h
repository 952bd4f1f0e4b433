// Metrics: what the server counts, in the text format that Prometheus reads.
//
// Thread rules: every function may be called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace bolide::server {

// Of one request that generated, when it ended.
struct RequestFigures {
  std::string_view route;   // "/v1/chat/completions"
  std::string_view reason;  // "stop", "length", "cancelled", "error"
  double seconds = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  int32_t choices = 1;
  int64_t tokens_max = 0;
};

class ModelMetrics {
 public:
  virtual ~ModelMetrics() = default;
  virtual void first_token(double seconds) = 0;   // since the request was accepted
  virtual void inter_token(double seconds) = 0;   // between two tokens of one answer
  virtual void request_ended(const RequestFigures& figures) = 0;
};

}  // namespace bolide::server
