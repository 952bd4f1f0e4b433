#include "server/kserve_response.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "base/json_string.h"
#include "base/memory.h"
#include "server/kserve_models.h"
#include "server/kserve_tensors.h"

namespace bolide::server {
namespace {

std::string error_json(std::string_view what) { return R"({"error":)" + json_string(what) + "}"; }

// `{"id":...,"model_name":...,"model_version":...`, an object that goes on.
std::string front_of(const KserveHead& head) {
  return fmt::format(R"({{{}"model_name":{},"model_version":"{}")",
                     head.id.empty() ? "" : fmt::format(R"("id":{},)", json_string(head.id)), json_string(head.model),
                     kModelVersion);
}

class GenerateFormat final : public AnswerFormat {
 public:
  explicit GenerateFormat(const KserveHead& head) : front_(front_of(head) + R"(,"text_output":)") {}

  std::string begin(int32_t) const override { return {}; }
  std::string text(int32_t, const TextPart& part, bool) const override {
    return part.text.empty() ? std::string() : "data: " + front_ + json_string(part.text) + "}\n\n";
  }
  // Calls of tools are a chat's.
  std::string tool_begin(int32_t, size_t, const ToolCall&) const override { return {}; }
  std::string tool_more(int32_t, size_t, std::string_view) const override { return {}; }
  std::string finish(int32_t, std::string_view reason) const override {
    return fmt::format("data: {}\"\",\"finish_reason\":\"{}\"}}\n\n", front_, reason);
  }
  // The stream's end is its last event.
  std::string end(const Usage&) const override { return {}; }
  std::string error_event(const Error& failure) const override { return "data: " + error_json(failure.text) + "\n\n"; }
  HttpResponse whole(std::span<const AnswerContent> answers, const Usage&) const override {
    const AnswerContent& answer = answers.front();
    return {200,
            {{"Content-Type", "application/json"}},
            fmt::format(R"({}{},"finish_reason":"{}"}})", front_, json_string(answer.text), answer.finish_reason)};
  }
  HttpResponse refusal(const Error& failure) const override { return kserve_error(failure); }

 private:
  const std::string front_;
};

class InferFormat final : public WholeAnswerFormat {
 public:
  InferFormat(const KserveHead& head, const Shape& shape, bool raw) : head_(head), shape_(shape), raw_(raw) {}

  HttpResponse whole(std::span<const AnswerContent> answers, const Usage&) const override {
    const Tensor text = Tensor::strings(shape_, {answers.front().text});
    const OutputTensor output{"text_output", &text, raw_};
    auto response = infer_response(head_, std::span(&output, 1));
    return response ? *std::move(response) : kserve_error(response.error());
  }
  HttpResponse refusal(const Error& failure) const override { return kserve_error(failure); }

 private:
  const KserveHead head_;
  const Shape shape_;
  const bool raw_;
};

}  // namespace

int kserve_status(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kUnsupported: return 400;
    case Code::kNotFound: return 404;
    case Code::kOverloaded: return 429;
    case Code::kUnavailable: return 503;
    case Code::kDeadline: return 504;
    case Code::kCancelled: return 499;
    case Code::kOutOfMemory:
    case Code::kInternal: return 500;
  }
  return 500;
}

Result<HttpResponse> infer_response(const KserveHead& head, std::span<const OutputTensor> outputs) {
  // The system ends processes that take more than there is.
  constexpr size_t kNumberBytes = 12;  // of JSON, about
  size_t expected = 0;
  for (const OutputTensor& output : outputs)
    expected += output.raw || output.tensor->is_string()
                    ? raw_bytes(*output.tensor)
                    : static_cast<size_t>(output.tensor->elements()) * kNumberBytes;
  BOLIDE_TRY(expect_memory(expected));
  std::string body = front_of(head) + R"(,"outputs":[)";
  size_t raw = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputTensor& output = outputs[i];
    const Tensor& tensor = *output.tensor;
    const auto name = kserve_name(tensor.dtype());
    if (!name)
      return error(Code::kUnsupported, fmt::format("output {:.100}: is of {}, for which the protocol has no name",
                                                   output.name, to_string(tensor.dtype())));
    fmt::format_to(std::back_inserter(body), R"({}{{"name":{},"datatype":"{}","shape":[{}],)", i > 0 ? "," : "",
                   json_string(output.name), *name, fmt::join(tensor.shape().span(), ","));
    if (output.raw) {
      const size_t bytes = raw_bytes(tensor);
      fmt::format_to(std::back_inserter(body), R"("parameters":{{"binary_data_size":{}}}}})", bytes);
      raw += bytes;
      continue;
    }
    body += R"("data":)";
    if (auto written = append_json_data(body, tensor); !written)
      return std::move(written).error().context(fmt::format("output {:.100}", output.name));
    body += '}';
  }
  body += "]}";
  HttpResponse response;
  response.headers = {{"Content-Type", "application/json"}};
  bool any_raw = false;
  for (const OutputTensor& output : outputs) any_raw = any_raw || output.raw;
  if (any_raw) {
    response.headers = {{"Content-Type", "application/octet-stream"},
                        {"Inference-Header-Content-Length", fmt::format("{}", body.size())}};
    body.reserve(body.size() + raw);
    for (const OutputTensor& output : outputs)
      if (output.raw) append_raw(body, *output.tensor);
  }
  response.body = std::move(body);
  return response;
}

HttpResponse kserve_error(const Error& failure) { return kserve_error(kserve_status(failure.code), failure.text); }

HttpResponse kserve_error(int status, std::string_view what) {
  HttpResponse response{status, {{"Content-Type", "application/json"}}, error_json(what)};
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::unique_ptr<AnswerFormat> generate_format(const KserveHead& head) { return std::make_unique<GenerateFormat>(head); }

std::unique_ptr<AnswerFormat> infer_format(const KserveHead& head, const Shape& shape, bool raw) {
  return std::make_unique<InferFormat>(head, shape, raw);
}

}  // namespace bolide::server
