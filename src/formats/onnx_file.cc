#include "formats/onnx_file.h"

#include <fmt/format.h>

#include "formats/proto_wire.h"

namespace bolide {
namespace {

using Wire = ProtoField::Wire;

constexpr int kDepthMax = 64;  // of graphs in attributes of nodes of graphs, and of types

// A message: calls see(field) for each of its fields.
template <class See>
Result<> fields(Bytes message, int depth, See&& see) {
  if (depth > kDepthMax) return error(Code::kInvalid, fmt::format("messages nested more than {} deep", kDepthMax));
  ProtoReader reader(message);
  while (!reader.done()) {
    BOLIDE_TRY(const ProtoField field, reader.next());
    BOLIDE_TRY(see(field));
  }
  return {};
}

// A field that is a message, read into `to` by `read`.
template <class T>
Result<> into(Result<> (*read)(Bytes, int, T&), const ProtoField& field, int depth, T& to) {
  if (field.wire != Wire::kBytes) return error(Code::kInvalid, "broken protobuf: a message is a number");
  return read(field.bytes, depth + 1, to);
}
template <class T>
Result<> append(Result<> (*read)(Bytes, int, T&), const ProtoField& field, int depth, std::vector<T>& to) {
  return into(read, field, depth, to.emplace_back());
}

using Pair = std::pair<std::string_view, std::string_view>;
Result<> read_pair(Bytes message, int depth, Pair& pair) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    if (f.number == 1) pair.first = f.text();
    if (f.number == 2) pair.second = f.text();
    return {};
  });
}

Result<> read_tensor(Bytes message, int depth, OnnxTensor& t) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: return append_integers(f, t.dims);
      case 2: t.data_type = f.integer(); return {};
      case 4: return append_floats(f, t.floats);
      case 5:
      case 7:
      case 11: return append_integers(f, t.integers);
      case 6: t.strings.push_back(f.text()); return {};
      case 8: t.name = f.text(); return {};
      case 9:
        if (f.wire != Wire::kBytes) return error(Code::kInvalid, "broken protobuf: raw_data is a number");
        t.raw = f.bytes;
        return {};
      case 10: return append_doubles(f, t.doubles);
      case 13: return append(read_pair, f, depth, t.external_data);
      case 14: t.external = f.value == 1; return {};
      default: return {};
    }
  });
}

Result<> read_sparse(Bytes message, int depth, OnnxSparseTensor& t) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: return into(read_tensor, f, depth, t.values);
      case 2: return into(read_tensor, f, depth, t.indices);
      case 3: return append_integers(f, t.dims);
      default: return {};
    }
  });
}

Result<> read_dim(Bytes message, int depth, OnnxDim& dim) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    // Some exporters leave a dim open with -1, or with a name that is none and stands for all that are open.
    if (f.number == 1 && f.integer() >= 0) dim.value = f.integer();
    if (f.number == 2 && f.text() != "?" && f.text() != "-1" && f.text() != "None") dim.symbol = f.text();
    return {};
  });
}

Result<> read_shape(Bytes message, int depth, std::vector<OnnxDim>& dims) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    return f.number == 1 ? append(read_dim, f, depth, dims) : Result<>();
  });
}

Result<> read_type(Bytes message, int depth, OnnxType& type);

Result<> read_tensor_type(Bytes message, int depth, OnnxType& type) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    if (f.number == 1) type.element = f.integer();
    if (f.number == 2) return into(read_shape, f, depth, type.dims.emplace());
    return {};
  });
}
Result<> read_element_type(Bytes message, int depth, OnnxType& type) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    if (f.number != 1) return {};
    type.of.resize(1);
    return into(read_type, f, depth, type.of[0]);
  });
}
Result<> read_type(Bytes message, int depth, OnnxType& type) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: type.kind = OnnxType::Kind::kTensor; return into(read_tensor_type, f, depth, type);
      case 4: type.kind = OnnxType::Kind::kSequence; return into(read_element_type, f, depth, type);
      case 5: type.kind = OnnxType::Kind::kMap; return {};
      case 8: type.kind = OnnxType::Kind::kSparse; return into(read_tensor_type, f, depth, type);
      case 9: type.kind = OnnxType::Kind::kOptional; return into(read_element_type, f, depth, type);
      default: return {};
    }
  });
}

Result<> read_value_info(Bytes message, int depth, OnnxValueInfo& info) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    if (f.number == 1) info.name = f.text();
    if (f.number == 2) return into(read_type, f, depth, info.type);
    return {};
  });
}

Result<> read_graph(Bytes message, int depth, OnnxGraph& graph);

Result<> read_attribute(Bytes message, int depth, OnnxAttribute& a) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: a.name = f.text(); return {};
      case 2: a.number = f.number32(); return {};
      case 3: a.integer = f.integer(); return {};
      case 4: a.text = f.text(); return {};
      case 5:
      case 10: return append(read_tensor, f, depth, a.tensors);
      case 6:
      case 11: return append(read_graph, f, depth, a.graphs);
      case 7: return append_floats(f, a.numbers);
      case 8: return append_integers(f, a.integers);
      case 9: a.texts.push_back(f.text()); return {};
      case 14:
      case 15: return append(read_type, f, depth, a.types);
      case 20: a.type = f.integer(); return {};
      case 21: a.reference = f.text(); return {};
      case 22:
      case 23: a.is_sparse = true; return append(read_sparse, f, depth, a.sparse);
      default: return {};
    }
  });
}

Result<> read_node(Bytes message, int depth, OnnxNode& node) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: node.in.push_back(f.text()); return {};
      case 2: node.out.push_back(f.text()); return {};
      case 3: node.name = f.text(); return {};
      case 4: node.op = f.text(); return {};
      case 5: return append(read_attribute, f, depth, node.attributes);
      case 7: node.domain = f.text(); return {};
      case 8: node.overload = f.text(); return {};
      default: return {};
    }
  });
}

Result<> read_graph(Bytes message, int depth, OnnxGraph& graph) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: return append(read_node, f, depth, graph.nodes);
      case 2: graph.name = f.text(); return {};
      case 5: return append(read_tensor, f, depth, graph.initializers);
      case 11: return append(read_value_info, f, depth, graph.inputs);
      case 12: return append(read_value_info, f, depth, graph.outputs);
      case 13: return append(read_value_info, f, depth, graph.values);
      case 15: return append(read_sparse, f, depth, graph.sparse_initializers);
      default: return {};
    }
  });
}

Result<> read_opset(Bytes message, int depth, OnnxOpset& opset) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    if (f.number == 1) opset.domain = f.text();
    if (f.number == 2) opset.version = f.integer();
    return {};
  });
}

Result<> read_function(Bytes message, int depth, OnnxFunction& function) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: function.name = f.text(); return {};
      case 4: function.inputs.push_back(f.text()); return {};
      case 5: function.outputs.push_back(f.text()); return {};
      case 6: function.attributes.push_back(f.text()); return {};
      case 7: return append(read_node, f, depth, function.nodes);
      case 9: return append(read_opset, f, depth, function.opsets);
      case 10: function.domain = f.text(); return {};
      case 11: return append(read_attribute, f, depth, function.defaults);
      case 13: function.overload = f.text(); return {};
      default: return {};
    }
  });
}

Result<> read_model(Bytes message, int depth, OnnxModel& model) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    switch (f.number) {
      case 1: model.ir_version = f.integer(); return {};
      case 2: model.producer = f.text(); return {};
      case 7: return into(read_graph, f, depth, model.graph);
      case 8: return append(read_opset, f, depth, model.opsets);
      case 14: return append(read_pair, f, depth, model.metadata);
      case 25: return append(read_function, f, depth, model.functions);
      default: return {};
    }
  });
}

struct StoredSequence {
  std::vector<OnnxTensor> tensors;
  std::vector<Bytes> sequences, optionals;
};
Result<> read_sequence(Bytes message, int depth, StoredSequence& to) {
  return fields(message, depth, [&](const ProtoField& f) -> Result<> {
    if (f.number == 3) return append(read_tensor, f, depth, to.tensors);
    if (f.number == 5) to.sequences.push_back(f.bytes);
    if (f.number == 7) to.optionals.push_back(f.bytes);
    return {};
  });
}

Result<AnyValue> value_of(Bytes message, const OnnxType& type, int depth) {
  if (depth > kDepthMax) return error(Code::kInvalid, "a type nested too deep");
  const OnnxType of = type.of.empty() ? OnnxType{OnnxType::Kind::kTensor, 0, {}, {}} : type.of[0];
  switch (type.kind) {
    case OnnxType::Kind::kTensor: {
      OnnxTensor stored;
      BOLIDE_TRY(read_tensor(message, 0, stored));
      BOLIDE_TRY(Tensor tensor, onnx_tensor(stored, {}));
      return AnyValue(std::move(tensor));
    }
    case OnnxType::Kind::kSequence: {
      StoredSequence stored;
      BOLIDE_TRY(read_sequence(message, 0, stored));
      auto sequence = std::make_shared<ValueSequence>();
      for (const OnnxTensor& one : stored.tensors) {
        BOLIDE_TRY(Tensor tensor, onnx_tensor(one, {}));
        sequence->items.emplace_back(std::move(tensor));
      }
      for (const Bytes one : of.kind == OnnxType::Kind::kOptional ? stored.optionals : stored.sequences) {
        BOLIDE_TRY(AnyValue item, value_of(one, of, depth + 1));
        sequence->items.push_back(std::move(item));
      }
      return AnyValue(std::shared_ptr<const ValueSequence>(std::move(sequence)));
    }
    case OnnxType::Kind::kOptional: {
      std::optional<Bytes> there;
      BOLIDE_TRY(fields(message, 0, [&](const ProtoField& f) -> Result<> {
        if ((f.number == 3 && of.kind == OnnxType::Kind::kTensor) ||
            (f.number == 5 && of.kind == OnnxType::Kind::kSequence))
          there = f.bytes;
        return {};
      }));
      if (!there.has_value()) return AnyValue();
      return value_of(*there, of, depth + 1);
    }
    default: return error(Code::kUnsupported, "values that are neither tensors, sequences nor optionals");
  }
}

}  // namespace

Result<OnnxModel> OnnxModel::parse(Bytes file, const std::string& label) {
  OnnxModel model;
  if (auto read = read_model(file, 0, model); !read) {
    read.error().text += "; it is no ONNX file, or not all of one: export or download it again";
    return std::move(read).error().context(label);
  }
  if (model.ir_version == 0 && model.graph.nodes.empty() && model.opsets.empty())
    return error(Code::kInvalid, fmt::format("{}: is no ONNX model (no ir_version, no graph)", label));
  if (model.graph.nodes.empty() && model.graph.outputs.empty())
    return error(Code::kInvalid, fmt::format("{}: has no graph, or one without nodes and outputs", label));
  return model;
}

Result<AnyValue> parse_onnx_value(Bytes file, const OnnxType& type, const std::string& label) {
  return value_of(file, type, 0).context(label);
}

}  // namespace bolide
