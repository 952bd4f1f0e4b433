// DecoderSpec and weight names > Graph. Coarse ops straight away: nothing has to be recognised later.
#include <fmt/format.h>

#include <cmath>

#include "models/decoder.h"

namespace bolide {
namespace {

// Adds nodes and weights; the first error is kept and makes every later call a no-op, so that the decoder below reads
// like the model.
class Builder {
 public:
  Builder(const DecoderSpec& spec, const Family& family, const WeightSource& weights, ComputeMode mode)
      : spec_(spec), family_(family), weights_(weights), mode_(mode) {}

  Result<Graph> build();

 private:
  ValueId add(Op op, std::vector<ValueId> in, std::string name);
  void fail(Error failure) {
    if (!failed_.has_value()) failed_ = std::move(failure);
  }

  // The name of the slot's tensor, and its rule; fails if the family has none.
  const WeightRule* rule(Slot slot);
  std::string tensor(const WeightRule& rule, std::string_view suffix, int64_t expert = 0) const {
    return module_name(rule, layer_, expert) + std::string(suffix);
  }
  // The rows of the slot's tensor as a weight of this shape; `suffix` is ".weight" or ".bias".
  ValueId weight(Slot slot, std::vector<int64_t> shape, std::string_view suffix = ".weight");
  // The scales of those rows of a weight that has them.
  ValueId scale(const WeightInfo& info, const WeightPart& rows);
  ValueId experts(std::span<const Slot> slots, int64_t rows, int64_t k);
  std::optional<WeightPart> part(Slot slot, std::span<const int64_t> shape, std::string_view suffix, int64_t expert,
                                 ValueType* type);

  ValueId norm(ValueId x, Slot slot, std::string name);
  // `bias`: the slot whose bias is added.
  ValueId linear(ValueId x, Slot slot, int64_t n, std::optional<Slot> bias, std::string name);
  ValueId attention(ValueId x);
  // Of x [tokens, n] what the step's results need: in the last layer, behind its attention, that is rows_ alone.
  ValueId needed(ValueId x, std::string_view what);
  ValueId ffn(ValueId x);
  ValueId moe(ValueId x);
  ValueId logits(ValueId x);
  void no_more_layers();

  std::string layer_name(std::string_view what) const { return fmt::format("layers.{}.{}", layer_, what); }

  const DecoderSpec& spec_;
  const Family& family_;
  const WeightSource& weights_;
  ComputeMode mode_;
  Graph graph_;
  std::optional<Error> failed_;
  int64_t layer_ = 0;
  ValueId positions_ = kNoValue, rows_ = kNoValue;
};

ValueId Builder::add(Op op, std::vector<ValueId> in, std::string name) {
  if (failed_.has_value()) return kNoValue;
  auto id = graph_.add(std::move(op), in, std::move(name));
  if (!id) {
    fail(std::move(id).error());
    return kNoValue;
  }
  return graph_.node(*id).out[0];
}

const WeightRule* Builder::rule(Slot slot) {
  const WeightRule* found = find_rule(family_, slot);
  if (found == nullptr)
    fail(error(Code::kUnsupported,
               fmt::format("{}: family {} has no WeightRule for {}, which its DecoderSpec asks for: add a rule, or set "
                           "the spec's field that leaves this part out",
                           weights_.label(), family_.name, to_string(slot))));
  return found;
}

// For the error about a missing tensor: one that differs from it in what stands before the name alone.
std::string other_prefix(const WeightSource& weights, const std::string& name) {
  for (const std::string& stored : weights.names())
    if (stored.ends_with("." + name) || name.ends_with("." + stored))
      return fmt::format("; there is {}: is the family's prefix another?", stored);
  return "";
}

// Rows [begin, begin + want) of the slot's tensor, whose other dims must be `shape`'s.
std::optional<WeightPart> Builder::part(Slot slot, std::span<const int64_t> shape, std::string_view suffix,
                                        int64_t expert, ValueType* type) {
  const WeightRule* found = rule(slot);
  if (found == nullptr) return std::nullopt;
  const std::string name = tensor(*found, suffix, expert);
  const WeightInfo* info = weights_.find(name);
  if (info == nullptr) {
    fail(error(Code::kNotFound, fmt::format("{}: tensor {} is missing ({} needs it){}", weights_.label(), name,
                                            family_.name, other_prefix(weights_, name))));
    return std::nullopt;
  }
  const bool codes = info->dtype == DType::kI8 && !info->scale.empty();
  if (info->quant == nullptr && !is_float(info->dtype) && !codes) {
    fail(error(Code::kUnsupported,
               fmt::format("{}: tensor {} is {}, which is no type of weights{}", weights_.label(), name,
                           to_string(info->dtype), info->dtype == DType::kI8 ? " without a scale for each row" : "")));
    return std::nullopt;
  }
  const bool tables = slot == Slot::kEmbed || slot == Slot::kPositions || slot == Slot::kRouter ||
                      slot == Slot::kExpertGate || slot == Slot::kExpertUp || slot == Slot::kExpertDown;
  if (tables && !info->scale.empty()) {
    fail(error(Code::kUnsupported, fmt::format("{}: tensor {} has a scale for each row, which only the weights of "
                                               "Linears may have",
                                               weights_.label(), name)));
    return std::nullopt;
  }
  const int64_t q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
  int64_t begin = 0, total = shape[0];
  if (slot == Slot::kPositions) begin = spec_.positions_offset, total += begin;
  switch (found->rows) {
    case Rows::kAll: break;
    case Rows::kQ: total = q + 2 * kv; break;
    case Rows::kK: begin = q, total = q + 2 * kv; break;
    case Rows::kV: begin = q + kv, total = q + 2 * kv; break;
    case Rows::kGate: total = 2 * spec_.ffn_dim; break;
    case Rows::kUp: begin = spec_.ffn_dim, total = 2 * spec_.ffn_dim; break;
  }
  Shape want(shape);
  want[0] = total;
  if (info->shape != want) {
    const bool transposed = want.rank == 2 && info->shape == Shape{want[1], want[0]};
    fail(error(Code::kInvalid,
               fmt::format("{}: tensor {} has shape {}, the configuration asks for {}{}", weights_.label(), name,
                           to_string(info->shape), to_string(want),
                           transposed ? " (transposed: its WeightRule may need the other Layout)" : "")));
    return std::nullopt;
  }
  type->dtype = info->dtype;
  type->quant = info->quant;
  return WeightPart{name, begin, shape[0]};
}

ValueId Builder::weight(Slot slot, std::vector<int64_t> shape, std::string_view suffix) {
  ValueType type;
  auto found = part(slot, shape, suffix, 0, &type);
  if (!found) return kNoValue;
  type.dims.assign(shape.begin(), shape.end());
  if (shape.size() == 1) type = f32({shape[0]});  // vectors are handed to kernels as f32, whatever the file has
  return graph_.add_weight({std::move(*found)}, std::move(type));
}

ValueId Builder::scale(const WeightInfo& info, const WeightPart& rows) {
  const WeightInfo* scale = weights_.find(info.scale);
  if (scale == nullptr || scale->shape != Shape{info.shape[0]}) {
    fail(error(Code::kInvalid,
               fmt::format("{}: tensor {} needs a scale for each of its {} rows in {}, {}", weights_.label(), info.name,
                           info.shape[0], info.scale,
                           scale == nullptr ? "which is missing" : "whose shape is " + to_string(scale->shape))));
    return kNoValue;
  }
  return graph_.add_weight({WeightPart{info.scale, rows.begin, rows.rows}}, f32({rows.rows}));
}

// [X, slots * rows, k]: for each expert the rows of each slot.
ValueId Builder::experts(std::span<const Slot> slots, int64_t rows, int64_t k) {
  std::vector<WeightPart> parts;
  ValueType type, first;
  const std::vector<int64_t> shape = {rows, k};
  for (int64_t e = 0; e < spec_.experts; ++e)
    for (const Slot slot : slots) {
      auto found = part(slot, shape, ".weight", e, &type);
      if (!found) return kNoValue;
      if (parts.empty()) first = type;
      if (type != first) {
        fail(error(Code::kUnsupported, fmt::format("{}: {} is {}, other experts of the layer {}", weights_.label(),
                                                   found->tensor, to_string(type), to_string(first))));
        return kNoValue;
      }
      parts.push_back(std::move(*found));
    }
  type.dims = {spec_.experts, static_cast<int64_t>(slots.size()) * rows, k};
  return graph_.add_weight(std::move(parts), std::move(type));
}

ValueId Builder::norm(ValueId x, Slot slot, std::string name) {
  const ValueId gain = weight(slot, {spec_.embed_dim});
  if (spec_.norm == NormKind::kRms) return add(RmsNorm{spec_.norm_eps}, {x, gain}, std::move(name));
  return add(LayerNorm{spec_.norm_eps}, {x, gain, weight(slot, {spec_.embed_dim}, ".bias")}, std::move(name));
}

ValueId Builder::linear(ValueId x, Slot slot, int64_t n, std::optional<Slot> bias, std::string name) {
  if (failed_.has_value()) return kNoValue;
  const ValueId w = weight(slot, {n, graph_.type(x).last().factor});
  if (w == kNoValue) return kNoValue;
  Linear op;
  op.compute = choose_compute(mode_, graph_.type(w));
  const WeightInfo* info = weights_.find(graph_.value(w).parts[0].tensor);
  if (info->rounds_input_to_fp8) op.rounding = InputRounding::kF8Token;
  std::vector<ValueId> in = {x, w};
  if (!info->scale.empty()) {
    op.has_scale = true;
    in.push_back(scale(*info, graph_.value(w).parts[0]));
  }
  if (bias.has_value()) {
    op.has_bias = true;
    in.push_back(weight(*bias, {n}, ".bias"));
  }
  return add(op, std::move(in), std::move(name));
}

std::optional<Slot> bias_of(Slot slot, bool has) { return has ? std::optional(slot) : std::nullopt; }

ValueId Builder::attention(ValueId x) {
  const int64_t H = spec_.heads, G = spec_.kv_heads, D = spec_.head_dim;
  ValueId q = linear(x, Slot::kQ, H * D, bias_of(Slot::kQ, spec_.qkv_bias), layer_name("attn.q"));
  ValueId k = linear(x, Slot::kK, G * D, bias_of(Slot::kK, spec_.qkv_bias), layer_name("attn.k"));
  const ValueId v = linear(x, Slot::kV, G * D, bias_of(Slot::kV, spec_.qkv_bias), layer_name("attn.v"));
  if (spec_.qk_norm) {
    q = add(RmsNorm{spec_.norm_eps, D}, {q, weight(Slot::kQNorm, {D})}, layer_name("attn.q_norm"));
    k = add(RmsNorm{spec_.norm_eps, D}, {k, weight(Slot::kKNorm, {D})}, layer_name("attn.k_norm"));
  }
  if (spec_.has_rope) {
    q = add(Rope{D, spec_.rope}, {q, positions_}, layer_name("attn.q_rope"));
    k = add(Rope{D, spec_.rope}, {k, positions_}, layer_name("attn.k_rope"));
  }
  const ValueId written = add(KvWrite{layer_, G, D}, {k, v}, layer_name("attn.kv_write"));
  PagedAttention op{layer_, H, G, D};
  op.scale = spec_.attention_scale != 0 ? spec_.attention_scale : 1.f / std::sqrt(static_cast<float>(D));
  if (!spec_.window.empty()) op.window = spec_.window[static_cast<size_t>(layer_)];
  const ValueId seen = needed(add(op, {q, written}, layer_name("attn.attention")), "attn.rows");
  return linear(seen, Slot::kOut, spec_.embed_dim, bias_of(Slot::kOut, spec_.out_bias), layer_name("attn.out"));
}

ValueId Builder::needed(ValueId x, std::string_view what) {
  return layer_ + 1 < spec_.layers ? x : add(GatherRows{}, {x, rows_}, layer_name(what));
}

ValueId Builder::moe(ValueId x) {
  constexpr Slot kGateUp[] = {Slot::kExpertGate, Slot::kExpertUp};
  constexpr Slot kDown[] = {Slot::kExpertDown};
  const ValueId router = weight(Slot::kRouter, {spec_.experts, spec_.embed_dim});
  const ValueId gate_up = experts(kGateUp, spec_.ffn_dim, spec_.embed_dim);
  const ValueId down = experts(kDown, spec_.embed_dim, spec_.ffn_dim);
  if (failed_.has_value()) return kNoValue;
  const MoeFfn op{spec_.experts, spec_.experts_per_token, spec_.renormalise_experts, spec_.act,
                  choose_compute(mode_, graph_.type(down))};
  return add(op, {x, router, gate_up, down}, layer_name("moe"));
}

ValueId Builder::ffn(ValueId x) {
  if (spec_.experts > 0) return moe(x);
  ValueId hidden = kNoValue;
  if (spec_.gated) {
    const ValueId gate =
        linear(x, Slot::kGate, spec_.ffn_dim, bias_of(Slot::kGate, spec_.ffn_bias), layer_name("mlp.gate"));
    const ValueId up = linear(x, Slot::kUp, spec_.ffn_dim, bias_of(Slot::kUp, spec_.ffn_bias), layer_name("mlp.up"));
    hidden = add(GatedAct{spec_.act}, {gate, up}, layer_name("mlp.act"));
  } else {
    const ValueId up = linear(x, Slot::kUp, spec_.ffn_dim, bias_of(Slot::kUp, spec_.ffn_bias), layer_name("mlp.up"));
    hidden = add(Activate{spec_.act}, {up}, layer_name("mlp.act"));
  }
  return linear(hidden, Slot::kDown, spec_.embed_dim, bias_of(Slot::kDown, spec_.ffn_bias), layer_name("mlp.down"));
}

ValueId Builder::logits(ValueId x) {
  // A checkpoint that ties its head may keep a copy all the same: the embedding is what its own code uses.
  if (!spec_.tied_head) {
    const WeightRule* head = rule(Slot::kHead);
    if (head != nullptr && !weights_.has(tensor(*head, ".weight")))
      fail(error(Code::kNotFound, fmt::format("{}: tensor {} is missing and tie_word_embeddings is false",
                                              weights_.label(), tensor(*head, ".weight"))));
  }
  return linear(x, spec_.tied_head ? Slot::kEmbed : Slot::kHead, spec_.vocab, bias_of(Slot::kHead, spec_.head_bias),
                "head");
}

// Layers beyond the configuration's would be left out in silence.
void Builder::no_more_layers() {
  const WeightRule* norm = find_rule(family_, Slot::kAttnNorm);
  if (norm != nullptr && norm->module.find("{l}") != std::string_view::npos && weights_.has(tensor(*norm, ".weight")))
    fail(error(Code::kInvalid, fmt::format("{}: has tensor {}, but the configuration says {} layers", weights_.label(),
                                           tensor(*norm, ".weight"), spec_.layers)));
}

Result<Graph> Builder::build() {
  const ValueId ids = graph_.add_input("ids", i32({Symbol::kTokens}));
  positions_ = graph_.add_input("positions", i32({Symbol::kTokens}));
  rows_ = graph_.add_input("rows", i32({Symbol::kRows}));

  ValueId x = add(Embed{}, {ids, weight(Slot::kEmbed, {spec_.vocab, spec_.embed_dim})}, "embed");
  if (spec_.learned_positions) {
    const ValueId table = weight(Slot::kPositions, {spec_.context_max, spec_.embed_dim});
    x = add(Add{}, {x, add(Embed{}, {positions_, table}, "embed.positions")}, "embed.add");
  }
  for (layer_ = 0; layer_ < spec_.layers && !failed_.has_value(); ++layer_) {
    const ValueId attended = attention(norm(x, Slot::kAttnNorm, layer_name("attn.norm")));
    x = add(Add{}, {attended, needed(x, "rows")}, layer_name("attn.add"));
    const ValueId fed = ffn(norm(x, Slot::kFfnNorm, layer_name("mlp.norm")));
    x = add(Add{}, {fed, x}, layer_name("mlp.add"));
  }
  if (!failed_.has_value()) no_more_layers();
  layer_ = 0;
  x = norm(x, Slot::kFinalNorm, "final_norm");
  const ValueId scores = logits(x);
  add(Sample{}, {scores}, "sample");
  if (failed_.has_value()) return *std::move(failed_);
  graph_.add_output("logits", scores);
  const Node& sample = graph_.node(graph_.order().back());
  graph_.add_output("next", sample.out[0]);
  graph_.add_output("logprob", sample.out[1]);
  BOLIDE_TRY(graph_.verify());
  return std::move(graph_);
}

}  // namespace

std::string_view to_string(Slot slot) {
  switch (slot) {
    case Slot::kEmbed: return "Slot::kEmbed";
    case Slot::kPositions: return "Slot::kPositions";
    case Slot::kAttnNorm: return "Slot::kAttnNorm";
    case Slot::kQ: return "Slot::kQ";
    case Slot::kK: return "Slot::kK";
    case Slot::kV: return "Slot::kV";
    case Slot::kQNorm: return "Slot::kQNorm";
    case Slot::kKNorm: return "Slot::kKNorm";
    case Slot::kOut: return "Slot::kOut";
    case Slot::kFfnNorm: return "Slot::kFfnNorm";
    case Slot::kGate: return "Slot::kGate";
    case Slot::kUp: return "Slot::kUp";
    case Slot::kDown: return "Slot::kDown";
    case Slot::kRouter: return "Slot::kRouter";
    case Slot::kExpertGate: return "Slot::kExpertGate";
    case Slot::kExpertUp: return "Slot::kExpertUp";
    case Slot::kExpertDown: return "Slot::kExpertDown";
    case Slot::kFinalNorm: return "Slot::kFinalNorm";
    case Slot::kHead: return "Slot::kHead";
  }
  return "";
}

const WeightRule* find_rule(const Family& family, Slot slot) {
  for (const WeightRule& rule : family.weights)
    if (rule.slot == slot) return &rule;
  return nullptr;
}

std::string module_name(const WeightRule& rule, int64_t layer, int64_t expert) {
  std::string name(rule.module);
  if (const size_t at = name.find("{l}"); at != std::string::npos) name.replace(at, 3, std::to_string(layer));
  if (const size_t at = name.find("{e}"); at != std::string::npos) name.replace(at, 3, std::to_string(expert));
  return name;
}

Compute choose_compute(ComputeMode mode, const ValueType& weight) {
  switch (mode) {
    case ComputeMode::kF32: return Compute::kF32;
    case ComputeMode::kBF16: return Compute::kBF16;
    case ComputeMode::kInt8: return weight.quant != nullptr ? Compute::kInt8 : Compute::kF32;
    case ComputeMode::kAuto: break;
  }
  if (weight.quant != nullptr) return Compute::kInt8;
  return weight.dtype == DType::kBF16 ? Compute::kBF16 : Compute::kF32;
}

Result<Graph> build_decoder(const DecoderSpec& spec, const Family& family, const WeightSource& weights,
                            ComputeMode mode) {
  return Builder(spec, family, weights, mode).build();
}

}  // namespace bolide
