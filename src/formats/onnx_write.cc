#include "formats/onnx_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "formats/proto_write.h"

namespace bolide {
namespace {

using Path = std::filesystem::path;

// External tensors begin at pages, so that they can be mapped where they lie.
constexpr uint64_t kExternalAlignment = 4096;

// Numbers of onnx.proto's fields and enumerations.
constexpr uint32_t kModelGraph = 7;
constexpr uint32_t kGraphNode = 1, kGraphName = 2, kGraphInitializer = 5, kGraphInput = 11, kGraphOutput = 12;
constexpr uint32_t kTensorRaw = 9;

int64_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 1;
    case DType::kU8: return 2;
    case DType::kI8: return 3;
    case DType::kU16: return 4;
    case DType::kI16: return 5;
    case DType::kI32: return 6;
    case DType::kI64: return 7;
    case DType::kBool: return 9;
    case DType::kF16: return 10;
    case DType::kF64: return 11;
    case DType::kU32: return 12;
    case DType::kU64: return 13;
    case DType::kBF16: return 16;
    default: break;
  }
  BOLIDE_CHECK(false, "no ONNX file is written with {}", to_string(dtype));
  return 0;
}

// All of a tensor but its bytes.
ProtoWriter tensor_head(const OnnxDraftTensor& tensor) {
  ProtoWriter out;
  out.integers(1, tensor.dims);
  out.integer(2, data_type(tensor.dtype));
  if (!tensor.name.empty()) out.text(8, tensor.name);
  return out;
}

ProtoWriter attribute(const OnnxDraftAttribute& given) {
  ProtoWriter out;
  out.text(1, given.name);
  int64_t type = 0;
  if (const auto* integer = std::get_if<int64_t>(&given.value)) {
    out.integer(3, *integer), type = 2;
  } else if (const auto* number = std::get_if<float>(&given.value)) {
    out.number32(2, *number), type = 1;
  } else if (const auto* text = std::get_if<std::string>(&given.value)) {
    out.text(4, *text), type = 3;
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&given.value)) {
    out.integers(8, *integers), type = 7;
  } else if (const auto* numbers = std::get_if<std::vector<float>>(&given.value)) {
    for (const float value : *numbers) out.number32(7, value);
    type = 6;
  } else {
    const auto& tensor = std::get<OnnxDraftTensor>(given.value);
    BOLIDE_CHECK(tensor.bytes.size() == tensor.byte_size(), "attribute {}: {} bytes", given.name, tensor.bytes.size());
    ProtoWriter body = tensor_head(tensor);
    body.text(kTensorRaw, tensor.bytes);
    out.message(5, body), type = 4;
  }
  out.integer(20, type);
  return out;
}

ProtoWriter node(const OnnxDraftNode& given) {
  ProtoWriter out;
  for (const std::string& name : given.in) out.text(1, name);
  for (const std::string& name : given.out) out.text(2, name);
  out.text(3, given.name);
  out.text(4, given.op);
  for (const OnnxDraftAttribute& each : given.attributes) out.message(5, attribute(each));
  if (!given.domain.empty()) out.text(7, given.domain);
  return out;
}

ProtoWriter port(const OnnxDraftPort& given) {
  ProtoWriter shape;
  for (const auto& dim : given.dims) {
    ProtoWriter one;
    if (const auto* size = std::get_if<int64_t>(&dim))
      one.integer(1, *size);
    else
      one.text(2, std::get<std::string>(dim));
    shape.message(1, one);
  }
  ProtoWriter tensor, type, out;
  tensor.integer(1, data_type(given.dtype));
  tensor.message(2, shape);
  type.message(1, tensor);
  out.text(1, given.name);
  out.message(2, type);
  return out;
}

// "key: value" entries: of metadata and of external data.
ProtoWriter entry(std::string_view key, std::string_view value) {
  ProtoWriter out;
  out.text(1, key);
  out.text(2, value);
  return out;
}

// Bytes that the key and the length of a field of `size` bytes take, and those bytes.
uint64_t field_size(uint32_t field, uint64_t size) {
  ProtoWriter head;
  head.begin(field, size);
  return head.size() + size;
}

// Makes tensors' bytes and puts them into files, a piece at a time.
class WeightWriter {
 public:
  WeightWriter(uint64_t total, const OnnxWriteProgress* progress) : total_(total), progress_(progress) {}

  Result<> write(const OnnxDraftTensor& tensor, AtomicFile& file) {
    if (!tensor.fill) {
      BOLIDE_CHECK(tensor.bytes.size() == tensor.byte_size(), "{}: {} bytes", tensor.name, tensor.bytes.size());
      done_ += tensor.bytes.size();
      return file.append(as_bytes(tensor.bytes));
    }
    piece_.resize(kOnnxPieceBytes);
    const uint64_t size = tensor.byte_size();
    for (uint64_t at = 0; at < size; at += kOnnxPieceBytes) {
      const MutableBytes piece(piece_.data(), std::min<uint64_t>(kOnnxPieceBytes, size - at));
      tensor.fill(at, piece);
      BOLIDE_TRY(file.append(piece));
      done_ += piece.size();
      if (progress_ != nullptr) (*progress_)(done_, total_);
    }
    return {};
  }

 private:
  std::vector<std::byte> piece_;
  uint64_t done_ = 0, total_ = 0;
  const OnnxWriteProgress* progress_;
};

}  // namespace

uint64_t OnnxDraftTensor::byte_size() const {
  uint64_t elements = 1;
  for (const int64_t dim : dims) elements *= static_cast<uint64_t>(dim);
  return elements * static_cast<uint64_t>(bits_of(dtype)) / 8;
}

uint64_t OnnxDraft::weight_bytes() const {
  uint64_t bytes = 0;
  for (const OnnxDraftTensor& tensor : initializers) bytes += tensor.byte_size();
  return bytes;
}

Result<OnnxWritten> write_onnx(const OnnxDraft& model, const Path& path, const OnnxWriteOptions& options,
                               const OnnxWriteProgress* progress) {
  OnnxWritten written;
  const bool external = options.external || model.weight_bytes() > options.inline_bytes_max;
  WeightWriter weights(model.weight_bytes(), progress);
  const Path data_path = path.string() + ".data";
  BOLIDE_TRY(AtomicFile file, AtomicFile::create(path));
  std::optional<AtomicFile> data;
  if (external) {
    BOLIDE_TRY(AtomicFile made, AtomicFile::create(data_path));
    data.emplace(std::move(made));
    written.data = data_path;
  }

  // Heads of the tensors, and what the file has in front of their bytes and behind.
  std::vector<ProtoWriter> heads;
  ProtoWriter front, before, after, behind;
  for (const OnnxDraftNode& each : model.nodes) before.message(kGraphNode, node(each));
  before.text(kGraphName, model.name);
  uint64_t graph_size = before.size(), at = 0;
  for (const OnnxDraftTensor& tensor : model.initializers) {
    ProtoWriter head = tensor_head(tensor);
    uint64_t size = 0;
    if (external) {
      head.message(13, entry("location", data_path.filename().string()));
      head.message(13, entry("offset", fmt::format("{}", at)));
      head.message(13, entry("length", fmt::format("{}", tensor.byte_size())));
      head.integer(14, 1);
      size = head.size();
      at = round_up(at + tensor.byte_size(), kExternalAlignment);
    } else {
      const uint64_t all = head.size() + field_size(kTensorRaw, tensor.byte_size());
      head.begin(kTensorRaw, tensor.byte_size());
      size = all;
    }
    graph_size += field_size(kGraphInitializer, size);
    ProtoWriter whole;
    whole.begin(kGraphInitializer, size);
    heads.push_back(std::move(whole));
    heads.push_back(std::move(head));
  }
  for (const OnnxDraftPort& each : model.inputs) after.message(kGraphInput, port(each));
  for (const OnnxDraftPort& each : model.outputs) after.message(kGraphOutput, port(each));
  graph_size += after.size();

  front.integer(1, model.ir_version);
  front.text(2, model.producer);
  if (!model.producer_version.empty()) front.text(3, model.producer_version);
  front.begin(kModelGraph, graph_size);
  for (const auto& [domain, version] : model.opsets) {
    ProtoWriter opset;
    if (!domain.empty()) opset.text(1, domain);
    opset.integer(2, version);
    behind.message(8, opset);
  }
  for (const auto& [key, value] : model.metadata) behind.message(14, entry(key, value));

  const auto put = [&](const ProtoWriter& part) {
    written.bytes += part.size();
    return file.append(as_bytes(part.bytes()));
  };
  BOLIDE_TRY(put(front));
  BOLIDE_TRY(put(before));
  const std::string zeros(kExternalAlignment, '\0');
  for (size_t i = 0; i < model.initializers.size(); ++i) {
    const OnnxDraftTensor& tensor = model.initializers[i];
    BOLIDE_TRY(put(heads[2 * i]));
    BOLIDE_TRY(put(heads[2 * i + 1]));
    if (external) {
      const uint64_t end = round_up(written.external_bytes, kExternalAlignment);
      BOLIDE_TRY(data->append(as_bytes(std::string_view(zeros).substr(0, end - written.external_bytes))));
      written.external_bytes = end + tensor.byte_size();
    } else {
      written.bytes += tensor.byte_size();
    }
    BOLIDE_TRY(weights.write(tensor, external ? *data : file));
  }
  BOLIDE_TRY(put(after));
  BOLIDE_TRY(put(behind));
  if (external) BOLIDE_TRY(data->commit());
  BOLIDE_TRY(file.commit());
  return written;
}

}  // namespace bolide
