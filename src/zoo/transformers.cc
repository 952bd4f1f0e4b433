// BERT (Devlin et al. 2018, arXiv:1810.04805), MiniLM, ViT (Dosovitskiy et al. 2020, arXiv:2010.11929) and Whisper's
// encoder (Radford et al. 2022, arXiv:2212.04356). Attention is MatMul, Softmax, MatMul with the reshapes and
// transposes around them that exporters leave.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "zoo/draft.h"
#include "zoo/networks.h"

namespace bolide {
namespace {

constexpr int64_t kDim = Draft::kDim;

struct Transformer {
  int64_t layers, embed, heads, ffn;
  int64_t head_dim() const { return embed / heads; }
};

int64_t layers_of(const Transformer& size, const ZooOptions& options) {
  return options.layers > 0 ? options.layers : size.layers;
}

// softmax(scores) v, joined to [batch, tokens, E]. scores [batch, H, tokens, tokens], v [batch, H, tokens, D].
std::string attend(Draft& draft, const std::string& scope, const std::string& scores, const std::string& v,
                   const Transformer& size, int64_t tokens, const std::string& like) {
  const std::string shares = draft.node(scope, "Softmax", {scores}, {{"axis", int64_t{-1}}});
  const std::string context = draft.node(scope, "MatMul", {shares, v});
  const std::string joined = draft.transpose(scope, context, {0, 2, 1, 3});
  return draft.view(scope, joined, {kDim, tokens, size.embed}, like);
}

std::string heads_of(Draft& draft, const std::string& scope, const std::string& x, const Transformer& size,
                     int64_t tokens, const std::string& like, std::vector<int64_t> order) {
  const std::string apart = draft.view(scope, x, {kDim, tokens, size.heads, size.head_dim()}, like);
  return draft.transpose(scope, apart, std::move(order));
}

struct MlpNames {
  std::string first, act, second;
};
std::string mlp(Draft& draft, const MlpNames& names, const std::string& x, const Transformer& size) {
  const std::string wide = draft.linear(names.first, x, size.embed, size.ffn);
  return draft.linear(names.second, draft.gelu(names.act, wide), size.ffn, size.embed, Draft::kGeluPower);
}

constexpr float kBertEpsilon = 1e-12f;

std::string bert_embeddings(Draft& draft, const Transformer& size, int64_t vocab, const std::string& ids,
                            const std::string& kinds) {
  constexpr int64_t kPositionsMax = 512, kKinds = 2;
  constexpr double kDeviation = 0.02;
  const std::string scope = "embeddings";
  const auto look_up = [&](const std::string& table, int64_t rows, const std::string& at) {
    const std::string module = scope + "." + table;
    const std::string weight = draft.parameter(module + ".weight", {rows, size.embed}, 0, kDeviation);
    return draft.node(module, "Gather", {weight, at});
  };
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < kPositionsMax; ++i) numbers.push_back(i);
  const std::string all = draft.integers(scope, numbers), zero = draft.integers(scope, {0});
  const std::string length = draft.node(scope, "Unsqueeze", {draft.dim_of(scope, ids, 1), draft.integers(scope, {0})});
  const std::string positions = draft.node(scope, "Slice", {all, zero, length, zero, draft.integers(scope, {1})});
  const std::string words = look_up("word_embeddings", vocab, ids);
  const std::string both = draft.node(scope, "Add", {words, look_up("token_type_embeddings", kKinds, kinds)});
  const std::string sum = draft.node(scope, "Add", {both, look_up("position_embeddings", kPositionsMax, positions)});
  return draft.layer_norm(scope + ".LayerNorm", sum, size.embed, kBertEpsilon);
}

// 0 where there is a token, the lowest number where there is none: [batch, 1, 1, sequence].
std::string bert_mask(Draft& draft, const std::string& mask) {
  const std::string third = draft.node("", "Unsqueeze", {mask, draft.integers("", {1})});
  const std::string fourth = draft.node("", "Unsqueeze", {third, draft.integers("", {2})});
  const std::string floats = draft.node("", "Cast", {fourth}, {{"to", int64_t{1}}});
  const std::string absent = draft.node("", "Sub", {draft.number("", 1), floats});
  return draft.node("", "Mul", {absent, draft.number("", std::numeric_limits<float>::lowest())});
}

std::string bert_layer(Draft& draft, const std::string& scope, const std::string& x, const std::string& mask,
                       const Transformer& size) {
  const std::string self = scope + ".attention.self", output = scope + ".attention.output";
  const auto project = [&](const std::string& which, std::vector<int64_t> order) {
    const std::string y = draft.linear(self + "." + which, x, size.embed, size.embed);
    return heads_of(draft, self, y, size, kDim + 1, y, std::move(order));
  };
  const std::string q = project("query", {0, 2, 1, 3}), k = project("key", {0, 2, 3, 1});
  const std::string v = project("value", {0, 2, 1, 3});
  const std::string products = draft.node(self, "MatMul", {q, k});
  const std::string root = draft.number(self, std::sqrt(static_cast<float>(size.head_dim())));
  const std::string scores = draft.node(self, "Add", {draft.node(self, "Div", {products, root}), mask});
  const std::string context = attend(draft, self, scores, v, size, kDim + 1, x);
  const std::string attention = draft.linear(output + ".dense", context, size.embed, size.embed);
  const std::string y =
      draft.layer_norm(output + ".LayerNorm", draft.residual(output, attention, x), size.embed, kBertEpsilon);
  const MlpNames names = {scope + ".intermediate.dense", scope + ".intermediate.intermediate_act_fn",
                          scope + ".output.dense"};
  const std::string wide = mlp(draft, names, y, size);
  return draft.layer_norm(scope + ".output.LayerNorm", draft.residual(scope + ".output", wide, y), size.embed,
                          kBertEpsilon);
}

constexpr float kVitEpsilon = 1e-6f;

std::string vit_layer(Draft& draft, const std::string& scope, const std::string& x, const Transformer& size,
                      int64_t tokens) {
  const std::string self = scope + ".attn";
  const std::string normal = draft.layer_norm(scope + ".norm1", x, size.embed, kVitEpsilon);
  const std::string qkv = draft.linear(self + ".qkv", normal, size.embed, 3 * size.embed);
  const std::string apart = draft.view(self, qkv, {kDim, tokens, 3, size.heads, size.head_dim()}, normal);
  const std::string turned = draft.transpose(self, apart, {2, 0, 3, 1, 4});
  const auto part = [&](int64_t index) {
    return draft.node(self, "Gather", {turned, draft.integer(self, index)}, {{"axis", int64_t{0}}});
  };
  const std::string q = part(0), k = part(1), v = part(2);
  const std::string scaled =
      draft.node(self, "Mul", {q, draft.number(self, 1 / std::sqrt(static_cast<float>(size.head_dim())))});
  const std::string scores = draft.node(self, "MatMul", {scaled, draft.transpose(self, k, {0, 1, 3, 2})});
  const std::string context = attend(draft, self, scores, v, size, tokens, normal);
  const std::string y = draft.residual(scope, x, draft.linear(self + ".proj", context, size.embed, size.embed));
  const std::string second = draft.layer_norm(scope + ".norm2", y, size.embed, kVitEpsilon);
  const MlpNames names = {scope + ".mlp.fc1", scope + ".mlp.act", scope + ".mlp.fc2"};
  return draft.residual(scope, y, mlp(draft, names, second, size));
}

constexpr float kWhisperEpsilon = 1e-5f;

std::string whisper_layer(Draft& draft, const std::string& scope, const std::string& x, const Transformer& size,
                          int64_t tokens) {
  const std::string self = scope + ".self_attn";
  const std::string normal = draft.layer_norm(scope + ".self_attn_layer_norm", x, size.embed, kWhisperEpsilon);
  const auto project = [&](const std::string& which, bool has_bias) {
    return draft.linear(self + "." + which, normal, size.embed, size.embed, 1, has_bias);
  };
  const std::string scaled = draft.node(
      self, "Mul", {project("q_proj", true), draft.number(self, 1 / std::sqrt(static_cast<float>(size.head_dim())))});
  const std::string q = heads_of(draft, self, scaled, size, tokens, normal, {0, 2, 1, 3});
  const std::string k = heads_of(draft, self, project("k_proj", false), size, tokens, normal, {0, 2, 3, 1});
  const std::string v = heads_of(draft, self, project("v_proj", true), size, tokens, normal, {0, 2, 1, 3});
  const std::string scores = draft.node(self, "MatMul", {q, k});
  const std::string context = attend(draft, self, scores, v, size, tokens, normal);
  const std::string y = draft.residual(scope, x, draft.linear(self + ".out_proj", context, size.embed, size.embed));
  const std::string second = draft.layer_norm(scope + ".final_layer_norm", y, size.embed, kWhisperEpsilon);
  const MlpNames names = {scope + ".fc1", scope + ".activation_fn", scope + ".fc2"};
  return draft.residual(scope, y, mlp(draft, names, second, size));
}

// Convolution over time of a kernel of 3.
std::string whisper_conv(Draft& draft, const std::string& scope, const std::string& x, int64_t in, int64_t out,
                         int64_t stride, double power) {
  constexpr int64_t kKernel = 3;
  const double deviation = 1 / std::sqrt(static_cast<double>(in * kKernel) * power);
  const std::string weight = draft.parameter(scope + ".weight", {out, in, kKernel}, 0, deviation);
  const std::string bias = draft.parameter(scope + ".bias", {out}, 0, 0.02);
  return draft.node(scope, "Conv", {x, weight, bias},
                    {{"dilations", std::vector<int64_t>{1}},
                     {"group", int64_t{1}},
                     {"kernel_shape", std::vector<int64_t>{kKernel}},
                     {"pads", std::vector<int64_t>{1, 1}},
                     {"strides", std::vector<int64_t>{stride}}});
}

// Sines of falling frequencies, then cosines: [1, tokens, E] as the published model has them.
std::vector<float> sinusoids(int64_t tokens, int64_t embed) {
  const int64_t half = embed / 2;
  const double step = std::log(10000.0) / static_cast<double>(half - 1);
  std::vector<float> values;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < embed; ++i) {
      const double angle = static_cast<double>(t) * std::exp(-step * static_cast<double>(i % half));
      values.push_back(static_cast<float>(i < half ? std::sin(angle) : std::cos(angle)));
    }
  return values;
}

}  // namespace

ZooModel build_bert(std::string_view name, const ZooOptions& options) {
  const Transformer size = name == "bert-large"  ? Transformer{24, 1024, 16, 4096}
                           : name == "minilm-l6" ? Transformer{6, 384, 12, 1536}
                                                 : Transformer{12, 768, 12, 3072};
  constexpr int64_t kVocab = 30522;
  const int64_t vocab = options.vocab > 0 ? options.vocab : kVocab;
  Draft draft(name, options);
  const Draft::Dims tokens = {"batch", "sequence"};
  const std::string ids = draft.input("input_ids", DType::kI64, tokens);
  const std::string given_mask = draft.input("attention_mask", DType::kI64, tokens);
  const std::string kinds = draft.input("token_type_ids", DType::kI64, tokens);
  const std::string mask = bert_mask(draft, given_mask);
  std::string x = bert_embeddings(draft, size, vocab, ids, kinds);
  for (int64_t layer = 0; layer < layers_of(size, options); ++layer)
    x = bert_layer(draft, fmt::format("encoder.layer.{}", layer), x, mask, size);
  const std::string first = draft.node("pooler", "Gather", {x, draft.integer("pooler", 0)}, {{"axis", int64_t{1}}});
  const std::string pooled = draft.node("pooler", "Tanh", {draft.dense("pooler.dense", first, size.embed, size.embed)});
  draft.output("last_hidden_state", x, {"batch", "sequence", size.embed});
  draft.output("pooler_output", pooled, {"batch", size.embed});
  return std::move(draft).take();
}

ZooModel build_vit(std::string_view name, const ZooOptions& options) {
  constexpr Transformer kBase{12, 768, 12, 3072};
  constexpr int64_t kSide = 224, kPatch = 16, kClasses = 1000, kColours = 3;
  const int64_t side = options.image > 0 ? options.image : kSide;
  const int64_t patches = (side / kPatch) * (side / kPatch), tokens = patches + 1, embed = kBase.embed;
  Draft draft(name, options);
  const Signal image{draft.input("input", DType::kF32, {"batch", kColours, side, side}), kColours};
  const std::string scope = "patch_embed";
  const Signal cut = draft.conv(scope + ".proj", image, {.out = embed, .kernel = kPatch, .stride = kPatch});
  const std::string rows = draft.view(scope, cut.name, {kDim, embed, -1}, cut.name);
  const std::string words = draft.transpose(scope, rows, {0, 2, 1});
  const std::string token = draft.parameter("cls_token", {1, 1, embed}, 0, 1);
  const std::string tokens_first = draft.node("", "Expand", {token, draft.shape("", {kDim, 1, embed}, words)});
  const std::string all = draft.node("", "Concat", {tokens_first, words}, {{"axis", int64_t{1}}});
  std::string x = draft.node("", "Add", {all, draft.parameter("pos_embed", {1, tokens, embed}, 0, 0.2)});
  for (int64_t layer = 0; layer < layers_of(kBase, options); ++layer)
    x = vit_layer(draft, fmt::format("blocks.{}", layer), x, kBase, tokens);
  x = draft.layer_norm("norm", x, embed, kVitEpsilon);
  const std::string first = draft.node("", "Gather", {x, draft.integer("", 0)}, {{"axis", int64_t{1}}});
  draft.output("logits", draft.dense("head", first, embed, kClasses), {"batch", kClasses});
  return std::move(draft).take();
}

ZooModel build_whisper(std::string_view name, const ZooOptions& options) {
  constexpr Transformer kBase{6, 512, 8, 2048};
  constexpr int64_t kBands = 80, kFrames = 3000;
  const int64_t frames = options.frames > 0 ? options.frames : kFrames, tokens = frames / 2, embed = kBase.embed;
  Draft draft(name, options);
  std::string x = draft.input("input_features", DType::kF32, {"batch", kBands, frames});
  x = draft.gelu("", whisper_conv(draft, "conv1", x, kBands, embed, 1, 1));
  x = draft.gelu("", whisper_conv(draft, "conv2", x, embed, embed, 2, Draft::kGeluPower));
  x = draft.transpose("", x, {0, 2, 1});
  x = draft.node("", "Add",
                 {x, draft.trained_table("embed_positions.weight", {tokens, embed}, sinusoids(tokens, embed))});
  for (int64_t layer = 0; layer < layers_of(kBase, options); ++layer)
    x = whisper_layer(draft, fmt::format("layers.{}", layer), x, kBase, tokens);
  x = draft.layer_norm("layer_norm", x, embed, kWhisperEpsilon);
  draft.output("last_hidden_state", x, {"batch", tokens, embed});
  return std::move(draft).take();
}

}  // namespace bolide
