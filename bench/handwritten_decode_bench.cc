// The gate of the design: a decode step of the plan beside the same kernels called by a loop written by hand.
//
//   bolide_handwritten_decode_bench MODEL.gguf [--threads 1] [--pairs 200] [--context 64] [--batch 1,16] [--json FILE]
//
// MODEL is a llama-shaped decoder (SmolLM2): one norm, merged qkv, rope and write, attention, out, norm, gate and up,
// activation, down a layer. Both sides use the same kernels, packed weights, KV pools, batch buffers and arena memory;
// the hand-written side knows the model's shape, wires its operands once and is a straight line a layer. Before any
// timing both must give the same bits of logits.
//
// Inside a timing: one step as the engine makes it (Runner::step: blocks, batch contents, plan choice, kernels) or one
// step by hand (batch contents, kernels). Steps alternate, A B B A, each pair at one position of the same sequences;
// reported is the median ratio with its interval. With one thread the clock is the thread's processor time, so that
// other programs on the core do not count; what they evict from caches still does, and pairs and medians are for that.
//
// Time outside kernels: the same steps with every kernel replaced by one that returns at once, averaged over 1000
// steps a sample; median of the samples. `cold` is one such step after 64 MB were read, on the wall clock.
//
// Exit code 1 if the plan is more than 3 % slower, or the executor needs more than 1 us a step outside kernels.
#include <fmt/format.h>
#include <time.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "app/model.h"
#include "base/check.h"
#include "measure/statistics.h"

namespace bolide {
namespace {

constexpr double kRatioMax = 1.03;
constexpr double kExecutorMaxNs = 1000;

struct Arguments {
  std::string model, json;
  int threads = 1, pairs = 200, context = 64;
  std::vector<int32_t> batches = {1, 16};
};

double now_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

template <class T>
T or_die(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "handwritten_decode: error: {}\n", result.error().text);
    std::exit(2);
  }
  return *std::move(result);
}
void or_die(Result<> result) {
  if (result) return;
  fmt::print(stderr, "handwritten_decode: error: {}\n", result.error().text);
  std::exit(2);
}

using LaunchFunction = Result<> (*)(const Launch&, Stream&);

// A decoder of llama's shape, written out. T = S = R = batch.
class HandWritten {
 public:
  // `batch`: the runner's buffers; `arena`: where its activations live, reused for ours.
  HandWritten(const PlanSet& plans, const Plan& plan, const BatchInputs& batch, MutableBytes values,
              MutableBytes workspace, int32_t T)
      : plans_(plans), plan_(plan), batch_(batch), values_(values), workspace_(workspace), tokens_(T) {
    const Graph& graph = plans.graph();
    for (const NodeId id : graph.order()) nodes_[graph.node(id).name] = id;
    const auto& rope = std::get<RopeKvWrite>(node("layers.0.attn.kv_write.rope").op);
    const int64_t H = rope.heads, G = rope.kv_heads, D = rope.head_dim;
    const int64_t E = weight("embed", 1).shape[1], V = weight("head", 1).shape[0];
    const int64_t F = weight("layers.0.mlp.down", 1).shape[1];
    int64_t L = 0;
    while (nodes_.contains(fmt::format("layers.{}.attn.attention", L))) ++L;

    // Logits lie over what the layers used, tokens over the final norm's output, which the head has read by then.
    size_t at = 0;
    const TensorView logits = place(&at, V);
    size_t behind = at;
    const TensorView last = place(&at, E);
    const TensorView next = place(&behind, 1, DType::kI32), logprob = place(&behind, 1, DType::kF32);
    at = 0;
    TensorView x = place(&at, E), sum = place(&at, E);
    const TensorView normed = place(&at, E), qkv = place(&at, (H + 2 * G) * D), q = place(&at, H * D);
    const TensorView seen = place(&at, H * D), out = place(&at, E), both = place(&at, 2 * F), hidden = place(&at, F);
    const TensorView down = place(&at, E), wanted = place(&at, E);
    const TensorView ids = input(batch.ids), positions = input(batch.positions), rows = input(batch.rows);

    views_.reserve(static_cast<size_t>(L) * 40 + 40);
    embed_ = wire("embed", {ids, weight("embed", 1)}, {x}, &embed_kernel_);
    layers_.resize(static_cast<size_t>(L));
    for (int64_t l = 0; l < L; ++l) {
      Layer& layer = layers_[static_cast<size_t>(l)];
      const auto name = [&](const char* what) { return fmt::format("layers.{}.{}", l, what); };
      if (l == 0) {
        layer.attn_norm = wire(name("attn.norm"), {x, weight(name("attn.norm"), 1)}, {normed}, &norm_kernel_);
      } else {
        layer.attn_norm =
            wire(name("attn.norm.add"), {down, x, weight(name("attn.norm.add"), 2)}, {sum, normed}, &add_norm_kernel_);
        std::swap(x, sum);
      }
      layer.qkv = wire(name("attn.q_k_v"), {normed, weight(name("attn.q_k_v"), 1)}, {qkv}, &linear_kernel_);
      layer.rope =
          wire(name("attn.kv_write.rope"),
               {columns(qkv, 0, H * D), columns(qkv, H * D, G * D), columns(qkv, (H + G) * D, G * D), positions},
               {q, {}}, &rope_kernel_);
      layer.attention = wire(name("attn.attention"), {q, {}}, {seen}, &attention_kernel_);
      layer.out = wire(name("attn.out"), {seen, weight(name("attn.out"), 1)}, {out}, &linear_kernel_);
      layer.mlp_norm =
          wire(name("mlp.norm.add"), {out, x, weight(name("mlp.norm.add"), 2)}, {sum, normed}, &add_norm_kernel_);
      std::swap(x, sum);
      layer.gate_up = wire(name("mlp.gate_up"), {normed, weight(name("mlp.gate_up"), 1)}, {both}, &linear_kernel_);
      layer.act = wire(name("mlp.act"), {both}, {hidden}, &act_kernel_);
      if (l + 1 < L) {
        layer.down = wire(name("mlp.down"), {hidden, weight(name("mlp.down"), 1)}, {down}, &linear_kernel_);
      } else {
        layer.down = wire(name("mlp.down.add"), {hidden, weight(name("mlp.down.add"), 1), x}, {down}, &linear_kernel_);
      }
    }
    rows_ = wire("rows", {down, rows}, {wanted}, &rows_kernel_);
    final_norm_ = wire("final_norm", {wanted, weight("final_norm", 1)}, {last}, &norm_kernel_);
    head_ = wire("head", {last, weight("head", 1)}, {logits}, &linear_kernel_);
    sample_ = wire("sample", {logits}, {next, logprob}, &sample_kernel_);
    logits_ = logits;
  }

  // The next token of each sequence at `position`.
  Result<> step(const std::vector<Sequence>& sequences, int32_t position, Stream& stream) {
    const int32_t P = batch_.kv.block_tokens;
    const auto set = [](const auto* at, int32_t i, auto value) {
      const_cast<std::remove_cvref_t<decltype(*at)>*>(at)[i] = value;
    };
    for (int32_t s = 0; s < tokens_; ++s) {
      const Sequence& sequence = sequences[static_cast<size_t>(s)];
      set(batch_.ids, s, sequence.tokens[static_cast<size_t>(position)]);
      set(batch_.positions, s, position);
      set(batch_.rows, s, s);
      set(batch_.cu_tokens, s, s);
      set(batch_.context, s, position + 1);
      set(batch_.rope_length, s, sequence.size());
      set(batch_.slots, s, int64_t{sequence.blocks[static_cast<size_t>(position / P)]} * P + position % P);
      auto& row = const_cast<SamplingRow&>(batch_.sampling[static_cast<size_t>(s)]);
      row.position = position + 1;
      row.history = sequence.tokens.data();
      row.history_count = position + 1;
    }
    set(batch_.cu_tokens, tokens_, tokens_);

    BOLIDE_TRY(embed_kernel_(embed_, stream));
    LaunchFunction first_norm = norm_kernel_;
    for (const Layer& layer : layers_) {
      BOLIDE_TRY(first_norm(layer.attn_norm, stream));
      first_norm = add_norm_kernel_;
      BOLIDE_TRY(linear_kernel_(layer.qkv, stream));
      BOLIDE_TRY(rope_kernel_(layer.rope, stream));
      BOLIDE_TRY(attention_kernel_(layer.attention, stream));
      BOLIDE_TRY(linear_kernel_(layer.out, stream));
      BOLIDE_TRY(add_norm_kernel_(layer.mlp_norm, stream));
      BOLIDE_TRY(linear_kernel_(layer.gate_up, stream));
      BOLIDE_TRY(act_kernel_(layer.act, stream));
      BOLIDE_TRY(linear_kernel_(layer.down, stream));
    }
    BOLIDE_TRY(rows_kernel_(rows_, stream));
    BOLIDE_TRY(norm_kernel_(final_norm_, stream));
    BOLIDE_TRY(linear_kernel_(head_, stream));
    return sample_kernel_(sample_, stream);
  }

  const TensorView& logits() const { return logits_; }  // [T, V]

 private:
  struct Layer {
    Launch attn_norm, qkv, rope, attention, out, mlp_norm, gate_up, act, down;
  };

  const Node& node(const std::string& name) const {
    const auto it = nodes_.find(name);
    if (it == nodes_.end()) {
      fmt::print(
          stderr,
          "handwritten_decode: the plan has no step {}: the model is not of the shape this program is written for\n",
          name);
      std::exit(2);
    }
    return plans_.graph().node(it->second);
  }

  TensorView weight(const std::string& name, size_t operand) const {
    const ValueId value = node(name).in[operand];
    for (const StoredWeight& stored : plans_.weights().all())
      if (stored.value == value && (stored.packing != nullptr) == uses_packing(name, operand)) return stored.view;
    BOLIDE_CHECK(false, "{} has no weight {}", name, operand);
    return {};
  }
  // A tied embedding is stored twice: packed for the head, in rows for the lookup.
  bool uses_packing(const std::string& name, size_t operand) const {
    for (const Step& step : plan_.steps)
      if (step.node == nodes_.at(name))
        for (const StoredWeight& stored : plans_.weights().all())
          if (stored.view.data == step.in[operand].weight.data) return stored.packing != nullptr;
    return false;
  }

  TensorView place(size_t* at, int64_t columns, DType dtype = DType::kNone) const {
    const bool vector = dtype != DType::kNone;
    const Shape shape = vector ? Shape{tokens_} : Shape{tokens_, columns};
    const TensorView view = make_view(values_.data() + *at, vector ? dtype : DType::kF32, shape);
    *at += round_up(static_cast<size_t>(tokens_ * columns) * 4, 64);
    BOLIDE_CHECK(*at <= values_.size(), "the arena of {} bytes is too small", values_.size());
    return view;
  }
  static TensorView columns(TensorView view, int64_t begin, int64_t count) {
    view.data += begin * 4;
    view.shape[1] = count;
    return view;
  }
  TensorView input(const int32_t* data) const {
    return make_view(reinterpret_cast<std::byte*>(const_cast<int32_t*>(data)), DType::kI32, Shape{tokens_});
  }

  Launch wire(const std::string& name, std::initializer_list<TensorView> in, std::initializer_list<TensorView> out,
              LaunchFunction* kernel) {
    const auto keep = [&](std::initializer_list<TensorView> list) {
      const size_t first = views_.size();
      BOLIDE_CHECK(first + list.size() <= views_.capacity(), "{} views", first);
      views_.insert(views_.end(), list);
      return std::span<const TensorView>(views_).subspan(first);
    };
    Launch launch;
    launch.op = &node(name).op;
    launch.in = keep(in);
    launch.out = keep(out);
    launch.workspace = workspace_;
    launch.batch = &batch_;
    const NodeId id = nodes_.at(name);
    for (const Step& step : plan_.steps)
      if (step.node == id) {
        launch.tactic = &step.tactic;
        BOLIDE_CHECK(*kernel == nullptr || *kernel == step.kernel->launch, "{} uses another kernel than its like",
                     name);
        *kernel = step.kernel->launch;
      }
    return launch;
  }

  const PlanSet& plans_;
  const Plan& plan_;
  BatchInputs batch_;
  MutableBytes values_, workspace_;
  int32_t tokens_;
  std::map<std::string, NodeId> nodes_;
  std::vector<TensorView> views_;
  std::vector<Layer> layers_;
  Launch embed_, rows_, final_norm_, head_, sample_;
  LaunchFunction embed_kernel_ = nullptr, norm_kernel_ = nullptr, add_norm_kernel_ = nullptr, linear_kernel_ = nullptr,
                 rope_kernel_ = nullptr, attention_kernel_ = nullptr, act_kernel_ = nullptr, rows_kernel_ = nullptr,
                 sample_kernel_ = nullptr;
  TensorView logits_;
};

Result<> do_nothing(const Launch&, Stream&) { return {}; }
constexpr Kernel kNothing{.name = "nothing", .supports = [](const Problem&) { return true; }, .launch = do_nothing};

// The model's graph with kernels that do nothing.
Runner make_idle_runner(const Runner& runner, Device& device) {
  static const std::span<const Kernel> kList(&kNothing, 1);
  static const KernelRegistry kRegistry(std::span(&kList, 1));
  Graph graph = runner.plans().graph();
  WeightStore weights;
  for (size_t i = 0; i < graph.value_count(); ++i)
    if (graph.value(static_cast<ValueId>(i)).kind == ValueKind::kWeight) {
      StoredWeight weight;
      weight.value = static_cast<ValueId>(i);
      weights.add(weight);
    }
  PlanSet plans =
      or_die(PlanSet::make(std::move(graph), std::move(weights), kRegistry, device.info(), runner.plans().limits()));
  return or_die(Runner::make(std::move(plans), runner.options(), device));
}

struct Outside {
  double executor_ns = 0, runner_ns = 0, runner_cold_ns = 0;
  size_t steps = 0;
};

std::vector<Sequence> make_sequences(Runner& runner, int32_t batch, int32_t tokens, int32_t computed) {
  std::mt19937_64 random(1);
  std::vector<Sequence> sequences(static_cast<size_t>(batch));
  for (Sequence& sequence : sequences) {
    for (int32_t i = 0; i < tokens; ++i)
      sequence.tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(runner.vocab())));
    sequence.prompt_count = computed;
    while (sequence.computed < computed) {
      const Work work{&sequence, std::min(computed - sequence.computed, runner.options().tokens_per_step)};
      or_die(runner.step(std::span(&work, 1)));
    }
  }
  return sequences;
}

void rewind(std::vector<Sequence>& sequences, int32_t position) {
  for (Sequence& sequence : sequences) sequence.computed = position;
}

Outside time_outside(Runner& model, Device& device, int32_t batch, int32_t context) {
  constexpr int kSteps = 1000, kSamples = 51;
  Runner runner = make_idle_runner(model, device);
  std::vector<Sequence> sequences = make_sequences(runner, batch, context + 2, context);
  std::vector<Work> work;
  for (Sequence& sequence : sequences) work.push_back({&sequence, 1});
  const Plan* plan = nullptr;
  BatchInputs inputs;
  const auto look = [&](const Plan& seen, size_t, const Launch& launch, double) {
    plan = &seen, inputs = *launch.batch;
  };
  const StepObserver observer(look);
  or_die(runner.step(work, &observer));

  Outside out;
  out.steps = plan->steps.size();
  Executor executor;
  std::vector<double> executors, runners, cold;
  for (int sample = 0; sample < kSamples; ++sample) {
    double start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < kSteps; ++i) or_die(executor.run(*plan, runner.plans().graph(), inputs, runner.stream()));
    executors.push_back((now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / kSteps);
    start = now_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < kSteps; ++i) {
      rewind(sequences, context);
      or_die(runner.step(work));
    }
    runners.push_back((now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / kSteps);
  }
  std::vector<uint64_t> other(8 << 20, 1);
  for (int sample = 0; sample < kSamples; ++sample) {
    uint64_t sum = 0;
    for (size_t i = 0; i < other.size(); i += 8) sum += other[i];
    asm volatile("" : : "r"(sum));
    rewind(sequences, context);
    const double start = now_ns(CLOCK_MONOTONIC);
    or_die(runner.step(work));
    cold.push_back(now_ns(CLOCK_MONOTONIC) - start);
  }
  out.executor_ns = median(executors), out.runner_ns = median(runners), out.runner_cold_ns = median(cold);
  return out;
}

struct Outcome {
  PairedRatio ratio;
  double plan_us = 0, hand_us = 0;
  Outside outside;
  bool equal = true;
};

Outcome compare(const Arguments& arguments, int32_t batch) {
  ModelOptions options;
  options.threads = arguments.threads;
  options.sequences = batch;
  options.context = arguments.context + arguments.pairs + 16;
  Model model = or_die(open_model(arguments.model, options));
  Runner& runner = *model.runner;
  std::vector<Sequence> sequences = make_sequences(runner, batch, options.context, arguments.context);
  std::vector<Work> work;
  for (Sequence& sequence : sequences) work.push_back({&sequence, 1});

  const Plan* plan = nullptr;
  BatchInputs inputs;
  MutableBytes workspace;
  const auto look = [&](const Plan& seen, size_t, const Launch& launch, double) {
    plan = &seen, inputs = *launch.batch, workspace = launch.workspace;
  };
  const StepObserver observer(look);
  or_die(runner.step(work, &observer));
  HandWritten hand(runner.plans(), *plan, inputs, {workspace.data() - plan->values_bytes, plan->values_bytes},
                   workspace, batch);

  // All blocks are taken before the clock runs: by hand there is no allocator.
  rewind(sequences, options.context - 1);
  or_die(runner.step(work));

  Outcome outcome;
  const auto check_bits = [&](int32_t position) {
    rewind(sequences, position);
    or_die(runner.step(work));
    const TensorView view = or_die(runner.logits());
    const size_t bytes = static_cast<size_t>(view.rows() * view.cols()) * 4;
    std::vector<std::byte> logits(view.data, view.data + bytes);
    std::memset(hand.logits().data, 0, bytes);
    or_die(hand.step(sequences, position, runner.stream()));
    if (std::memcmp(logits.data(), hand.logits().data, bytes) != 0) outcome.equal = false;
  };
  int32_t position = arguments.context;
  for (int i = 0; i < 8; ++i) check_bits(position++);

  const clockid_t clock = arguments.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::vector<double> plans, hands;
  for (int pair = 0; pair < arguments.pairs; ++pair, ++position) {
    const auto run_plan = [&] {
      rewind(sequences, position);
      const double start = now_ns(clock);
      or_die(runner.step(work));
      plans.push_back(now_ns(clock) - start);
    };
    if (pair % 2 == 0) run_plan();
    const double start = now_ns(clock);
    or_die(hand.step(sequences, position, runner.stream()));
    hands.push_back(now_ns(clock) - start);
    if (pair % 2 != 0) run_plan();
  }
  check_bits(position);
  outcome.ratio = paired_ratio(plans, hands);
  outcome.plan_us = median(plans) / 1000, outcome.hand_us = median(hands) / 1000;
  outcome.outside = time_outside(runner, *model.device, batch, arguments.context);
  return outcome;
}

int run(const Arguments& arguments) {
  bool pass = true;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  const CpuInfo cpu = detect_cpu();
  fmt::print("{}, {} thread{}, {} pairs a batch, from {} cached tokens, clock: {}\n", describe(cpu), arguments.threads,
             arguments.threads == 1 ? "" : "s", arguments.pairs, arguments.context,
             arguments.threads == 1 ? "processor time of the thread" : "wall");
  for (const int32_t batch : arguments.batches) {
    const Outcome o = compare(arguments, batch);
    const bool fast = o.ratio.median <= kRatioMax, lean = o.outside.executor_ns <= kExecutorMaxNs;
    pass = pass && o.equal && fast && lean;
    fmt::print(
        "batch {:>2}: logits {}; plan {:.1f} us, by hand {:.1f} us a step; ratio {:.4f} [{:.4f}, {:.4f}] at {:.0f} %, "
        "limit {}{}\n",
        batch, o.equal ? "equal bit for bit" : "DIFFER", o.plan_us, o.hand_us, o.ratio.median, o.ratio.interval.low,
        o.ratio.interval.high, 100 * o.ratio.interval.confidence, kRatioMax, fast ? "" : "  NOT HELD");
    fmt::print(
        "          outside kernels, {} launches: executor {:.0f} ns (limit {:.0f}){}, whole Runner::step {:.0f} ns; "
        "cold {:.0f} ns\n",
        o.outside.steps, o.outside.executor_ns, kExecutorMaxNs, lean ? "" : "  NOT HELD", o.outside.runner_ns,
        o.outside.runner_cold_ns);
    results.push_back({{"batch", batch},
                       {"equal_bits", o.equal},
                       {"plan_us", o.plan_us},
                       {"hand_us", o.hand_us},
                       {"ratio",
                        {{"median", o.ratio.median},
                         {"low", o.ratio.interval.low},
                         {"high", o.ratio.interval.high},
                         {"confidence", o.ratio.interval.confidence},
                         {"pairs", o.ratio.pairs}}},
                       {"launches", o.outside.steps},
                       {"executor_ns", o.outside.executor_ns},
                       {"runner_ns", o.outside.runner_ns},
                       {"runner_cold_ns", o.outside.runner_cold_ns}});
  }
  fmt::print("{}\n", pass ? "the gate holds" : "the gate does NOT hold");
  if (!arguments.json.empty()) {
    const nlohmann::ordered_json out = {{"bench", "handwritten_decode"},
                                        {"machine", describe(cpu)},
                                        {"threads", arguments.threads},
                                        {"model", std::filesystem::path(arguments.model).filename().string()},
                                        {"cached_tokens", arguments.context},
                                        {"clock", arguments.threads == 1 ? "thread_cpu" : "wall"},
                                        {"limits", {{"ratio", kRatioMax}, {"executor_ns", kExecutorMaxNs}}},
                                        {"results", results},
                                        {"pass", pass}};
    std::ofstream(arguments.json) << out.dump(2) << "\n";
  }
  return pass ? 0 : 1;
}

}  // namespace
}  // namespace bolide

int main(int argc, char** argv) {
  bolide::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--threads")
      arguments.threads = std::max(1, std::atoi(value)), ++i;
    else if (word == "--pairs")
      arguments.pairs = std::max(50, std::atoi(value)), ++i;
    else if (word == "--context")
      arguments.context = std::max(1, std::atoi(value)), ++i;
    else if (word == "--json")
      arguments.json = value, ++i;
    else if (word == "--batch") {
      arguments.batches.clear();
      for (const char* at = value; *at != 0; at += std::strcspn(at, ",") + (at[std::strcspn(at, ",")] == ',' ? 1 : 0))
        arguments.batches.push_back(std::max(1, std::atoi(at)));
      ++i;
    } else
      arguments.model = word;
  }
  if (arguments.model.empty()) {
    fmt::print(stderr,
               "usage: bolide_handwritten_decode_bench MODEL.gguf [--threads N] [--pairs N] [--context N] [--batch "
               "1,16] [--json FILE]\n");
    return 2;
  }
  return bolide::run(arguments);
}
