#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/testing/harness.h"
#include "tensor/half.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Operand;

// Keys and values of one sequence, [context, G, D] each, as the pool's type can hold them.
struct Cache {
  std::vector<float> k, v;
};

struct Dims {
  int64_t heads, kv_heads, head_dim;
  DType pool = DType::kBF16;
  int32_t page = 16;
};

// Of bf16 results: a value is now and then the 45 that one in 50 elements of a cache can be, and a token that sees
// nothing else gives it as it is, rounded by up to 0.125; the mean square of an output is about 1, of long contexts
// less.
constexpr double kLargestOfBF16 = 0.25;

Cache random_cache(const Dims& dims, int64_t context, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  Cache cache;
  for (auto* x : {&cache.k, &cache.v}) {
    x->resize(static_cast<size_t>(context * dims.kv_heads * dims.head_dim));
    for (float& f : *x) {
      f = normal(random) * (random() % 50 == 0 ? 10.f : 1.f);
      if (dims.pool == DType::kBF16) f = bf16_to_f32(f32_to_bf16(f));
      if (dims.pool == DType::kF8E4M3) f = f8e4m3_to_f32(f32_to_f8e4m3(f));
    }
  }
  return cache;
}

struct Part {
  const Cache* cache;
  int64_t context, tokens;
};

// A batch over pools in which every number that no token may see is NaN.
struct Batch {
  // The first `shared` blocks of every sequence are those of the first sequence, which must then hold the same keys.
  Batch(const Dims& d, std::vector<Part> sequences, std::mt19937_64& random, int64_t shared = 0)
      : dims(d), parts(std::move(sequences)) {
    int64_t stride = 1, blocks = 2, tokens = 0;
    cu.push_back(0);
    for (const Part& part : parts) {
      const int64_t count = (part.context + dims.page - 1) / dims.page;
      stride = std::max(stride, count + 1), blocks += count;
      context.push_back(static_cast<int32_t>(part.context));
      cu.push_back(static_cast<int32_t>(tokens += part.tokens));
    }
    std::vector<int32_t> free;
    for (int32_t i = 0; i < blocks; ++i) free.push_back(i);
    std::shuffle(free.begin(), free.end(), random);
    const auto elements = static_cast<size_t>(blocks * dims.page * dims.kv_heads * dims.head_dim);
    k.assign(elements * bytes(), std::byte{0xff}), v = k;
    table.assign(static_cast<size_t>(stride) * parts.size(), std::numeric_limits<int32_t>::max());
    for (size_t s = 0; s < parts.size(); ++s) {
      int32_t* row = table.data() + s * static_cast<size_t>(stride);
      for (int64_t b = 0; b * dims.page < parts[s].context; ++b) {
        if (s > 0 && b < shared) {
          row[b] = table[static_cast<size_t>(b)];
        } else {
          row[b] = free.back(), free.pop_back();
        }
      }
      fill(row, parts[s]);
    }
    layers = {KvLayer{}, KvLayer{k.data(), v.data()}};
    inputs.cu_tokens = cu.data(), inputs.context = context.data(), inputs.block_table = table.data();
    inputs.block_table_stride = static_cast<int32_t>(stride);
    inputs.sizes = {{tokens, static_cast<int64_t>(parts.size()), 1}};
    inputs.kv = {dims.pool, dims.page, static_cast<int32_t>(dims.kv_heads), static_cast<int32_t>(dims.head_dim),
                 layers};
  }
  Batch(const Batch&) = delete;
  size_t bytes() const { return static_cast<size_t>(bits_of(dims.pool)) / 8; }
  void fill(const int32_t* row, const Part& part) {
    for (int64_t p = 0; p < part.context; ++p)
      for (int64_t g = 0; g < dims.kv_heads; ++g)
        for (int64_t d = 0; d < dims.head_dim; ++d) {
          const auto from = static_cast<size_t>((p * dims.kv_heads + g) * dims.head_dim + d);
          const auto to =
              static_cast<size_t>(
                  ((row[p / dims.page] * dims.kv_heads + g) * dims.page + p % dims.page) * dims.head_dim + d) *
              bytes();
          for (const auto& [pool, value] : {std::pair(&k, part.cache->k[from]), std::pair(&v, part.cache->v[from])}) {
            const uint16_t narrow = f32_to_bf16(value);
            const uint8_t narrowest = f32_to_f8e4m3(value);
            if (dims.pool == DType::kF32)
              std::memcpy(pool->data() + to, &value, 4);
            else if (dims.pool == DType::kBF16)
              std::memcpy(pool->data() + to, &narrow, 2);
            else
              std::memcpy(pool->data() + to, &narrowest, 1);
          }
        }
  }

  Dims dims;
  std::vector<Part> parts;
  std::vector<int32_t> cu, context, table;
  std::vector<std::byte> k, v;
  std::vector<KvLayer> layers;
  BatchInputs inputs;
};

PagedAttention make_op(const Dims& dims, int64_t window = 0, float softcap = 0) {
  return {.layer = 1,
          .heads = dims.heads,
          .kv_heads = dims.kv_heads,
          .head_dim = dims.head_dim,
          .scale = 1 / std::sqrt(static_cast<float>(dims.head_dim)),
          .window = window,
          .softcap = softcap};
}

std::vector<double> oracle(const PagedAttention& op, const Batch& batch, const Operand& q) {
  std::vector<double> out;
  for (size_t s = 0; s < batch.parts.size(); ++s)
    for (int64_t t = batch.cu[s]; t < batch.cu[s + 1]; ++t) {
      const int64_t position = batch.parts[s].context - batch.parts[s].tokens + t - batch.cu[s];
      if (position < 0) {  // padding
        out.resize(out.size() + static_cast<size_t>(op.heads * op.head_dim));
        continue;
      }
      for (int64_t h = 0; h < op.heads; ++h) {
        const int64_t g = h * op.kv_heads / op.heads;
        std::vector<double> scores, sums(static_cast<size_t>(op.head_dim));
        double total = 0, most = -1e300;
        const auto at = [&](int64_t p, int64_t d) {
          return static_cast<size_t>((p * op.kv_heads + g) * op.head_dim + d);
        };
        for (int64_t p = 0; p <= position; ++p) {
          double score = 0;
          for (int64_t d = 0; d < op.head_dim; ++d)
            score += q.value(t, h * op.head_dim + d) * batch.parts[s].cache->k[at(p, d)];
          score *= static_cast<double>(op.scale);
          if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
          if (op.window > 0 && p <= position - op.window) score = -1e300;
          scores.push_back(score), most = std::max(most, score);
        }
        for (int64_t p = 0; p <= position; ++p) {
          const double weight = std::exp(scores[static_cast<size_t>(p)] - most);
          total += weight;
          for (int64_t d = 0; d < op.head_dim; ++d)
            sums[static_cast<size_t>(d)] += weight * batch.parts[s].cache->v[at(p, d)];
        }
        for (const double sum : sums) out.push_back(sum / total);
      }
    }
  out.resize(static_cast<size_t>(batch.inputs.sizes[Symbol::kTokens] * op.heads * op.head_dim));  // padding
  return out;
}

void check(const PagedAttention& op, const Batch& batch, uint64_t seed) {
  const Case c{"attention",
               op,
               {f32({Symbol::kTokens, op.heads * op.head_dim}), order_edge()},
               {},
               batch.inputs.sizes,
               seed,
               static_cast<int64_t>(seed % 3)};
  testing::Hooks hooks;
  hooks.batch = &batch.inputs;
  hooks.oracle = [&](const Case&, std::span<const Operand> in) {
    return std::vector<std::vector<double>>{oracle(op, batch, in[0])};
  };
  // The error of a score grows with its size (outliers of q and k make scores of several hundred) and enters its weight
  // relatively.
  hooks.bound = [](const Case&, const Kernel&) { return Bound{2e-5, 4e-4}; };
  std::vector<std::string> ran;
  EXPECT_EQ("", testing::check_kernels(attention_kernels(), c, hooks, &ran))
      << "seed " << seed << " D " << op.head_dim << " window " << op.window << " softcap " << op.softcap << " P "
      << batch.dims.page;
  EXPECT_FALSE(ran.empty());
}

TEST(Attention, RaggedBatchesMatchTheOracle) {
  uint64_t seed = std::random_device{}();
  for (const DType pool : {DType::kBF16, DType::kF32})
    for (const auto& [heads, kv_heads, dim] :
         {std::array<int64_t, 3>{9, 3, 64}, {4, 4, 80}, {8, 1, 16}, {6, 2, 24}, {2, 2, 7}, {3, 1, 10}, {10, 1, 128}})
      for (const int32_t page : {16, 1, 5, 64}) {
        std::mt19937_64 random(seed);
        const Dims dims{heads, kv_heads, dim, pool, page};
        std::vector<Cache> caches;
        std::vector<std::pair<int64_t, int64_t>> lengths = {{1, 1},   {page, 1}, {page + 1, 2}, {63, 63},
                                                            {130, 1}, {90, 20},  {66, 0}};
        for (const auto& [context, tokens] : lengths) caches.push_back(random_cache(dims, context, random));
        std::vector<Part> parts;
        for (size_t i = 0; i < caches.size(); ++i) parts.push_back({&caches[i], lengths[i].first, lengths[i].second});
        std::shuffle(parts.begin(), parts.end(), random);
        const Batch batch(dims, parts, random);
        const int64_t window = std::array<int64_t, 4>{0, 1, 17, 100}[random() % 4];
        check(make_op(dims, window, random() % 2 == 0 ? 0.f : 20.f), batch, seed++);
      }
}

// What only GPUs have: bf16 queries and outputs; tokens of a bucket that belong to no sequence, or to one that is
// empty, give zeros.
TEST(Attention, OnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  uint64_t seed = std::random_device{}();
  std::vector<std::string> ran;
  for (const DType pool : {DType::kBF16, DType::kF32, DType::kF8E4M3})
    for (const DType activation : {DType::kBF16, DType::kF32})
      for (const auto& [heads, kv_heads, dim] :
           {std::array<int64_t, 3>{9, 3, 64}, {4, 4, 80}, {8, 2, 128}, {2, 1, 7}, {4, 1, 160}, {4, 2, 256}}) {
        std::mt19937_64 random(seed);
        const Dims dims{heads, kv_heads, dim, pool, 16};
        std::vector<Cache> caches;
        std::vector<std::pair<int64_t, int64_t>> lengths = {{1, 1}, {63, 63}, {330, 1}, {0, 1}, {90, 20}, {0, 2}};
        for (const auto& [context, tokens] : lengths) caches.push_back(random_cache(dims, context, random));
        std::vector<Part> parts;
        for (size_t i = 0; i < caches.size(); ++i) parts.push_back({&caches[i], lengths[i].first, lengths[i].second});
        Batch batch(dims, parts, random);
        batch.inputs.sizes[Symbol::kTokens] += 5;
        const PagedAttention op = make_op(dims, random() % 2 == 0 ? 0 : 40);
        const ValueType type{activation, nullptr, {Symbol::kTokens, heads * dim}};
        Case c{"attention", op, {type, order_edge()}, {}, batch.inputs.sizes, seed, static_cast<int64_t>(seed % 3)};
        c.out = {type};
        testing::Hooks hooks;
        hooks.batch = &batch.inputs;
        hooks.oracle = [&](const Case&, std::span<const Operand> in) {
          return std::vector<std::vector<double>>{oracle(op, batch, in[0])};
        };
        hooks.bound = [&](const Case&, const Kernel&) {
          return activation == DType::kF32 ? Bound{2e-5, 4e-4} : Bound{4e-3, kLargestOfBF16};
        };
        EXPECT_EQ("", testing::check_kernels(attention_kernels(), c, hooks, &ran)) << "D " << dim << " seed " << seed;
        ++seed;
      }
  EXPECT_FALSE(ran.empty());
}

// One new token a sequence. On a GPU queries and results are bf16, and there are padding sequences, whose results are
// zeros: what its decode kernel is for. Products of bf16 keys are exact; weights rounded to bf16 err by 2^-9, and so do
// results.
void check_decode(const Dims& dims, const std::vector<Part>& parts, std::mt19937_64& random, uint64_t seed,
                  int64_t window, float softcap, int64_t shared = 0) {
  const bool device = testing::runs_on_device();
  const Batch batch(dims, parts, random, shared);
  const PagedAttention op = make_op(dims, window, softcap);
  const ValueType type{device ? DType::kBF16 : DType::kF32, nullptr, {Symbol::kTokens, dims.heads * dims.head_dim}};
  Case c{"decode", op, {type, order_edge()}, {}, batch.inputs.sizes, seed, seed % 2 == 0 ? 0 : 8};
  c.out = {type};
  testing::Hooks hooks;
  hooks.batch = &batch.inputs;
  hooks.oracle = [&](const Case&, std::span<const Operand> in) {
    return std::vector<std::vector<double>>{oracle(op, batch, in[0])};
  };
  hooks.bound = [&](const Case&, const Kernel&) { return device ? Bound{4e-3, kLargestOfBF16} : Bound{2e-5, 4e-4}; };
  std::vector<std::string> ran;
  EXPECT_EQ("", testing::check_kernels(attention_kernels(), c, hooks, &ran))
      << "seed " << seed << " H " << dims.heads << " G " << dims.kv_heads << " D " << dims.head_dim << " P "
      << dims.page << " window " << window << " softcap " << softcap;
  EXPECT_FALSE(ran.empty());
}

TEST(Attention, DecodeStepsMatchTheOracle) {
  uint64_t seed = std::random_device{}();
  for (const DType pool : {DType::kBF16, DType::kF8E4M3})
    for (const int64_t dim : {64, 96, 128})
      for (const int64_t group : {1, 2, 4, 8, 12}) {
        std::mt19937_64 random(seed);
        const int32_t page = std::array<int32_t, 3>{16, 64, 32}[random() % 3];
        const Dims dims{2 * group, 2, dim, pool, page};
        std::vector<int64_t> lengths = {1, 15, 16, 17, 63, 64, 65, 200, 1000};
        if (group == 2) lengths.push_back(pool == DType::kBF16 ? 5000 : 2000);
        if (testing::runs_on_device()) lengths.insert(lengths.end(), {0, 3000, 0});
        std::shuffle(lengths.begin(), lengths.end(), random);
        std::vector<Cache> caches;
        for (const int64_t context : lengths) caches.push_back(random_cache(dims, context, random));
        std::vector<Part> parts;
        for (size_t i = 0; i < caches.size(); ++i) parts.push_back({&caches[i], lengths[i], 1});
        const int64_t window = std::array<int64_t, 4>{0, 0, 17, 300}[random() % 4];
        check_decode(dims, parts, random, seed, window, random() % 3 == 0 ? 20.f : 0.f);
        // One sequence alone: its context is spread over as much of a GPU as there is.
        const size_t one = static_cast<size_t>(std::max_element(lengths.begin(), lengths.end()) - lengths.begin());
        check_decode(dims, {parts[one]}, random, seed + 1, window, 0);
        seed += 2;
      }
}

// As many tokens as sequences, but not one each.
TEST(Attention, DecodeOfUnevenStepsMatchesTheOracle) {
  std::mt19937_64 random(std::random_device{}());
  const Dims dims{8, 2, 64, DType::kBF16, 16};
  const Cache a = random_cache(dims, 100, random), b = random_cache(dims, 33, random),
              c = random_cache(dims, 7, random);
  check_decode(dims, {{&a, 100, 3}, {&b, 33, 0}, {&c, 7, 1}, {&a, 100, 0}}, random, random(), 0, 0);
}

TEST(Attention, DecodeOfSharedPagesMatchesTheOracle) {
  std::mt19937_64 random(std::random_device{}());
  const Dims dims{8, 2, 128, DType::kBF16, 64};
  const Cache a = random_cache(dims, 300, random);
  Cache b = random_cache(dims, 150, random);
  const int64_t common = 128 * dims.kv_heads * dims.head_dim;
  std::copy(a.k.begin(), a.k.begin() + common, b.k.begin());
  std::copy(a.v.begin(), a.v.begin() + common, b.v.begin());
  check_decode(dims, {{&a, 300, 1}, {&b, 150, 1}}, random, random(), 0, 0, 2);
}

// Prompts in chunks beside new tokens of other sequences. On a GPU queries and results are bf16, and there is padding,
// whose results are zeros: what its kernel of prompts is for. Weights rounded to bf16 err by 2^-9, and so do results.
TEST(Attention, PromptsMatchTheOracle) {
  uint64_t seed = std::random_device{}();
  const bool device = testing::runs_on_device();
  for (const auto& [heads, kv_heads, dim] :
       {std::array<int64_t, 3>{8, 2, 128}, {2, 2, 96}, {4, 1, 96}, {9, 3, 64}, {12, 2, 128}, {3, 3, 64}, {32, 1, 64}})
    for (const int32_t page : {64, 16, 128}) {
      if (!device && page != 16) continue;  // the oracle takes its time
      std::mt19937_64 random(seed);
      const Dims dims{heads, kv_heads, dim, DType::kBF16, page};
      std::vector<std::pair<int64_t, int64_t>> lengths = {{1, 1},     {129, 129}, {300, 40}, {128, 128},
                                                          {257, 130}, {90, 0},    {500, 1},  {64, 33}};
      if (device) lengths.insert(lengths.end(), {{0, 1}, {0, 3}});
      std::shuffle(lengths.begin(), lengths.end(), random);
      std::vector<Cache> caches;
      for (const auto& [context, tokens] : lengths) caches.push_back(random_cache(dims, context, random));
      std::vector<Part> parts;
      for (size_t i = 0; i < caches.size(); ++i) parts.push_back({&caches[i], lengths[i].first, lengths[i].second});
      Batch batch(dims, parts, random);
      if (device) batch.inputs.sizes[Symbol::kTokens] += 7;
      const int64_t window = std::array<int64_t, 4>{0, 0, 100, 129}[random() % 4];
      const PagedAttention op = make_op(dims, window, random() % 3 == 0 ? 20.f : 0.f);
      const ValueType type{device ? DType::kBF16 : DType::kF32, nullptr, {Symbol::kTokens, heads * dim}};
      Case c{"prompts", op, {type, order_edge()}, {}, batch.inputs.sizes, seed, seed % 2 == 0 ? 0 : 8};
      c.out = {type};
      testing::Hooks hooks;
      hooks.batch = &batch.inputs;
      hooks.oracle = [&](const Case&, std::span<const Operand> in) {
        return std::vector<std::vector<double>>{oracle(op, batch, in[0])};
      };
      hooks.bound = [&](const Case&, const Kernel&) {
        return device ? Bound{4e-3, kLargestOfBF16} : Bound{2e-5, 4e-4};
      };
      std::vector<std::string> ran;
      EXPECT_EQ("", testing::check_kernels(attention_kernels(), c, hooks, &ran))
          << "seed " << seed << " H " << heads << " G " << kv_heads << " D " << dim << " P " << page << " window "
          << window << " softcap " << op.softcap;
      EXPECT_FALSE(ran.empty());
      ++seed;
    }
}

TEST(Attention, LongContextsMatchTheOracle) {
  uint64_t seed = std::random_device{}();
  for (const int64_t window : {0, 300, 700})
    for (const int64_t tokens : {1, 3, 40}) {
      std::mt19937_64 random(seed);
      const Dims dims{9, 3, 64, DType::kBF16, 16};
      const Cache cache = random_cache(dims, 1100, random);
      const Batch batch(dims, {{&cache, 1100, tokens}}, random);
      check(make_op(dims, window), batch, seed++);
    }
}

// Two sequences that share the pages of their common prefix.
TEST(Attention, SharedPagesMatchTheOracle) {
  std::mt19937_64 random(std::random_device{}());
  const Dims dims{9, 3, 64, DType::kBF16, 16};
  const Cache a = random_cache(dims, 100, random);
  Cache b = random_cache(dims, 75, random);
  const int64_t common = 48 * dims.kv_heads * dims.head_dim;
  std::copy(a.k.begin(), a.k.begin() + common, b.k.begin());
  std::copy(a.v.begin(), a.v.begin() + common, b.v.begin());
  const Batch batch(dims, {{&a, 100, 1}, {&b, 75, 30}}, random, 3);
  check(make_op(dims), batch, random());
}

// Scores of +-80 and beyond: nothing overflows and the largest wins.
TEST(Attention, ExtremeScores) {
  std::mt19937_64 random(std::random_device{}());
  const Dims dims{2, 1, 16, DType::kF32, 8};
  Cache cache = random_cache(dims, 70, random);
  for (float& k : cache.k) k *= 100;
  const Batch batch(dims, {{&cache, 70, 70}}, random);
  const PagedAttention op = make_op(dims);
  for (const Kernel& kernel : attention_kernels()) {
    const Case c{"extreme", op, {f32({Symbol::kTokens, 32}), order_edge()}, {}, batch.inputs.sizes};
    testing::Hooks hooks;
    hooks.batch = &batch.inputs;
    hooks.oracle = [&](const Case&, std::span<const Operand> in) {
      return std::vector<std::vector<double>>{oracle(op, batch, in[0])};
    };
    hooks.bound = [](const Case&, const Kernel&) { return Bound{1e-3, 2e-2}; };  // scores of 1e4 have errors of 1e-3
    EXPECT_EQ("", testing::check_kernels({&kernel, 1}, c, hooks));
  }
}

// One launch outside the harness; q [tokens, H * D].
std::vector<float> attend(const Kernel& kernel, const PagedAttention& op, const Batch& batch, std::vector<float> q,
                          int threads) {
  const Op variant = op;
  const std::vector<ValueType> types = {f32({Symbol::kTokens, op.heads * op.head_dim}), order_edge()},
                               out_types = {types[0]};
  const DeviceInfo device = testing::this_machine(threads);
  const Problem problem{&variant, types, out_types, batch.inputs.sizes, &device};
  std::vector<float> out(q.size(), NAN);
  const Shape shape{batch.inputs.sizes[Symbol::kTokens], op.heads * op.head_dim};
  const TensorView in[] = {make_view(reinterpret_cast<std::byte*>(q.data()), DType::kF32, shape), TensorView{}};
  const TensorView outs[] = {make_view(reinterpret_cast<std::byte*>(out.data()), DType::kF32, shape)};
  auto workspace = *Buffer::host(kernel.workspace != nullptr ? kernel.workspace(problem) : 1);
  std::memset(workspace.data(), 0xff, workspace.size());
  static Workers pools[] = {Workers(1), Workers(2), Workers(3)};  // starting threads costs more than the launches
  Workers& workers = pools[threads - 1];
  const auto stream = testing::stream_over(workers);
  EXPECT_TRUE(kernel.launch(Launch{&variant, in, outs, workspace.bytes(), nullptr, &batch.inputs}, *stream));
  return out;
}

bool usable(const Kernel& kernel, const PagedAttention& op) {
  const Op variant = op;
  const std::vector<ValueType> types = {f32({Symbol::kTokens, op.heads * op.head_dim}), order_edge()};
  const DeviceInfo device = testing::this_machine(1);
  return kernel.supports(Problem{&variant, types, types, {}, &device});
}

std::vector<float> random_rows(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> rows(static_cast<size_t>(count));
  for (float& f : rows) f = normal(random);
  return rows;
}

// A token's result has the same bits whatever the page size, the chunking of the prompt, the batch around it and the
// number of threads (README.md).
TEST(Attention, BitsDependOnTheTokenAlone) {
  BOLIDE_CPU_ONLY();
  uint64_t seed = std::random_device{}();
  for (const int64_t head_dim : {64, 80, 24})
    for (const int64_t window : {0, 90})
      for (const Kernel& kernel : attention_kernels()) {
        std::mt19937_64 random(seed);
        SCOPED_TRACE(std::string(kernel.name) + " seed " + std::to_string(seed++));
        const int64_t context = 530;
        const Dims dims{9, 3, head_dim, DType::kBF16, 16};
        const PagedAttention op = make_op(dims, window, window > 0 ? 30.f : 0.f);
        if (!usable(kernel, op)) continue;
        const Cache cache = random_cache(dims, context, random);
        const int64_t width = dims.heads * dims.head_dim;
        const std::vector<float> q = random_rows(context * width, random);
        const Batch whole(dims, {{&cache, context, context}}, random);
        const std::vector<float> expected = attend(kernel, op, whole, q, 1);

        EXPECT_EQ(0, std::memcmp(expected.data(), attend(kernel, op, whole, q, 2).data(), expected.size() * 4))
            << "two threads";
        EXPECT_EQ(0, std::memcmp(expected.data(), attend(kernel, op, whole, q, 3).data(), expected.size() * 4))
            << "three threads";
        for (const int32_t page : {7, 530}) {
          Dims paged = dims;
          paged.page = page;
          const Batch other(paged, {{&cache, context, context}}, random);
          EXPECT_EQ(0, std::memcmp(expected.data(), attend(kernel, op, other, q, 2).data(), expected.size() * 4))
              << "P " << page;
        }
        // Chunks of random size, each beside a decode of another sequence; then single tokens.
        const Cache beside = random_cache(dims, 333, random);
        for (int64_t begin = 0; begin < context;) {
          const int64_t count =
              std::min<int64_t>(context - begin, random() % 3 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 150));
          const Batch chunk(dims, {{&beside, 333, 1}, {&cache, begin + count, count}}, random);
          std::vector<float> rows = random_rows(width, random);
          rows.insert(rows.end(), q.begin() + begin * width, q.begin() + (begin + count) * width);
          const std::vector<float> got = attend(kernel, op, chunk, rows, 1 + static_cast<int>(random() % 3));
          ASSERT_EQ(0, std::memcmp(expected.data() + begin * width, got.data() + width,
                                   static_cast<size_t>(count * width) * 4))
              << begin << " + " << count;
          begin += count;
        }
        for (const int64_t position : {0, 1, 63, 64, 255, 256, 257, 511, 512, 529})
          for (const int threads : {1, 2, 3}) {
            const Batch one(dims, {{&cache, position + 1, 1}}, random);
            const std::vector<float> rows(q.begin() + position * width, q.begin() + (position + 1) * width);
            ASSERT_EQ(0, std::memcmp(expected.data() + position * width, attend(kernel, op, one, rows, threads).data(),
                                     static_cast<size_t>(width) * 4))
                << position << ", threads " << threads;
          }
      }
}

}  // namespace
}  // namespace bolide
