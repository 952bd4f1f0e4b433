// The gate of the design on a GPU: decode steps of the plan beside the same kernels called by a loop written by hand.
//
//   bolide_handwritten_decode_gpu_bench [MODEL] [--batch 1,8,16] [--pairs 60] [--steps 16] [--context 128]
//                                       [--skip-passes NAMES] [--json FILE]
//
// MODEL (synth:llama-3-8b) is a llama-shaped decoder whose layers are five kernels: norm, q|k|v, rope and write in one;
// attention; out and residual; norm, gate|up and activation; down and residual. Both sides use the same kernels,
// tactics, weights and KV pools, and the same products in one launch where the plan has chains of them. The
// hand-written side has buffers of its own, wires its operands once, is a straight line a layer, captures that into a
// graph of its own (no padding, no buckets, no plans), and fills and sends its batch, feeds each step the ids that the
// one before drew, and reads results one step late, as the engine does.
//
// Before any timing both must give the same bits of logits, and afterwards have drawn the same ids.
//
// Inside a timing: `--steps` decode steps, from the first one's submission to the last one's ids on the host. Samples
// alternate, A B B A, each pair from one position of the same sequences; reported is the median ratio with its
// interval. `host`: what the host spends on submitting one step, of a decode (replayed) and of a mixed step, a prompt
// of 33 tokens beside decodes, which is not captured: its kernels are launched one by one, and the GPU waits for the
// host.
//
// Exit code 1 if the plan is more than 3 % slower in steps or in the mixed step's host time.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "app/model.h"
#include "base/check.h"
#include "base/version.h"
#include "measure/gpu.h"
#include "measure/statistics.h"

namespace bolide {
namespace {

constexpr double kRatioMax = 1.03;
constexpr int32_t kMixedPrompt = 33;
constexpr size_t kAlignment = 256;

struct Arguments {
  std::string model = "synth:llama-3-8b", json;
  int pairs = 60, steps = 16, context = 128;
  std::vector<int32_t> batches = {1, 8, 16};
  std::set<std::string> skip_passes;
};

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void die(std::string_view text) {
  fmt::print(stderr, "handwritten_decode_gpu: error: {}\n", text);
  std::exit(2);
}
template <class T>
T or_die(Result<T> result) {
  if (!result) die(result.error().text);
  return *std::move(result);
}
void or_die(Result<> result) {
  if (!result) die(result.error().text);
}

// A decoder of llama's shape, written out, for steps of fixed sizes.
class HandWritten {
 public:
  // `kv`: the runner's pools. `plan`: where kernels, tactics and packed weights come from.
  HandWritten(Device& device, const PlanSet& plans, const Plan& plan, const BatchInputs& like, SymbolValues sizes)
      : device_(device), graph_(plans.graph()), plan_(plan), sizes_(sizes) {
    size_t bytes = 0;  // of all activations, of which only some are placed
    for (const Step& step : plan.steps) {
      steps_[graph_.node(step.node).name] = &step;
      for (const Operand& operand : step.out) bytes += bytes_of(operand.type);
    }
    arena_ = or_die(device.allocate(bytes, Memory::kDevice));
    workspace_ = or_die(device.allocate(std::max<size_t>(plan.workspace_bytes, 1), Memory::kDevice));
    batch_ = like;
    make_batch();
    wire_all();
  }

  // Sends a step: sequence s computes tokens[s] tokens from begin[s] on. `chained`: the ids are those drawn last.
  Result<> submit(std::span<Sequence* const> sequences, std::span<const int32_t> begin, std::span<const int32_t> tokens,
                  bool chained, bool replayed, Stream& stream) {
    Half& half = halves_[++submitted_ % 2];
    BOLIDE_TRY(half.copied->synchronize());
    fill(half.memory.data(), sequences, begin, tokens);
    BOLIDE_TRY(copy_bytes(stream, twin_.bytes(), half.memory.bytes()));
    BOLIDE_TRY(stream.record(*half.copied));
    const size_t bytes = static_cast<size_t>(sizes_[Symbol::kRows]) * 4;
    if (chained)
      BOLIDE_TRY(copy_bytes(stream, {reinterpret_cast<std::byte*>(const_cast<int32_t*>(batch_.ids)), bytes},
                            {next_.data, bytes}));
    if (!replayed) {
      BOLIDE_TRY(launch_all(stream));
    } else {
      if (captured_ == nullptr) {
        BOLIDE_TRY(captured_, stream.capture([this](Stream& s) { return launch_all(s); }));
      }
      BOLIDE_TRY(captured_->launch(stream));
    }
    BOLIDE_TRY(copy_bytes(stream, half.results.bytes().first(bytes), {next_.data, bytes}));
    BOLIDE_TRY(copy_bytes(stream, half.results.bytes().last(bytes), {logprob_.data, bytes}));
    return stream.record(*half.there);
  }
  // Until the ids of the step before the last (`back` 1) or of the last (0) are on the host.
  Result<> wait(int back) {
    Half& half = halves_[(submitted_ - static_cast<size_t>(back)) % 2];
    BOLIDE_TRY(half.there->synchronize());
    seen_ = reinterpret_cast<const int32_t*>(half.results.data());
    return {};
  }

  const int32_t* ids() const { return seen_; }
  const TensorView& logits() const { return logits_; }

 private:
  struct Call {
    const Kernel* kernel = nullptr;
    Launch launch;
    Result<> operator()(Stream& stream) const { return kernel->launch(launch, stream); }
  };
  // What lies between two attentions: out, gate and up, down, and the next layer's q|k|v or the head.
  struct Products {
    std::array<Launch, 4> launches;
    std::array<const Kernel*, 4> kernels{};
    std::array<size_t, 4> counts{};  // of those that run in the launch that begins with this one; 0: an earlier one
    const ChainKernel* chain = nullptr;

    Result<> operator()(Stream& stream) const {
      for (size_t i = 0; i < 4; ++i) {
        if (counts[i] == 1)
          BOLIDE_TRY(kernels[i]->launch(launches[i], stream));
        else if (counts[i] > 1)
          BOLIDE_TRY(chain->launch(std::span(launches).subspan(i, counts[i]), std::span(kernels).subspan(i, counts[i]),
                                   stream));
      }
      return {};
    }
  };
  struct Layer {
    Call attention;
    Products products;
  };
  struct Half {
    Buffer memory, results;
    std::unique_ptr<Event> copied, there;
  };

  const Step& step(const std::string& name) const {
    const auto it = steps_.find(name);
    if (it == steps_.end())
      die(fmt::format("the plan has no step {}: the model is not of the shape that this program is written for", name));
    return *it->second;
  }

  // Activations: a value of the plan's type at an address of ours.
  TensorView place(const std::string& name, size_t output = 0) {
    const ValueType& type = step(name).out[output].type;
    TensorView view = make_view(arena_.data() + arena_end_, type.dtype, type.at(sizes_));
    view.device = device_.info().id;
    arena_end_ += bytes_of(type);
    if (arena_end_ > arena_.size()) die("the arena is too small");
    return view;
  }
  size_t bytes_of(const ValueType& type) const {
    if (type.dtype == DType::kNone) return 0;
    return round_up(static_cast<size_t>(type.at(sizes_).elements()) * bits_of(type.dtype) / 8, kAlignment);
  }

  // `values` are the inputs that are no weights, in order.
  Call wire(const std::string& name, std::initializer_list<TensorView> values, std::initializer_list<TensorView> out) {
    const Step& s = step(name);
    const size_t first = views_.size();
    BOLIDE_CHECK(first + s.in.size() + out.size() <= views_.capacity(), "{} views", first);
    auto value = values.begin();
    for (const Operand& operand : s.in) {
      if (operand.kind == Operand::Kind::kWeight) {
        views_.push_back(operand.weight);
      } else {
        if (value == values.end()) die(fmt::format("{} has more inputs than this program knows", name));
        views_.push_back(*value++);
      }
    }
    if (value != values.end()) die(fmt::format("{} has fewer inputs than this program knows", name));
    views_.insert(views_.end(), out);
    ++wired_;
    Launch launch;
    launch.op = &graph_.node(s.node).op;
    launch.in = std::span<const TensorView>(views_).subspan(first, s.in.size());
    launch.out = std::span<const TensorView>(views_).subspan(first + s.in.size());
    launch.workspace = workspace_.bytes();
    launch.tactic = &s.tactic;
    launch.batch = &batch_;
    return {s.kernel, launch};
  }

  // `first`: the name of the products' first step. Chained where the plan chains them.
  Products join(const std::string& first, const std::array<Call, 4>& calls) {
    Products products;
    const auto index = static_cast<size_t>(&step(first) - plan_.steps.data());
    for (size_t i = 0; i < 4; ++i) products.launches[i] = calls[i].launch, products.kernels[i] = calls[i].kernel;
    for (const StepGroup& group : plan_.groups) {
      if (group.first < index || group.first >= index + 4) continue;
      if (group.first + group.count > index + 4) die("a chain goes beyond what lies between two attentions");
      products.counts[group.first - index] = group.count;
      if (group.chain != nullptr) products.chain = group.chain;
    }
    return products;
  }

  void wire_all() {
    size_t L = 0;
    while (steps_.contains(fmt::format("layers.{}.attn.attention", L))) ++L;
    if (L < 2) die("fewer than two layers");
    views_.reserve(L * 40 + 40);
    const auto name = [](size_t l, const char* what) { return fmt::format("layers.{}.{}", l, what); };
    const auto input = [&](const int32_t* data, Symbol symbol) {
      TensorView view =
          make_view(reinterpret_cast<std::byte*>(const_cast<int32_t*>(data)), DType::kI32, Shape{sizes_[symbol]});
      view.device = device_.info().id;
      return view;
    };
    const TensorView ids = input(batch_.ids, Symbol::kTokens), positions = input(batch_.positions, Symbol::kTokens);
    const TensorView rows = input(batch_.rows, Symbol::kRows);
    const TensorView x = place("embed"), q = place(name(0, "attn.q_k_v.rope"));
    const TensorView seen = place(name(0, "attn.attention")), y = place(name(0, "attn.out.add"));
    const TensorView hidden = place(name(0, "mlp.gate_up.act"));
    // Behind the last attention: of the rows whose logits are wanted.
    const TensorView last_x = place(name(L - 1, "rows")), last_seen = place(name(L - 1, "attn.rows"));
    const TensorView last_y = place(name(L - 1, "attn.out.add")), last_hidden = place(name(L - 1, "mlp.gate_up.act"));
    logits_ = place("head"), next_ = place("sample"), logprob_ = place("sample", 1);

    embed_ = wire("embed", {ids}, {x});
    first_qkv_ = wire(name(0, "attn.q_k_v.rope"), {x, positions}, {q, {}});
    for (size_t l = 0; l + 1 < L; ++l)
      layers_.push_back(
          {wire(name(l, "attn.attention"), {q, {}}, {seen}),
           join(name(l, "attn.out.add"),
                {wire(name(l, "attn.out.add"), {seen, x}, {y}), wire(name(l, "mlp.gate_up.act"), {y}, {hidden}),
                 wire(name(l, "mlp.down.add"), {hidden, y}, {x}),
                 wire(name(l + 1, "attn.q_k_v.rope"), {x, positions}, {q, {}})})});
    last_attention_ = wire(name(L - 1, "attn.attention"), {q, {}}, {seen});
    rows_seen_ = wire(name(L - 1, "attn.rows"), {seen, rows}, {last_seen});
    rows_x_ = wire(name(L - 1, "rows"), {x, rows}, {last_x});
    last_ = join(name(L - 1, "attn.out.add"), {wire(name(L - 1, "attn.out.add"), {last_seen, last_x}, {last_y}),
                                               wire(name(L - 1, "mlp.gate_up.act"), {last_y}, {last_hidden}),
                                               wire(name(L - 1, "mlp.down.add"), {last_hidden, last_y}, {last_x}),
                                               wire("head", {last_x}, {logits_})});
    sample_ = wire("sample", {logits_}, {next_, logprob_});
    if (plan_.steps.size() != wired_)
      die(fmt::format("the plan has {} steps, this program {}", plan_.steps.size(), wired_));
  }

  Result<> launch_all(Stream& stream) const {
    BOLIDE_TRY(embed_(stream));
    BOLIDE_TRY(first_qkv_(stream));
    for (const Layer& layer : layers_) {
      BOLIDE_TRY(layer.attention(stream));
      BOLIDE_TRY(layer.products(stream));
    }
    BOLIDE_TRY(last_attention_(stream));
    BOLIDE_TRY(rows_seen_(stream));
    BOLIDE_TRY(rows_x_(stream));
    BOLIDE_TRY(last_(stream));
    return sample_(stream);
  }

  // The arrays of a step, one behind the other, twice on the host and once on the device.
  void make_batch() {
    const auto T = static_cast<size_t>(sizes_[Symbol::kTokens]), S = static_cast<size_t>(sizes_[Symbol::kSequences]),
               R = static_cast<size_t>(sizes_[Symbol::kRows]);
    size_t bytes = 0;
    const auto next = [&](size_t count, size_t element) {
      return std::exchange(bytes, bytes + round_up(count * element, 64));
    };
    at_ = {next(3, 4),
           next(T, 4),
           next(T, 4),
           next(R, 4),
           next(S + 1, 4),
           next(S, 4),
           next(S, 4),
           next(T, 8),
           next(R, sizeof(SamplingRow)),
           next(S * static_cast<size_t>(batch_.block_table_stride), 4)};
    twin_ = or_die(device_.allocate(bytes, Memory::kDevice));
    for (Half& half : halves_) {
      half.memory = or_die(device_.allocate(bytes, Memory::kPinned));
      std::memset(half.memory.data(), 0, bytes);
      half.results = or_die(device_.allocate(R * 8, Memory::kPinned));
      half.copied = or_die(device_.make_event());
      half.there = or_die(device_.make_event());
    }
    const auto on = [&](size_t offset) { return reinterpret_cast<const int32_t*>(twin_.data() + offset); };
    batch_.counts = on(at_.counts), batch_.ids = on(at_.ids), batch_.positions = on(at_.positions);
    batch_.rows = on(at_.rows), batch_.cu_tokens = on(at_.cu_tokens), batch_.context = on(at_.context);
    batch_.rope_length = on(at_.rope_length), batch_.block_table = on(at_.block_table);
    batch_.slots = reinterpret_cast<const int64_t*>(twin_.data() + at_.slots);
    batch_.sampling = {reinterpret_cast<const SamplingRow*>(twin_.data() + at_.sampling), R};
    batch_.sizes = sizes_;
  }

  void fill(std::byte* to, std::span<Sequence* const> sequences, std::span<const int32_t> begins,
            std::span<const int32_t> tokens) const {
    const auto array = [&](size_t offset) { return reinterpret_cast<int32_t*>(to + offset); };
    int32_t *ids = array(at_.ids), *positions = array(at_.positions), *rows = array(at_.rows);
    int32_t *cu = array(at_.cu_tokens), *context = array(at_.context), *length = array(at_.rope_length);
    auto* slots = reinterpret_cast<int64_t*>(to + at_.slots);
    auto* sampling = reinterpret_cast<SamplingRow*>(to + at_.sampling);
    const int32_t P = batch_.kv.block_tokens;
    int32_t token = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const Sequence& sequence = *sequences[s];
      const int32_t begin = begins[s], end = begin + tokens[s];
      cu[s] = token, context[s] = end, length[s] = sequence.size();
      std::copy(sequence.blocks.begin(), sequence.blocks.end(),
                array(at_.block_table) + s * static_cast<size_t>(batch_.block_table_stride));
      for (int32_t position = begin; position < end; ++position, ++token) {
        ids[token] = sequence.tokens[static_cast<size_t>(position)];
        positions[token] = position;
        slots[token] = int64_t{sequence.blocks[static_cast<size_t>(position / P)]} * P + position % P;
      }
      rows[s] = token - 1;
      sampling[s] = SamplingRow{.request = sequence.request, .position = end};
    }
    cu[sequences.size()] = token;
    for (size_t i = 0; i < kSymbols; ++i) array(at_.counts)[i] = static_cast<int32_t>(sizes_.value[i]);
  }

  struct Offsets {
    size_t counts, ids, positions, rows, cu_tokens, context, rope_length, slots, sampling, block_table;
  };

  Device& device_;
  const Graph& graph_;
  const Plan& plan_;
  const SymbolValues sizes_;
  std::map<std::string, const Step*> steps_;
  Buffer arena_, workspace_, twin_;
  size_t arena_end_ = 0;
  Offsets at_{};
  std::array<Half, 2> halves_;
  BatchInputs batch_;
  std::vector<TensorView> views_;
  size_t wired_ = 0;
  std::vector<Layer> layers_;  // all but the last
  Call embed_, first_qkv_, last_attention_, rows_seen_, rows_x_, sample_;
  Products last_;
  TensorView logits_, next_, logprob_;
  std::unique_ptr<Captured> captured_;
  size_t submitted_ = 0;
  const int32_t* seen_ = nullptr;
};

// One model's sequences and both sides of them.
class Comparison {
 public:
  Comparison(Model& model, int32_t batch, int32_t context, int32_t length)
      : device_(*model.device), runner_(*model.runner), batch_(batch), context_(context) {
    std::mt19937_64 random(1);
    sequences_.resize(static_cast<size_t>(batch));
    for (size_t s = 0; s < sequences_.size(); ++s) {
      Sequence& sequence = sequences_[s];
      for (int32_t i = 0; i < length; ++i)
        sequence.tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(runner_.vocab())));
      sequence.prompt_count = context;
      sequence.request = s;
      const Work all{&sequence, length};  // takes all blocks before any clock runs
      or_die(runner_.step(std::span(&all, 1)));
      pointers_.push_back(&sequence);
    }
  }

  ~Comparison() {
    for (Sequence& sequence : sequences_) runner_.truncate(sequence, 0);
  }
  Comparison(const Comparison&) = delete;

  struct Outcome {
    bool equal = true;
    PairedRatio ratio, host, mixed_host;
    double plan_us = 0, hand_us = 0, plan_host_us = 0, hand_host_us = 0, plan_mixed_us = 0, hand_mixed_us = 0;
    size_t launches = 0;
  };

  Outcome compare(int pairs, int steps) {
    Outcome out;
    const int64_t B = batch_;
    const SymbolValues sizes{{B, B, B}};
    const Plan& plan = *or_die(runner_.plan_for(sizes));
    HandWritten hand(device_, runner_.plans(), plan, batch_of(decodes(context_)), sizes);
    out.launches = plan.groups.size();
    for (int i = 0; i < 3; ++i) out.equal = out.equal && same_logits(hand, decodes(context_ + i));

    std::vector<double> plans, hands, plan_host, hand_host;
    std::vector<int32_t> plan_ids(static_cast<size_t>(batch_)), hand_ids = plan_ids;
    for (int pair = -2; pair < pairs; ++pair) {  // two that are not counted: both sides capture
      const int32_t position = context_ + (pair + 2) * steps % 64;
      const auto run_plan = [&] {
        double host = 0;
        const double start = now_us();
        std::vector<Work> work = decodes(position);
        Runner::Ticket now = 0;
        for (int i = 0; i < steps; ++i) {
          const double submitted = now_us();
          const Runner::Ticket next = or_die(runner_.submit(work, i > 0));
          host += now_us() - submitted;
          if (now != 0) or_die(runner_.wait(now));
          now = next;
        }
        or_die(runner_.wait(now));
        if (pair >= 0) plans.push_back(now_us() - start), plan_host.push_back(host / steps);
        std::copy_n(runner_.next(), batch_, plan_ids.data());
      };
      const auto run_hand = [&] {
        double host = 0;
        const double start = now_us();
        std::vector<int32_t> begin(sequences_.size(), position);
        const std::vector<int32_t> ones(sequences_.size(), 1);
        for (int i = 0; i < steps; ++i) {
          const double submitted = now_us();
          or_die(hand.submit(pointers_, begin, ones, i > 0, true, runner_.stream()));
          host += now_us() - submitted;
          if (i > 0) or_die(hand.wait(1));
          for (int32_t& b : begin) ++b;
        }
        or_die(hand.wait(0));
        if (pair >= 0) hands.push_back(now_us() - start), hand_host.push_back(host / steps);
        std::copy_n(hand.ids(), batch_, hand_ids.data());
      };
      if (pair % 2 == 0) run_plan();
      run_hand();
      if (pair % 2 != 0) run_plan();
      out.equal = out.equal && plan_ids == hand_ids;
    }
    out.ratio = paired_ratio(plans, hands);
    out.host = paired_ratio(plan_host, hand_host);
    out.plan_us = median(plans) / steps, out.hand_us = median(hands) / steps;
    out.plan_host_us = median(plan_host), out.hand_host_us = median(hand_host);
    if (batch_ > 1) compare_mixed(pairs, out);
    return out;
  }

 private:
  std::vector<Work> decodes(int32_t position) {
    std::vector<Work> work;
    for (Sequence& sequence : sequences_) {
      sequence.computed = position;
      work.push_back({&sequence, 1});
    }
    return work;
  }

  // What the runner hands to kernels for this work, and leaves its logits behind.
  BatchInputs batch_of(const std::vector<Work>& work) {
    BatchInputs inputs;
    const auto look = [&](const Plan&, size_t, const Launch& launch, double) { inputs = *launch.batch; };
    const StepObserver observer(look);
    or_die(runner_.step(work, &observer));
    return inputs;
  }

  bool same_logits(HandWritten& hand, std::vector<Work> work) {
    std::vector<int32_t> begin, tokens;
    for (const Work& w : work) begin.push_back(w.sequence->computed), tokens.push_back(w.tokens);
    or_die(runner_.step(work));
    const TensorView view = or_die(runner_.logits());
    const size_t bytes = static_cast<size_t>(view.rows() * view.cols()) * sizeof(float);
    std::vector<std::byte> plans(view.data, view.data + bytes), hands(bytes);
    or_die(hand.submit(pointers_, begin, tokens, false, false, runner_.stream()));
    or_die(hand.wait(0));
    or_die(copy_bytes(runner_.stream(), hands, {hand.logits().data, bytes}));
    or_die(runner_.stream().synchronize());
    return plans == hands;
  }

  // A prompt of some tokens beside decodes: nothing is captured, the host launches kernel by kernel.
  void compare_mixed(int pairs, Outcome& out) {
    const int64_t B = batch_, T = kMixedPrompt + B - 1;
    const SymbolValues sizes{{T, B, B}};
    const Plan& plan = *or_die(runner_.plan_for(sizes));
    const auto mixed = [&] {
      std::vector<Work> work = decodes(context_);
      work[0].sequence->computed = 0;
      work[0].tokens = kMixedPrompt;
      return work;
    };
    std::vector<int32_t> begin(sequences_.size(), context_), tokens(sequences_.size(), 1);
    begin[0] = 0, tokens[0] = kMixedPrompt;
    HandWritten hand(device_, runner_.plans(), plan, batch_of(mixed()), sizes);
    out.equal = out.equal && same_logits(hand, mixed());
    std::vector<double> plans, hands;
    for (int pair = -2; pair < pairs; ++pair) {
      const auto run_plan = [&] {
        const std::vector<Work> work = mixed();
        const double start = now_us();
        const Runner::Ticket ticket = or_die(runner_.submit(work));
        if (pair >= 0) plans.push_back(now_us() - start);
        or_die(runner_.wait(ticket));
      };
      if (pair % 2 == 0) run_plan();
      const double start = now_us();
      or_die(hand.submit(pointers_, begin, tokens, false, false, runner_.stream()));
      if (pair >= 0) hands.push_back(now_us() - start);
      or_die(hand.wait(0));
      if (pair % 2 != 0) run_plan();
    }
    out.mixed_host = paired_ratio(plans, hands);
    out.plan_mixed_us = median(plans), out.hand_mixed_us = median(hands);
  }

  Device& device_;
  Runner& runner_;
  int32_t batch_, context_;
  std::vector<Sequence> sequences_;
  std::vector<Sequence*> pointers_;
};

nlohmann::ordered_json to_json(const PairedRatio& ratio) {
  return {{"median", ratio.median},
          {"low", ratio.interval.low},
          {"high", ratio.interval.high},
          {"confidence", ratio.interval.confidence},
          {"pairs", ratio.pairs}};
}

int run(const Arguments& arguments) {
  bool pass = true;
  nlohmann::ordered_json results = nlohmann::ordered_json::array(), head;
  ModelOptions options;
  options.device = DeviceKind::kCuda;
  options.skip_passes = arguments.skip_passes;
  const int32_t length = arguments.context + arguments.steps + 64 + 8;
  options.context = length;
  options.sequences = 1;
  for (const int32_t batch : arguments.batches) options.sequences = std::max(options.sequences, batch);
  Model model = or_die(open_model(arguments.model, options));
  const DeviceInfo& device = model.device->info();
  GpuEnergy meter(*model.device);
  fmt::print("{}; {}; {} pairs of {} steps a batch, from {} cached tokens\n", device.name, model.name, arguments.pairs,
             arguments.steps, arguments.context);
  for (const int32_t batch : arguments.batches) {
    const Comparison::Outcome o =
        Comparison(model, batch, arguments.context, length).compare(arguments.pairs, arguments.steps);
    const bool fast = o.ratio.median <= kRatioMax, lean = batch == 1 || o.mixed_host.median <= kRatioMax;
    pass = pass && o.equal && fast && lean;
    fmt::print("batch {:>3}: {}; plan {:.1f} us, by hand {:.1f} us a step; ratio {:.4f} [{:.4f}, {:.4f}]{}\n", batch,
               o.equal ? "equal bit for bit" : "DIFFER", o.plan_us, o.hand_us, o.ratio.median, o.ratio.interval.low,
               o.ratio.interval.high, fast ? "" : "  NOT HELD");
    fmt::print("           host: plan {:.1f} us, by hand {:.1f} us a step, {} launches of the plan\n", o.plan_host_us,
               o.hand_host_us, o.launches);
    if (batch > 1)
      fmt::print("           host, mixed step: plan {:.1f} us, by hand {:.1f} us; ratio {:.4f} [{:.4f}, {:.4f}]{}\n",
                 o.plan_mixed_us, o.hand_mixed_us, o.mixed_host.median, o.mixed_host.interval.low,
                 o.mixed_host.interval.high, lean ? "" : "  NOT HELD");
    results.push_back({{"batch", batch},
                       {"equal_bits", o.equal},
                       {"launches", o.launches},
                       {"plan_us", o.plan_us},
                       {"hand_us", o.hand_us},
                       {"ratio", to_json(o.ratio)},
                       {"plan_host_us", o.plan_host_us},
                       {"hand_host_us", o.hand_host_us},
                       {"host_ratio", to_json(o.host)}});
    if (batch > 1)
      results.back().update({{"mixed_tokens", kMixedPrompt + batch - 1},
                             {"plan_mixed_host_us", o.plan_mixed_us},
                             {"hand_mixed_host_us", o.hand_mixed_us},
                             {"mixed_host_ratio", to_json(o.mixed_host)}});
  }
  fmt::print("{}\n", pass ? "the gate holds" : "the gate does NOT hold");
  if (!arguments.json.empty()) {
    GpuReading reading;
    meter.begin();
    if (meter.known()) reading = meter.end();
    const nlohmann::ordered_json out = {{"bench", "handwritten_decode_gpu"},
                                        {"machine", device.name},
                                        {"driver", meter.driver()},
                                        {"sm_mhz", reading.sm_mhz},
                                        {"memory_mhz", reading.memory_mhz},
                                        {"commit", version().commit},
                                        {"model", model.name},
                                        {"cached_tokens", arguments.context},
                                        {"steps_a_sample", arguments.steps},
                                        {"limit", kRatioMax},
                                        {"results", results},
                                        {"pass", pass}};
    std::ofstream(arguments.json) << out.dump(1) << "\n";
  }
  return pass ? 0 : 1;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

}  // namespace
}  // namespace bolide

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bolide::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      arguments.model = word;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    if (word == "--pairs")
      arguments.pairs = std::max(50, std::atoi(value));
    else if (word == "--steps")
      arguments.steps = std::max(2, std::atoi(value));
    else if (word == "--context")
      arguments.context = std::max(64, std::atoi(value));
    else if (word == "--json")
      arguments.json = value;
    else if (word == "--batch") {
      arguments.batches.clear();
      for (const std::string& part : bolide::split(value))
        arguments.batches.push_back(std::max(1, std::atoi(part.c_str())));
    } else if (word == "--skip-passes") {
      for (const std::string& part : bolide::split(value)) arguments.skip_passes.insert(part);
    } else {
      bolide::die(
          "usage: bolide_handwritten_decode_gpu_bench [MODEL] [--batch 1,8] [--pairs N] [--steps N] "
          "[--context N] [--skip-passes NAMES] [--json FILE]");
    }
  }
  return bolide::run(arguments);
}
