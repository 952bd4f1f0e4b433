#include "eval/golden_run.h"

#include <fmt/format.h>

#include <algorithm>

namespace bolide {
namespace {

// A value of the plan by the node that makes it: which output it is depends on what was fused.
struct Place {
  std::string node;
  size_t output = 0;
};

// Where each hidden state may be found; of those that are there, the one that runs last. A norm inside of a product has
// no value of its own.
std::map<std::string, std::vector<Place>> places(int32_t layers, const Graph& graph) {
  std::map<std::string, std::vector<Place>> out;
  out["embed"] = {{"embed"}, {"embed.add"}, {"layers.0.attn.norm.add"}};
  for (int32_t l = 0; l < layers; ++l)
    out[fmt::format("layer{}", l)] = {{fmt::format("layers.{}.mlp.add", l)},
                                      {fmt::format("layers.{}.mlp.down.add", l)},
                                      {fmt::format("layers.{}.attn.norm.add", l + 1)}};
  out[fmt::format("layer{}", layers - 1)].push_back({"final_norm.add"});
  const auto fused = [&](NodeId id) {
    const auto* linear = std::get_if<Linear>(&graph.node(id).op);
    return linear != nullptr && linear->has_norm && graph.node(id).name == "head";
  };
  if (std::none_of(graph.order().begin(), graph.order().end(), fused))
    out["final_norm"] = {{"final_norm"}, {"final_norm.add", 1}};
  return out;
}

int32_t length(const std::vector<int32_t>& ids) { return static_cast<int32_t>(ids.size()); }

}  // namespace

Result<GoldenModel> GoldenModel::open(const std::filesystem::path& path, ModelOptions options, const Golden& golden) {
  int32_t context = length(golden.nll_ids), rows = length(golden.nll_ids), together = 0;
  const auto room_for = [&](const GoldenPrompt& prompt) {
    context = std::max(context, length(prompt.ids) + length(prompt.greedy) + 1);
    rows = std::max(rows, length(prompt.ids));
  };
  for (const GoldenPrompt& prompt : golden.prompts) {
    room_for(prompt);
    together += length(prompt.ids);
  }
  if (golden.text.has_value()) room_for(golden.text->prompt);
  options.context = context;
  const int32_t decoded = kSequences * (kSequences + 1) / 2;  // the first step of decode_together
  rows = std::max({rows, decoded, together * kCopies});
  options.sequences =
      std::max(static_cast<int32_t>(golden.prompts.size()) * kCopies, kSequences) + 1;  // the generator's
  options.rows_max = rows;
  options.tokens_per_step = std::max(rows, kTokens);
  BOLIDE_TRY(Model model, open_model(path, options));
  BOLIDE_TRY(const GraphFacts facts, facts_of(model.runner->plans().graph()));
  const WeightInfo* logits = golden.tensors->find(golden.prompts[0].name + ".last_logits");
  if (logits->shape[0] != facts.vocab)
    return error(Code::kInvalid,
                 fmt::format("{}: has a vocabulary of {}, the golden of {}: they belong to different models",
                             path.string(), facts.vocab, logits->shape[0]));
  GoldenModel out;
  out.model_ = std::make_unique<Model>(std::move(model));
  out.generator_ = std::make_unique<Generator>(*out.model_->runner, out.model_->tokenizer);
  out.trace_ = golden.trace;
  out.layers_ = facts.layers;
  return out;
}

Result<> GoldenModel::append_logits(size_t rows, std::vector<float>* out) const {
  BOLIDE_TRY(const TensorView logits, model_->runner->logits());
  for (size_t row = 0; row < rows; ++row) {
    const float* begin = logits.row<float>(static_cast<int64_t>(row));
    out->insert(out->end(), begin, begin + vocab());
  }
  return {};
}

Result<std::vector<float>> GoldenModel::run(const std::vector<int32_t>& ids, const std::vector<int32_t>& chunks,
                                            HiddenStates* states) {
  Runner& runner = *model_->runner;
  const auto where = places(layers_, runner.plans().graph());
  const auto watch = [&](const Plan& plan, size_t step, const Launch& launch, double) {
    const std::string& node = runner.plans().graph().node(plan.steps[step].node).name;
    for (const auto& [state, candidates] : where)
      for (const Place& place : candidates)
        if (place.node == node && place.output < launch.out.size())
          if (auto values = runner.read(launch.out[place.output])) (*states)[state] = *std::move(values);
  };
  const StepObserver observer(watch, StepObserver::Sees::kValues);
  if (states != nullptr)
    for (const auto& [state, candidates] : where) (*states)[state];

  Sequence sequence;
  sequence.tokens = ids;
  sequence.prompt_count = length(ids);
  std::vector<float> logits;
  Result<> done;
  for (size_t chunk = 0; done && sequence.computed < length(ids); ++chunk) {
    const int32_t left = length(ids) - sequence.computed;
    const Work work{&sequence, chunks.empty() ? left : std::min(left, chunks[chunk % chunks.size()]), true};
    done = runner.step(std::span(&work, 1), states == nullptr ? nullptr : &observer);
    if (done) done = append_logits(static_cast<size_t>(work.tokens), &logits);
  }
  runner.truncate(sequence, 0);
  if (!done) return std::move(done).error();
  return logits;
}

Result<LogitRuns> GoldenModel::one_by_one(const std::vector<GoldenPrompt>& prompts, const std::vector<int32_t>& chunks,
                                          HiddenStates* states) {
  LogitRuns runs;
  for (const GoldenPrompt& prompt : prompts) {
    BOLIDE_TRY(runs[prompt.name], run(prompt.ids, chunks, prompt.name == trace_ ? states : nullptr));
  }
  return runs;
}

Result<> GoldenModel::step_rows(std::span<const Work> work, std::span<std::vector<float>> logits) {
  BOLIDE_TRY(model_->runner->step(work));
  std::vector<float> all;
  size_t rows = 0;
  for (const Work& w : work) rows += static_cast<size_t>(w.tokens);
  BOLIDE_TRY(append_logits(rows, &all));
  auto next = all.begin();
  for (size_t i = 0; i < work.size(); ++i) {
    const auto end = next + static_cast<ptrdiff_t>(static_cast<size_t>(work[i].tokens) * vocab());
    logits[i].insert(logits[i].end(), next, end);
    next = end;
  }
  return {};
}

Result<std::vector<LogitRuns>> GoldenModel::all_at_once(const std::vector<GoldenPrompt>& prompts, int copies) {
  const size_t count = prompts.size() * static_cast<size_t>(copies);
  std::vector<Sequence> sequences(count);
  std::vector<Work> work;
  for (size_t i = 0; i < count; ++i) {
    const GoldenPrompt& prompt = prompts[i % prompts.size()];
    sequences[i].tokens = prompt.ids;
    sequences[i].prompt_count = length(prompt.ids);
    sequences[i].request = i;
    work.push_back({&sequences[i], length(prompt.ids), true});
  }
  std::vector<std::vector<float>> logits(count);
  auto done = step_rows(work, logits);
  for (Sequence& sequence : sequences) model_->runner->truncate(sequence, 0);
  if (!done) return std::move(done).error();
  std::vector<LogitRuns> runs(static_cast<size_t>(copies));
  for (size_t i = 0; i < count; ++i) runs[i / prompts.size()][prompts[i % prompts.size()].name] = std::move(logits[i]);
  return runs;
}

Result<std::vector<LogitRuns>> GoldenModel::decode_together(const GoldenPrompt& prompt) {
  const int32_t tokens = length(prompt.ids), count = std::min(kSequences, tokens);
  std::vector<Sequence> sequences(static_cast<size_t>(count));
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].tokens = prompt.ids;
    sequences[i].prompt_count = tokens;
    sequences[i].request = i;
  }
  std::vector<std::vector<float>> logits(sequences.size());
  Result<> done;
  // The last sequence is the furthest, so those that are not done are always the first ones.
  for (size_t left = sequences.size(); done && left > 0;) {
    std::vector<Work> work;
    for (size_t i = 0; i < left; ++i)
      work.push_back({&sequences[i], sequences[i].computed == 0 ? static_cast<int32_t>(i) + 1 : 1, true});
    done = step_rows(work, logits);
    while (left > 0 && sequences[left - 1].computed >= tokens) --left;
  }
  for (Sequence& sequence : sequences) model_->runner->truncate(sequence, 0);
  if (!done) return std::move(done).error();
  std::vector<LogitRuns> runs;
  for (std::vector<float>& rows : logits) runs.push_back({{prompt.name, std::move(rows)}});
  return runs;
}

bool GoldenModel::has_experts() const {
  const Graph& graph = model_->runner->plans().graph();
  return std::any_of(graph.order().begin(), graph.order().end(),
                     [&](NodeId id) { return std::holds_alternative<MoeFfn>(graph.node(id).op); });
}

Result<std::vector<std::string>> GoldenModel::reference_steps(int32_t tokens, int32_t sequences) {
  BOLIDE_TRY(const Plan* plan, model_->runner->plan_for(SymbolValues{{tokens, sequences, sequences}}));
  std::vector<std::string> found;
  for (const Step& step : plan->steps)
    if (step.kernel->reference)
      found.push_back(
          fmt::format("T={}: {} {}", tokens, model_->runner->plans().graph().node(step.node).name, step.kernel->name));
  return found;
}

Result<std::vector<float>> GoldenModel::all_logits(const std::vector<int32_t>& ids) { return run(ids, {}, nullptr); }

Result<GenerateResult> GoldenModel::generate(const GoldenPrompt& prompt) {
  GenerateRequest request;
  request.prompt = prompt.ids;
  request.tokens_max = length(prompt.greedy);
  return generator_->generate(request, [](std::string_view) {});
}

}  // namespace bolide
