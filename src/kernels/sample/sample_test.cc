#include "kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "kernels/sample/philox.h"
#include "kernels/testing/harness.h"

namespace bolide {
namespace {

using testing::Bound;
using testing::Case;
using testing::Operand;

// Known answers of the generator's authors (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  using sample::philox4x32;
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformUsesEveryWord) {
  const double base = sample::uniform(1, 2, 3);
  EXPECT_GE(base, 0);
  EXPECT_LT(base, 1);
  EXPECT_NE(base, sample::uniform(1 + (uint64_t{1} << 40), 2, 3));
  EXPECT_NE(base, sample::uniform(1, 2 + (uint64_t{1} << 40), 3));
  EXPECT_NE(base, sample::uniform(1, 2, 3 + (int64_t{1} << 40)));
  EXPECT_EQ(base, sample::uniform(1, 2, 3));
}

struct Answer {
  int32_t id = 0;
  double log_probability = 0;
  double margin = 1;  // how far the draw and the cuts are from another answer, as a probability
};

// By definition, in f64, over a sorted vocabulary.
Answer expected_answer(const SamplingRow& row, std::span<const float> logits) {
  std::vector<double> scores(logits.begin(), logits.end());
  for (int32_t i = 0; i < row.bias_count; ++i)
    if (const auto [id, bias] = row.biases[i]; id >= 0 && id < static_cast<int32_t>(logits.size()))
      scores[static_cast<size_t>(id)] = static_cast<float>(scores[static_cast<size_t>(id)] + bias);
  std::map<int32_t, int> all, generated;
  for (int32_t i = 0; i < row.history_count; ++i) {
    if (row.history[i] < 0 || row.history[i] >= static_cast<int32_t>(logits.size())) continue;
    ++all[row.history[i]];
    if (i >= row.prompt_count) ++generated[row.history[i]];
  }
  for (const auto& [id, count] : all) {
    double& s = scores[static_cast<size_t>(id)];
    s = static_cast<float>(s < 0 ? s * row.repetition_penalty : s / row.repetition_penalty);
  }
  for (const auto& [id, count] : generated)
    scores[static_cast<size_t>(id)] = static_cast<float>(
        scores[static_cast<size_t>(id)] - (row.presence_penalty + row.frequency_penalty * static_cast<float>(count)));
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](size_t i) { return scores[static_cast<size_t>(order[i])]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  if (score(0) == -INFINITY) return {-1, NAN};
  Answer answer{order[0]};
  if (row.temperature > 0) {
    size_t kept = order.size();
    if (row.top_k > 0)
      while (kept > static_cast<size_t>(row.top_k) && score(kept - 1) < score(static_cast<size_t>(row.top_k) - 1))
        --kept;
    std::vector<double> weights;
    for (size_t i = 0; i < order.size(); ++i) weights.push_back(std::exp((score(i) - score(0)) / row.temperature));
    const auto mass = [&] {
      return std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(kept), 0.);
    };
    if (row.top_p < 1) {
      const double total = mass();
      double sum = 0;
      for (size_t i = 0; i < kept; ++i) {
        sum += weights[i];
        answer.margin = std::min(answer.margin, std::fabs(sum / total - row.top_p));
        if (sum >= total * row.top_p) kept = i + 1;
      }
    }
    if (row.min_p > 0) {
      for (size_t i = 1; i < kept; ++i) answer.margin = std::min(answer.margin, std::fabs(weights[i] - row.min_p));
      while (kept > 1 && weights[kept - 1] < row.min_p) --kept;
    }
    const double total = mass(), u = sample::uniform(row.seed, row.request, row.position);
    double sum = 0;
    bool found = false;
    for (size_t i = 0; i < kept; ++i) {
      sum += weights[i] / total;
      if (weights[i] > 0) answer.margin = std::min(answer.margin, std::fabs(sum - u));
      if (!found && sum > u) answer.id = order[i], found = true;
    }
  }
  double total = 0;
  const double largest = *std::max_element(logits.begin(), logits.end());
  for (const float x : logits) total += std::exp(x - largest);
  answer.log_probability = logits[static_cast<size_t>(answer.id)] - largest - std::log(total);
  return answer;
}

std::vector<float> random_logits(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0, 0.5f + static_cast<float>(random() % 40) / 10.f);
  std::vector<float> logits(static_cast<size_t>(count));
  const bool ties = random() % 2 == 0;
  for (float& x : logits) {
    x = normal(random);
    if (ties) x = std::round(x * 4) / 4;
    if (count > 1 && random() % 40 == 0) x = -INFINITY;
  }
  logits[random() % logits.size()] = 1;
  return logits;
}

SamplingRow random_row(std::mt19937_64& random) {
  SamplingRow row;
  const auto often = [&] { return random() % 2 == 0; };
  row.temperature = std::array{0.f, 0.01f, 0.7f, 1.f, 1.f, 3.f}[random() % 6];
  if (often()) row.top_k = std::array{1, 2, 5, 40, 300, 1000000}[random() % 6];
  if (often()) row.top_p = std::array{0.f, 0.1f, 0.5f, 0.9f, 0.99f}[random() % 5];
  if (often()) row.min_p = std::array{0.001f, 0.05f, 0.3f, 1.f}[random() % 4];
  row.seed = random(), row.request = random(), row.position = static_cast<int64_t>(random() % 100000);
  return row;
}

// Biases of some tokens, once each, and bans, of tokens with a bias too; some ids are in no vocabulary.
std::vector<TokenBias> random_biases(int64_t vocabulary, std::mt19937_64& random) {
  std::map<int32_t, float> biases;
  std::vector<TokenBias> all;
  const auto id = [&] { return static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary + 2)) - 1; };
  for (uint64_t i = random() % 1000; i > 0; --i) biases[id()] = static_cast<float>(random() % 2000) / 100.f - 10.f;
  for (const auto& [token, bias] : biases) all.push_back({token, bias});
  for (uint64_t i = random() % 20; i > 0; --i) all.push_back({id(), -INFINITY});
  std::shuffle(all.begin(), all.end(), random);
  return all;
}

// Random rows of logits with random parameters.
void check(uint64_t seed, int64_t vocabulary, int64_t rows) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<SamplingRow> sampling;
  std::vector<std::vector<int32_t>> histories;
  std::vector<std::vector<TokenBias>> biases;
  std::vector<std::vector<float>> logits;
  std::vector<double> ids, log_probabilities;
  for (int64_t r = 0; r < rows; ++r) {
    logits.push_back(random_logits(vocabulary, random));
    for (;;) {
      SamplingRow row = random_row(random);
      auto& history = histories.emplace_back();
      if (random() % 3 == 0) {
        for (uint64_t i = random() % 200; i > 0; --i)
          history.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary + 2)) - 1);
        row.repetition_penalty = 1.3f, row.presence_penalty = 0.5f, row.frequency_penalty = 0.25f;
        row.history = history.data(), row.history_count = static_cast<int32_t>(history.size());
        row.prompt_count = row.history_count / 2;
      }
      if (random() % 3 == 0) {
        const auto& some = biases.emplace_back(random_biases(vocabulary, random));
        row.biases = some.data(), row.bias_count = static_cast<int32_t>(some.size());
      }
      const Answer answer = expected_answer(row, logits.back());
      // Weights are f32 in the kernels: draws that close to a boundary may fall on either side.
      if (answer.margin < 1e-5) continue;
      sampling.push_back(row), ids.push_back(answer.id), log_probabilities.push_back(answer.log_probability);
      break;
    }
  }
  BatchInputs batch;
  batch.sampling = sampling;
  const Case c{"sample",          Sample{}, {f32({Symbol::kRows, vocabulary})}, {},
               {{rows, 1, rows}}, seed,     static_cast<int64_t>(seed % 2) * 3};
  testing::Hooks hooks;
  hooks.batch = &batch;
  hooks.fill = [&](std::vector<Operand>& in) {
    std::vector<float> all;
    for (const auto& row : logits) all.insert(all.end(), row.begin(), row.end());
    in[0].set_values(all);
  };
  hooks.oracle = [&](const Case&, std::span<const Operand>) {
    return std::vector<std::vector<double>>{ids, log_probabilities};
  };
  // Absolute error of the logarithm of a sum of f32 weights, 1e-7, over log-probabilities that may be close to 0.
  hooks.bound = [](const Case&, const Kernel&) { return Bound{2e-4, 2e-3}; };
  std::vector<std::string> ran;
  EXPECT_EQ("", testing::check_kernels(sample_kernels(), c, hooks, &ran)) << "V " << vocabulary;
  EXPECT_FALSE(ran.empty());
}

TEST(Sample, AllKernelsMatchTheOracle) {
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 60; ++seed)
    check(seed, std::array<int64_t, 8>{1, 2, 17, 100, 1000, 5003, 33000, 49152}[seed % 8],
          static_cast<int64_t>(1 + seed / 8 % 4));
}

// Large vocabularies, and more rows than a GPU samples at the same time.
TEST(Sample, LargeOnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 6; ++seed)
    check(seed, seed % 2 == 0 ? 128256 : 151936, static_cast<int64_t>(1 + seed / 2 % 3));
  check(first, 1 << 20, 1);
  check(first, 20000, 40);
  check(first, 700, 300);
}

// On a GPU a launch cannot return an error: the row has no token, the others do.
TEST(Sample, BadLogitsOnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  for (const size_t vocabulary : {50, 128256}) {
    const std::vector<SamplingRow> sampling(6, SamplingRow{.temperature = 1, .top_k = 1});
    BatchInputs batch;
    batch.sampling = sampling;
    const Case c{"bad", Sample{}, {f32({Symbol::kRows, static_cast<int64_t>(vocabulary)})}, {}, {{6, 1, 6}}, 1, 3};
    testing::Hooks hooks;
    hooks.batch = &batch;
    hooks.fill = [&](std::vector<Operand>& in) {
      std::vector<float> logits(6 * vocabulary, -INFINITY);
      for (size_t r = 0; r < 6; ++r) logits[r * vocabulary + 20] = 1;
      logits[vocabulary] = NAN, logits[3 * vocabulary - 1] = -NAN, logits[3 * vocabulary + 3] = INFINITY;
      logits[4 * vocabulary + 20] = -INFINITY;
      in[0].set_values(logits);
    };
    hooks.oracle = [](const Case&, std::span<const Operand>) {
      return std::vector<std::vector<double>>{{20, -1, -1, -1, -1, 20}, {0, NAN, NAN, NAN, NAN, 0}};
    };
    hooks.bound = [](const Case&, const Kernel&) { return Bound{1e-6, 1e-6}; };
    EXPECT_EQ("", testing::check_kernels(sample_kernels(), c, hooks)) << vocabulary;
  }
}

// The greedy choice is among what biases leave; +100 is enough to be it, and where they leave nothing there is none.
TEST(Sample, BiasesForceAndForbid) {
  for (const int64_t vocabulary : {40, 128256}) {
    std::mt19937_64 random(std::random_device{}());
    std::uniform_real_distribution<float> uniform(-20, 20);
    std::vector<float> logits(static_cast<size_t>(5 * vocabulary));
    for (float& x : logits) x = uniform(random);
    std::vector<TokenBias> none;
    for (int32_t id = 0; id < vocabulary; ++id) none.push_back({id, -INFINITY});
    const std::vector<TokenBias> one(none.begin() + 1, none.end()), forced = {{37, 100}, {5, -100}},
                                                                    both = {{37, 100}, {37, -INFINITY}, {11, 100}};
    std::vector<SamplingRow> sampling(5, SamplingRow{.temperature = 1});
    const auto give = [&](size_t row, const std::vector<TokenBias>& biases) {
      sampling[row].biases = biases.data(), sampling[row].bias_count = static_cast<int32_t>(biases.size());
    };
    give(0, forced), give(1, both), give(2, one), give(3, none), give(4, forced);
    sampling[1].temperature = 0, sampling[4].temperature = 0;
    std::vector<double> ids = {37, 11, 0, -1, 37}, log_probabilities;
    for (size_t r = 0; r < 5; ++r) {
      const std::span row = std::span(logits).subspan(r * static_cast<size_t>(vocabulary));
      double total = 0;
      for (size_t i = 0; i < static_cast<size_t>(vocabulary); ++i) total += std::exp(double{row[i]});
      log_probabilities.push_back(ids[r] < 0 ? NAN : double{row[static_cast<size_t>(ids[r])]} - std::log(total));
    }
    BatchInputs batch;
    batch.sampling = sampling;
    const Case c{"biases", Sample{}, {f32({Symbol::kRows, vocabulary})}, {}, {{5, 1, 5}}, 1, 0};
    testing::Hooks hooks;
    hooks.batch = &batch;
    hooks.fill = [&](std::vector<Operand>& in) { in[0].set_values(logits); };
    hooks.oracle = [&](const Case&, std::span<const Operand>) {
      return std::vector<std::vector<double>>{ids, log_probabilities};
    };
    hooks.bound = [](const Case&, const Kernel&) { return Bound{1e-5, 1e-5}; };
    EXPECT_EQ("", testing::check_kernels(sample_kernels(), c, hooks)) << vocabulary;
  }
}

// A vocabulary of ties: the greedy choice is the first of the largest, a draw the one that the order of ids gives.
TEST(Sample, TiesOnDevice) {
  if (!testing::runs_on_device()) GTEST_SKIP() << "needs a GPU";
  constexpr size_t kVocabulary = 128256;
  std::vector<SamplingRow> sampling(3);
  sampling[1].temperature = 1, sampling[2].temperature = 0.5f;
  sampling[2].top_k = 7, sampling[2].top_p = 0.5f;  // all stay by top_k, the first half by top_p
  std::vector<float> logits(3 * kVocabulary, 0.25f);
  for (size_t id = 0; id < kVocabulary; ++id) logits[id] = id % 50001 == 50000 ? 2.f : 1.f;
  std::vector<double> ids = {50000},
                      log_probabilities = {2 - std::log(2 * std::exp(2.) + (kVocabulary - 2) * std::exp(1.))};
  for (size_t r = 1; r < 3; ++r) {
    double uniform = 0;
    do {  // not at the edge of a candidate
      ++sampling[r].seed;
      uniform = sample::uniform(sampling[r].seed, 0, 0) * kVocabulary / static_cast<double>(r);
    } while (std::fabs(uniform - std::round(uniform)) < 1e-3);
    ids.push_back(std::floor(uniform)), log_probabilities.push_back(-std::log(double{kVocabulary}));
  }
  BatchInputs batch;
  batch.sampling = sampling;
  const Case c{"ties", Sample{}, {f32({Symbol::kRows, int64_t{kVocabulary}})}, {}, {{3, 1, 3}}, 1, 0};
  testing::Hooks hooks;
  hooks.batch = &batch;
  hooks.fill = [&](std::vector<Operand>& in) { in[0].set_values(logits); };
  hooks.oracle = [&](const Case&, std::span<const Operand>) {
    return std::vector<std::vector<double>>{ids, log_probabilities};
  };
  hooks.bound = [](const Case&, const Kernel&) { return Bound{1e-6, 1e-6}; };
  EXPECT_EQ("", testing::check_kernels(sample_kernels(), c, hooks));
}

struct Drawn {
  std::string error;
  std::vector<int32_t> ids;
};

Drawn draw(const Kernel& kernel, std::vector<float> logits, std::span<const SamplingRow> rows, int threads) {
  const Op op = Sample{};
  const auto count = static_cast<int64_t>(rows.size());
  const auto vocabulary = static_cast<int64_t>(logits.size()) / count;
  const std::vector<ValueType> types = {f32({Symbol::kRows, vocabulary})},
                               out_types = {i32({Symbol::kRows}), f32({Symbol::kRows})};
  const DeviceInfo device = testing::this_machine(threads);
  const Problem problem{&op, types, out_types, {{count, 1, count}}, &device};
  BatchInputs batch;
  batch.sampling = rows;
  Drawn drawn{"", std::vector<int32_t>(rows.size(), -1)};
  std::vector<float> probabilities(rows.size());
  const TensorView in[] = {make_view(reinterpret_cast<std::byte*>(logits.data()), DType::kF32, {count, vocabulary})};
  const TensorView out[] = {make_view(reinterpret_cast<std::byte*>(drawn.ids.data()), DType::kI32, {count}),
                            make_view(reinterpret_cast<std::byte*>(probabilities.data()), DType::kF32, {count})};
  auto workspace = *Buffer::host(kernel.workspace != nullptr ? kernel.workspace(problem) : 1);
  Workers workers(threads);
  const auto stream = testing::stream_over(workers);
  if (auto result = kernel.launch(Launch{&op, in, out, workspace.bytes(), nullptr, &batch}, *stream); !result)
    drawn.error = result.error().text;
  return drawn;
}

// Frequencies of many draws against the distribution: a seeded chi-square test, so it cannot fail by chance.
TEST(Sample, DrawsFollowTheDistribution) {
  BOLIDE_CPU_ONLY();
  constexpr size_t kVocabulary = 40, kDraws = 4000;
  for (const Kernel& kernel : sample_kernels())
    for (const SamplingRow& filter :
         {SamplingRow{.temperature = 1}, SamplingRow{.temperature = 0.7f, .top_k = 12},
          SamplingRow{.temperature = 1.3f, .top_p = 0.8f}, SamplingRow{.temperature = 1, .min_p = 0.2f}}) {
      std::mt19937_64 random(5);
      std::vector<float> logits;
      for (size_t i = 0; i < kVocabulary; ++i) logits.push_back(static_cast<float>(random() % 1000) / 400.f);
      std::vector<SamplingRow> rows(kDraws, filter);
      std::vector<float> repeated;
      for (size_t i = 0; i < kDraws; ++i) {
        rows[i].seed = 11, rows[i].request = i % 7, rows[i].position = static_cast<int64_t>(i / 7);
        repeated.insert(repeated.end(), logits.begin(), logits.end());
      }
      const Drawn drawn = draw(kernel, repeated, rows, 2);
      ASSERT_EQ(drawn.error, "");
      std::array<double, kVocabulary> counts{}, weights{};
      for (const int32_t id : drawn.ids) counts[static_cast<size_t>(id)] += 1;
      // Which tokens the filters keep: those that come up for some uniform number.
      std::vector<size_t> order(kVocabulary);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
      double all = 0, sum = 0, total = 0;
      for (size_t i = 0; i < kVocabulary; ++i) all += std::exp(static_cast<double>(logits[i]) / filter.temperature);
      for (size_t i = 0; i < kVocabulary; ++i) {
        const double w = std::exp(static_cast<double>(logits[order[i]]) / filter.temperature);
        if (filter.top_k > 0 && logits[order[i]] < logits[order[static_cast<size_t>(filter.top_k) - 1]]) break;
        if (filter.min_p > 0 && w < filter.min_p * std::exp(static_cast<double>(logits[order[0]]) / filter.temperature))
          break;
        if (sum >= filter.top_p * all) break;
        sum += w, weights[order[i]] = w, total += w;
      }
      double chi2 = 0, cells = 0;
      for (size_t i = 0; i < kVocabulary; ++i) {
        if (weights[i] == 0) {
          EXPECT_EQ(counts[i], 0) << kernel.name << " drew a token that was filtered out";
          continue;
        }
        const double want = kDraws * weights[i] / total;
        chi2 += (counts[i] - want) * (counts[i] - want) / want, cells += 1;
      }
      ASSERT_GT(cells, 3);
      // Mean cells - 1, variance twice that: four standard deviations.
      EXPECT_LT(chi2, cells - 1 + 4 * std::sqrt(2 * (cells - 1))) << kernel.name;
      EXPECT_EQ(drawn.ids, draw(kernel, repeated, rows, 1).ids) << kernel.name;
    }
}

TEST(Sample, BadLogitsDrawNothing) {
  BOLIDE_CPU_ONLY();
  for (const Kernel& kernel : sample_kernels())
    for (const float bad : {NAN, INFINITY}) {
      std::vector<float> logits(3 * 50, 0.5f);
      logits[50 + 49] = bad;
      const std::vector<SamplingRow> rows(3, SamplingRow{.temperature = 1});
      const auto drawn = [&](int threads) {
        std::vector<bool> rows_drawn;
        for (const int32_t id : draw(kernel, logits, rows, threads).ids) rows_drawn.push_back(id >= 0 && id < 50);
        return rows_drawn;
      };
      EXPECT_EQ(drawn(2), (std::vector<bool>{true, false, true})) << kernel.name;
      std::fill(logits.begin() + 100, logits.end(), -INFINITY);
      logits[99] = 0;
      EXPECT_EQ(drawn(1), (std::vector<bool>{true, true, false})) << kernel.name;
    }
}

TEST(Sample, ExtremeParameters) {
  BOLIDE_CPU_ONLY();
  for (const Kernel& kernel : sample_kernels())
    for (const float temperature : {1e-40f, 1e-20f, 1e20f, 3e38f, INFINITY, -1.f})
      for (const float penalty : {1e-30f, 1e30f, 0.f, -3e38f}) {
        const std::vector<int32_t> history = {0, 1, 1, 2, 40, -5, 1000};
        std::vector<float> logits(100, -1.f);
        logits[1] = 3, logits[2] = 0, logits[3] = -INFINITY, logits[60] = 2.5f;
        SamplingRow row{.temperature = temperature,
                        .top_p = 0.999f,
                        .repetition_penalty = penalty,
                        .presence_penalty = penalty,
                        .frequency_penalty = -penalty};
        row.history = history.data(), row.history_count = 7, row.prompt_count = 1;
        const Drawn drawn = draw(kernel, logits, {&row, 1}, 1);
        EXPECT_EQ(drawn.error, "") << kernel.name;
        EXPECT_GE(drawn.ids[0], 0) << kernel.name << " " << temperature << " " << penalty;
        EXPECT_LT(drawn.ids[0], 100) << kernel.name << " " << temperature << " " << penalty;
      }
}

}  // namespace
}  // namespace bolide
