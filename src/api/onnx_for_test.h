// ONNX files in a few lines, for tests: protobuf's wire format with the field numbers of onnx.proto.
#pragma once

#include <bit>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace bolide {

class ProtoText {
 public:
  ProtoText& integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtoText& number(int field, float value) {
    tag(field, 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(bits >> (8 * i));
    return *this;
  }
  ProtoText& text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtoText& message(int field, const ProtoText& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire) { varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire)); }
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

enum OnnxElement : int64_t { kOnnxFloat = 1, kOnnxInt32 = 6, kOnnxInt64 = 7, kOnnxString = 8 };

// Dims are numbers ("3") or symbols ("N").
inline ProtoText onnx_port(std::string_view name, OnnxElement element, const std::vector<std::string>& dims) {
  ProtoText shape;
  for (const std::string& dim : dims)
    shape.message(1,
                  dim[0] >= '0' && dim[0] <= '9' ? ProtoText().integer(1, std::stoll(dim)) : ProtoText().text(2, dim));
  return ProtoText().text(1, name).message(2,
                                           ProtoText().message(1, ProtoText().integer(1, element).message(2, shape)));
}

inline ProtoText onnx_node(std::string_view op, const std::vector<std::string>& in, const std::vector<std::string>& out,
                           std::string_view domain = "", const std::vector<ProtoText>& attributes = {}) {
  ProtoText node;
  for (const std::string& name : in) node.text(1, name);
  for (const std::string& name : out) node.text(2, name);
  node.text(3, std::string("the_") + std::string(op)).text(4, op).text(7, domain);
  for (const ProtoText& attribute : attributes) node.message(5, attribute);
  return node;
}

// Operator set 20 of ai.onnx, 1 of "example" and of com.microsoft.
inline void write_onnx(const std::string& path, const std::vector<ProtoText>& nodes,
                       const std::vector<ProtoText>& inputs, const std::vector<ProtoText>& outputs) {
  ProtoText graph;
  for (const ProtoText& node : nodes) graph.message(1, node);
  graph.text(2, "graph");
  for (const ProtoText& port : inputs) graph.message(11, port);
  for (const ProtoText& port : outputs) graph.message(12, port);
  ProtoText model;
  model.integer(1, 9)
      .message(7, graph)
      .message(8, ProtoText().text(1, "").integer(2, 20))
      .message(8, ProtoText().text(1, "example").integer(2, 1))
      .message(8, ProtoText().text(1, "com.microsoft").integer(2, 1));
  std::ofstream(path, std::ios::binary) << model.bytes();
}

}  // namespace bolide
