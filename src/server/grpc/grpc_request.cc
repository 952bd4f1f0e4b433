#include "server/grpc/grpc_request.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>
#include <google/protobuf/wire_format_lite.h>
#include <pb/health.pb.h>
#include <pb/kserve.pb.h>

#include <limits>
#include <utility>

#include "ops/number.h"
#include "server/kserve_models.h"
#include "server/kserve_tensors.h"

namespace bolide::server {
namespace {

namespace pb = google::protobuf;
using Json = nlohmann::ordered_json;
using Wire = pb::internal::WireFormatLite;

constexpr int kDepthMax = 32;  // of messages within messages; ours have 4

Error wrong(std::string_view field, std::string_view what, Code code = Code::kInvalid) {
  return error(code, fmt::format("{:.200}: {}", field, what));
}

// Counts a message's fields. Two bytes can be an empty message or text, which takes a hundred once it is read: what has
// more than `left` fields is refused while it is still bytes.
Result<> count_fields(pb::io::CodedInputStream& in, const pb::Descriptor& type, int depth, size_t& left) {
  const auto malformed = [&] { return error(Code::kInvalid, fmt::format("the message is no {}", type.name())); };
  if (depth > kDepthMax) return malformed();
  while (const uint32_t tag = in.ReadTag()) {
    if (left-- == 0) return error(Code::kInvalid, "the message has too many fields");
    const auto kind = Wire::GetTagWireType(tag);
    if (kind == Wire::WIRETYPE_START_GROUP || kind == Wire::WIRETYPE_END_GROUP) return malformed();  // proto2's
    const pb::FieldDescriptor* field = type.FindFieldByNumber(Wire::GetTagFieldNumber(tag));
    const bool nested = kind == Wire::WIRETYPE_LENGTH_DELIMITED && field != nullptr &&
                        field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
    if (!nested) {
      if (!Wire::SkipField(&in, tag)) return malformed();
      continue;
    }
    int bytes = 0;
    if (!in.ReadVarintSizeAsInt(&bytes)) return malformed();
    const auto limit = in.PushLimit(bytes);
    BOLIDE_TRY(count_fields(in, *field->message_type(), depth + 1, left));
    if (in.BytesUntilLimit() != 0) return malformed();
    in.PopLimit(limit);
  }
  return {};
}

template <class Message>
Result<Message> parse(std::string_view bytes, const RequestLimits& limits) {
  Message message;
  const pb::Descriptor& type = *Message::descriptor();
  const auto malformed = [&] { return error(Code::kInvalid, fmt::format("the message is no {}", type.name())); };
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) return malformed();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const auto size = static_cast<int>(bytes.size());
  size_t left = limits.nodes_max;
  pb::io::CodedInputStream in(data, size);
  BOLIDE_TRY(count_fields(in, type, 0, left));
  if (!message.ParseFromArray(data, size)) return malformed();
  return message;
}

// As REST has them, so that the same code reads them.
template <class Map>
Result<Json> parameters_of(const Map& map, std::string_view where, const RequestLimits& limits) {
  Json json = Json::object();
  if (map.size() > limits.object_keys_max)
    return wrong(where, fmt::format("has {} parameters, at most {}", map.size(), limits.object_keys_max));
  for (const auto& [name, value] : map) {
    switch (value.parameter_choice_case()) {
      case inference::InferParameter::kBoolParam: json[name] = value.bool_param(); break;
      case inference::InferParameter::kInt64Param: json[name] = value.int64_param(); break;
      case inference::InferParameter::kStringParam: json[name] = value.string_param(); break;
      case inference::InferParameter::kDoubleParam: json[name] = value.double_param(); break;
      case inference::InferParameter::kUint64Param: json[name] = value.uint64_param(); break;
      case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
        return wrong(where, fmt::format("parameters.{:.64}: has no value", name));
    }
  }
  return json;
}

// Elements as T; an error is how many there are, or which of them T does not have.
template <class T, class List>
Result<> copy_elements(const List& list, Tensor& tensor) {
  T* to = tensor.mutate<T>().data();
  for (const auto element : list) {
    if constexpr (std::is_same_v<T, Bool>) {
      to->value = element ? 1 : 0;
    } else {
      if constexpr (std::is_integral_v<T>)
        if (!std::in_range<T>(element))
          return error(Code::kInvalid,
                       fmt::format("contents: {} is no element of {}", element, *kserve_name(tensor.dtype())));
      *to = static_cast<T>(element);
    }
    ++to;
  }
  return {};
}

// The one list of the contents that a tensor of T has.
template <class T>
const auto& list_of(const inference::InferTensorContents& contents) {
  if constexpr (std::is_same_v<T, Bool>)
    return contents.bool_contents();
  else if constexpr (std::is_same_v<T, float>)
    return contents.fp32_contents();
  else if constexpr (std::is_same_v<T, double>)
    return contents.fp64_contents();
  else if constexpr (std::is_same_v<T, int64_t>)
    return contents.int64_contents();
  else if constexpr (std::is_same_v<T, uint64_t>)
    return contents.uint64_contents();
  else if constexpr (std::is_signed_v<T>)
    return contents.int_contents();
  else
    return contents.uint_contents();
}

size_t elements_of(const inference::InferTensorContents& contents) {
  const int sizes[] = {contents.bool_contents_size(), contents.int_contents_size(),    contents.int64_contents_size(),
                       contents.uint_contents_size(), contents.uint64_contents_size(), contents.fp32_contents_size(),
                       contents.fp64_contents_size(), contents.bytes_contents_size()};
  size_t all = 0;
  for (const int size : sizes) all += static_cast<size_t>(size);
  return all;
}

Result<Tensor> tensor_of_contents(DType dtype, const Shape& shape, const inference::InferTensorContents& contents) {
  if (!has_json_form(dtype))  // nor has it one here
    return error(Code::kUnsupported,
                 fmt::format("contents: {} has no list; send its bytes (raw_input_contents)", *kserve_name(dtype)));
  const auto count = static_cast<size_t>(shape.elements());
  // The list is the type's own only if all elements are in it.
  const auto check = [&](int in_list) -> Result<> {
    const size_t all = elements_of(contents);
    if (static_cast<size_t>(in_list) == count && all == count) return {};
    return error(Code::kInvalid, fmt::format("contents: the list of {} has {} elements of {}, the shape {} has {}",
                                             *kserve_name(dtype), in_list, all, to_string(shape), count));
  };
  if (dtype == DType::kString) {
    BOLIDE_TRY(check(contents.bytes_contents_size()));
    return Tensor::strings(shape, {contents.bytes_contents().begin(), contents.bytes_contents().end()});
  }
  Tensor tensor;
  const auto read = [&]<class T>() -> Result<> {
    const auto& list = list_of<T>(contents);
    BOLIDE_TRY(check(list.size()));
    BOLIDE_TRY(tensor, Tensor::make(dtype, shape));
    return copy_elements<T>(list, tensor);
  };
  BOLIDE_TRY(dispatch(Types<float, double, Bool>{} + kIntegers, dtype, "it", read));
  return tensor;
}

// `raw`: its bytes, or null: it has contents.
Result<InferInput> read_input(const inference::ModelInferRequest::InferInputTensor& from, const std::string* raw,
                              const RequestLimits& limits) {
  InferInput input;
  input.name = from.name();
  const std::string where = fmt::format("input {:.100}", input.name);
  const auto dtype = dtype_of_kserve(from.datatype());
  if (!dtype) return wrong(where, fmt::format("datatype {:.40}: expected one of {}", from.datatype(), kserve_names()));
  const std::vector<int64_t> dims(from.shape().begin(), from.shape().end());
  BOLIDE_TRY(const Shape shape, checked_shape(dims).context(where));
  BOLIDE_TRY(const Json parameters, parameters_of(from.parameters(), where, limits));
  BOLIDE_TRY(check_input_parameters(parameters, where));
  if (raw != nullptr) {
    if (elements_of(from.contents()) > 0)
      return wrong(where, "has contents, and the request raw_input_contents; give one of them");
    BOLIDE_TRY(input.tensor, tensor_of_bytes(*dtype, shape, *raw, limits.nodes_max).context(where));
  } else {
    BOLIDE_TRY(input.tensor, tensor_of_contents(*dtype, shape, from.contents()).context(where));
  }
  return input;
}

Result<InferRequest> read_infer(const inference::ModelInferRequest& from, bool* empty_final,
                                const RequestLimits& limits) {
  InferRequest request;
  request.raw_outputs = true;
  request.id = from.id();
  BOLIDE_TRY(check_id(request.id));
  BOLIDE_TRY(request.parameters, parameters_of(from.parameters(), "the request", limits));
  if (const auto it = request.parameters.find("triton_enable_empty_final_response"); it != request.parameters.end()) {
    if (!it->is_boolean()) return wrong("parameters.triton_enable_empty_final_response", "must be true or false");
    *empty_final = it->get<bool>();
    request.parameters.erase(it);
  }
  BOLIDE_TRY(request.timeout_us, take_timeout(request.parameters));
  for (const auto& [what, count] : {std::pair{"inputs", from.inputs_size()}, {"outputs", from.outputs_size()}})
    if (static_cast<size_t>(count) > kTensorsMax)
      return wrong(what, fmt::format("has {}, at most {}", count, kTensorsMax));
  if (from.raw_input_contents_size() > 0 && from.raw_input_contents_size() != from.inputs_size())
    return wrong("raw_input_contents", fmt::format("has {}, one for each of {} inputs is expected",
                                                   from.raw_input_contents_size(), from.inputs_size()));
  for (int i = 0; i < from.inputs_size(); ++i) {
    const std::string* raw = from.raw_input_contents_size() > 0 ? &from.raw_input_contents(i) : nullptr;
    BOLIDE_TRY(InferInput input, read_input(from.inputs(i), raw, limits));
    request.inputs.push_back(std::move(input));
  }
  for (const auto& wish : from.outputs()) {
    const std::string where = fmt::format("output {:.100}", wish.name());
    BOLIDE_TRY(const Json parameters, parameters_of(wish.parameters(), where, limits));
    BOLIDE_TRY(no_parameters_left(parameters, where));
    request.outputs.push_back({wish.name(), true});
  }
  return request;
}

template <class Map>
Result<> check_change_parameters(const Map& parameters, bool load) {
  for (const auto& [name, value] : parameters) BOLIDE_TRY(check_change_parameter(name, load));
  return {};
}

}  // namespace

Result<InferMessage> parse_infer_message(std::string_view bytes, const RequestLimits& limits) {
  BOLIDE_TRY(const auto from, parse<inference::ModelInferRequest>(bytes, limits));
  InferMessage message;
  message.model = from.model_name();
  message.version = from.model_version();
  message.id = from.id();
  message.request = read_infer(from, &message.empty_final, limits);
  return message;
}

Result<ModelNameMessage> parse_model_name_message(std::string_view bytes, const RequestLimits& limits) {
  BOLIDE_TRY(auto from, parse<inference::ModelReadyRequest>(bytes, limits));
  return ModelNameMessage{from.name(), from.version()};
}

Result<bool> parse_index_message(std::string_view bytes, const RequestLimits& limits) {
  BOLIDE_TRY(const auto from, parse<inference::RepositoryIndexRequest>(bytes, limits));
  return from.ready();
}

Result<std::string> parse_change_message(std::string_view bytes, bool load, const RequestLimits& limits) {
  if (load) {
    BOLIDE_TRY(const auto from, parse<inference::RepositoryModelLoadRequest>(bytes, limits));
    BOLIDE_TRY(check_change_parameters(from.parameters(), true));
    return from.model_name();
  }
  BOLIDE_TRY(const auto from, parse<inference::RepositoryModelUnloadRequest>(bytes, limits));
  BOLIDE_TRY(check_change_parameters(from.parameters(), false));
  return from.model_name();
}

Result<std::string> parse_health_message(std::string_view bytes, const RequestLimits& limits) {
  BOLIDE_TRY(const auto from, parse<::grpc::health::v1::HealthCheckRequest>(bytes, limits));
  return from.service();
}

}  // namespace bolide::server
