#include "eval/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "eval/golden_files.h"
#include "eval/golden_run.h"
#include "eval/logits.h"

namespace bolide {
namespace {

constexpr std::string_view kSharp = "float32, p1 and p7";
constexpr std::string_view kWeightOnly = "weight_only float32";
constexpr std::string_view kWeightOnlyBFloat16 = "weight_only bfloat16";

std::string_view tolerance_name(ComputeMode mode) {
  switch (mode) {
    case ComputeMode::kBF16: return "bfloat16";
    case ComputeMode::kInt8: return "int8";
    case ComputeMode::kF32:
    case ComputeMode::kAuto: break;
  }
  return "float32";
}

using Line = std::map<std::string, double>;

// Compares one opened model with one set of goldens and collects the checks.
class Comparison {
 public:
  // `prefix` goes before the names of checks and of tensors: "" or "weight_only.". `near_ties`: one position may be
  // far off, and is left out of means.
  Comparison(const Golden& golden, std::string prefix, std::vector<GoldenCheck>* checks, bool near_ties = false)
      : golden_(golden), prefix_(std::move(prefix)), checks_(checks), near_ties_(near_ties) {}

  const std::vector<GoldenPrompt>& prompts() const { return prefix_.empty() ? golden_.prompts : golden_.weight_only; }

  // Of each run the prompts that are in it.
  Result<> logits(std::span<const LogitRuns> runs, const Line& line, const std::string& way);
  Result<> logits(const LogitRuns& run, const Line& line, const std::string& way) {
    return logits(std::span(&run, 1), line, way);
  }
  Result<> short_prompts(const LogitRuns& runs, const Line& line);
  Result<> hidden(const HiddenStates& states, double limit);
  Result<> nll(std::span<const float> logits, size_t vocab, const Line& line);
  // Steps that differ. `deviation`: how far this run's logits are from the golden's; 0: no step is excused.
  void greedy(const GoldenPrompt& prompt, std::span<const int32_t> got, double deviation);
  void add(std::string_view name, double got, double limit) {
    checks_->push_back({prefix_ + std::string(name), got, limit, {}});
  }
  // The largest difference of any logit that logits() saw.
  double deviation() const { return deviation_; }

 private:
  Result<std::vector<float>> tensor(std::string_view name) const {
    return read_floats(*golden_.tensors, prefix_ + std::string(name));
  }

  const Golden& golden_;
  std::string prefix_;
  std::vector<GoldenCheck>* checks_;
  bool near_ties_;
  double deviation_ = 0;
};

struct Vectors {
  std::vector<double> rel;
  double max_abs = 0;
  void add(std::span<const float> got, std::span<const float> want) {
    rel.push_back(rel_l2(got, want));
    max_abs = std::max(max_abs, bolide::max_abs(got, want));
  }
  double largest() const { return *std::max_element(rel.begin(), rel.end()); }
  double median() const {
    std::vector<double> sorted = rel;
    std::sort(sorted.begin(), sorted.end());
    const size_t n = sorted.size();
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  }
};

Result<> Comparison::logits(std::span<const LogitRuns> runs, const Line& line, const std::string& way) {
  Vectors vectors;
  double kl = 0, worst_kl = 0;
  size_t kl_rows = 0;
  std::string worst_row;
  for (const GoldenPrompt& prompt : prompts()) {
    BOLIDE_TRY(const auto want_last, tensor(prompt.name + ".last_logits"));
    const size_t vocab = want_last.size();
    std::vector<float> want;
    if (prompt.name == golden_.full_logits && golden_.tensors->has(prefix_ + prompt.name + ".logits")) {
      BOLIDE_TRY(want, tensor(prompt.name + ".logits"));
      if (want.size() != prompt.ids.size() * vocab)
        return error(Code::kInvalid,
                     fmt::format("{}: {}.logits has {} values", golden_.tensors->label(), prompt.name, want.size()));
    }
    for (const LogitRuns& run : runs) {
      const auto found = run.find(prompt.name);
      if (found == run.end()) continue;
      const std::span<const float> got = found->second;
      if (got.size() < vocab || got.size() % vocab != 0 || (!want.empty() && got.size() != want.size()))
        return error(Code::kInvalid, fmt::format("{}: the model's vocabulary has another size than the golden's {}",
                                                 golden_.tensors->label(), vocab));
      if (want.empty()) vectors.add(got.last(vocab), want_last);
      double worst_of_run = 0;
      for (size_t at = 0; at < want.size(); at += vocab) {
        const auto row = std::span(want).subspan(at, vocab);
        vectors.add(got.subspan(at, vocab), row);
        const double of_row = kl_divergence(row, got.subspan(at, vocab));
        if (kl_rows == 0 || of_row > worst_kl)
          worst_kl = of_row, worst_row = fmt::format("{} token {}", prompt.name, at / vocab);
        worst_of_run = std::max(worst_of_run, of_row);
        kl += of_row;
        ++kl_rows;
      }
      if (near_ties_ && want.size() > vocab) kl -= worst_of_run, --kl_rows;
    }
  }
  BOLIDE_CHECK(!vectors.rel.empty(), "no logits to compare");
  deviation_ = std::max(deviation_, vectors.max_abs);
  const auto limited = [&](const char* metric, double value) {
    if (const auto limit = line.find(metric); limit != line.end()) add(way + metric, value, limit->second);
  };
  limited("rel_l2", vectors.largest());
  limited("rel_l2_median", vectors.median());
  limited("max_abs", vectors.max_abs);
  if (kl_rows > 0) {
    limited("kl_mean", kl / static_cast<double>(kl_rows));
    if (line.contains("kl_mean"))
      checks_->back().note =
          fmt::format("largest at {}: {:.2g}{}", worst_row, worst_kl, near_ties_ ? "; each run's is left out" : "");
  }
  return {};
}

// The prompts that were chosen far from every rounding boundary.
Result<> Comparison::short_prompts(const LogitRuns& runs, const Line& line) {
  Vectors vectors;
  for (const GoldenPrompt& prompt : prompts()) {
    if (prompt.name != "p1" && prompt.name != "p7") continue;
    BOLIDE_TRY(const auto want, tensor(prompt.name + ".last_logits"));
    vectors.add(std::span(runs.at(prompt.name)).last(want.size()), want);
  }
  if (vectors.rel.empty()) return {};
  if (const auto limit = line.find("rel_l2"); limit != line.end())
    add("p1_p7.rel_l2", vectors.largest(), limit->second);
  if (const auto limit = line.find("max_abs"); limit != line.end())
    add("p1_p7.max_abs", vectors.max_abs, limit->second);
  return {};
}

Result<> Comparison::hidden(const HiddenStates& states, double limit) {
  // In the order in which the model has them, so that the first failure is the one to look into.
  std::vector<std::string> names = {"embed"};
  for (size_t layer = 0; states.contains(fmt::format("layer{}", layer)); ++layer)
    names.push_back(fmt::format("layer{}", layer));
  names.emplace_back("final_norm");
  for (const std::string& name : names) {
    const auto state = states.find(name);
    const std::string want_name = golden_.trace + "." + name;
    if (state == states.end() || !golden_.tensors->has(want_name)) continue;
    const std::vector<float>& got = state->second;
    BOLIDE_TRY(const auto want, tensor(want_name));
    // A state that no step of the plan gives stays at infinity and fails.
    double worst = std::numeric_limits<double>::infinity();
    if (got.size() == want.size()) {
      const auto trace = std::find_if(golden_.prompts.begin(), golden_.prompts.end(),
                                      [&](const GoldenPrompt& p) { return p.name == golden_.trace; });
      const size_t width = want.size() / trace->ids.size();
      worst = 0;
      for (size_t at = 0; at + width <= want.size(); at += width)
        worst = std::max(worst, rel_l2(std::span(got).subspan(at, width), std::span(want).subspan(at, width)));
    }
    add("hidden." + name, worst, limit);
  }
  return {};
}

Result<> Comparison::nll(std::span<const float> logits, size_t vocab, const Line& line) {
  if (golden_.nll_ids.empty()) return {};
  BOLIDE_TRY(const auto want, tensor("nll.logprobs"));
  if (want.size() + 1 != golden_.nll_ids.size())
    return error(Code::kInvalid, fmt::format("{}: nll.logprobs has {} values for {} ids", golden_.tensors->label(),
                                             want.size(), golden_.nll_ids.size()));
  double sum = 0, largest = 0;
  for (size_t t = 1; t < golden_.nll_ids.size(); ++t) {
    const double got = log_probability(logits.subspan((t - 1) * vocab, vocab), golden_.nll_ids[t]);
    sum -= got;
    const double difference = std::abs(got - double{want[t - 1]});
    largest = std::isfinite(difference) ? std::max(largest, difference) : std::numeric_limits<double>::infinity();
  }
  const double mean = prefix_.empty() ? golden_.nll_mean : golden_.weight_only_nll_mean;
  const double difference = std::abs(sum / static_cast<double>(want.size()) - mean);
  if (const auto limit = line.find("nll_mean_diff"); limit != line.end()) {
    add("nll_mean_diff", difference, limit->second);
  } else if (const auto exact = line.find("max_abs"); exact != line.end()) {
    // A log-probability is a difference of a logit and a mean over logits.
    add("nll_mean_diff", difference, 2 * exact->second);
    add("nll_max_diff", largest, 2 * exact->second);
  }
  return {};
}

void Comparison::greedy(const GoldenPrompt& prompt, std::span<const int32_t> got, double deviation) {
  size_t wrong = 0;
  for (size_t i = 0; i < prompt.greedy.size(); ++i) {
    if (prompt.greedy_margins[i] < 2 * deviation) break;  // a tie at this precision: what follows may differ
    if (i < got.size() && got[i] == prompt.greedy[i]) continue;
    wrong = prompt.greedy.size() - i;  // after the first wrong token the others say nothing
    break;
  }
  add("greedy." + prompt.name, static_cast<double>(wrong), 0);
}

Result<const Line*> find_line(const Golden& golden, std::string_view name) {
  const auto it = golden.tolerance.find(std::string(name));
  if (it != golden.tolerance.end()) return &it->second;
  std::string names;
  for (const auto& [known, line] : golden.tolerance) names += (names.empty() ? "" : ", ") + known;
  return error(Code::kInvalid,
               fmt::format("{}: golden.json has no tolerance for {}; it has {}", golden.name, name, names));
}

double limit_or(const Line& line, const char* metric, double other) {
  const auto it = line.find(metric);
  return it == line.end() ? other : it->second;
}

// The whole way: text to ids, ids to tokens, tokens to text.
Result<> check_text(const Golden& golden, GoldenModel& model, Comparison& compare, double deviation) {
  if (!golden.text.has_value()) return {};
  const GoldenText& text = *golden.text;
  const auto ids = model.tokenizer().encode(text.text);
  compare.add("text.ids", ids.has_value() && *ids == text.prompt.ids ? 0 : 1, 0);
  compare.add("text.decoded", model.tokenizer().decode(text.prompt.greedy, true) == text.greedy_text ? 0 : 1, 0);
  BOLIDE_TRY(const GenerateResult answer, model.generate(text.prompt));
  compare.greedy(text.prompt, answer.tokens, deviation);
  if (answer.tokens == text.prompt.greedy) compare.add("text.streamed", answer.text == text.greedy_text ? 0 : 1, 0);
  return {};
}

// One weight that the reference has written out, value for value.
Result<> check_dequantised(const Golden& golden, const std::filesystem::path& path, const ModelOptions& open,
                           std::vector<GoldenCheck>* checks) {
  constexpr std::string_view kPrefix = "dequantised.";
  for (const std::string& name : golden.tensors->names()) {
    if (!name.starts_with(kPrefix)) continue;
    BOLIDE_TRY(const LoadedModel loaded, load_model(path, {open.config}));
    BOLIDE_TRY(const auto want, read_floats(*golden.tensors, name));
    BOLIDE_TRY(const auto got, read_floats(*loaded.weights, name.substr(kPrefix.size())));
    checks->push_back({name.substr(0, kPrefix.size() - 1), max_abs(got, want), 0, {}});
  }
  return {};
}

// Steps that run a last resort, for each size that matters.
Result<> check_kernels(GoldenModel& model, std::vector<GoldenCheck>* checks) {
  struct Size {
    const char* name;
    int32_t tokens, sequences;
  };
  constexpr Size kSizes[] = {{"decode1", 1, 1},
                             {"decode8", 8, 8},
                             {"decode16", 16, 16},
                             {"prompt64", 64, 1},
                             {"prompt512", GoldenModel::kTokens, 1}};
  for (const Size& size : kSizes) {
    BOLIDE_TRY(const auto steps, model.reference_steps(size.tokens, size.sequences));
    checks->push_back({fmt::format("reference_kernels.{}", size.name), static_cast<double>(steps.size()), 0,
                       fmt::format("{}", fmt::join(steps, ", "))});
  }
  return {};
}

Result<> check_weight_only(const Golden& golden, const std::filesystem::path& path, ModelOptions open,
                           std::vector<GoldenCheck>* checks) {
  const bool exact = open.dtype == ComputeMode::kF32;
  BOLIDE_TRY(const Line* line, find_line(golden, exact ? kWeightOnly : kWeightOnlyBFloat16));
  open.round_inputs = false;
  BOLIDE_TRY(GoldenModel model, GoldenModel::open(path, open, golden));
  Comparison compare(golden, "weight_only.", checks);
  BOLIDE_TRY(const LogitRuns runs, model.one_by_one(golden.weight_only, {}));
  BOLIDE_TRY(compare.logits(runs, *line, ""));
  BOLIDE_TRY(const auto logits, model.all_logits(golden.nll_ids));
  BOLIDE_TRY(compare.nll(logits, model.vocab(), *line));
  for (const GoldenPrompt& prompt : golden.weight_only) {
    BOLIDE_TRY(const GenerateResult answer, model.generate(prompt));
    compare.greedy(prompt, answer.tokens, exact ? 0 : compare.deviation());
  }
  return {};
}

// The folder itself, or its one GGUF file.
Result<std::filesystem::path> model_in(const std::filesystem::path& folder) {
  std::error_code failed;
  if (std::filesystem::exists(folder / "config.json", failed)) return folder;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files.front();
  return error(
      Code::kNotFound,
      fmt::format("{}: has neither config.json nor a .gguf file; --model names a model elsewhere", folder.string()));
}

}  // namespace

bool GoldenResult::pass() const {
  return std::all_of(checks.begin(), checks.end(), [](const GoldenCheck& c) { return c.pass(); });
}

const GoldenCheck* GoldenResult::worst() const {
  const auto share = [](const GoldenCheck& c) {
    if (c.limit > 0) return c.got / c.limit;
    return c.got > 0 ? std::numeric_limits<double>::infinity() : 0;
  };
  const auto it = std::max_element(checks.begin(), checks.end(),
                                   [&](const GoldenCheck& a, const GoldenCheck& b) { return share(a) < share(b); });
  return it == checks.end() ? nullptr : &*it;
}

Result<GoldenResult> check_golden(const std::filesystem::path& folder, const GoldenOptions& options) {
  BOLIDE_TRY(const Golden golden, read_golden(folder));
  ModelOptions open = options.open;
  if (open.dtype == ComputeMode::kAuto) open.dtype = ComputeMode::kF32;
  open.kv_dtype = open.dtype == ComputeMode::kBF16 ? DType::kBF16 : DType::kF32;
  const bool exact = open.dtype == ComputeMode::kF32;
  BOLIDE_TRY(const Line* line, find_line(golden, tolerance_name(open.dtype)));
  std::filesystem::path path = options.model;
  if (path.empty()) {
    BOLIDE_TRY(path, model_in(folder));
  }

  GoldenResult result{golden.name, {}};
  BOLIDE_TRY(GoldenModel model, GoldenModel::open(path, open, golden));
  // A rounder type may choose another expert where two are nearly tied, which moves that one position far: the goldens'
  // README says to judge by the median and the divergence, and of that the one position is left out. (Mixtral's p33
  // token 14: of 300 runs in which what layer 0 rounds to bf16 is moved by less than a step, 60 choose otherwise.)
  Line judged = *line;
  if (!exact && model.has_experts()) judged.erase("rel_l2");
  Comparison compare(golden, "", &result.checks, /*near_ties=*/!exact && model.has_experts());
  HiddenStates states;
  BOLIDE_TRY(const LogitRuns runs, model.one_by_one(golden.prompts, {}, &states));
  BOLIDE_TRY(compare.logits(runs, judged, ""));
  double hidden_limit = limit_or(*line, "rel_l2", 0);
  // Wide models have no prompts that are far from every boundary, and so no such line.
  if (golden.rounds_inputs() && exact && golden.tolerance.contains(std::string(kSharp))) {
    BOLIDE_TRY(const Line* sharp, find_line(golden, kSharp));
    BOLIDE_TRY(compare.short_prompts(runs, *sharp));
    if (golden.trace == "p1" || golden.trace == "p7") hidden_limit = limit_or(*sharp, "rel_l2", hidden_limit);
  }
  BOLIDE_TRY(compare.hidden(states, hidden_limit));

  // The same logits by other ways: prompts in chunks of odd sizes, and all prompts in the same step.
  BOLIDE_TRY(const LogitRuns chunked, model.one_by_one(golden.prompts, {5, 1, 7, 3, 11}));
  BOLIDE_TRY(compare.logits(chunked, judged, "chunks."));
  BOLIDE_TRY(const auto batched, model.all_at_once(golden.prompts));
  BOLIDE_TRY(compare.logits(batched, judged, "batch."));
  BOLIDE_TRY(const auto wide, model.all_at_once(golden.prompts, GoldenModel::kCopies));
  BOLIDE_TRY(compare.logits(wide, judged, "wide."));
  for (const GoldenPrompt& prompt : golden.prompts) {
    if (prompt.name != golden.full_logits) continue;
    BOLIDE_TRY(const auto decoded, model.decode_together(prompt));
    BOLIDE_TRY(compare.logits(decoded, judged, "decode."));
  }

  if (!golden.nll_ids.empty()) {
    BOLIDE_TRY(const auto logits, model.all_logits(golden.nll_ids));
    BOLIDE_TRY(compare.nll(logits, model.vocab(), *line));
  }
  const double deviation = exact && !golden.rounds_inputs() ? 0 : compare.deviation();
  for (const GoldenPrompt& prompt : golden.prompts) {
    BOLIDE_TRY(const GenerateResult answer, model.generate(prompt));
    compare.greedy(prompt, answer.tokens, deviation);
  }
  BOLIDE_TRY(check_text(golden, model, compare, deviation));
  if (exact && options.model.empty()) BOLIDE_TRY(check_dequantised(golden, path, open, &result.checks));
  if (golden.rounds_inputs() && (exact || golden.tolerance.contains(std::string(kWeightOnlyBFloat16))))
    BOLIDE_TRY(check_weight_only(golden, path, open, &result.checks));
  if (options.no_reference_kernels) BOLIDE_TRY(check_kernels(model, &result.checks));
  return result;
}

}  // namespace bolide
