// ONNX files (the protobuf messages of onnx.proto, read from the wire format): what they say, unchecked against any
// operator's definition. Texts and tensors' bytes are views of the file.
//
// Every size is checked against the bytes that are there before it is used; unknown fields are skipped.
// Thread rules: immutable once parsed.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/result.h"
#include "tensor/value.h"

namespace bolide {

// A tensor as the file stores it: one of raw, one of the typed fields, or elsewhere.
struct OnnxTensor {
  std::string_view name;
  int64_t data_type = 0;
  std::vector<int64_t> dims;
  std::optional<Bytes> raw;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<int64_t> integers;  // int32_data, int64_data, uint64_data
  std::vector<std::string_view> strings;
  bool external = false;
  std::vector<std::pair<std::string_view, std::string_view>> external_data;
};
struct OnnxSparseTensor {
  OnnxTensor values, indices;
  std::vector<int64_t> dims;
};

struct OnnxDim {
  std::optional<int64_t> value;
  std::string_view symbol;  // or neither: unknown
};
struct OnnxType {
  enum class Kind : uint8_t { kUnknown, kTensor, kSequence, kOptional, kMap, kSparse };
  Kind kind = Kind::kUnknown;
  int64_t element = 0;                       // tensors: data type
  std::optional<std::vector<OnnxDim>> dims;  // tensors: absent if the rank is unknown
  std::vector<OnnxType> of;                  // sequences, optionals: one
};
struct OnnxValueInfo {
  std::string_view name;
  OnnxType type;
};

struct OnnxGraph;
struct OnnxAttribute {
  std::string_view name, reference;  // reference: the attribute of the function whose value it is
  int64_t type = 0;                  // AttributeProto.AttributeType; 0: not said
  float number = 0;
  int64_t integer = 0;
  std::string_view text;
  std::vector<float> numbers;
  std::vector<int64_t> integers;
  std::vector<std::string_view> texts;
  std::vector<OnnxTensor> tensors;  // of a tensor, too
  std::vector<OnnxGraph> graphs;    // of a graph, too
  std::vector<OnnxType> types;
  bool is_sparse = false;
  std::vector<OnnxSparseTensor> sparse;
};
struct OnnxNode {
  std::string_view name, op, domain, overload;
  std::vector<std::string_view> in, out;
  std::vector<OnnxAttribute> attributes;
};
struct OnnxGraph {
  std::string_view name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxSparseTensor> sparse_initializers;
  std::vector<OnnxValueInfo> inputs, outputs, values;
};
struct OnnxOpset {
  std::string_view domain;
  int64_t version = 1;
};
struct OnnxFunction {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs, attributes;
  std::vector<OnnxAttribute> defaults;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxOpset> opsets;
};
struct OnnxModel {
  int64_t ir_version = 0;
  std::string_view producer;
  std::vector<OnnxOpset> opsets;
  OnnxGraph graph;
  std::vector<OnnxFunction> functions;
  std::vector<std::pair<std::string_view, std::string_view>> metadata;

  // `label` names the file in errors; the model keeps views of `file`.
  static Result<OnnxModel> parse(Bytes file, const std::string& label);
};

// The element type of a data type of onnx.proto; kUnsupported names what there is no tensor for.
Result<DType> onnx_dtype(int64_t data_type);

// Where tensors' bytes lie: `owner` keeps the mapping of the model's file alive, and files of external data are looked
// for in `folder` alone: not through links, not outside.
struct OnnxData {
  std::shared_ptr<const void> owner;
  std::filesystem::path folder;
};
Result<Tensor> onnx_tensor(const OnnxTensor& tensor, const OnnxData& data);
Result<Tensor> onnx_tensor(const OnnxSparseTensor& tensor, const OnnxData& data);

// Files of test suites: a TensorProto, a SequenceProto or an OptionalProto, by the kind of `type`.
Result<AnyValue> parse_onnx_value(Bytes file, const OnnxType& type, const std::string& label);

}  // namespace bolide
