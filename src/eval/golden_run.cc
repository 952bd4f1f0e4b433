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

// Where each hidden state may be found; of those that are there, the one that runs last.
std::map<std::string, std::vector<Place>> places(int32_t layers) {
  std::map<std::string, std::vector<Place>> out;
  out["embed"] = {{"embed"}, {"embed.add"}, {"layers.0.attn.norm.add"}};
  for (int32_t l = 0; l < layers; ++l)
    out[fmt::format("layer{}", l)] = {{fmt::format("layers.{}.mlp.add", l)},
                                      {fmt::format("layers.{}.mlp.down.add", l)},
                                      {fmt::format("layers.{}.attn.norm.add", l + 1)}};
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
  options.sequences = static_cast<int32_t>(golden.prompts.size()) + 1;  // the generator keeps one
  options.rows_max = std::max(rows, together);
  options.tokens_per_step = std::max(rows, together);
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
  const auto where = places(layers_);
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

Result<LogitRuns> GoldenModel::all_at_once(const std::vector<GoldenPrompt>& prompts) {
  std::vector<Sequence> sequences(prompts.size());
  std::vector<Work> work;
  for (size_t i = 0; i < prompts.size(); ++i) {
    sequences[i].tokens = prompts[i].ids;
    sequences[i].prompt_count = length(prompts[i].ids);
    sequences[i].request = i;
    work.push_back({&sequences[i], length(prompts[i].ids), true});
  }
  auto done = model_->runner->step(work);
  LogitRuns runs;
  std::vector<float> all;
  size_t rows = 0;
  for (const Work& w : work) rows += static_cast<size_t>(w.tokens);
  if (done) done = append_logits(rows, &all);
  if (done) {
    auto next = all.begin();
    for (const GoldenPrompt& prompt : prompts) {
      const auto end = next + static_cast<ptrdiff_t>(prompt.ids.size() * vocab());
      runs[prompt.name].assign(next, end);
      next = end;
    }
  }
  for (Sequence& sequence : sequences) model_->runner->truncate(sequence, 0);
  if (!done) return std::move(done).error();
  return runs;
}

Result<std::vector<float>> GoldenModel::all_logits(const std::vector<int32_t>& ids) { return run(ids, {}, nullptr); }

Result<GenerateResult> GoldenModel::generate(const GoldenPrompt& prompt) {
  GenerateRequest request;
  request.prompt = prompt.ids;
  request.tokens_max = length(prompt.greedy);
  return generator_->generate(request, [](std::string_view) {});
}

}  // namespace bolide
