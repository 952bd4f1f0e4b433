// Times the kernels that are not matrix products at the shapes of SmolLM2-135M: E 576, F 1536, H 9, G 3, D 64, V 49152.
// Usage: bolide_ops_bench [threads [words of the names wanted]]. The caches of 30 layers are used in turn, as a model
// uses them, so that decode reads keys and values from where a real step finds them; other operands stay warm. With one
// thread, times are that thread's processor time: other programs on the machine then disturb only through caches and
// clocks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

#include "ir/graph.h"
#include "kernels/registry.h"
#include "measure/statistics.h"

namespace bolide {
namespace {

constexpr int64_t kHeads = 9, kKvHeads = 3, kHeadDim = 64, kWidth = 576, kFfn = 1536, kVocabulary = 49152;
constexpr int64_t kLayers = 30, kPage = 16;

std::vector<float> random_floats(int64_t count) {
  static std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(random);
  return values;
}

double now_seconds(bool processor_time) {
  timespec t;
  clock_gettime(processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// One op on its operands, timed with every kernel that supports it.
class Bench {
 public:
  Bench(const Device& device, Stream& stream, std::string_view wanted)
      : device_(device), stream_(stream), wanted_(wanted) {}

  TensorView operand(int64_t rows, int64_t columns) {
    buffers_.push_back(random_floats(rows * columns));
    return make_view(reinterpret_cast<std::byte*>(buffers_.back().data()), DType::kF32, {rows, columns});
  }

  // `batches` are used in turn.
  void time(std::string_view what, const Op& op, std::span<const ValueType> types, std::span<const TensorView> in,
            std::span<const TensorView> out, const SymbolValues& sizes, std::span<const BatchInputs> batches,
            double flops) {
    if (what.find(wanted_) == std::string_view::npos) return;
    const auto out_types = infer_types(op, types);
    BOLIDE_CHECK(out_types.has_value(), "{}", out_types.has_value() ? "" : "shapes");
    const Problem problem{&op, types, *out_types, sizes, &device_.info()};
    for (const Kernel* kernel : cpu_kernels().candidates(problem)) {
      if (kernel->name.ends_with("_ref")) continue;
      auto workspace = *Buffer::host(kernel->workspace != nullptr ? kernel->workspace(problem) + 64 : 64);
      std::vector<double> samples;
      size_t next = 0;
      const bool one = device_.info().threads == 1;
      const double begin = now_seconds(false);
      do {
        constexpr int kRepeat = 5;
        const double start = now_seconds(one);
        for (int i = 0; i < kRepeat; ++i, ++next) {
          const Launch launch{&op, in, out, workspace.bytes(), nullptr, &batches[next % batches.size()]};
          const auto result = kernel->launch(launch, stream_);
          BOLIDE_CHECK(result.has_value(), "launch failed");
        }
        samples.push_back((now_seconds(one) - start) / kRepeat);
      } while (now_seconds(false) - begin < 0.25 || samples.size() < 20);
      const Stat stat = summarise(samples);
      fmt::print("{:34} {:22} {:10.2f} us  (min {:.2f})", what, kernel->name, stat.median * 1e6, stat.min * 1e6);
      if (flops > 0) fmt::print("  {:7.1f} Gflop/s", flops / stat.median * 1e-9);
      fmt::print("\n");
      std::fflush(stdout);
    }
  }

 private:
  const Device& device_;
  Stream& stream_;
  std::string_view wanted_;
  std::vector<std::vector<float>> buffers_;
};

// S sequences of `context` tokens, the last `tokens` of each in this step.
struct Cached {
  Cached(int64_t sequences, int64_t tokens, int64_t context) {
    const int64_t per = (context + kPage - 1) / kPage;
    const auto elements = static_cast<size_t>(sequences * per * kPage * kKvHeads * kHeadDim);
    std::mt19937_64 random(2);
    std::vector<int32_t> blocks;
    for (int32_t i = 0; i < sequences * per; ++i) blocks.push_back(i);
    std::shuffle(blocks.begin(), blocks.end(), random);
    table = blocks;
    cu.push_back(0);
    for (int64_t s = 0; s < sequences; ++s) {
      contexts.push_back(static_cast<int32_t>(context)), rope_length.push_back(static_cast<int32_t>(context));
      cu.push_back(static_cast<int32_t>((s + 1) * tokens));
      for (int64_t t = context - tokens; t < context; ++t) {
        positions.push_back(static_cast<int32_t>(t));
        slots.push_back(int64_t{table[static_cast<size_t>(s * per + t / kPage)]} * kPage + t % kPage);
      }
    }
    for (int64_t l = 0; l < kLayers; ++l) {
      pools.push_back(*Buffer::host(4 * elements));
      std::byte* k = pools.back().data();
      for (size_t i = 0; i < 2 * elements; ++i) {
        const auto h = static_cast<uint16_t>(0x3f00u + (random() & 0x80ffu));
        std::memcpy(k + 2 * i, &h, 2);
      }
      layers.push_back({k, k + 2 * elements});
    }
    for (int64_t l = 0; l < kLayers; ++l) {
      BatchInputs b;
      b.positions = positions.data(), b.cu_tokens = cu.data(), b.context = contexts.data();
      b.rope_length = rope_length.data(), b.block_table = table.data(), b.slots = slots.data();
      b.block_table_stride = static_cast<int32_t>(per);
      b.sizes = {{sequences * tokens, sequences, 1}};
      b.kv = {DType::kBF16, kPage, kKvHeads, kHeadDim, std::span(layers).subspan(static_cast<size_t>(l), 1)};
      batches.push_back(b);
    }
  }
  std::vector<int32_t> cu, contexts, rope_length, table, positions;
  std::vector<int64_t> slots;
  std::vector<Buffer> pools;
  std::vector<KvLayer> layers;
  std::vector<BatchInputs> batches;
};

void attention(Bench& bench, int64_t sequences, int64_t tokens, int64_t context) {
  const Cached cached(sequences, tokens, context);
  const int64_t rows = sequences * tokens;
  const TensorView q = bench.operand(rows, kWidth), out = bench.operand(rows, kWidth);
  const PagedAttention op{0, kHeads, kKvHeads, kHeadDim, 0.125f};
  // Positions that are seen, by all tokens.
  const double seen =
      static_cast<double>(rows) * (static_cast<double>(context) - (static_cast<double>(tokens) - 1) / 2);
  const ValueType types[] = {f32({Symbol::kTokens, kWidth}), order_edge()};
  const TensorView in[] = {q, {}}, outs[] = {out};
  bench.time(fmt::format("attention S {} x {} of {}", sequences, tokens, context), op, types, in, outs,
             cached.batches[0].sizes, cached.batches, 4 * seen * kHeads * kHeadDim);
}

void elementwise(Bench& bench, int64_t tokens) {
  const BatchInputs none[1] = {};
  const SymbolValues sizes{{tokens, 1, 1}};
  const ValueType x = f32({Symbol::kTokens, kWidth}), w = f32({kWidth});
  const TensorView a = bench.operand(tokens, kWidth), b = bench.operand(tokens, kWidth),
                   weight = bench.operand(1, kWidth);
  const TensorView sum = bench.operand(tokens, kWidth), out = bench.operand(tokens, kWidth);
  bench.time(fmt::format("rms_norm T {}", tokens), RmsNorm{}, std::array{x, w}, std::array{a, weight}, std::array{out},
             sizes, none, 0);
  bench.time(fmt::format("add_rms_norm T {}", tokens), AddRmsNorm{}, std::array{x, x, w}, std::array{a, b, weight},
             std::array{sum, out}, sizes, none, 0);
  const TensorView both = bench.operand(tokens, 2 * kFfn), gated = bench.operand(tokens, kFfn);
  for (const ActKind act : {ActKind::kSilu, ActKind::kGelu, ActKind::kGeluTanh})
    bench.time(fmt::format("gated_act {} T {}", enum_names(act)[static_cast<size_t>(act)], tokens), GatedAct{act},
               std::array{f32({Symbol::kTokens, 2 * kFfn})}, std::array{both}, std::array{gated}, sizes, none, 0);
  const Cached cached(1, tokens, tokens);
  RopeSpec rope{.rotary_dim = kHeadDim};
  for (int i = 0; i < 32; ++i) rope.inv_freq.push_back(1.f / static_cast<float>(i * i + 1));
  const TensorView qkv = bench.operand(tokens, kWidth + 2 * kKvHeads * kHeadDim);
  const auto slice = [&](int64_t begin, int64_t count) {
    TensorView view = qkv;
    view.data += begin * 4, view.shape = {tokens, count};
    return view;
  };
  const TensorView positions =
      make_view(reinterpret_cast<std::byte*>(const_cast<int32_t*>(cached.positions.data())), DType::kI32, {tokens});
  const ValueType kv = f32({Symbol::kTokens, kKvHeads * kHeadDim});
  bench.time(fmt::format("rope_kv_write T {}", tokens), RopeKvWrite{0, kHeads, kKvHeads, kHeadDim, rope},
             std::array{x, kv, kv, i32({Symbol::kTokens})},
             std::array{slice(0, kWidth), slice(kWidth, 192), slice(kWidth + 192, 192), positions},
             std::array{out, TensorView{}}, sizes, cached.batches, 0);
}

void sample(Bench& bench, int64_t vocabulary) {
  const TensorView logits = bench.operand(1, vocabulary), next = bench.operand(1, 1), probability = bench.operand(1, 1);
  for (int64_t i = 0; i < vocabulary; ++i) logits.as<float>()[i] *= 2.5f;
  TensorView id = next, p = probability;
  id.dtype = DType::kI32, id.shape = {1}, p.shape = {1};
  const std::pair<std::string_view, SamplingRow> kRows[] = {
      {"greedy", {}},
      {"temperature 1", {.temperature = 1}},
      {"top_k 40", {.temperature = 1, .top_k = 40}},
      {"top_p 0.95", {.temperature = 1, .top_p = 0.95f}},
      {"top_k 40 top_p 0.9 min_p 0.05", {.temperature = 0.8f, .top_p = 0.9f, .min_p = 0.05f, .top_k = 40}},
  };
  for (const auto& [name, row] : kRows) {
    std::vector<SamplingRow> rows(16, row);
    std::vector<BatchInputs> batches(16);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].position = static_cast<int64_t>(i);
      batches[i].sampling = {&rows[i], 1};
    }
    bench.time(fmt::format("sample V {} {}", vocabulary, name), Sample{}, std::array{f32({Symbol::kRows, vocabulary})},
               std::array{logits}, std::array{id, p}, {{1, 1, 1}}, batches, 0);
  }
}

int run(int threads, std::string_view wanted) {
  auto device = make_cpu_device(threads, {});
  if (!device) return fmt::print("{}\n", device.error().text), 1;
  auto stream = *(*device)->make_stream();
  fmt::print("{}, {} threads\n", (*device)->info().name, (*device)->info().threads);
  Bench bench(**device, *stream, wanted);
  attention(bench, 1, 512, 512);
  attention(bench, 1, 128, 512);
  attention(bench, 1, 2048, 2048);
  for (const int64_t context : {64, 128, 512, 2048, 8192}) attention(bench, 1, 1, context);
  attention(bench, 16, 1, 512);
  elementwise(bench, 1);
  elementwise(bench, 512);
  sample(bench, kVocabulary);
  sample(bench, 128256);
  return 0;
}

}  // namespace
}  // namespace bolide

int main(int argc, char** argv) { return bolide::run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? argv[2] : ""); }
