#include "synth/synth_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/workers.h"
#include "models/families.h"
#include "synth/block_fill.h"
#include "synth/code_tables.h"
#include "synth/random_fill.h"
#include "tensor/half.h"

namespace bolide {
namespace {

constexpr float kEmbedDeviation = 0.02f;
constexpr float kBiasDeviation = 0.02f;
constexpr float kGainDeviation = 0.1f;
// Scales are 10 % apart, so that none stands for another.
constexpr float kScaleSpread = 0.1f;
constexpr int64_t kGroup = 128;

bool is_norm(Slot slot) {
  return slot == Slot::kAttnNorm || slot == Slot::kFfnNorm || slot == Slot::kFinalNorm || slot == Slot::kQNorm ||
         slot == Slot::kKNorm;
}

// Linears of layers, the router aside: what methods of quantisation quantise.
bool is_quantised(Slot slot) {
  switch (slot) {
    case Slot::kQ:
    case Slot::kK:
    case Slot::kV:
    case Slot::kOut:
    case Slot::kGate:
    case Slot::kUp:
    case Slot::kDown:
    case Slot::kExpertGate:
    case Slot::kExpertUp:
    case Slot::kExpertDown: return true;
    default: return false;
  }
}

bool is_of_experts(Slot slot) {
  return slot == Slot::kExpertGate || slot == Slot::kExpertUp || slot == Slot::kExpertDown;
}

bool has_bias(const DecoderSpec& spec, Slot slot) {
  switch (slot) {
    case Slot::kQ:
    case Slot::kK:
    case Slot::kV: return spec.qkv_bias;
    case Slot::kOut: return spec.out_bias;
    case Slot::kGate:
    case Slot::kUp:
    case Slot::kDown: return spec.ffn_bias;
    case Slot::kHead: return spec.head_bias;
    default: return false;
  }
}

bool is_wanted(const DecoderSpec& spec, Slot slot) {
  if (slot == Slot::kHead) return !spec.tied_head;
  if (slot == Slot::kQNorm || slot == Slot::kKNorm) return spec.qk_norm;
  return true;
}

// [N, K] of a slot's weight; K is 0 for a vector.
struct Matrix {
  int64_t n = 0, k = 0;
};
Matrix shape_of(const DecoderSpec& spec, Slot slot) {
  const int64_t embed = spec.embed_dim, q = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
  switch (slot) {
    case Slot::kEmbed:
    case Slot::kHead: return {spec.vocab, embed};
    case Slot::kPositions: return {spec.context_max, embed};
    case Slot::kAttnNorm:
    case Slot::kFfnNorm:
    case Slot::kFinalNorm: return {embed, 0};
    case Slot::kQNorm:
    case Slot::kKNorm: return {spec.head_dim, 0};
    case Slot::kQ: return {q, embed};
    case Slot::kK:
    case Slot::kV: return {kv, embed};
    case Slot::kOut: return {embed, q};
    case Slot::kGate:
    case Slot::kUp:
    case Slot::kExpertGate:
    case Slot::kExpertUp: return {spec.ffn_dim, embed};
    case Slot::kDown:
    case Slot::kExpertDown: return {embed, spec.ffn_dim};
    case Slot::kRouter: return {spec.experts, embed};
  }
  return {};
}

template <class T, class Convert>
std::array<T, kQuantiles> float_table(float centre, float deviation, const Convert& convert) {
  std::array<T, kQuantiles> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = convert(centre + deviation * normal_quantiles()[i]);
  return table;
}

template <class T>
std::span<T> elements(MutableBytes bytes, int64_t begin, int64_t end) {
  return {reinterpret_cast<T*>(bytes.data()) + begin, static_cast<size_t>(end - begin)};
}

}  // namespace

SynthWeights::SynthWeights(const SynthRequest& request) : request_(request), label_(to_string(request)) {}

Result<std::shared_ptr<const SynthWeights>> SynthWeights::create(const SynthRequest& request) {
  BOLIDE_TRY(check(request));
  std::shared_ptr<SynthWeights> weights(new SynthWeights(request));
  BOLIDE_TRY(weights->add_tensors().context(weights->label_));
  return std::shared_ptr<const SynthWeights>(std::move(weights));
}

// What the family's rules name, in the shapes of its spec.
Result<> SynthWeights::add_tensors() {
  BOLIDE_TRY(const ModelConfig config, ModelConfig::parse(synth_config(request_), label_));
  BOLIDE_TRY(const Family* family, find_family(config));
  BOLIDE_TRY(const DecoderSpec spec, family->parse(config));
  const auto add_rules = [&](bool of_layers, bool first, int64_t layer) {
    for (size_t i = 0; i < family->weights.size(); ++i) {
      const WeightRule& rule = family->weights[i];
      const bool is_first = rule.slot == Slot::kEmbed || rule.slot == Slot::kPositions;
      if ((rule.module.find("{l}") != std::string_view::npos) != of_layers || is_first != first) continue;
      if (!is_wanted(spec, rule.slot)) continue;
      // Slots that share a tensor stand one behind another.
      int64_t rows = shape_of(spec, rule.slot).n;
      for (; i + 1 < family->weights.size() && family->weights[i + 1].module == rule.module; ++i)
        rows += shape_of(spec, family->weights[i + 1].slot).n;
      const bool of_experts = rule.module.find("{e}") != std::string_view::npos;
      for (int64_t expert = 0; expert < (of_experts ? spec.experts : 1); ++expert)
        add_module(spec, rule.slot, module_name(rule, layer, expert), rows);
    }
  };
  add_rules(/*of_layers=*/false, /*first=*/true, 0);
  for (int64_t layer = 0; layer < spec.layers; ++layer) add_rules(/*of_layers=*/true, /*first=*/false, layer);
  add_rules(/*of_layers=*/false, /*first=*/false, 0);
  return {};
}

void SynthWeights::add(Tensor tensor) {
  byte_size_ += tensor.info.byte_size();
  order_.push_back(tensor.info.name);
  tensors_.emplace(tensor.info.name, std::move(tensor));
}

void SynthWeights::add_floats(std::string name, DType dtype, const Shape& shape, float centre, float deviation) {
  add({WeightInfo{.name = std::move(name), .dtype = dtype, .shape = shape}, Content::kFloats, centre, deviation});
}

void SynthWeights::add_module(const DecoderSpec& spec, Slot slot, const std::string& module, int64_t rows) {
  const int64_t k = shape_of(spec, slot).k;
  parameters_ += rows * std::max<int64_t>(k, 1);
  if (is_norm(slot))
    add_floats(module + ".weight", request_.type->floats, {rows}, 1, kGainDeviation);
  else
    add_matrix(slot, module, rows, k);
  if (!has_bias(spec, slot)) return;
  parameters_ += rows;
  add_floats(module + ".bias", request_.type->floats, {rows}, 0, kBiasDeviation);
}

void SynthWeights::add_matrix(Slot slot, const std::string& module, int64_t n, int64_t k) {
  const bool looked_up = slot == Slot::kEmbed || slot == Slot::kPositions;
  const float deviation = looked_up ? kEmbedDeviation : 1 / std::sqrt(static_cast<float>(k));
  const SynthType& type = *request_.type;
  const bool head = slot == Slot::kHead;
  switch (type.method) {
    case SynthType::Method::kFloats: break;
    case SynthType::Method::kFloat8:
      if (is_quantised(slot)) return add_float8(module, n, k, deviation);
      break;
    case SynthType::Method::kInt8:
      if (is_of_experts(slot)) return add_blocks(module, kQ8_0, n, k, deviation);  // these have no scales of rows
      if (head || is_quantised(slot)) return add_int8(module, n, k, deviation);
      break;
    case SynthType::Method::kW4:
      if (head) return add_int8(module, n, k, deviation);
      if (is_quantised(slot)) return add_blocks(module, *type.linears, n, k, deviation);
      break;
    case SynthType::Method::kGptq:
      if (is_quantised(slot)) return add_gptq(module, n, k, deviation);
      break;
    case SynthType::Method::kBlocks: {
      if (slot == Slot::kRouter) break;
      const bool is_head = head || (slot == Slot::kEmbed && request_.architecture->tied);
      return add_blocks(module, is_head ? *type.head : *type.linears, n, k, deviation);
    }
  }
  add_floats(module + ".weight", type.floats, {n, k}, 0, deviation);
}

void SynthWeights::add_float8(const std::string& module, int64_t n, int64_t k, float deviation) {
  add({WeightInfo{.name = module + ".weight", .dtype = DType::kF8E4M3, .shape = {n, k}}, Content::kFloat8});
  const float scale = deviation * float8_step();
  add_floats(module + ".weight_scale", DType::kBF16, {n, 1}, scale, scale * kScaleSpread);
}

void SynthWeights::add_int8(const std::string& module, int64_t n, int64_t k, float deviation) {
  const std::string scale_name = module + ".weight_scale";
  const WeightInfo codes{.name = module + ".weight", .dtype = DType::kI8, .shape = {n, k}, .scale = scale_name};
  add({codes, Content::kInt8});
  const float scale = deviation * int8_step();
  add_floats(scale_name, DType::kF32, {n}, scale, scale * kScaleSpread);
}

void SynthWeights::add_gptq(const std::string& module, int64_t n, int64_t k, float deviation) {
  const int64_t groups = static_cast<int64_t>(ceil_div(static_cast<uint64_t>(k), kGroup));
  add({WeightInfo{.name = module + ".qweight", .dtype = DType::kI32, .shape = {k / 8, n}}, Content::kInt4});
  add({WeightInfo{.name = module + ".qzeros", .dtype = DType::kI32, .shape = {groups, n / 8}}, Content::kInt4Zeros});
  add({WeightInfo{.name = module + ".g_idx", .dtype = DType::kI32, .shape = {k}}, Content::kGroupIndex});
  const float scale = deviation * nibble_step();
  add_floats(module + ".scales", DType::kF16, {groups, n}, scale, scale * kScaleSpread);
}

void SynthWeights::add_blocks(const std::string& module, const QuantScheme& wanted, int64_t n, int64_t k,
                              float deviation) {
  const QuantScheme& scheme = *scheme_for_rows(&wanted, k);
  add({WeightInfo{.name = module + ".weight", .dtype = scheme.code, .quant = &scheme, .shape = {n, k}},
       Content::kBlocks, 0, deviation});
}

const WeightInfo* SynthWeights::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second.info;
}

std::vector<std::string> SynthWeights::names() const {
  std::vector<std::string> list;
  list.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) list.push_back(name);
  return list;
}

Result<WeightData> SynthWeights::open(std::string_view name) const {
  Workers alone(1);
  return open_with(name, alone);
}

Result<WeightData> SynthWeights::open_with(std::string_view name, Workers& workers) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label_, name));
  auto lent = scratch_->take(it->second.info.byte_size());
  if (!lent) return std::move(lent).error().context(it->first);
  fill(it->second, lent->bytes, workers);
  return WeightData{it->second.info, lent->bytes, std::move(lent->owner), /*mapped=*/false};
}

void SynthWeights::fill(const Tensor& tensor, MutableBytes out, Workers& workers) const {
  // Of a chunk: enough to be worth waking a thread for, few enough that all threads end together.
  constexpr int64_t kChunkBytes = int64_t{1} << 19;
  const uint64_t key = stream_key(request_.seed, tensor.info.name);
  // chunk(begin, end) for parts of [0, count) that begin at multiples of `step`, itself one of 8.
  const auto in_chunks = [&](int64_t count, int64_t step, FunctionRef<void(int64_t, int64_t)> chunk) {
    workers.run((count + step - 1) / step, [&](int64_t i, int) { chunk(i * step, std::min((i + 1) * step, count)); });
  };
  const auto by_table = [&]<class T>(const std::array<T, kQuantiles>& table) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    in_chunks(static_cast<int64_t>(out.size()) / kSize, kChunkBytes / kSize, [&](int64_t begin, int64_t end) {
      fill_from_table(key, static_cast<uint64_t>(begin), elements<T>(out, begin, end), table.data());
    });
  };
  switch (tensor.content) {
    case Content::kFloats:
      if (tensor.info.dtype == DType::kF32)
        by_table(float_table<float>(tensor.centre, tensor.deviation, [](float value) { return value; }));
      else if (tensor.info.dtype == DType::kF16)
        by_table(float_table<uint16_t>(tensor.centre, tensor.deviation, f32_to_f16));
      else
        by_table(float_table<uint16_t>(tensor.centre, tensor.deviation, f32_to_bf16));
      return;
    case Content::kFloat8: return by_table(float8_codes());
    case Content::kInt8: return by_table(int8_codes());
    case Content::kInt4: return by_table(nibble_codes());
    case Content::kInt4Zeros: return std::fill(out.begin(), out.end(), std::byte{0x77});  // 8, stored as one less
    case Content::kGroupIndex: {
      const auto index = elements<int32_t>(out, 0, tensor.info.shape.elements());
      for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int32_t>(i / kGroup);
      return;
    }
    case Content::kBlocks: {
      const QuantScheme& scheme = *tensor.info.quant;
      const int64_t size = scheme.block_bytes;
      in_chunks(static_cast<int64_t>(out.size()) / size, kChunkBytes / size / 8 * 8, [&](int64_t begin, int64_t end) {
        const auto blocks = out.subspan(static_cast<size_t>(begin * size), static_cast<size_t>((end - begin) * size));
        fill_blocks(key, static_cast<uint64_t>(begin), scheme, tensor.deviation, blocks);
      });
      return;
    }
  }
}

}  // namespace bolide
