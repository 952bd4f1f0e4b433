#include "server/kserve_models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "base/json_string.h"
#include "server/json_body.h"
#include "server/kserve_tensors.h"
#include "server/openai_request.h"

namespace bolide::server {
namespace {

// Of an input of any rank nothing can be said: one dim of any size is the least wrong.
std::string dims_json(const TensorPort& port) {
  return port.dims ? fmt::format("[{}]", fmt::join(*port.dims, ",")) : "[-1]";
}

template <class Write>
std::string list(const std::vector<TensorPort>& ports, Write&& write) {
  std::string out = "[";
  for (const TensorPort& port : ports) out += (out.size() > 1 ? "," : "") + write(port);
  return out + "]";
}

std::string port_json(const TensorPort& port) {
  return fmt::format(R"({{"name":{},"datatype":"{}","shape":{}}})", json_string(port.name), *kserve_name(port.dtype),
                     dims_json(port));
}

// As the configuration of models has it: BYTES are strings there.
std::string config_port_json(const TensorPort& port) {
  const std::string_view type = port.dtype == DType::kString ? "STRING" : *kserve_name(port.dtype);
  return fmt::format(R"({{"name":{},"data_type":"TYPE_{}","dims":{}}})", json_string(port.name), type, dims_json(port));
}

std::string duration_json(const ModelTotals::Duration& duration) {
  return fmt::format(R"({{"count":{},"ns":{}}})", duration.count, duration.us * 1000);
}

std::string totals_json(const NamedTotals& model) {
  const ModelTotals& t = model.totals;
  const std::string parts = fmt::format(R"("compute_input":{},"compute_infer":{},"compute_output":{})",
                                        duration_json(t.input), duration_json(t.run), duration_json(t.output));
  // Requests run one by one: as many runs as requests, in batches of one.
  const std::string batches = t.success.count > 0 ? fmt::format(R"({{"batch_size":1,{}}})", parts) : "";
  return fmt::format(
      R"({{"name":{},"version":"{}","last_inference":{},"inference_count":{},"execution_count":{},"inference_stats":)"
      R"({{"success":{},"fail":{},"queue":{},{},"cache_hit":{},"cache_miss":{}}},"batch_stats":[{}],"memory_usage":[]}})",
      json_string(model.name), kModelVersion, t.last_ms, t.success.count, t.success.count, duration_json(t.success),
      duration_json(t.fail), duration_json(t.queue), parts, duration_json({}), duration_json({}), batches);
}

}  // namespace

Error no_version(std::string_view model, std::string_view version) {
  return error(Code::kNotFound,
               fmt::format("model {:.200} has version {} alone, not {:.40}", model, kModelVersion, version));
}

ModelOutline outline_of(const ServedModel& model) {
  const auto text = [](const char* name) {
    return std::vector<TensorPort>{{name, DType::kString, std::vector<int64_t>{1}}};
  };
  return {model.name, "bolide_" + model.format, text("text_input"), text("text_output"), true};
}

ModelOutline outline_of(const ServedNetwork& network) {
  return {network.name, "onnx_onnxv1", network.inputs, network.outputs, false};
}

std::string server_metadata_json(std::string_view version) {
  return fmt::format(R"({{"name":"bolide","version":{},"extensions":["{}"]}})", json_string(version),
                     fmt::join(kKserveExtensions, R"(",")"));
}

std::string model_metadata_json(const ModelOutline& model) {
  return fmt::format(R"({{"name":{},"versions":["{}"],"platform":{},"inputs":{},"outputs":{}}})",
                     json_string(model.name), kModelVersion, json_string(model.platform), list(model.inputs, port_json),
                     list(model.outputs, port_json));
}

std::string model_config_json(const ModelOutline& model) {
  return fmt::format(R"({{"name":{},"platform":{},"backend":"bolide","max_batch_size":0,"input":{},"output":{},)"
                     R"("model_transaction_policy":{{"decoupled":{}}}}})",
                     json_string(model.name), json_string(model.platform), list(model.inputs, config_port_json),
                     list(model.outputs, config_port_json), model.streams);
}

std::string statistics_json(std::span<const NamedTotals> models) {
  std::string out;
  for (const NamedTotals& model : models) out += (out.empty() ? "" : ",") + totals_json(model);
  return R"({"model_stats":[)" + out + "]}";
}

std::string index_json(std::span<const ModelEntry> models) {
  std::string out = "[";
  for (const ModelEntry& model : models) {
    fmt::format_to(std::back_inserter(out), R"({}{{"name":{},"version":"{}","state":{},"reason":{}}})",
                   out.size() > 1 ? "," : "", json_string(model.name), kModelVersion, json_string(model.state),
                   json_string(model.reason));
  }
  return out + "]";
}

Result<bool> parse_index_request(std::string_view body, const RequestLimits& limits) {
  if (body.empty()) return false;
  BOLIDE_TRY(const nlohmann::ordered_json parsed, parse_json_body(body, limits));
  bool ready = false;
  for (const auto& item : parsed.items()) {
    if (item.key() != "ready" || !item.value().is_boolean())
      return error(Code::kUnsupported,
                   fmt::format("{:.64}: an index may have ready, true or false, and nothing else", item.key()));
    ready = item.value().get<bool>();
  }
  return ready;
}

Result<> check_change_parameter(std::string_view name, bool load) {
  if (!load && name == "unload_dependents") return {};
  return error(Code::kUnsupported,
               fmt::format("parameters.{:.64}: {}", name,
                           load ? "models are those that the server was started with, as their files are; leave it out"
                                : "this server does not have it; leave it out"));
}

// {"parameters": {...}} or nothing.
Result<> check_change_request(std::string_view body, bool load, const RequestLimits& limits) {
  if (body.empty()) return {};
  BOLIDE_TRY(const nlohmann::ordered_json parsed, parse_json_body(body, limits));
  for (const auto& item : parsed.items()) {
    if (item.key() != "parameters")
      return error(Code::kUnsupported, fmt::format("{:.64}: this server does not have it; leave it out", item.key()));
    if (item.value().is_null()) continue;
    if (!item.value().is_object()) return error(Code::kInvalid, "parameters: must be an object");
    for (const auto& parameter : item.value().items()) BOLIDE_TRY(check_change_parameter(parameter.key(), load));
  }
  return {};
}

}  // namespace bolide::server
