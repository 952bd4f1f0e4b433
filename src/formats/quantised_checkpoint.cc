#include "formats/quantised_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

namespace bolide {

Result<std::shared_ptr<const WeightSource>> expand_quantised(std::shared_ptr<const WeightSource> inner,
                                                             const ModelConfig& config) {
  BOLIDE_TRY(const auto quantization, config.quantization());
  if (!quantization) return inner;
  switch (quantization->method) {
    case QuantMethod::kGptq: return expand_gptq(std::move(inner), *quantization);
    case QuantMethod::kAwq: return expand_awq(std::move(inner), *quantization);
    case QuantMethod::kCompressedFloat8:
    case QuantMethod::kFp8: return expand_fp8(std::move(inner), *quantization);
  }
  return error(Code::kInternal, "unknown quantisation method");
}

const WeightInfo* ExpandingSource::find(std::string_view name) const {
  if (const auto it = modules_.find(name); it != modules_.end()) return &it->second;
  return hidden_.contains(name) ? nullptr : inner_->find(name);
}

Result<WeightData> ExpandingSource::open(std::string_view name) const {
  const auto it = modules_.find(name);
  if (it == modules_.end()) {
    if (hidden_.contains(name)) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label(), name));
    return inner_->open(name);
  }
  BOLIDE_TRY(auto weight, allocate_weight(it->second));
  const std::string module(name.substr(0, name.size() - std::string_view(".weight").size()));
  BOLIDE_TRY(expand(module, it->second.shape, reinterpret_cast<float*>(weight.bytes.data())));
  return std::move(weight.data);
}

std::vector<std::string> ExpandingSource::names() const {
  std::vector<std::string> list;
  for (std::string& name : inner_->names())
    if (!hidden_.contains(name) && !modules_.contains(name)) list.push_back(std::move(name));
  for (const auto& [name, info] : modules_) list.push_back(name);
  std::sort(list.begin(), list.end());
  return list;
}

void ExpandingSource::add_module(const std::string& module, const Shape& shape, bool rounds_input_to_fp8) {
  const std::string name = module + ".weight";
  modules_[name] =
      WeightInfo{.name = name, .dtype = DType::kF32, .shape = shape, .rounds_input_to_fp8 = rounds_input_to_fp8};
}

Error ExpandingSource::module_error(const std::string& module, std::string_view what) const {
  return error(Code::kInvalid, fmt::format("{}: {}: {}", label(), module, what));
}

Result<const WeightInfo*> ExpandingSource::require(const std::string& name, DType dtype, const Shape& shape) const {
  const WeightInfo* info = inner_->find(name);
  if (info == nullptr) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label(), name));
  const bool type_fits = dtype == DType::kNone ? is_float(info->dtype) && info->quant == nullptr : info->dtype == dtype;
  if (!type_fits || !(info->shape == shape))
    return error(Code::kInvalid, fmt::format("{}: tensor {}: is {} {}, expected {} {}", label(), name,
                                             to_string(info->dtype), to_string(info->shape),
                                             dtype == DType::kNone ? "floats" : to_string(dtype), to_string(shape)));
  return info;
}

std::vector<std::string> modules_with(const WeightSource& source, std::string_view ending) {
  std::vector<std::string> list;
  for (const std::string& name : source.names())
    if (name.size() > ending.size() && name.ends_with(ending))
      list.push_back(name.substr(0, name.size() - ending.size()));
  return list;
}

}  // namespace bolide
