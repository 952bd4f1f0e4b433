#include "server/kserve_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/bytes.h"

namespace bolide::server {
namespace {

const RequestLimits kLimits;
const std::vector<TensorPort> kInputs = {{"x", DType::kF32, std::vector<int64_t>{-1, 2}},
                                         {"ids", DType::kI64, std::nullopt}};
const std::vector<TensorPort> kOutputs = {{"y", DType::kF32, std::vector<int64_t>{-1}},
                                          {"half", DType::kF16, std::vector<int64_t>{-1}}};

std::string error_of(std::string_view body, std::optional<uint64_t> json_bytes = std::nullopt) {
  const auto request = parse_infer_request(body, json_bytes, kLimits);
  return request.has_value() ? "nothing is wrong" : request.error().text;
}
void expect_error(const std::string& error, std::string_view part) {
  EXPECT_NE(error.find(part), std::string::npos) << error;
}
// A request with this input alone.
std::string with_input(std::string_view input) { return fmt::format(R"({{"inputs":[{}]}})", input); }

TEST(KserveRequest, JsonAndRawInputsInOneBody) {
  const std::string head = R"({"id":"7","parameters":{"timeout":1500,"binary_data_output":true},"inputs":[)"
                           R"({"name":"a","datatype":"INT16","shape":[2],"parameters":{"binary_data_size":4}},)"
                           R"({"name":"b","datatype":"FP64","shape":[1,2],"data":[[0.5,-1]]},)"
                           R"({"name":"c","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}}],)"
                           R"("outputs":[{"name":"y"},{"name":"z","parameters":{"binary_data":false}}]})";
  using namespace std::string_view_literals;
  const std::string body = head + std::string("\1\0\xff\xff\2\0\0\0hi"sv);
  const auto request = parse_infer_request(body, head.size(), kLimits);
  ASSERT_TRUE(request.has_value()) << request.error().text;
  EXPECT_EQ(request->id, "7");
  EXPECT_EQ(request->timeout_us, 1500);
  ASSERT_EQ(request->inputs.size(), 3u);
  EXPECT_EQ(request->inputs[0].tensor.as<int16_t>()[0], 1);
  EXPECT_EQ(request->inputs[0].tensor.as<int16_t>()[1], -1);
  EXPECT_EQ(request->inputs[1].tensor.as<double>()[1], -1);
  EXPECT_EQ(request->inputs[2].tensor.as<std::string>()[0], "hi");
  ASSERT_EQ(request->outputs.size(), 2u);
  EXPECT_TRUE(request->outputs[0].raw);
  EXPECT_FALSE(request->outputs[1].raw);

  expect_error(error_of(body), "the body ");
  expect_error(error_of(body.substr(0, body.size() - 1), head.size()), "input c: parameters.binary_data_size: 6 bytes");
  expect_error(error_of(body + "x", head.size()), "the body has 1 bytes more than its inputs");
  expect_error(error_of(body, body.size() + 1), "Inference-Header-Content-Length: ");
}

TEST(KserveRequest, ErrorsNameTheInput) {
  const struct {
    const char *input, *error;
  } kCases[] = {
      {R"(3)", "inputs[0]: must be an object"},
      {R"({"datatype":"FP32","shape":[1],"data":[1]})", "inputs[0]: name: must be a string"},
      {R"({"name":"x","shape":[1],"data":[1]})", "input x: datatype: must be a string"},
      {R"({"name":"x","datatype":"FP8","shape":[1],"data":[1]})", "input x: datatype FP8: expected one of BOOL"},
      {R"({"name":"x","datatype":"FP32","data":[1]})", "input x: shape: must be an array"},
      {R"({"name":"x","datatype":"FP32","shape":[1.5],"data":[1]})", "input x: shape: must be an array"},
      {R"({"name":"x","datatype":"FP32","shape":[18446744073709551615],"data":[1]})", "input x: shape: must be"},
      {R"({"name":"x","datatype":"FP32","shape":[-1],"data":[1]})", "input x: shape: -1 is no size"},
      {R"({"name":"x","datatype":"FP32","shape":[4294967296,4294967296],"data":[1]})", "too many elements"},
      {R"({"name":"x","datatype":"FP32","shape":[1]})", "input x: data: is required"},
      {R"({"name":"x","datatype":"FP32","shape":[2],"data":[1]})",
       "input x: data: has 1 elements, the shape [2] has 2"},
      {R"({"name":"x","datatype":"FP32","shape":[1],"data":["a"]})", "input x: data: \"a\" is no element of FP32"},
      {R"({"name":"x","datatype":"FP16","shape":[1],"data":[1]})", "input x: data: FP16 has no form in JSON"},
      {R"({"name":"x","datatype":"FP32","shape":[1],"data":[1],"parameters":{"binary_data_size":4}})", "give one of"},
      {R"({"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}})", "of which 0 are there"},
      {R"({"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":-4}})", "must be a whole number"},
      {R"({"name":"x","datatype":"FP32","shape":[1],"data":[1],"parameters":{"shared_memory_region":"r"}})",
       "no shared memory"},
      {R"({"name":"x","datatype":"FP32","shape":[1],"data":[1],"parameters":{"classification":1}})",
       "input x: parameters.classification: this server does not have it"}};
  for (const auto& c : kCases) expect_error(error_of(with_input(c.input)), c.error);
  expect_error(error_of("[]"), "must be a JSON object");
  expect_error(error_of("{}"), "inputs: must be an array");
  expect_error(error_of(R"({"inputs":[],"model":"x"})"), "model: this server does not have it");
  expect_error(error_of(R"({"inputs":[],"id":7})"), "id: must be a string");
  expect_error(error_of(R"({"inputs":[],"parameters":{"timeout":-1}})"), "parameters.timeout: ");
  expect_error(error_of(R"({"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":1}}]})"),
               "output y: binary_data: must be true or false");
}

InferInput input(const char* name, DType dtype, const Shape& shape) { return {name, *Tensor::make(dtype, shape)}; }

TEST(KserveRequest, InputsAreMatchedWithTheModels) {
  std::vector<InferInput> given;
  given.push_back(input("ids", DType::kI64, {3}));
  given.push_back(input("x", DType::kF32, {5, 2}));
  const auto values = match_inputs(std::move(given), kInputs);
  ASSERT_TRUE(values.has_value()) << values.error().text;
  EXPECT_EQ((*values)[0].tensor()->dtype(), DType::kF32);
  EXPECT_EQ((*values)[1].tensor()->dtype(), DType::kI64);

  const auto error_of = [](std::vector<InferInput> inputs) {
    const auto matched = match_inputs(std::move(inputs), kInputs);
    return matched.has_value() ? std::string("nothing is wrong") : matched.error().text;
  };
  expect_error(error_of({input("x", DType::kF32, {5, 3})}), "input x: FP32[5,3], expected FP32[-1,2]");
  expect_error(error_of({input("x", DType::kF32, {2})}), "input x: FP32[2], expected FP32[-1,2]");
  expect_error(error_of({input("x", DType::kF64, {1, 2})}), "input x: FP64[1,2], expected FP32[-1,2]");
  expect_error(error_of({input("z", DType::kF64, {1})}),
               "input z: the model has none of this name; it has x FP32[-1,2]");
  expect_error(error_of({input("x", DType::kF32, {1, 2})}), "input ids: is not given, expected INT64[...]");
  expect_error(error_of({input("x", DType::kF32, {1, 2}), input("x", DType::kF32, {1, 2})}), "input x: is given twice");
}

TEST(KserveRequest, OutputsAreChosen) {
  InferRequest request;
  request.raw_outputs = true;
  const auto all = choose_outputs(request, kOutputs);
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->size(), 2u);
  EXPECT_TRUE((*all)[1].raw);
  request.outputs = {{"half", true}};
  const auto one = choose_outputs(request, kOutputs);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->front().place, 1u);

  request.outputs = {{"half", false}};
  expect_error(choose_outputs(request, kOutputs).error().text, "output half: FP16 has no form in JSON");
  request.outputs = {{"y", false}, {"y", true}};
  expect_error(choose_outputs(request, kOutputs).error().text, "output y: is asked for twice");
  request.outputs = {{"z", false}};
  expect_error(choose_outputs(request, kOutputs).error().text, "output z: the model has none of this name; it has y ");
}

TEST(KserveRequest, ABodyOfRawBytesIsTheOnlyInput) {
  const std::vector<TensorPort> one = {kInputs[0]};
  const auto request = raw_infer_request(std::string(24, '\0'), one, kLimits);
  ASSERT_TRUE(request.has_value()) << request.error().text;
  EXPECT_TRUE(request->raw_outputs);
  EXPECT_EQ(request->inputs[0].tensor.shape(), (Shape{3, 2}));
  EXPECT_FALSE(raw_infer_request(std::string(23, '\0'), one, kLimits).has_value());
  expect_error(raw_infer_request("", kInputs, kLimits).error().text, "this one has 2 inputs");
  expect_error(raw_infer_request("", {kInputs[1]}, kLimits).error().text, "input ids is INT64[...]");
  const auto text = raw_infer_request("any text", {{"t", DType::kString, std::vector<int64_t>{-1}}}, kLimits);
  ASSERT_TRUE(text.has_value()) << text.error().text;
  EXPECT_EQ(text->inputs[0].tensor.as<std::string>()[0], "any text");
}

TEST(KserveRequest, WhatALanguageModelIsAsked) {
  const auto read = [](std::string_view body) { return parse_generate_request(body, kLimits); };
  const auto plain = read(R"({"id":"9","text_input":"hi","parameters":{"max_tokens":3,"stop":["a","b"]},"seed":5})");
  ASSERT_TRUE(plain.has_value()) << plain.error().text;
  EXPECT_EQ(plain->id, "9");
  EXPECT_EQ(plain->text, "hi");
  EXPECT_EQ(plain->wishes.tokens_max, 3);
  EXPECT_EQ(plain->wishes.seed, 5u);
  EXPECT_EQ(plain->wishes.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(plain->wishes.stream);
  const auto other = read(R"({"text":"hi","stream":true,"temperature":0})");
  ASSERT_TRUE(other.has_value()) << other.error().text;
  EXPECT_TRUE(other->wishes.stream);

  // What examples for Triton send.
  const auto triton = read(
      R"({"text_input":"hi","max_tokens":2,"bad_words":"","stop_words":["x"],"parameters":{"exclude_input_in_output":true}})");
  ASSERT_TRUE(triton.has_value()) << triton.error().text;
  EXPECT_EQ(triton->wishes.stops, std::vector<std::string>{"x"});
  const auto no_stops = read(R"({"text_input":"hi","bad_words":[""],"stop_words":""})");
  ASSERT_TRUE(no_stops.has_value()) << no_stops.error().text;
  EXPECT_TRUE(no_stops->wishes.stops.empty());

  const auto error_of = [&](std::string_view body) {
    const auto request = read(body);
    return request.has_value() ? std::string("nothing is wrong") : request.error().text;
  };
  expect_error(error_of("{}"), "text_input: is required");
  expect_error(error_of(R"({"text":1})"), "text: must be a string");
  expect_error(error_of(R"({"text":"a","text_input":"b"})"), "text: is another name of text_input");
  expect_error(error_of(R"({"text":"a","beams":2})"), "beams: this server does not have it; there are max_tokens");
  expect_error(error_of(R"({"text":"a","parameters":{"n":2}})"), "n: this server does not have it");
  expect_error(error_of(R"({"text":"a","seed":1,"parameters":{"seed":2}})"), "seed: is given twice");
  expect_error(error_of(R"({"text":"a","bad_words":["b"]})"), "bad_words: this server does not have it");
  expect_error(error_of(R"({"text":"a","stop":"b","stop_words":"c"})"), "stop_words: is another name of stop");
  expect_error(error_of(R"({"text":"a","exclude_input_in_output":false})"), "exclude_input_in_output: answers never");
  expect_error(error_of(R"({"text":"a","max_tokens":0})"), "max_tokens: must be a whole number from 1");
}

TEST(KserveRequest, TensorsOfOneElementAreParameters) {
  const auto parse = [](std::string_view inputs) -> Result<TextRequest> {
    BOLIDE_TRY(const InferRequest request, parse_infer_request(with_input(inputs), std::nullopt, kLimits));
    return text_of_infer(request, kLimits);
  };
  const std::string text = R"({"name":"text_input","datatype":"BYTES","shape":[1,1],"data":["hi"]})";
  const auto request = parse(text + R"(,{"name":"max_tokens","datatype":"INT32","shape":[1],"data":[4]})" +
                             R"(,{"name":"temperature","datatype":"FP32","shape":[1],"data":[0.5]})" +
                             R"(,{"name":"stop","datatype":"BYTES","shape":[2],"data":["x","y"]})");
  ASSERT_TRUE(request.has_value()) << request.error().text;
  EXPECT_EQ(request->text, "hi");
  EXPECT_EQ(request->shape, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(request->wishes.tokens_max, 4);
  EXPECT_EQ(request->wishes.sampling.temperature, 0.5f);
  EXPECT_EQ(request->wishes.stops, (std::vector<std::string>{"x", "y"}));

  const auto error_of = [&](const std::string& inputs) {
    const auto parsed = parse(inputs);
    return parsed.has_value() ? std::string("nothing is wrong") : parsed.error().text;
  };
  expect_error(error_of(R"({"name":"max_tokens","datatype":"INT32","shape":[1],"data":[4]})"),
               "input text_input: is not");
  expect_error(error_of(R"({"name":"text_input","datatype":"BYTES","shape":[2],"data":["a","b"]})"),
               "input text_input: BYTES[2], expected BYTES[1]");
  expect_error(error_of(text + "," + text), "input text_input: is given twice");
  expect_error(error_of(text + R"(,{"name":"stream","datatype":"BOOL","shape":[1],"data":[true]})"), "generate_stream");
  expect_error(error_of(text + R"(,{"name":"zeta","datatype":"BOOL","shape":[1],"data":[true]})"), "zeta: this server");
}

}  // namespace
}  // namespace bolide::server
