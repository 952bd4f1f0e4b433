#include "plan/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "plan/executor.h"
#include "plan/random_graph.h"

namespace bolide {
namespace {

using test::kVocab;
using test::RandomGraph;

struct Machine {
  std::unique_ptr<Device> device = std::move(*make_cpu_device(1, std::nullopt));
  std::unique_ptr<Stream> stream = std::move(*device->make_stream());
};

Result<PlanSet> pack_and_plan(Graph graph, const WeightSource& source, const DeviceInfo& device,
                              const SymbolValues& largest, int threads) {
  Workers workers(threads);
  BOLIDE_TRY(const auto uses, choose_packings(graph, cpu_kernels(), device, largest));
  BOLIDE_TRY(WeightStore weights, WeightStore::pack(graph, uses, source, workers));
  return PlanSet::make(std::move(graph), std::move(weights), cpu_kernels(), device, {largest});
}

PlanSet plan_set(const RandomGraph& random, const Machine& machine, const SymbolValues& largest) {
  auto set = pack_and_plan(Graph(random.graph), random.source, machine.device->info(), largest, 1);
  EXPECT_TRUE(set.has_value()) << set.error().text;
  return std::move(*set);
}

TEST(Plan, BucketsArePowersOfTwoUpToTheLimit) {
  for (const auto& [size, limit, want] : std::vector<std::array<int64_t, 3>>{
           {1, 512, 1}, {2, 512, 2}, {3, 512, 4}, {257, 512, 512}, {512, 512, 512}, {300, 400, 400}, {0, 8, 1}})
    EXPECT_EQ(bucket_of(size, limit), want) << size << " of " << limit;
}

// Values that live at the same time never share bytes; slices lie in what they are slices of.
TEST(Plan, LiveValuesNeverOverlap) {
  const Machine machine;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const RandomGraph random(seed, 5 + static_cast<int>(seed));
    const SymbolValues sizes{{static_cast<int64_t>(1 + seed % 7), 1, static_cast<int64_t>(1 + seed % 3)}};
    PlanSet set = plan_set(random, machine, {{8, 1, 4}});
    const auto selected = set.select(sizes);
    ASSERT_TRUE(selected.has_value()) << selected.error().text;
    const Plan& plan = **selected;
    const Graph& graph = set.graph();
    for (size_t i = 0; i < kSymbols; ++i) EXPECT_GE(plan.bucket.value[i], sizes.value[i]);

    // Root, first and last step of every value, from the graph alone.
    std::map<ValueId, ValueId> root;
    struct Life {
      int first = 0, last = 0;
      size_t begin = 0, end = 0;
    };
    std::map<ValueId, Life> lives;
    int step = 0;
    for (const NodeId id : graph.order()) {
      const Node& node = graph.node(id);
      const bool slice = std::holds_alternative<Slice>(node.op);
      for (const ValueId in : node.in)
        if (!slice && root.contains(in)) lives[root[in]].last = step;
      for (const ValueId out : node.out) {
        root[out] = slice ? root[node.in[0]] : out;
        if (!slice) lives[out] = {step, step};
      }
      if (!slice) ++step;
    }
    ASSERT_EQ(static_cast<size_t>(step), plan.steps.size());
    for (const Output& output : graph.outputs()) lives[root[output.value]].last = step;

    const auto check = [&](const Operand& operand) {
      if (operand.kind != Operand::Kind::kArena) return;
      Life& life = lives.at(root.at(operand.value));
      const ValueType& whole = graph.type(root.at(operand.value));
      const size_t bytes = whole.bytes(plan.bucket);
      ASSERT_EQ(operand.offset % 64, 0u);
      ASSERT_LE(operand.offset + bytes, plan.values_bytes);
      if (life.end != 0) {
        ASSERT_EQ(life.begin, operand.offset);
      }
      life.begin = operand.offset, life.end = operand.offset + bytes;
      ASSERT_EQ(operand.row_stride, whole.last().factor);
      ASSERT_LE(operand.column + operand.type.last().factor, operand.row_stride);
    };
    for (const Step& s : plan.steps) {
      for (const Operand& operand : s.in) check(operand);
      for (const Operand& operand : s.out) check(operand);
    }
    for (const auto& [name, operand] : plan.outputs) check(operand);
    size_t sum = 0;
    for (const auto& [a, x] : lives) {
      sum += round_up(x.end - x.begin, 64);
      for (const auto& [b, y] : lives)
        if (a < b && x.first <= y.last && y.first <= x.last) {
          ASSERT_TRUE(x.end <= y.begin || y.end <= x.begin) << "%" << a << " and %" << b << " of seed " << seed;
        }
    }
    EXPECT_LE(plan.values_bytes, sum);
    if (seed > 30) {
      EXPECT_LT(plan.values_bytes, sum) << "nothing was reused";
    }
  }
}

struct Inputs {
  std::vector<int32_t> ids, rows;
  BatchInputs batch;
  Inputs(int64_t tokens, int64_t row_count, std::mt19937& random, bool poison = false)
      : ids(static_cast<size_t>(tokens)), rows(static_cast<size_t>(row_count)) {
    for (int32_t& id : ids) id = poison ? kVocab - 1 : static_cast<int32_t>(random() % (kVocab - 1));
    for (int32_t& row : rows) row = static_cast<int32_t>(random() % static_cast<uint64_t>(tokens));
    batch.ids = ids.data();
    batch.rows = rows.data();
    batch.sizes = {{tokens, 1, row_count}};
  }
};

void expect_outputs(const RandomGraph& random, const Executor& executor, const Inputs& inputs,
                    const std::string& what) {
  std::map<ValueId, RandomGraph::Matrix> done;
  for (const Output& output : random.graph.outputs()) {
    const auto& want = random.evaluate(output.value, inputs.ids, inputs.rows, done);
    const TensorView got = executor.output(output.name);
    ASSERT_EQ(got.rows(), static_cast<int64_t>(want.size()));
    ASSERT_EQ(got.cols(), static_cast<int64_t>(want[0].size()));
    for (size_t r = 0; r < want.size(); ++r)
      for (size_t c = 0; c < want[r].size(); ++c)
        ASSERT_EQ(got.row<float>(static_cast<int64_t>(r))[c], want[r][c])
            << what << ": " << output.name << " " << r << " " << c;
  }
}

// Many sizes through one executor, between runs that leave infinities and NaN all over the arena.
TEST(Executor, GivesTheGraphsValuesWhateverRanBefore) {
  Machine machine;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 numbers(seed);
    const RandomGraph random(100 + seed, 10 + static_cast<int>(seed));
    PlanSet set = plan_set(random, machine, {{32, 1, 32}});
    auto executor = std::make_unique<Executor>();
    for (int round = 0; round < 8; ++round) {
      const auto tokens = static_cast<int64_t>(1 + numbers() % 32), rows = static_cast<int64_t>(1 + numbers() % 32);
      for (const bool poison : {true, false}) {
        const Inputs inputs(poison ? 32 : tokens, poison ? 32 : rows, numbers, poison);
        const auto plan = set.select(inputs.batch.sizes);
        ASSERT_TRUE(plan.has_value()) << plan.error().text;
        size_t next = 0;
        const auto observe = [&](const Plan& seen, size_t step, const Launch& launch, double seconds) {
          EXPECT_EQ(&seen, *plan);
          EXPECT_EQ(step, next++);
          EXPECT_EQ(launch.op, &set.graph().node((*plan)->steps[step].node).op);
          EXPECT_GE(seconds, 0);
        };
        const StepObserver observer(observe);
        const bool observed = round % 2 == 0;
        const auto done =
            executor->run(**plan, set.graph(), inputs.batch, *machine.stream, observed ? &observer : nullptr);
        ASSERT_TRUE(done.has_value()) << done.error().text;
        if (observed) {
          EXPECT_EQ(next, (*plan)->steps.size());
        }
        if (!poison) expect_outputs(random, *executor, inputs, fmt::format("seed {} round {}", seed, round));
        if (HasFatalFailure()) return;
      }
      // An executor may move between runs.
      if (round == 3) executor = std::make_unique<Executor>(std::move(*executor));
    }
  }
}

// Replays give what runs give, in any order of plans, also when the arena has to move or the batch's addresses change.
TEST(Executor, ReplaysGiveTheSameAsRuns) {
  Machine machine;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 numbers(seed);
    const RandomGraph random(200 + seed, 10 + static_cast<int>(seed));
    PlanSet set = plan_set(random, machine, {{32, 1, 32}});
    Executor executor(*machine.device);
    int seen_replayed = 0;
    std::map<int64_t, std::unique_ptr<Inputs>> fixed;  // at the same addresses each time
    for (int round = 0; round < 40; ++round) {
      const int64_t size = int64_t{1} << numbers() % 6;
      auto& inputs = fixed[size];
      Inputs fresh(size, size, numbers);
      if (inputs == nullptr || round == 30)
        inputs = std::make_unique<Inputs>(size, size, numbers);
      else
        std::copy(fresh.ids.begin(), fresh.ids.end(), inputs->ids.begin());
      const auto plan = set.select(inputs->batch.sizes);
      ASSERT_TRUE(plan.has_value());
      const bool replay = numbers() % 4 != 0, whole = numbers() % 3 == 0;
      int seen = 0;
      const auto see = [&](const Plan& p, size_t, const Launch&, double seconds) {
        EXPECT_EQ(&p, *plan);
        EXPECT_GE(seconds, 0);
        ++seen;
      };
      const StepObserver observer(see, StepObserver::Sees::kWhole);
      const int captured = executor.captured_count();
      const auto done =
          replay ? executor.replay(**plan, set.graph(), inputs->batch, *machine.stream, whole ? &observer : nullptr)
                 : executor.run(**plan, set.graph(), inputs->batch, *machine.stream, whole ? &observer : nullptr);
      ASSERT_TRUE(done.has_value()) << done.error().text;
      EXPECT_LE(seen, whole ? 1 : 0);
      if (whole && !replay) {
        EXPECT_EQ(seen, 1);
      }
      if (seen == 1 && replay) {
        EXPECT_EQ(executor.captured_count(), captured);
      }
      seen_replayed += replay ? seen : 0;
      expect_outputs(random, executor, *inputs, fmt::format("seed {} round {}", seed, round));
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(executor.captured_count(), 0);
    EXPECT_GT(seen_replayed, 0);
    EXPECT_LE(executor.captured_count(), 6);
  }
}

int chained_steps = 0;

// Up to three steps in a launch, whatever they are.
constexpr ChainKernel kThreeAtOnce = {
    .name = "three_at_once",
    .takes = [](std::span<const Launch> launches, std::span<const Kernel* const>,
                const DeviceInfo&) { return std::min<size_t>(launches.size(), 3); },
    .launch = [](std::span<const Launch> launches, std::span<const Kernel* const> kernels, Stream& stream) -> Result<> {
      for (size_t i = 0; i < launches.size(); ++i) BOLIDE_TRY(kernels[i]->launch(launches[i], stream));
      chained_steps += static_cast<int>(launches.size());
      return {};
    }};

TEST(Executor, AChainRunsConsecutiveStepsInOneLaunch) {
  Machine machine;
  std::vector<Kernel> kernels;
  for (const Kernel* kernel : cpu_kernels().all()) {
    kernels.push_back(*kernel);
    if (kernel->name.starts_with("add") || kernel->name.starts_with("linear")) kernels.back().chain = &kThreeAtOnce;
  }
  const std::span<const Kernel> list = kernels;
  const KernelRegistry registry(std::span(&list, 1));
  int chains = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 numbers(seed);
    const RandomGraph random(300 + seed, 30);
    const SymbolValues largest{{8, 1, 8}};
    Workers workers(1);
    const auto uses = choose_packings(random.graph, registry, machine.device->info(), largest);
    ASSERT_TRUE(uses.has_value());
    auto weights = WeightStore::pack(random.graph, *uses, random.source, workers);
    ASSERT_TRUE(weights.has_value());
    const auto plan = make_plan(random.graph, *weights, registry, machine.device->info(), largest);
    ASSERT_TRUE(plan.has_value());
    int in_chains = 0;
    size_t next = 0;
    for (const StepGroup& group : plan->groups) {
      EXPECT_EQ(group.first, next);
      next += group.count;
      EXPECT_EQ(group.chain != nullptr, group.count > 1);
      if (group.chain != nullptr) ++chains, in_chains += static_cast<int>(group.count);
    }
    EXPECT_EQ(next, plan->steps.size());
    const Inputs inputs(8, 8, numbers);
    for (const bool sees_values : {false, true}) {
      Executor executor;
      size_t seen = 0;
      const auto observe = [&](const Plan&, size_t step, const Launch&, double) { EXPECT_EQ(step, seen++); };
      const StepObserver observer(observe, sees_values ? StepObserver::Sees::kValues : StepObserver::Sees::kTimes);
      chained_steps = 0;
      ASSERT_TRUE(executor.run(*plan, random.graph, inputs.batch, *machine.stream, &observer).has_value());
      EXPECT_EQ(chained_steps, sees_values ? 0 : in_chains);
      EXPECT_EQ(seen, plan->steps.size());
      expect_outputs(random, executor, inputs, fmt::format("seed {}", seed));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(chains, 10);
}

TEST(Executor, AFailingStepIsNamed) {
  Machine machine;
  std::mt19937 numbers(1);
  const RandomGraph random(3, 10);
  PlanSet set = plan_set(random, machine, {{8, 1, 8}});
  Inputs inputs(4, 2, numbers);
  inputs.ids[2] = kVocab;
  const auto plan = set.select(inputs.batch.sizes);
  ASSERT_TRUE(plan.has_value());
  Executor executor;
  const auto done = executor.run(**plan, set.graph(), inputs.batch, *machine.stream);
  ASSERT_FALSE(done.has_value());
  EXPECT_TRUE(done.error().text.starts_with("embed")) << done.error().text;
  EXPECT_NE(done.error().text.find("12"), std::string::npos) << done.error().text;
}

TEST(PlanSet, SizesBeyondTheLimitsAreRefused) {
  const Machine machine;
  const RandomGraph random(5, 12);
  PlanSet set = plan_set(random, machine, {{8, 1, 4}});
  EXPECT_TRUE(set.select({{8, 1, 4}}).has_value());
  for (const SymbolValues& sizes : {SymbolValues{{9, 1, 1}}, SymbolValues{{1, 2, 1}}, SymbolValues{{1, 1, 5}}}) {
    const auto plan = set.select(sizes);
    ASSERT_FALSE(plan.has_value());
    EXPECT_NE(plan.error().text.find("beyond the"), std::string::npos);
  }
  // One plan a bucket.
  EXPECT_EQ(*set.select({{5, 1, 3}}), *set.select({{7, 1, 4}}));
  EXPECT_NE(*set.select({{4, 1, 3}}), *set.select({{5, 1, 3}}));
}

// Random finite weights of any type: no byte makes an f16 or bf16 exponent of all ones.
std::vector<std::byte> finite_bytes(size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = std::byte{static_cast<uint8_t>(random() & 0x3b)};
  return bytes;
}

// One layout for all buckets, on every level this machine has, for every type a checkpoint may have.
TEST(PlanSet, WeightsArePackedOnceForAllBuckets) {
  std::mt19937 random(3);
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx}) {
    if (!supports(cpu, isa)) continue;
    const auto device = make_cpu_device(2, isa);
    ASSERT_TRUE(device.has_value());
    for (const Compute compute : {Compute::kF32, Compute::kBF16, Compute::kInt8}) {
      Graph graph;
      test::MemorySource source;
      ValueId x = graph.add_input("x", f32({Symbol::kTokens, 256}));
      std::vector<ValueType> types = {f32({}), {DType::kBF16}, {DType::kF16}, {DType::kF8E4M3}, {DType::kI8}};
      for (const QuantScheme* quant : block_schemes()) types.push_back({quant->code, quant});
      int i = 0;
      for (ValueType type : types) {
        if (compute == Compute::kInt8 && type.quant == nullptr) continue;
        const std::string name = fmt::format("w{}", i++);
        type.dims = {40, 256};
        source.add({name, type.dtype, type.quant, {40, 256}}, finite_bytes(type.bytes({}), random));
        const ValueId weight = graph.add_weight({{name, 0, 40}}, type);
        graph.add_output(name, test::last_out(graph, graph.add(Linear{compute}, std::vector{x, weight}, name)));
      }
      auto set = pack_and_plan(std::move(graph), source, (*device)->info(), {{512, 16, 16}}, 2);
      ASSERT_TRUE(set.has_value()) << to_string(isa) << ": " << set.error().text;
      EXPECT_EQ(set->weights().all().size(), static_cast<size_t>(i));
      for (int64_t tokens = 1; tokens <= 512; tokens *= 2) {
        const auto plan = set->select({{tokens, std::min<int64_t>(tokens, 16), 1}});
        ASSERT_TRUE(plan.has_value()) << to_string(isa) << ", " << tokens << " tokens: " << plan.error().text;
      }
    }
  }
}

TEST(WeightStore, NanIsRefusedWithTheTensorsName) {
  const Machine machine;
  for (const bool vector : {false, true}) {
    Graph graph;
    test::MemorySource source;
    std::vector<float> values(64 * 64, 0.5f), gain(64, 1.f);
    (vector ? gain : values)[17] = std::numeric_limits<float>::quiet_NaN();
    source.add("model.proj.weight", {64, 64}, values);
    source.add("model.norm.weight", {64}, gain);
    const ValueId x = graph.add_input("x", f32({Symbol::kTokens, 64}));
    const ValueId w = graph.add_weight({{"model.proj.weight", 0, 64}}, f32({64, 64}));
    const ValueId g = graph.add_weight({{"model.norm.weight", 0, 64}}, f32({64}));
    const ValueId n = test::last_out(graph, graph.add(RmsNorm{}, std::vector{x, g}, "norm"));
    graph.add_output("y", test::last_out(graph, graph.add(Linear{}, std::vector{n, w}, "proj")));
    const auto set = pack_and_plan(std::move(graph), source, machine.device->info(), {{8, 1, 1}}, 1);
    if (set.has_value() && !vector) GTEST_SKIP() << "this machine's kernel reads f32 weights as they are";
    ASSERT_FALSE(set.has_value());
    EXPECT_NE(set.error().text.find(vector ? "model.norm.weight" : "model.proj.weight"), std::string::npos)
        << set.error().text;
  }
}

std::atomic<bool> g_cancel{false};
int g_launched = 0;

// A step that takes long enough for a signal to come amid the plan.
TEST(Executor, ACancellationIsSeenBetweenSteps) {
  const Machine machine;
  const RandomGraph random(7, 20);
  PlanSet set = plan_set(random, machine, {{8, 1, 4}});
  const auto selected = set.select({{3, 1, 2}});
  ASSERT_TRUE(selected.has_value()) << selected.error().text;
  Plan plan = **selected;
  ASSERT_GT(plan.steps.size(), 6u);
  Kernel counts, cancels;
  counts.launch = [](const Launch&, Stream&) {
    ++g_launched;
    return Result<>();
  };
  cancels.launch = [](const Launch&, Stream&) {
    ++g_launched;
    g_cancel = true;
    return Result<>();
  };
  for (Step& step : plan.steps) step.kernel = &counts;
  plan.steps[4].kernel = &cancels;
  std::mt19937 numbers(1);
  const Inputs inputs(3, 2, numbers);
  Executor executor;
  g_cancel = false;
  g_launched = 0;
  const auto done = executor.run(plan, set.graph(), inputs.batch, *machine.stream, nullptr, &g_cancel);
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Code::kCancelled);
  EXPECT_EQ(g_launched, 5);
  // Nobody asks: all of them.
  g_launched = 0;
  ASSERT_TRUE(executor.run(plan, set.graph(), inputs.batch, *machine.stream).has_value());
  EXPECT_EQ(g_launched, static_cast<int>(plan.steps.size()));
}

}  // namespace
}  // namespace bolide
