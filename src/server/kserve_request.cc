#include "server/kserve_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "ops/number.h"
#include "server/json_body.h"
#include "server/kserve_tensors.h"
#include "server/openai_request.h"

namespace bolide::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kIdBytesMax = 256;

Error wrong(std::string_view field, std::string_view what, Code code = Code::kInvalid) {
  return error(code, fmt::format("{:.200}: {}", field, what));
}

const Json* find(const Json& object, std::string_view key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<std::string> text_of(const Json& object, std::string_view key, std::string_view where) {
  const Json* value = find(object, key);
  if (value == nullptr || !value->is_string()) return wrong(where, fmt::format("{}: must be a string", key));
  return value->get<std::string>();
}

Result<std::string> id_of(const Json& body) {
  if (find(body, "id") == nullptr) return std::string();
  BOLIDE_TRY(std::string id, text_of(body, "id", "the request"));
  BOLIDE_TRY(check_id(id));
  return id;
}

// An object, or nothing.
Result<Json> parameters_of(const Json& object, std::string_view where) {
  const Json* value = find(object, "parameters");
  if (value == nullptr) return Json(Json::object());
  if (!value->is_object()) return wrong(where, "parameters: must be an object");
  return *value;
}

// Takes a parameter out of those that are left to be looked at.
std::optional<Json> take(Json& parameters, std::string_view key) {
  const auto it = parameters.find(key);
  if (it == parameters.end()) return std::nullopt;
  Json value = std::move(*it);
  parameters.erase(it);
  return value;
}

Result<std::optional<bool>> take_bool(Json& parameters, std::string_view key, std::string_view where) {
  const auto value = take(parameters, key);
  if (!value) return std::optional<bool>();
  if (!value->is_boolean()) return wrong(where, fmt::format("{}: must be true or false", key));
  return std::optional<bool>(value->get<bool>());
}

Result<std::vector<int64_t>> shape_of(const Json& input, std::string_view where) {
  const Json* value = find(input, "shape");
  if (value == nullptr || !value->is_array()) return wrong(where, "shape: must be an array of whole numbers");
  std::vector<int64_t> dims;
  for (const Json& dim : *value) {
    if (!dim.is_number_integer() ||
        (dim.is_number_unsigned() && dim.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)))
      return wrong(where, "shape: must be an array of whole numbers");
    dims.push_back(dim.get<int64_t>());
  }
  return dims;
}

// What of an input's parameters there is to know: how many of the raw bytes are its own.
Result<std::optional<uint64_t>> raw_size_of(const Json& input, std::string_view where) {
  BOLIDE_TRY(Json parameters, parameters_of(input, where));
  const auto size = take(parameters, "binary_data_size");
  BOLIDE_TRY(check_input_parameters(parameters, where));
  if (!size) return std::optional<uint64_t>();
  if (!size->is_number_unsigned()) return wrong(where, "parameters.binary_data_size: must be a whole number");
  return std::optional<uint64_t>(size->get<uint64_t>());
}

// `raw`: bytes that no input before has taken.
Result<InferInput> read_input(const Json& json, size_t place, std::string_view& raw, const RequestLimits& limits) {
  const std::string at = fmt::format("inputs[{}]", place);
  if (!json.is_object()) return wrong(at, "must be an object");
  InferInput input;
  BOLIDE_TRY(input.name, text_of(json, "name", at));
  const std::string where = fmt::format("input {:.100}", input.name);
  BOLIDE_TRY(const std::string datatype, text_of(json, "datatype", where));
  const auto dtype = dtype_of_kserve(datatype);
  if (!dtype) return wrong(where, fmt::format("datatype {:.40}: expected one of {}", datatype, kserve_names()));
  BOLIDE_TRY(const std::vector<int64_t> dims, shape_of(json, where));
  BOLIDE_TRY(const Shape shape, checked_shape(dims).context(where));
  BOLIDE_TRY(const std::optional<uint64_t> size, raw_size_of(json, where));
  const Json* data = find(json, "data");
  if (!size && data == nullptr) return wrong(where, "data: is required, or parameters.binary_data_size");
  if (size && data != nullptr) return wrong(where, "has data as JSON and as raw bytes; give one of them");
  if (!size) {
    BOLIDE_TRY(input.tensor, tensor_of_json(*dtype, shape, *data, limits.nodes_max).context(where));
    return input;
  }
  if (*size > raw.size())
    return wrong(where, fmt::format("parameters.binary_data_size: {} bytes, of which {} are there", *size, raw.size()));
  const std::string_view own = raw.substr(0, *size);
  raw.remove_prefix(*size);
  BOLIDE_TRY(input.tensor, tensor_of_bytes(*dtype, shape, own, limits.nodes_max).context(where));
  return input;
}

Result<> read_outputs(const Json& list, InferRequest& request) {
  if (!list.is_array()) return wrong("outputs", "must be an array");
  if (list.size() > kTensorsMax) return wrong("outputs", fmt::format("has {}, at most {}", list.size(), kTensorsMax));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = fmt::format("outputs[{}]", i);
    if (!list[i].is_object()) return wrong(at, "must be an object");
    InferOutputWish wish;
    BOLIDE_TRY(wish.name, text_of(list[i], "name", at));
    const std::string where = fmt::format("output {:.100}", wish.name);
    BOLIDE_TRY(Json parameters, parameters_of(list[i], where));
    BOLIDE_TRY(const std::optional<bool> raw, take_bool(parameters, "binary_data", where));
    BOLIDE_TRY(no_parameters_left(parameters, where));
    wish.raw = raw.value_or(request.raw_outputs);
    request.outputs.push_back(std::move(wish));
  }
  return {};
}

bool fits(const TensorPort& port, const Tensor& tensor) {
  if (port.dtype != tensor.dtype()) return false;
  if (!port.dims) return true;
  if (static_cast<int>(port.dims->size()) != tensor.rank()) return false;
  for (size_t i = 0; i < port.dims->size(); ++i)
    if ((*port.dims)[i] >= 0 && (*port.dims)[i] != tensor.dim(static_cast<int>(i))) return false;
  return true;
}

// Passes that make a network fast take dims of one name for equal.
Result<> check_names(std::span<const AnyValue> values, const std::vector<TensorPort>& inputs) {
  std::map<std::string_view, std::pair<int64_t, size_t>> sizes;  // and the input that has it
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t d = 0; d < inputs[i].dim_names.size(); ++d) {
      const std::string& name = inputs[i].dim_names[d];
      if (name.empty()) continue;
      const int64_t size = values[i].tensor()->dim(static_cast<int>(d));
      const auto& [first, input] = sizes.try_emplace(name, size, i).first->second;
      if (first != size)
        return wrong(fmt::format("input {:.100}", inputs[i].name),
                     fmt::format("dim {} ({:.100}) is {}, but {} in input {:.100}: all dims of this name have one size",
                                 d, name, size, first, inputs[input].name));
    }
  return {};
}

std::string names_of(const std::vector<TensorPort>& ports) {
  std::string names;
  for (const TensorPort& port : ports)
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", port.name, kserve_type(port.dtype, port.dims));
  return names;
}

// Of what reaches a language model. The names are those of the other dialects.
constexpr std::string_view kTextParameters[] = {
    "max_tokens",        "temperature", "top_p",          "top_k",      "min_p",    "repetition_penalty",
    "presence_penalty",  "seed",        "stop_token_ids", "ignore_eos", "priority", "stream",
    "frequency_penalty", "stop",        "min_tokens"};

// What Triton's backends for language models have beside them: another name of stop, and two fields that may only say
// what happens anyway.
constexpr std::string_view kOfBackends[] = {"stop_words", "bad_words", "exclude_input_in_output"};

Result<> check_text_parameter(std::string_view name) {
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (name == "timeout" || has(kTextParameters) || has(kOfBackends)) return {};
  return wrong(name.substr(0, 64),
               fmt::format("this server does not have it; there are {}, timeout", fmt::join(kTextParameters, ", ")),
               Code::kUnsupported);
}

Result<> translate_backends(Json& parameters) {
  if (auto stops = take(parameters, "stop_words"); stops && !stops->empty()) {
    if (parameters.contains("stop")) return wrong("stop_words", "is another name of stop; give one of them");
    parameters["stop"] = *std::move(stops);
  }
  const auto bad = take(parameters, "bad_words");
  const bool is_blank = bad && bad->is_string() && bad->get_ref<const std::string&>().empty();
  if (bad && !bad->empty() && !is_blank && *bad != Json::array({""}))
    return wrong("bad_words", "this server does not have it; leave it out", Code::kUnsupported);
  BOLIDE_TRY(const std::optional<bool> excluded, take_bool(parameters, "exclude_input_in_output", "parameters"));
  if (!excluded.value_or(true))
    return wrong("exclude_input_in_output", "answers never contain the input; leave it out", Code::kUnsupported);
  return {};
}

Result<> read_text_parameters(Json parameters, const RequestLimits& limits, TextRequest& request) {
  for (const auto& item : parameters.items()) BOLIDE_TRY(check_text_parameter(item.key()));
  BOLIDE_TRY(translate_backends(parameters));
  BOLIDE_TRY(request.timeout_us, take_timeout(parameters));
  std::string param;
  BOLIDE_TRY(request.wishes, parse_wishes(parameters, limits, &param));
  return {};
}

// A tensor's elements as JSON: a tensor of one is what it holds.
Result<Json> json_of(const Tensor& tensor) {
  Json list = Json::array();
  if (tensor.is_string()) {
    for (const std::string& text : tensor.as<std::string>()) list.push_back(text);
  } else {
    BOLIDE_TRY(dispatch(kNumbers + Types<Bool>{}, tensor.dtype(), "it", [&]<class T>() -> Result<> {
      for (const T element : tensor.as<T>()) {
        if constexpr (std::is_same_v<T, Bool>)
          list.push_back(element.value != 0);
        else
          list.push_back(widen(element));
      }
      return {};
    }));
  }
  if (list.size() == 1) return Json(std::move(list.front()));
  return list;
}

}  // namespace

Result<> check_id(std::string_view id) {
  if (id.size() <= kIdBytesMax) return {};
  return wrong("id", fmt::format("has {} bytes, at most {}", id.size(), kIdBytesMax));
}

Result<> no_parameters_left(const Json& parameters, std::string_view where) {
  if (parameters.empty()) return {};
  return wrong(where,
               fmt::format("parameters.{:.64}: this server does not have it; leave it out", parameters.begin().key()),
               Code::kUnsupported);
}

Result<> check_input_parameters(const Json& parameters, std::string_view where) {
  if (parameters.contains("shared_memory_region"))
    return wrong(where, "parameters.shared_memory_region: this server has no shared memory; send the data",
                 Code::kUnsupported);
  return no_parameters_left(parameters, where);
}

Result<std::optional<int64_t>> take_timeout(Json& parameters) {
  const auto value = take(parameters, "timeout");
  if (!value) return std::optional<int64_t>();
  // Of one that says it as a signed number.
  const bool whole = value->is_number_integer() &&
                     (!value->is_number_unsigned() ? value->get<int64_t>() >= 0
                                                   : value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!whole) return wrong("parameters.timeout", "must be a whole number of microseconds");
  const int64_t us = value->get<int64_t>();
  return us == 0 ? std::optional<int64_t>() : std::optional<int64_t>(us);
}

Result<InferRequest> parse_infer_request(std::string_view body, std::optional<uint64_t> json_bytes,
                                         const RequestLimits& limits) {
  if (json_bytes && *json_bytes > body.size())
    return wrong("Inference-Header-Content-Length",
                 fmt::format("{} bytes of JSON in a body of {}", *json_bytes, body.size()));
  const size_t header = json_bytes ? static_cast<size_t>(*json_bytes) : body.size();
  BOLIDE_TRY(const Json json, parse_json_body(body.substr(0, header), limits));
  std::string_view raw = body.substr(header);
  InferRequest request;
  for (const auto& item : json.items())
    if (const std::string& key = item.key(); key != "id" && key != "parameters" && key != "inputs" && key != "outputs")
      return wrong(key.substr(0, 64), "this server does not have it; leave it out", Code::kUnsupported);
  BOLIDE_TRY(request.id, id_of(json));
  BOLIDE_TRY(request.parameters, parameters_of(json, "the request"));
  BOLIDE_TRY(const std::optional<bool> raw_outputs, take_bool(request.parameters, "binary_data_output", "parameters"));
  request.raw_outputs = raw_outputs.value_or(false);
  BOLIDE_TRY(request.timeout_us, take_timeout(request.parameters));
  const Json* inputs = find(json, "inputs");
  if (inputs == nullptr || !inputs->is_array()) return wrong("inputs", "must be an array");
  if (inputs->size() > kTensorsMax)
    return wrong("inputs", fmt::format("has {}, at most {}", inputs->size(), kTensorsMax));
  for (size_t i = 0; i < inputs->size(); ++i) {
    BOLIDE_TRY(InferInput input, read_input((*inputs)[i], i, raw, limits));
    request.inputs.push_back(std::move(input));
  }
  if (!raw.empty())
    return error(Code::kInvalid,
                 fmt::format("the body has {} bytes more than its inputs (binary_data_size)", raw.size()));
  if (const Json* outputs = find(json, "outputs")) BOLIDE_TRY(read_outputs(*outputs, request));
  return request;
}

Result<InferRequest> raw_infer_request(std::string_view body, const std::vector<TensorPort>& inputs,
                                       const RequestLimits& limits) {
  const auto refuse = [](std::string_view what) {
    return error(Code::kInvalid, fmt::format("Inference-Header-Content-Length: 0 is for models of one input with at "
                                             "most one open dim: {}",
                                             what));
  };
  if (inputs.size() != 1) return refuse(fmt::format("this one has {} inputs", inputs.size()));
  const TensorPort& port = inputs.front();
  const std::string where = fmt::format("input {:.100}", port.name);
  if (!port.dims || std::count(port.dims->begin(), port.dims->end(), -1) > 1)
    return refuse(fmt::format("{} is {}", where, kserve_type(port.dtype, port.dims)));
  std::vector<int64_t> dims = *port.dims;
  const auto open = std::find(dims.begin(), dims.end(), -1);
  if (open != dims.end()) {
    *open = 1;
    BOLIDE_TRY(const Shape one, checked_shape(dims).context(where));
    const uint64_t bytes = static_cast<uint64_t>(one.elements()) * element_bytes(port.dtype);
    if (bytes > 0) *open = static_cast<int64_t>(body.size() / bytes);
  }
  BOLIDE_TRY(const Shape shape, checked_shape(dims).context(where));
  InferRequest request;
  request.raw_outputs = true;
  request.parameters = Json::object();
  // All of the body is one element of BYTES, whose length need not be said.
  if (port.dtype == DType::kString) {
    if (shape.elements() != 1) return refuse(fmt::format("{} of BYTES has {} elements", where, shape.elements()));
    request.inputs.push_back({port.name, Tensor::strings(shape, {std::string(body)})});
    return request;
  }
  BOLIDE_TRY(Tensor tensor, tensor_of_bytes(port.dtype, shape, body, limits.nodes_max).context(where));
  request.inputs.push_back({port.name, std::move(tensor)});
  return request;
}

Result<std::vector<AnyValue>> match_inputs(std::vector<InferInput> given, const std::vector<TensorPort>& inputs) {
  std::vector<AnyValue> values(inputs.size());
  for (InferInput& input : given) {
    const auto port =
        std::find_if(inputs.begin(), inputs.end(), [&](const TensorPort& p) { return p.name == input.name; });
    if (port == inputs.end())
      return wrong(fmt::format("input {:.100}", input.name),
                   fmt::format("the model has none of this name; it has {:.1000}", names_of(inputs)));
    AnyValue& value = values[static_cast<size_t>(port - inputs.begin())];
    if (value.has_value()) return wrong(fmt::format("input {:.100}", input.name), "is given twice");
    if (!fits(*port, input.tensor))
      return wrong(fmt::format("input {:.100}", input.name),
                   fmt::format("{}, expected {}", kserve_type(input.tensor), kserve_type(port->dtype, port->dims)));
    value = AnyValue(std::move(input.tensor));
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!values[i].has_value())
      return wrong(fmt::format("input {:.100}", inputs[i].name),
                   fmt::format("is not given, expected {}", kserve_type(inputs[i].dtype, inputs[i].dims)));
  BOLIDE_TRY(check_names(values, inputs));
  return values;
}

Result<std::vector<ChosenOutput>> choose_outputs(const InferRequest& request, const std::vector<TensorPort>& outputs) {
  std::vector<ChosenOutput> chosen;
  for (const InferOutputWish& wish : request.outputs) {
    const auto port =
        std::find_if(outputs.begin(), outputs.end(), [&](const TensorPort& p) { return p.name == wish.name; });
    const auto place = static_cast<size_t>(port - outputs.begin());
    if (port == outputs.end())
      return wrong(fmt::format("output {:.100}", wish.name),
                   fmt::format("the model has none of this name; it has {:.1000}", names_of(outputs)));
    if (std::any_of(chosen.begin(), chosen.end(), [&](const ChosenOutput& other) { return other.place == place; }))
      return wrong(fmt::format("output {:.100}", wish.name), "is asked for twice");
    chosen.push_back({place, wish.raw});
  }
  if (request.outputs.empty())
    for (size_t i = 0; i < outputs.size(); ++i) chosen.push_back({i, request.raw_outputs});
  for (const ChosenOutput& one : chosen)
    if (const TensorPort& port = outputs[one.place]; !one.raw && !has_json_form(port.dtype))
      return wrong(
          fmt::format("output {:.100}", port.name),
          fmt::format("{} has no form in JSON; ask for it with parameters.binary_data: true", *kserve_name(port.dtype)),
          Code::kUnsupported);
  return chosen;
}

Result<TextRequest> parse_generate_request(std::string_view body, const RequestLimits& limits) {
  BOLIDE_TRY(const Json json, parse_json_body(body, limits));
  TextRequest request;
  BOLIDE_TRY(request.id, id_of(json));
  const std::string_view name = find(json, "text_input") != nullptr ? "text_input" : "text";
  if (name == "text_input" && find(json, "text") != nullptr)
    return wrong("text", "is another name of text_input; give one of them");
  if (find(json, name) == nullptr) return wrong("text_input", "is required");
  if (!find(json, name)->is_string()) return wrong(name, "must be a string");
  request.text = find(json, name)->get<std::string>();
  BOLIDE_TRY(Json parameters, parameters_of(json, "the request"));
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    if (key == "id" || key == "parameters" || key == "text_input" || key == "text" || item.value().is_null()) continue;
    BOLIDE_TRY(check_text_parameter(key));
    if (parameters.contains(key)) return wrong(key, "is given twice, here and in parameters");
    parameters[key] = item.value();
  }
  BOLIDE_TRY(read_text_parameters(std::move(parameters), limits, request));
  return request;
}

Result<TextRequest> text_of_infer(const InferRequest& infer, const RequestLimits& limits, bool streams) {
  TextRequest request;
  Json parameters = infer.parameters;
  bool has_text = false;
  for (const InferInput& input : infer.inputs) {
    const std::string where = fmt::format("input {:.100}", input.name);
    if (input.name == "text_input") {
      if (has_text) return wrong(where, "is given twice");
      if (!input.tensor.is_string() || input.tensor.elements() != 1)
        return wrong(where, fmt::format("{}, expected BYTES[1]", kserve_type(input.tensor)));
      has_text = true;
      request.text = input.tensor.as<std::string>().front();
      const auto dims = input.tensor.shape().span();
      request.shape.assign(dims.begin(), dims.end());
      continue;
    }
    BOLIDE_TRY(check_text_parameter(input.name).context("input"));
    if (parameters.contains(input.name)) return wrong(where, "is given twice");
    if (input.tensor.elements() > static_cast<int64_t>(limits.stop_ids_max))
      return wrong(where, fmt::format("has {} elements, at most {}", input.tensor.elements(), limits.stop_ids_max));
    BOLIDE_TRY(parameters[input.name], json_of(input.tensor).context(where));
  }
  if (!has_text) return wrong("input text_input", "is not given, expected BYTES[1]");
  if (streams && !parameters.contains("stream")) parameters["stream"] = true;
  BOLIDE_TRY(read_text_parameters(std::move(parameters), limits, request));
  request.id = infer.id;
  if (!request.timeout_us) request.timeout_us = infer.timeout_us;
  if (request.wishes.stream && !streams)
    return wrong("stream", "infer answers as a whole; use generate_stream, or ModelStreamInfer of gRPC",
                 Code::kUnsupported);
  return request;
}

}  // namespace bolide::server
