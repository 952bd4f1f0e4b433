// ONNX files, written: a model as plain structs whose weights are made while they go to the file, so that no model is
// held in memory. What is written is what formats/onnx_file.h reads.
//
// Thread rules: plain values; write_onnx calls the weights' functions on the caller's thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace bolide {

struct OnnxDraftTensor {
  // Makes the tensor's bytes from `offset` on, which is a multiple of kOnnxPieceBytes.
  using Fill = std::function<void(uint64_t offset, MutableBytes out)>;

  std::string name;
  DType dtype = DType::kF32;  // a type of whole bytes
  std::vector<int64_t> dims;
  std::string bytes;  // all of them, unless there is `fill`
  Fill fill;

  uint64_t byte_size() const;
};
// Weights are made in pieces of this size.
inline constexpr size_t kOnnxPieceBytes = size_t{1} << 20;

struct OnnxDraftAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>, OnnxDraftTensor> value;
};
struct OnnxDraftNode {
  std::string name, op, domain;
  std::vector<std::string> in, out;  // an empty name: an optional input that is not given
  std::vector<OnnxDraftAttribute> attributes;
};
struct OnnxDraftPort {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::variant<int64_t, std::string>> dims;  // sizes or symbols
};
struct OnnxDraft {
  int64_t ir_version = 8;
  std::string producer, producer_version, name;         // name: the graph's
  std::vector<std::pair<std::string, int64_t>> opsets;  // domain ("": ai.onnx) and version
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<OnnxDraftNode> nodes;
  std::vector<OnnxDraftTensor> initializers;
  std::vector<OnnxDraftPort> inputs, outputs;

  uint64_t weight_bytes() const;
};

struct OnnxWriteOptions {
  // Initialisers in a second file beside the model, named after it with ".data" behind. A model beyond what protobuf
  // can hold (2 GB) has one anyway.
  bool external = false;
  uint64_t inline_bytes_max = 2'000'000'000;
};
struct OnnxWritten {
  uint64_t bytes = 0, external_bytes = 0;
  std::filesystem::path data;  // empty: there is none
};
// Bytes of weights that are written, and all that will be.
using OnnxWriteProgress = FunctionRef<void(uint64_t done, uint64_t total)>;

// Writes atomically, the data first: what was there stays until all is written. Errors: those of AtomicFile.
Result<OnnxWritten> write_onnx(const OnnxDraft& model, const std::filesystem::path& path,
                               const OnnxWriteOptions& options = {}, const OnnxWriteProgress* progress = nullptr);

}  // namespace bolide
