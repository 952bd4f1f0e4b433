// What KServe's inference routes answer: tensors as JSON and raw bytes, generated text, errors ({"error": "..."}).
//
// Thread rules: pure functions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/answer_format.h"
#include "server/http.h"
#include "tensor/value.h"

namespace bolide::server {

// What a response says of itself.
struct KserveHead {
  std::string model;
  std::string id;  // the request's; empty: it has none
};

struct OutputTensor {
  std::string_view name;
  const Tensor* tensor = nullptr;
  bool raw = false;
};
// Errors name the output: those of append_json_data.
Result<HttpResponse> infer_response(const KserveHead& head, std::span<const OutputTensor> outputs);

// 4xx for what a client asked, 429 and 503 for what can be answered later.
int kserve_status(Code code);
HttpResponse kserve_error(const Error& failure);
// Statuses that have no Error: 401, 404, 405, ...
HttpResponse kserve_error(int status, std::string_view what);

// {"model_name", "model_version", "text_output"}, as a whole or in events.
std::unique_ptr<AnswerFormat> generate_format(const KserveHead& head);
// A response of infer with the tensor text_output of this shape, which has one element.
std::unique_ptr<AnswerFormat> infer_format(const KserveHead& head, const Shape& shape, bool raw);

}  // namespace bolide::server
