// Bodies of KServe's inference routes as typed values: `infer` with tensors as JSON or raw bytes, and Triton's
// `generate`.
//
// As in the other dialects, parameters that Bolide does not have are refused by name.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/served_network.h"
#include "server/wishes.h"
#include "tensor/value.h"

namespace bolide::server {

struct InferInput {
  std::string name;
  Tensor tensor;
};
struct InferOutputWish {
  std::string name;
  bool raw = false;  // its data as raw bytes
};
struct InferRequest {
  std::string id;  // empty: none
  std::vector<InferInput> inputs;
  std::vector<InferOutputWish> outputs;  // empty: all that there are
  bool raw_outputs = false;              // of those that are not wished for one by one
  std::optional<int64_t> timeout_us;
  nlohmann::ordered_json parameters;  // what else there is: an object
};

// `json_bytes`: what the header Inference-Header-Content-Length says: how much of the body is JSON; nothing: all of it.
Result<InferRequest> parse_infer_request(std::string_view body, std::optional<uint64_t> json_bytes,
                                         const RequestLimits& limits);
// A body that is the raw bytes of the only input (json_bytes 0), of which one dim may be open; all outputs are raw.
Result<InferRequest> raw_infer_request(std::string_view body, const std::vector<TensorPort>& inputs,
                                       const RequestLimits& limits);

// The tensors in the order of `inputs`, each of its type and shape. Errors name the input, and what was expected.
Result<std::vector<AnyValue>> match_inputs(std::vector<InferInput> given, const std::vector<TensorPort>& inputs);
// Places in `outputs`, in the order of the answer. Errors: unknown names, types that have to be asked for as raw bytes.
struct ChosenOutput {
  size_t place = 0;
  bool raw = false;
};
Result<std::vector<ChosenOutput>> choose_outputs(const InferRequest& request, const std::vector<TensorPort>& outputs);

// Of a language model: a text, and how to continue it.
struct TextRequest {
  std::string id, text;
  std::vector<int64_t> shape;  // infer: of text_input
  Wishes wishes;
  std::optional<int64_t> timeout_us;
};
// {"id"?, "text_input" or "text", "stream"?, "parameters"?: {...}}; further keys are parameters, too.
Result<TextRequest> parse_generate_request(std::string_view body, const RequestLimits& limits);
// infer's inputs: text_input, and parameters as tensors of one element. `streams`: the answer may be a stream, and is
// one unless the request says otherwise.
Result<TextRequest> text_of_infer(const InferRequest& request, const RequestLimits& limits, bool streams = false);

// What all who read such requests look at. `where`: the tensor, or "the request".
constexpr size_t kTensorsMax = 1024;  // inputs, or outputs, of a request
Result<> check_id(std::string_view id);
Result<> check_input_parameters(const nlohmann::ordered_json& parameters, std::string_view where);
Result<> no_parameters_left(const nlohmann::ordered_json& parameters, std::string_view where);
// Microseconds, as Triton has it; takes it out of the parameters. Nothing: there is none, or it is 0.
Result<std::optional<int64_t>> take_timeout(nlohmann::ordered_json& parameters);

}  // namespace bolide::server
