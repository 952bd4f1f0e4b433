#include "app/workload.h"

#include <fmt/format.h>

#include <chrono>
#include <random>

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Random ids: real text would do, but its tokens would have to be chosen, and the time does not depend on them.
std::vector<int32_t> random_tokens(int32_t count, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  return tokens;
}

// Sequences that give their blocks back whatever happens.
class Batch {
 public:
  // `prefilled` of the tokens are computed by prefill, the rest by the caller.
  Batch(Runner& runner, const WorkloadOptions& options, int32_t tokens, int32_t prefilled)
      : runner_(runner), all_(int64_t{options.batch} * prefilled), sequences_(static_cast<size_t>(options.batch)) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      sequences_[i].tokens = random_tokens(tokens, runner.vocab(), options.seed + i);
      sequences_[i].request = i;
    }
  }
  ~Batch() {
    for (Sequence& sequence : sequences_) runner_.truncate(sequence, 0);
  }
  std::vector<Sequence>& sequences() { return sequences_; }

  // Computes every sequence's tokens up to `end`, one sequence after the other.
  Result<> prefill(int32_t end, const StepObserver* observer, const WorkloadProgress* progress) {
    for (Sequence& sequence : sequences_)
      while (sequence.computed < end) {
        const Work work{&sequence, std::min(end - sequence.computed, runner_.options().tokens_per_step)};
        BOLIDE_TRY(runner_.step(std::span(&work, 1), observer));
        done_ += work.tokens;
        if (progress != nullptr) (*progress)(done_, all_);
      }
    return {};
  }

 private:
  Runner& runner_;
  int64_t done_ = 0, all_;  // tokens of prefills
  std::vector<Sequence> sequences_;
};

}  // namespace

Result<> size_context(const WorkloadOptions& workload, ModelOptions* options) {
  const int32_t tokens = workload.depth + std::max(workload.prompt, workload.generate);
  if (options->context == 0) options->context = std::max(tokens, 1);
  if (options->context >= tokens) return {};
  return error(Code::kInvalid,
               fmt::format("--context {}: the workload needs {} tokens; leave the flag out or ask for as many",
                           options->context, tokens));
}

Result<double> run_prompt(Model& model, const WorkloadOptions& options, const StepObserver* observer,
                          const WorkloadProgress* progress) {
  Batch batch(*model.runner, options, options.depth + options.prompt, options.depth + options.prompt);
  BOLIDE_TRY(batch.prefill(options.depth, nullptr, progress));
  const auto start = Clock::now();
  BOLIDE_TRY(batch.prefill(options.depth + options.prompt, observer, progress));
  return seconds_since(start);
}

Result<double> run_decode(Model& model, const WorkloadOptions& options, const StepObserver* observer,
                          const WorkloadProgress* progress) {
  Batch batch(*model.runner, options, options.depth + options.generate, options.depth);
  BOLIDE_TRY(batch.prefill(options.depth, nullptr, progress));
  std::vector<Work> work;
  for (Sequence& sequence : batch.sequences()) work.push_back({&sequence, 1});
  const auto start = Clock::now();
  if (observer != nullptr || !model.runner->options().deferred) {
    for (int32_t i = 0; i < options.generate; ++i) BOLIDE_TRY(model.runner->step(work, observer));
    return seconds_since(start);
  }
  // As a generator does it: a step is submitted, with the ids that the one before draws, before that one is read.
  Runner::Ticket now = 0;
  for (int32_t i = 0; i < options.generate; ++i) {
    BOLIDE_TRY(const Runner::Ticket next, model.runner->submit(work, /*chained=*/i > 0));
    if (now != 0) BOLIDE_TRY(model.runner->wait(now));
    now = next;
  }
  if (now != 0) BOLIDE_TRY(model.runner->wait(now));
  return seconds_since(start);
}

Cost cost_of_step(const Graph& graph, const SymbolValues& sizes, double context) {
  Cost sum;
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    std::vector<ValueType> in, out;
    for (const ValueId value : node.in) in.push_back(graph.type(value));
    for (const ValueId value : node.out) out.push_back(graph.type(value));
    const Cost cost = cost_of(node.op, in, out, sizes, context);
    sum.bytes += cost.bytes;
    sum.flops += cost.flops;
  }
  return sum;
}

Result<WorkloadCost> cost_of_workload(Model& model, const WorkloadOptions& options) {
  const Graph& graph = model.runner->plans().graph();
  WorkloadCost cost;
  for (int32_t begin = 0; begin < options.prompt; begin += model.runner->options().tokens_per_step) {
    const int32_t count = std::min(options.prompt - begin, model.runner->options().tokens_per_step);
    const Cost chunk = cost_of_step(graph, SymbolValues{{count, 1, 1}}, options.depth + begin + count / 2.);
    cost.prompt.bytes += chunk.bytes;
    cost.prompt.flops += chunk.flops;
  }
  if (options.generate > 0)
    cost.decode = cost_of_step(graph, SymbolValues{{options.batch, options.batch, options.batch}},
                               options.depth + options.generate / 2.);
  return cost;
}

}  // namespace bolide
