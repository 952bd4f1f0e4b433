#include "ir/op_def.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "tensor/half.h"

namespace bolide {
namespace {

constexpr std::string_view kKinds[] = {"an integer", "a number", "a text", "a tensor",
                                       "integers",   "numbers",  "texts",  "tensors"};

template <class T>
Result<T> typed(const Attributes& attributes, std::string_view name, T otherwise) {
  const Attributes::Any* any = attributes.find(name);
  if (any == nullptr) return otherwise;
  if (const T* value = std::get_if<T>(any)) return *value;
  return error(Code::kInvalid, fmt::format("attribute {} is {}, expected {}", name, kKinds[any->index()],
                                           kKinds[Attributes::Any(T{}).index()]));
}

}  // namespace

const Attributes::Any* Attributes::find(std::string_view name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

Result<int64_t> Attributes::integer(std::string_view name, int64_t otherwise) const {
  return typed<int64_t>(*this, name, otherwise);
}
Result<float> Attributes::number(std::string_view name, float otherwise) const {
  return typed<float>(*this, name, otherwise);
}
Result<std::string> Attributes::text(std::string_view name, std::string_view otherwise) const {
  return typed<std::string>(*this, name, std::string(otherwise));
}
Result<std::vector<int64_t>> Attributes::integers(std::string_view name, std::vector<int64_t> otherwise) const {
  return typed<std::vector<int64_t>>(*this, name, std::move(otherwise));
}
Result<std::vector<float>> Attributes::numbers(std::string_view name, std::vector<float> otherwise) const {
  return typed<std::vector<float>>(*this, name, std::move(otherwise));
}
Result<std::vector<std::string>> Attributes::texts(std::string_view name, std::vector<std::string> otherwise) const {
  return typed<std::vector<std::string>>(*this, name, std::move(otherwise));
}

Result<const Tensor*> RunContext::tensor(size_t i) const {
  if (!has(i)) return error(Code::kInvalid, fmt::format("input {} is missing", i));
  const Tensor* tensor = inputs_[i]->tensor();
  if (tensor == nullptr)
    return error(Code::kInvalid, fmt::format("input {} is {}, expected a tensor", i,
                                             inputs_[i]->has_value() ? "a sequence" : "an empty optional"));
  return tensor;
}

Result<const Tensor*> RunContext::tensor_if(size_t i) const {
  if (!has(i)) return nullptr;
  return tensor(i);
}

Result<std::vector<int64_t>> RunContext::integers(size_t i, std::vector<int64_t> otherwise, int64_t most) const {
  if (!has(i)) return otherwise;
  BOLIDE_TRY(const Tensor* t, tensor(i));
  if (t->elements() > most)
    return error(Code::kInvalid,
                 fmt::format("input {} has {} elements, at most {} make sense", i, t->elements(), most));
  if (t->dtype() == DType::kI64) return std::vector<int64_t>(t->as<int64_t>().begin(), t->as<int64_t>().end());
  if (t->dtype() == DType::kI32) return std::vector<int64_t>(t->as<int32_t>().begin(), t->as<int32_t>().end());
  return error(Code::kInvalid, fmt::format("input {} is of {}, expected i64 or i32", i, to_string(t->dtype())));
}

Result<double> RunContext::number(size_t i, double otherwise) const {
  if (!has(i)) return otherwise;
  BOLIDE_TRY(const Tensor* t, tensor(i));
  if (t->elements() != 1)
    return error(Code::kInvalid, fmt::format("input {} has {} elements, expected one", i, t->elements()));
  switch (t->dtype()) {
    case DType::kF64: return t->as<double>()[0];
    case DType::kF32: return static_cast<double>(t->as<float>()[0]);
    case DType::kF16: return static_cast<double>(f16_to_f32(t->as<uint16_t>()[0]));
    case DType::kBF16: return static_cast<double>(bf16_to_f32(t->as<uint16_t>()[0]));
    case DType::kI64: return static_cast<double>(t->as<int64_t>()[0]);
    case DType::kU64: return static_cast<double>(t->as<uint64_t>()[0]);
    case DType::kI32: return t->as<int32_t>()[0];
    case DType::kU32: return t->as<uint32_t>()[0];
    case DType::kI16: return t->as<int16_t>()[0];
    case DType::kU16: return t->as<uint16_t>()[0];
    case DType::kI8: return t->as<int8_t>()[0];
    case DType::kU8:
    case DType::kBool: return t->as<uint8_t>()[0];
    default:
      return error(Code::kInvalid, fmt::format("input {} is of {}, expected a number", i, to_string(t->dtype())));
  }
}

Result<Tensor*> RunContext::make(size_t i, DType dtype, const Shape& shape) {
  const auto make_tensor = [&]() -> Result<Tensor> {
    if (i >= memories_.size() || memories_[i].data == nullptr || memories_[i].dtype != dtype)
      return Tensor::make(dtype, shape, pool_);
    // The size is checked as Tensor::make does, which would allocate.
    uint64_t bytes = element_bytes(dtype);
    if (bytes > memories_[i].bytes) return Tensor::make(dtype, shape, pool_);
    for (const int64_t dim : shape.span())
      if (dim <= 0 || mul_overflows(bytes, static_cast<uint64_t>(dim), &bytes) || bytes > memories_[i].bytes)
        return Tensor::make(dtype, shape, pool_);
    return Tensor::over(nullptr, memories_[i].data, dtype, shape);
  };
  auto tensor = make_tensor();
  if (!tensor) return std::move(tensor).error().context(fmt::format("output {}", i));
  Tensor made = *std::move(tensor);
  if (i >= outputs_.size()) {
    dropped_.reserve(16);  // pointers stay
    BOLIDE_CHECK(dropped_.size() < 16, "outputs");
    return std::get_if<Tensor>(&dropped_.emplace_back(std::move(made)).of);
  }
  outputs_[i] = std::move(made);
  return std::get_if<Tensor>(&outputs_[i].of);
}

}  // namespace bolide
