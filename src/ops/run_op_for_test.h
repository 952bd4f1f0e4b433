// One op run by its name, for tests.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "ir/op_def.h"
#include "ops/ops.h"

namespace bolide {

using NamedAttribute = std::pair<std::string, Attributes::Any>;

// Inputs of kNone are absent. kNotFound: no such op in that version.
inline Result<std::vector<AnyValue>> run_op(std::string_view name, int64_t version, const std::vector<Tensor>& inputs,
                                            const std::vector<NamedAttribute>& attributes = {}, size_t outputs = 1,
                                            std::string_view domain = "") {
  const OpDef* def = find_op(domain, name, version);
  if (def == nullptr) return error(Code::kNotFound, std::string(name));
  Attributes given;
  for (const auto& [key, value] : attributes) given.set(key, value);
  std::vector<AnyValue> values(inputs.begin(), inputs.end());
  std::vector<const AnyValue*> in;
  for (size_t i = 0; i < values.size(); ++i) in.push_back(inputs[i] ? &values[i] : nullptr);
  std::vector<AnyValue> out(outputs);
  static Workers workers(2);
  const auto no_body = [](std::string_view, const std::vector<AnyValue>&) -> Result<std::vector<AnyValue>> {
    return error(Code::kInvalid, "no body");
  };
  RunContext context(given, version, in, out, workers, heap_pool(), no_body);
  BOLIDE_TRY(def->run(context));
  return out;
}

template <class T>
Tensor tensor_of(DType dtype, const Shape& shape, std::vector<T> values) {
  return Tensor::vector(dtype, std::span<const T>(values)).reshaped(shape);
}
inline Tensor floats(const Shape& shape, std::vector<float> values) {
  return tensor_of(DType::kF32, shape, std::move(values));
}
inline Tensor integers(const Shape& shape, std::vector<int64_t> values) {
  return tensor_of(DType::kI64, shape, std::move(values));
}

}  // namespace bolide
