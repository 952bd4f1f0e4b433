// Decoders with LayerNorm, biases, learned positions and weights stored [in, out], in more combinations than the
// families of the list have: random ones, from checkpoint to logits, against plain loops in double. With every pass and
// with none, on every instruction set, in steps of several sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "engine/runner.h"
#include "kernels/registry.h"
#include "load/family_weights.h"
#include "models/decoder.h"
#include "passes/pass.h"
#include "plan/random_graph.h"

namespace bolide {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

constexpr WeightRule kRules[] = {
    {Slot::kEmbed, "tokens"},
    {Slot::kPositions, "places"},
    {Slot::kAttnNorm, "blocks.{l}.norm1"},
    {Slot::kQ, "blocks.{l}.qkv", Rows::kQ, Layout::kInOut},
    {Slot::kK, "blocks.{l}.qkv", Rows::kK, Layout::kInOut},
    {Slot::kV, "blocks.{l}.qkv", Rows::kV, Layout::kInOut},
    {Slot::kOut, "blocks.{l}.out", Rows::kAll, Layout::kInOut},
    {Slot::kFfnNorm, "blocks.{l}.norm2"},
    {Slot::kUp, "blocks.{l}.up", Rows::kAll, Layout::kInOut},
    {Slot::kDown, "blocks.{l}.down"},
    {Slot::kFinalNorm, "norm"},
    {Slot::kHead, "head"},
};
constexpr std::string_view kLeftovers[] = {".mask"};
constexpr Family kFamily{
    .name = "test", .parse = nullptr, .weights = kRules, .prefix = "body.", .leftovers = kLeftovers};

struct Machine {
  std::unique_ptr<Device> device;
  explicit Machine(std::optional<Isa> isa) : device(std::move(*make_cpu_device(2, isa))) {}
};

class RandomModel {
 public:
  explicit RandomModel(uint64_t seed) : random_(seed), source_(std::make_shared<test::MemorySource>()) {
    spec.layers = 2;
    spec.kv_heads = pick(1, 2);
    spec.heads = spec.kv_heads * pick(1, 3);
    spec.head_dim = 8 * pick(1, 3);
    spec.embed_dim = pick(20, 70);
    spec.ffn_dim = pick(20, 90);
    spec.vocab = pick(20, 60);
    spec.context_max = pick(40, 50);
    spec.norm = NormKind::kLayer;
    spec.norm_eps = 1e-2f;
    spec.has_rope = false;
    spec.learned_positions = true;
    spec.positions_offset = pick(0, 2);
    spec.gated = false;
    spec.act = static_cast<ActKind>(pick(0, 3));
    spec.qkv_bias = flip(), spec.out_bias = flip(), spec.ffn_bias = flip(), spec.tied_head = flip();
    spec.head_bias = flip();
    prefix_ = flip() ? "body." : "";
    const int64_t E = spec.embed_dim, F = spec.ffn_dim, q = spec.heads * spec.head_dim,
                  kv = spec.kv_heads * spec.head_dim;
    embed_ = matrix("tokens", spec.vocab, E, 1, false);
    places_ = matrix("places", spec.context_max + spec.positions_offset, E, 1, false);
    for (int64_t l = 0; l < spec.layers; ++l) {
      const auto name = [&](std::string_view part) { return fmt::format("blocks.{}.{}", l, part); };
      Layer layer;
      layer.norm1 = norm(name("norm1")), layer.norm2 = norm(name("norm2"));
      layer.qkv = linear(name("qkv"), q + 2 * kv, E, spec.qkv_bias, true);
      layer.out = linear(name("out"), E, q, spec.out_bias, true);
      layer.up = linear(name("up"), F, E, spec.ffn_bias, true);
      layer.down = linear(name("down"), E, F, spec.ffn_bias, false);
      layers_.push_back(layer);
      vector(name("mask"), 3, 0, 1, "");
    }
    norm_ = norm("norm");
    head_.weight = spec.tied_head ? embed_ : matrix("head", spec.vocab, E, 2, false, "");
    if (spec.head_bias) head_.bias = vector("head.bias", spec.vocab, 0, 1, "");
  }

  DecoderSpec spec;

  std::shared_ptr<const WeightSource> weights() const { return *family_weights(source_, kFamily); }

  Matrix logits(const std::vector<int32_t>& ids) const {
    Matrix x;
    for (size_t t = 0; t < ids.size(); ++t) {
      x.push_back(embed_[static_cast<size_t>(ids[t])]);
      add(&x.back(), places_[t + static_cast<size_t>(spec.positions_offset)]);
    }
    for (const Layer& layer : layers_) {
      Matrix qkv;
      for (const Vector& row : x) qkv.push_back(apply(layer.qkv, normed(layer.norm1, row)));
      for (size_t t = 0; t < x.size(); ++t) {
        add(&x[t], apply(layer.out, attend(qkv, t)));
        Vector hidden = apply(layer.up, normed(layer.norm2, x[t]));
        for (double& v : hidden) v = act(v);
        add(&x[t], apply(layer.down, hidden));
      }
    }
    Matrix out;
    for (const Vector& row : x) out.push_back(apply(head_, normed(norm_, row)));
    return out;
  }

 private:
  struct Map {
    Matrix weight;  // [out][in]
    Vector bias;    // or empty
  };
  struct Norm {
    Vector gain, shift;
  };
  struct Layer {
    Norm norm1, norm2;
    Map qkv, out, up, down;
  };

  int64_t pick(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  bool flip() { return pick(0, 1) == 1; }
  float draw() { return std::normal_distribution<float>()(random_); }

  void store(const std::string& name, const Shape& shape, const std::vector<float>& values,
             const std::optional<std::string>& prefix) {
    source_->add(prefix.value_or(prefix_) + name, shape, values);
  }
  Vector vector(const std::string& name, int64_t size, float mean, float spread,
                const std::optional<std::string>& prefix = std::nullopt) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float& v : values) v = mean + spread * draw();
    store(name, {size}, values, prefix);
    return {values.begin(), values.end()};
  }
  Matrix matrix(const std::string& module, int64_t rows, int64_t columns, double scale, bool in_out,
                const std::optional<std::string>& prefix = std::nullopt) {
    Matrix out(static_cast<size_t>(rows), Vector(static_cast<size_t>(columns)));
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t r = 0; r < out.size(); ++r)
      for (size_t c = 0; c < out[r].size(); ++c) {
        const float value = draw() * static_cast<float>(scale / std::sqrt(static_cast<double>(columns)));
        out[r][c] = value;
        values[in_out ? c * out.size() + r : r * out[r].size() + c] = value;
      }
    store(module + ".weight", in_out ? Shape{columns, rows} : Shape{rows, columns}, values, prefix);
    return out;
  }
  Map linear(const std::string& module, int64_t out, int64_t in, bool bias, bool in_out) {
    return {matrix(module, out, in, 1.5, in_out), bias ? vector(module + ".bias", out, 0, 0.5f) : Vector()};
  }
  Norm norm(const std::string& module) {
    return {vector(module + ".weight", spec.embed_dim, 1, 0.3f), vector(module + ".bias", spec.embed_dim, 0, 0.3f)};
  }

  static void add(Vector* x, const Vector& y) {
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] += y[i];
  }
  static Vector apply(const Map& map, const Vector& x) {
    Vector out;
    for (size_t r = 0; r < map.weight.size(); ++r)
      out.push_back(std::inner_product(x.begin(), x.end(), map.weight[r].begin(), map.bias.empty() ? 0. : map.bias[r]));
    return out;
  }
  Vector normed(const Norm& norm, const Vector& x) const {
    const double n = static_cast<double>(x.size()), mean = std::accumulate(x.begin(), x.end(), 0.) / n;
    double variance = 0;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    Vector out;
    for (size_t i = 0; i < x.size(); ++i)
      out.push_back((x[i] - mean) / std::sqrt(variance + double{spec.norm_eps}) * norm.gain[i] + norm.shift[i]);
    return out;
  }
  double act(double x) const {
    switch (spec.act) {
      case ActKind::kSilu: return x / (1 + std::exp(-x));
      case ActKind::kGelu: return x / 2 * std::erfc(-x / std::sqrt(2.));
      case ActKind::kGeluTanh: return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      case ActKind::kRelu: return std::fmax(x, 0);
    }
    return 0;
  }
  Vector attend(const Matrix& qkv, size_t t) const {
    const auto D = static_cast<size_t>(spec.head_dim), H = static_cast<size_t>(spec.heads),
               G = static_cast<size_t>(spec.kv_heads);
    Vector out;
    for (size_t h = 0; h < H; ++h) {
      const size_t k = (H + h / (H / G)) * D, v = k + G * D;
      Vector scores;
      for (size_t s = 0; s <= t; ++s)
        scores.push_back(std::exp(std::inner_product(qkv[t].begin() + static_cast<ptrdiff_t>(h * D),
                                                     qkv[t].begin() + static_cast<ptrdiff_t>((h + 1) * D),
                                                     qkv[s].begin() + static_cast<ptrdiff_t>(k), 0.) /
                                  std::sqrt(static_cast<double>(D))));
      const double sum = std::accumulate(scores.begin(), scores.end(), 0.);
      for (size_t d = 0; d < D; ++d) {
        double value = 0;
        for (size_t s = 0; s <= t; ++s) value += scores[s] / sum * qkv[s][v + d];
        out.push_back(value);
      }
    }
    return out;
  }

  std::mt19937_64 random_;
  std::shared_ptr<test::MemorySource> source_;
  std::string prefix_;
  Matrix embed_, places_;
  std::vector<Layer> layers_;
  Norm norm_;
  Map head_;
};

Graph graph_of(const RandomModel& model, const Machine& machine, const KernelRegistry& kernels, bool with_passes) {
  auto graph = build_decoder(model.spec, kFamily, *model.weights(), ComputeMode::kF32);
  EXPECT_TRUE(graph.has_value()) << graph.error().text;
  std::set<std::string> skip;
  if (!with_passes)
    for (const Pass& pass : default_passes()) skip.emplace(pass.name);
  const DeviceInfo& info = machine.device->info();
  EXPECT_TRUE(run_passes(*graph, default_passes(), {&kernels, &info}, skip).has_value());
  return *std::move(graph);
}

// Logits of every token, `chunk` tokens a step.
Matrix run(const RandomModel& model, const std::vector<int32_t>& ids, Machine& machine, const KernelRegistry& kernels,
           bool with_passes, int32_t chunk) {
  Graph graph = graph_of(model, machine, kernels, with_passes);
  Workers workers(2);
  const auto weights = model.weights();
  const DeviceInfo& info = machine.device->info();
  const SymbolValues largest{{64, 1, 64}};
  const auto uses = choose_packings(graph, kernels, info, largest);
  EXPECT_TRUE(uses.has_value()) << uses.error().text;
  auto packed = WeightStore::pack(graph, *uses, *weights, workers);
  EXPECT_TRUE(packed.has_value()) << packed.error().text;
  auto plans = PlanSet::make(std::move(graph), *std::move(packed), kernels, info, {largest});
  EXPECT_TRUE(plans.has_value()) << plans.error().text;
  RunnerOptions options;
  options.context = static_cast<int32_t>(model.spec.context_max);
  options.tokens_per_step = 64;
  options.kv_dtype = DType::kF32;
  auto runner = Runner::make(std::move(*plans), options, *machine.device);
  EXPECT_TRUE(runner.has_value()) << runner.error().text;
  Sequence sequence;
  sequence.tokens = ids;
  sequence.prompt_count = sequence.size();
  Matrix out;
  while (sequence.computed < sequence.size()) {
    const Work work{&sequence, std::min(chunk, sequence.size() - sequence.computed), true};
    const auto done = runner->step(std::span(&work, 1));
    EXPECT_TRUE(done.has_value()) << done.error().text;
    if (!done) break;
    const TensorView logits = runner->logits().value();
    for (int64_t r = 0; r < work.tokens; ++r)
      out.emplace_back(logits.row<float>(r), logits.row<float>(r) + logits.cols());
  }
  return out;
}

void expect_near(const Matrix& got, const Matrix& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t t = 0; t < want.size(); ++t) {
    double error = 0, norm = 0;
    ASSERT_EQ(got[t].size(), want[t].size());
    for (size_t i = 0; i < want[t].size(); ++i) {
      error += (got[t][i] - want[t][i]) * (got[t][i] - want[t][i]);
      norm += want[t][i] * want[t][i];
    }
    ASSERT_LT(std::sqrt(error / norm), 5e-5) << what << ", token " << t;
  }
}

TEST(LayerNormModel, MatchesPlainLoops) {
  const uint64_t first = std::random_device{}();
  const CpuInfo cpu = detect_cpu();
  for (uint64_t seed = first; seed < first + 12; ++seed) {
    const RandomModel model(seed);
    std::mt19937_64 random(seed);
    std::vector<int32_t> ids(static_cast<size_t>(model.spec.context_max));  // to the last position there is
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(model.spec.vocab));
    const Matrix want = model.logits(ids);
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx}) {
      if (!supports(cpu, isa)) continue;
      Machine machine(isa);
      for (const bool passes : {true, false})
        for (const int32_t chunk : {1, 7, 64})
          expect_near(run(model, ids, machine, cpu_kernels(), passes, chunk), want,
                      fmt::format("seed {}, {}, passes {}, chunks of {}", seed, to_string(isa), passes, chunk));
      const Matrix one = run(model, ids, machine, batch_invariant_cpu_kernels(), true, 1);
      expect_near(one, want, fmt::format("seed {}, {}, batch-invariant", seed, to_string(isa)));
      EXPECT_EQ(one, run(model, ids, machine, batch_invariant_cpu_kernels(), true, 11)) << "seed " << seed;
      if (HasFatalFailure()) return;
    }
  }
}

// q, k and v are one product again, of the tensor as it lies in the file; sums go into the products before them.
TEST(LayerNormModel, PassesFuseWhatTheyCan) {
  const RandomModel model(7);
  Machine machine(std::nullopt);
  const Graph graph = graph_of(model, machine, cpu_kernels(), true);
  int linears = 0, norms = 0, adds = 0;
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (std::holds_alternative<Linear>(node.op)) {
      ++linears;
      for (size_t i = 1; i < node.in.size(); ++i) EXPECT_LE(graph.value(node.in[i]).parts.size(), 1u) << node.name;
    }
    norms += std::holds_alternative<LayerNorm>(node.op) ? 1 : 0;
    adds += std::holds_alternative<Add>(node.op) ? 1 : 0;
  }
  EXPECT_EQ(linears, 2 * 4 + 1);
  EXPECT_EQ(norms, 2 * 2 + 1);
  EXPECT_EQ(adds, 1);  // that of the positions
}

TEST(LayerNormModel, ErrorsSayWhatToDo) {
  const RandomModel model(8);
  const auto refusal = [&](const DecoderSpec& spec, const Family& family) {
    const auto graph = build_decoder(spec, family, *model.weights(), ComputeMode::kF32);
    return graph ? "" : graph.error().text;
  };
  const auto names = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  };
  DecoderSpec gated = model.spec;
  gated.gated = true;
  names(refusal(gated, kFamily), {"test", "Slot::kGate", "add a rule"});
  DecoderSpec fewer = model.spec;
  fewer.layers = 1;
  names(refusal(fewer, kFamily), {"blocks.1.norm1.weight", "the configuration says 1 layers"});
  DecoderSpec shifted = model.spec;
  shifted.positions_offset += 1;
  names(refusal(shifted, kFamily), {"places.weight"});
  DecoderSpec wide = model.spec;
  wide.ffn_dim += 1;
  names(refusal(wide, kFamily), {"blocks.0.up.weight"});
  WeightRule rules[std::size(kRules)];
  std::copy(std::begin(kRules), std::end(kRules), rules);
  rules[0].module = "decoder.tokens";
  Family prefixed = kFamily;
  prefixed.weights = rules;
  names(refusal(model.spec, prefixed), {"decoder.tokens.weight is missing", "there is tokens.weight", "prefix"});
}

}  // namespace
}  // namespace bolide
