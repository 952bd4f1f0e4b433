#include "server/grpc/grpc_response.h"

#include <fmt/format.h>
#include <pb/health.pb.h>
#include <pb/kserve.pb.h>

#include <limits>
#include <utility>

#include "base/memory.h"
#include "server/grpc/grpc_server.h"
#include "server/kserve_tensors.h"

namespace bolide::server {
namespace {

constexpr const char* kFinal = "triton_final_response";

// Of an input of any rank nothing can be said: one dim of any size is the least wrong.
template <class Dims>
void add_dims(const TensorPort& port, Dims* dims) {
  const std::vector<int64_t> any = {-1};
  for (const int64_t dim : port.dims ? *port.dims : any) dims->Add(dim);
}

template <class List>
void add_ports(const std::vector<TensorPort>& ports, List* list) {
  for (const TensorPort& port : ports) {
    auto* one = list->Add();
    one->set_name(port.name);
    one->set_datatype(std::string(*kserve_name(port.dtype)));
    add_dims(port, one->mutable_shape());
  }
}

template <class List>
void add_config_ports(const std::vector<TensorPort>& ports, List* list) {
  for (const TensorPort& port : ports) {
    auto* one = list->Add();
    one->set_name(port.name);
    const std::string_view type = port.dtype == DType::kString ? "STRING" : *kserve_name(port.dtype);
    inference::DataType value = inference::TYPE_INVALID;
    inference::DataType_Parse(fmt::format("TYPE_{}", type), &value);
    one->set_data_type(value);
    add_dims(port, one->mutable_dims());
  }
}

void set_duration(const ModelTotals::Duration& from, inference::StatisticDuration* to) {
  to->set_count(from.count);
  to->set_ns(from.us * 1000);
}

// Of statistics as a whole, and of runs in batches of one.
template <class Parts>
void set_parts(const ModelTotals& from, Parts* to) {
  set_duration(from.input, to->mutable_compute_input());
  set_duration(from.run, to->mutable_compute_infer());
  set_duration(from.output, to->mutable_compute_output());
}

Result<> set_outputs(const KserveHead& head, std::span<const OutputTensor> outputs, inference::ModelInferResponse* to) {
  to->set_model_name(head.model);
  to->set_model_version(std::string(kModelVersion));
  to->set_id(head.id);
  constexpr size_t kRoom = 1u << 20;  // for what is not tensors
  size_t bytes = 0;
  for (const OutputTensor& output : outputs) bytes += raw_bytes(*output.tensor);
  if (bytes > static_cast<size_t>(std::numeric_limits<int>::max()) - kRoom)
    return error(Code::kUnsupported,
                 fmt::format("the outputs have {} bytes, more than a message may have; ask for some of them", bytes));
  BOLIDE_TRY(expect_memory(2 * bytes));  // as fields, and as the message
  for (const OutputTensor& output : outputs) {
    const Tensor& tensor = *output.tensor;
    const auto name = kserve_name(tensor.dtype());
    if (!name)
      return error(Code::kUnsupported, fmt::format("output {:.100}: is of {}, for which the protocol has no name",
                                                   output.name, to_string(tensor.dtype())));
    auto* one = to->add_outputs();
    one->set_name(std::string(output.name));
    one->set_datatype(std::string(*name));
    for (const int64_t dim : tensor.shape().span()) one->add_shape(dim);
    append_raw(*to->add_raw_output_contents(), tensor);
  }
  return {};
}

class InferText final : public WholeAnswerFormat {
 public:
  InferText(const KserveHead& head, const Shape& shape) : head_(head), shape_(shape) {}

  HttpResponse whole(std::span<const AnswerContent> answers, const Usage&) const override {
    const Tensor text = Tensor::strings(shape_, {answers.front().text});
    const OutputTensor output{"text_output", &text, true};
    inference::ModelInferResponse message;
    if (const auto set = set_outputs(head_, std::span(&output, 1), &message); !set) return refusal(set.error());
    (*message.mutable_parameters())["finish_reason"].set_string_param(std::string(answers.front().finish_reason));
    return {200, {}, message.SerializeAsString()};
  }
  HttpResponse refusal(const Error& failure) const override { return grpc_refusal(failure); }

 private:
  const KserveHead head_;
  const Shape shape_;
};

class InferDialect final : public KserveDialect {
 public:
  Result<HttpResponse> tensors(const KserveHead& head, std::span<const OutputTensor> outputs) const override {
    inference::ModelInferResponse message;
    BOLIDE_TRY(set_outputs(head, outputs, &message));
    return HttpResponse{200, {}, message.SerializeAsString()};
  }
  std::shared_ptr<const AnswerFormat> text(const KserveHead& head, const Shape& shape, bool) const override {
    return std::make_shared<InferText>(head, shape);
  }
  HttpResponse refusal(const Error& failure) const override { return grpc_refusal(failure); }
  HttpResponse refusal(int status, std::string_view what) const override { return grpc_refusal(status, what); }
};

std::string failure_message(std::string_view id, std::string_view what) {
  inference::ModelStreamInferResponse message;
  message.set_error_message(std::string(what));
  message.mutable_infer_response()->set_id(std::string(id));
  return message.SerializeAsString();
}

class StreamText final : public AnswerFormat {
 public:
  StreamText(const KserveHead& head, const Shape& shape, bool empty_final)
      : head_(head), shape_(shape), empty_final_(empty_final) {}

  std::string begin(int32_t) const override { return {}; }
  std::string text(int32_t, const TextPart& part, bool) const override {
    std::string out;
    if (!part.text.empty()) append_message(out, message(&part.text, ""));
    return out;
  }
  // Calls of tools are a chat's.
  std::string tool_begin(int32_t, size_t, const ToolCall&) const override { return {}; }
  std::string tool_more(int32_t, size_t, std::string_view) const override { return {}; }
  std::string finish(int32_t, std::string_view reason) const override {
    const std::string nothing;
    std::string out;
    append_message(out, message(empty_final_ ? nullptr : &nothing, reason));
    return out;
  }
  std::string end(const Usage&) const override { return {}; }
  std::string error_event(const Error& failure) const override {
    std::string out;
    append_message(out, failure_message(head_.id, failure.text));
    return out;
  }
  HttpResponse whole(std::span<const AnswerContent> answers, const Usage&) const override {
    return {200, {}, message(&answers.front().text, answers.front().finish_reason)};
  }
  HttpResponse refusal(const Error& failure) const override {
    return {grpc_refusal(failure).status, {}, failure_message(head_.id, failure.text)};
  }

 private:
  // `text`: null: no outputs. `reason`: empty: there will be more.
  std::string message(const std::string* text, std::string_view reason) const {
    inference::ModelStreamInferResponse whole;
    inference::ModelInferResponse& one = *whole.mutable_infer_response();
    const Tensor tensor = Tensor::strings(shape_, {text != nullptr ? *text : ""});
    const OutputTensor output{"text_output", &tensor, true};
    const std::span<const OutputTensor> outputs(&output, text != nullptr ? 1 : 0);
    if (const auto set = set_outputs(head_, outputs, &one); !set) return failure_message(head_.id, set.error().text);
    auto& parameters = *one.mutable_parameters();
    parameters[kFinal].set_bool_param(!reason.empty());
    if (!reason.empty()) parameters["finish_reason"].set_string_param(std::string(reason));
    return whole.SerializeAsString();
  }

  const KserveHead head_;
  const Shape shape_;
  const bool empty_final_;
};

class StreamDialect final : public KserveDialect {
 public:
  StreamDialect(std::string id, bool empty_final) : id_(std::move(id)), empty_final_(empty_final) {}

  bool streams() const override { return true; }
  Result<HttpResponse> tensors(const KserveHead& head, std::span<const OutputTensor> outputs) const override {
    inference::ModelStreamInferResponse message;
    inference::ModelInferResponse& one = *message.mutable_infer_response();
    BOLIDE_TRY(set_outputs(head, outputs, &one));
    (*one.mutable_parameters())[kFinal].set_bool_param(true);
    return HttpResponse{200, {}, message.SerializeAsString()};
  }
  std::shared_ptr<const AnswerFormat> text(const KserveHead& head, const Shape& shape, bool) const override {
    return std::make_shared<StreamText>(head, shape, empty_final_);
  }
  HttpResponse refusal(const Error& failure) const override {
    return refusal(grpc_refusal(failure).status, failure.text);
  }
  HttpResponse refusal(int status, std::string_view what) const override {
    return {status, {}, failure_message(id_, what)};
  }

 private:
  const std::string id_;
  const bool empty_final_;
};

}  // namespace

std::string ready_message(bool is_ready) {
  inference::ModelReadyResponse message;
  message.set_ready(is_ready);
  return message.SerializeAsString();
}

std::string server_metadata_message(std::string_view version) {
  inference::ServerMetadataResponse message;
  message.set_name("bolide");
  message.set_version(std::string(version));
  for (const std::string_view extension : kKserveExtensions) message.add_extensions(std::string(extension));
  return message.SerializeAsString();
}

std::string model_metadata_message(const ModelOutline& model) {
  inference::ModelMetadataResponse message;
  message.set_name(model.name);
  message.add_versions(std::string(kModelVersion));
  message.set_platform(model.platform);
  add_ports(model.inputs, message.mutable_inputs());
  add_ports(model.outputs, message.mutable_outputs());
  return message.SerializeAsString();
}

std::string model_config_message(const ModelOutline& model) {
  inference::ModelConfigResponse message;
  inference::ModelConfig& config = *message.mutable_config();
  config.set_name(model.name);
  config.set_platform(model.platform);
  config.set_backend("bolide");
  add_config_ports(model.inputs, config.mutable_input());
  add_config_ports(model.outputs, config.mutable_output());
  config.mutable_model_transaction_policy()->set_decoupled(model.streams);
  return message.SerializeAsString();
}

std::string statistics_message(std::span<const NamedTotals> models) {
  inference::ModelStatisticsResponse message;
  for (const NamedTotals& model : models) {
    const ModelTotals& from = model.totals;
    inference::ModelStatistics& to = *message.add_model_stats();
    to.set_name(model.name);
    to.set_version(std::string(kModelVersion));
    to.set_last_inference(static_cast<uint64_t>(from.last_ms));
    to.set_inference_count(from.success.count);
    to.set_execution_count(from.success.count);
    inference::InferStatistics& all = *to.mutable_inference_stats();
    set_duration(from.success, all.mutable_success());
    set_duration(from.fail, all.mutable_fail());
    set_duration(from.queue, all.mutable_queue());
    set_parts(from, &all);
    set_duration({}, all.mutable_cache_hit());
    set_duration({}, all.mutable_cache_miss());
    if (from.success.count == 0) continue;
    inference::InferBatchStatistics& ones = *to.add_batch_stats();
    ones.set_batch_size(1);
    set_parts(from, &ones);
  }
  return message.SerializeAsString();
}

std::string index_message(std::span<const ModelEntry> models) {
  inference::RepositoryIndexResponse message;
  for (const ModelEntry& model : models) {
    auto* one = message.add_models();
    one->set_name(model.name);
    one->set_version(std::string(kModelVersion));
    one->set_state(model.state);
    one->set_reason(model.reason);
  }
  return message.SerializeAsString();
}

std::string health_message(Health health) {
  using Response = ::grpc::health::v1::HealthCheckResponse;
  Response message;
  message.set_status(health == Health::kServing      ? Response::SERVING
                     : health == Health::kNotServing ? Response::NOT_SERVING
                                                     : Response::SERVICE_UNKNOWN);
  return message.SerializeAsString();
}

HttpResponse grpc_refusal(int status, std::string_view what) {
  HttpResponse response{status, {}, std::string(what)};
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse grpc_refusal(const Error& failure) {
  return grpc_refusal(failure.code == Code::kUnsupported ? 501 : kserve_status(failure.code), failure.text);
}

std::shared_ptr<const KserveDialect> infer_dialect() {
  static const auto dialect = std::make_shared<const InferDialect>();
  return dialect;
}

std::shared_ptr<const KserveDialect> stream_dialect(std::string id, bool empty_final) {
  return std::make_shared<StreamDialect>(std::move(id), empty_final);
}

}  // namespace bolide::server
