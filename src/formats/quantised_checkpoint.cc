#include "formats/quantised_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace bolide {

Result<std::shared_ptr<const WeightSource>> read_quantised(std::shared_ptr<const WeightSource> inner,
                                                           const ModelConfig& config) {
  BOLIDE_TRY(const auto quantization, config.quantization());
  if (!quantization) return inner;
  switch (quantization->method) {
    case QuantMethod::kGptq: return read_gptq(std::move(inner), *quantization);
    case QuantMethod::kAwq: return read_awq(std::move(inner), *quantization);
    case QuantMethod::kCompressedFloat8:
    case QuantMethod::kFp8: return read_fp8(std::move(inner), *quantization);
  }
  return error(Code::kInternal, "unknown quantisation method");
}

const WeightInfo* QuantisedSource::find(std::string_view name) const {
  if (const auto it = entries_.find(name); it != entries_.end()) return &it->second.info;
  return hidden_.contains(name) ? nullptr : inner_->find(name);
}

Result<WeightData> QuantisedSource::open(std::string_view name) const {
  Workers alone(1);
  return open_with(name, alone);
}

Result<WeightData> QuantisedSource::open_with(std::string_view name, Workers& workers) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) {
    if (hidden_.contains(name)) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label(), name));
    return inner_->open_with(name, workers);
  }
  const Entry& entry = it->second;
  if (entry.module.empty()) {
    BOLIDE_TRY(WeightData stored, inner_->open_with(name, workers));
    stored.info = entry.info;
    return stored;
  }
  BOLIDE_TRY(auto weight, allocate_weight(entry.info));
  BOLIDE_TRY(make(entry.module, entry.info, weight.bytes, workers));
  return std::move(weight.data);
}

std::vector<std::string> QuantisedSource::names() const {
  std::vector<std::string> list;
  for (std::string& name : inner_->names())
    if (!hidden_.contains(name) && !entries_.contains(name)) list.push_back(std::move(name));
  for (const auto& [name, entry] : entries_) list.push_back(name);
  std::sort(list.begin(), list.end());
  return list;
}

void QuantisedSource::add(std::string module, const WeightInfo& info) {
  entries_[info.name] = {info, std::move(module)};
}

void QuantisedSource::add_stored(const WeightInfo& info) { entries_[info.name] = {info, {}}; }

Error QuantisedSource::module_error(const std::string& module, std::string_view what) const {
  return error(Code::kInvalid, fmt::format("{}: {}: {}", label(), module, what));
}

Result<const WeightInfo*> QuantisedSource::require(const std::string& name, DType dtype, const Shape& shape) const {
  const WeightInfo* info = inner_->find(name);
  if (info == nullptr) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label(), name));
  const bool type_fits = dtype == DType::kNone ? is_float(info->dtype) && info->quant == nullptr : info->dtype == dtype;
  if (!type_fits || !(info->shape == shape))
    return error(Code::kInvalid, fmt::format("{}: tensor {}: is {} {}, expected {} {}", label(), name,
                                             to_string(info->dtype), to_string(info->shape),
                                             dtype == DType::kNone ? "floats" : to_string(dtype), to_string(shape)));
  return info;
}

WeightInfo QuantisedSource::info_of_groups(const std::string& module, const Shape& shape, int64_t bits,
                                           int64_t group_size) const {
  WeightInfo info{.name = module + ".weight", .dtype = DType::kF32, .shape = shape};
  if (bits != 4 || inner_->find(module + ".scales")->dtype != DType::kF16) return info;
  for (const QuantScheme* scheme : {&kW4_G32, &kW4_G64, &kW4_G128})
    if (group_size == scheme->block_elements && shape[1] % group_size == 0)
      info.dtype = scheme->code, info.quant = scheme;
  return info;
}

std::vector<std::string> modules_with(const WeightSource& source, std::string_view ending) {
  std::vector<std::string> list;
  for (const std::string& name : source.names())
    if (name.size() > ending.size() && name.ends_with(ending))
      list.push_back(name.substr(0, name.size() - ending.size()));
  return list;
}

std::byte* begin_w4_block(std::byte* block, uint16_t scale, uint32_t zero) {
  std::memcpy(block, &scale, sizeof scale);
  block[2] = static_cast<std::byte>(zero);
  block[3] = std::byte{0};
  return block + 4;
}

}  // namespace bolide
