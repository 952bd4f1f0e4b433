// bolide eval: perplexity, agreement of two models, and checks against goldens.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "eval/agree.h"
#include "eval/golden.h"
#include "eval/perplexity.h"
#include "eval/tokenizer_golden.h"

namespace bolide::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFooter = R"(Examples:
  bolide eval perplexity model.gguf text.txt
  bolide eval agree model.gguf reference-folder
  bolide eval golden tests/golden/models/*
  bolide eval golden folder --dtype bf16 --model model.engine
  bolide eval tokenizer folder)";

struct EvalFlags {
  ModelConfigFlags model;
  std::string path, other;
  std::vector<std::string> folders;
  std::string engine;
  int32_t window = 512, skip = 256, windows = 0;
  bool no_reference = false;
  bool json = false;
};

constexpr Option<EvalFlags> kJson[] = {{"json", &EvalFlags::json, {}, "one JSON object on standard output"}};
constexpr Option<EvalFlags> kWindows[] = {
    {"window",
     &EvalFlags::window,
     {.unit = "tokens", .min = 1, .max = 1 << 20},
     "each window starts from an empty context"},
    {"windows", &EvalFlags::windows, {.min = 0, .max = 1 << 30}, "how many windows at most; 0: the whole text"},
};
constexpr Option<EvalFlags> kSkip[] = {
    {"skip",
     &EvalFlags::skip,
     {.unit = "tokens", .min = 0, .max = 1 << 20},
     "tokens at a window's start that are not scored"},
};
constexpr Option<EvalFlags> kGolden[] = {
    {"model", &EvalFlags::engine, {}, "check this model or engine in place of the folder's own"},
    {"no_reference_kernels",
     &EvalFlags::no_reference,
     {},
     "fail if a step of 1, 8 or 16 sequences or a prompt of 64 or 512 tokens runs a last resort"},
};

constexpr uint64_t kTextBytesMax = uint64_t{1} << 30;

// The file's text without a newline at its end: llama.cpp drops it too, so that tokens are the same.
Result<std::string> read_text(const std::string& path) {
  BOLIDE_TRY(std::string text, read_file(path, kTextBytesMax));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<> perplexity(const EvalFlags& flags) {
  BOLIDE_TRY(ModelOptions open, to_model_options(flags.model));
  const PerplexityOptions options{flags.window, flags.skip, flags.windows};
  prepare_options(options, &open);
  BOLIDE_TRY(const std::string text, read_text(flags.other));
  const auto check_text = [&](const ModelOutline& outline) {
    return text_suffices(outline.tokenizer, text, options).context(flags.other);
  };
  const OutlineCheck check(check_text);
  BOLIDE_TRY(Model model, open_with_progress(flags.path, open, &check));
  ProgressLine line;
  const auto show = [&](const PerplexityProgress& p) {
    line.show(fmt::format("window {}/{}{}{}", p.windows_done, p.windows,
                          p.tokens_done > 0 ? fmt::format(", {}/{} tokens of the next", p.tokens_done, p.tokens) : "",
                          std::isnan(p.perplexity) ? "" : fmt::format(", perplexity {:.4f}", p.perplexity)));
  };
  const FunctionRef<void(const PerplexityProgress&)> progress = show;
  BOLIDE_TRY(const PerplexityResult result, measure_perplexity(model, text, options, &progress).context(flags.other));
  line.clear();
  if (flags.json) {
    const ordered_json out = {{"perplexity", result.perplexity},
                              {"standard_error", result.standard_error},
                              {"tokens", result.tokens},
                              {"text_tokens", result.text_tokens},
                              {"windows", result.windows},
                              {"window", flags.window},
                              {"skip", flags.skip}};
    std::cout << out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("perplexity {:.4f} +/- {:.4f}, {} tokens scored in {} window{} of {}\n", result.perplexity,
             result.standard_error, result.tokens, result.windows, result.windows == 1 ? "" : "s", flags.window);
  return {};
}

Result<> agree(const EvalFlags& flags, const std::string& text_file) {
  BOLIDE_TRY(ModelOptions open, to_model_options(flags.model));
  const AgreeOptions options{flags.window, flags.windows};
  prepare_options(options, &open);
  std::string text(sample_text());
  if (!text_file.empty()) {
    BOLIDE_TRY(text, read_text(text_file));
  }
  // The reference computes in float32, whatever the model is opened with.
  ModelOptions reference_open = open;
  reference_open.dtype = ComputeMode::kF32;
  reference_open.kv_dtype = DType::kF32;
  reference_open.config.clear();
  // Both are looked at before the weights of either are packed.
  const auto comparable = [&](const ModelOutline& ours) -> Result<> {
    const auto compare = [&](const ModelOutline& theirs) -> Result<> {
      if (ours.vocab == theirs.vocab) return {};
      return error(Code::kInvalid,
                   fmt::format("{} has a vocabulary of {} tokens, {} one of {}: the models cannot be compared",
                               flags.path, ours.vocab, flags.other, theirs.vocab));
    };
    return outline_model(flags.other, reference_open, compare);
  };
  const OutlineCheck check(comparable);
  BOLIDE_TRY(Model model, open_with_progress(flags.path, open, &check));
  BOLIDE_TRY(Model reference, open_with_progress(flags.other, reference_open));
  ProgressLine line;
  const auto show = [&](int64_t done, int64_t all) { line.show(fmt::format("{}/{} tokens", done, all)); };
  const FunctionRef<void(int64_t, int64_t)> progress = show;
  BOLIDE_TRY(const AgreeResult result, measure_agreement(model, reference, text, options, &progress));
  line.clear();
  if (flags.json) {
    const ordered_json out = {
        {"kl_mean", result.kl_mean}, {"kl_max", result.kl_max}, {"top1", result.top1}, {"tokens", result.tokens}};
    std::cout << out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << std::endl;
    return {};
  }
  fmt::print("KL divergence {:.3g} nats, largest {:.3g}; same first choice {:.2f} % of {} tokens\n", result.kl_mean,
             result.kl_max, 100 * result.top1, result.tokens);
  return {};
}

// What golden and tokenizer have in common: verdicts of one folder.
struct Verdict {
  std::string name;
  bool pass = false;
  std::string summary;                // behind the name
  std::vector<std::string> failures;  // a line each
  ordered_json json;
};

ordered_json number_or_null(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(); }

std::string folder_name(const std::string& folder) {
  return std::filesystem::weakly_canonical(folder).filename().string();
}

Verdict unreadable(const std::string& folder, const Error& failure) {
  Verdict verdict{folder_name(folder), false, failure.text, {}, {}};
  verdict.json = {{"name", verdict.name}, {"pass", false}, {"error", failure.text}, {"checks", ordered_json::array()}};
  return verdict;
}

Verdict golden_verdict(const std::string& folder, const GoldenOptions& options) {
  const auto result = check_golden(folder, options);
  if (!result) return unreadable(folder, result.error());
  Verdict verdict{result->name, result->pass(), {}, {}, {}};
  verdict.json = {{"name", result->name}, {"pass", verdict.pass}, {"checks", ordered_json::array()}};
  for (const GoldenCheck& check : result->checks) {
    verdict.json["checks"].push_back(
        {{"check", check.check}, {"got", number_or_null(check.got)}, {"limit", check.limit}, {"pass", check.pass()}});
    if (!check.note.empty()) verdict.json["checks"].back()["note"] = check.note;
    if (!check.pass())
      verdict.failures.push_back(fmt::format("{}: {:.3g}, limit {:.3g}{}{}", check.check, check.got, check.limit,
                                             check.note.empty() ? "" : ": ", check.note));
  }
  if (const GoldenCheck* worst = result->worst())
    verdict.summary =
        fmt::format("{} {:.2g} of {:.2g}, {} checks", worst->check, worst->got, worst->limit, result->checks.size());
  return verdict;
}

Verdict tokenizer_verdict(const std::string& folder) {
  const auto checks = check_tokenizer_golden(folder);
  if (!checks) return unreadable(folder, checks.error());
  Verdict verdict{folder_name(folder), true, {}, {}, {}};
  verdict.json = {{"name", verdict.name}, {"pass", true}, {"checks", ordered_json::array()}};
  int64_t compared = 0, different = 0;
  for (const TokenizerCheck& check : *checks) {
    compared += check.count;
    different += check.got;
    verdict.pass &= check.pass();
    verdict.json["checks"].push_back({{"check", check.check},
                                      {"got", check.got},
                                      {"limit", check.limit},
                                      {"pass", check.pass()},
                                      {"count", check.count}});
    if (!check.pass())
      verdict.failures.push_back(
          fmt::format("{}: {} of {} differ; {}", check.check, check.got, check.count, check.first_difference));
  }
  verdict.json["pass"] = verdict.pass;
  verdict.summary = fmt::format("{} of {} results differ", different, compared);
  return verdict;
}

// One line a folder as it is done, or one JSON object at the end. True if all pass.
template <class Check>
bool report_verdicts(const EvalFlags& flags, Check&& check) {
  ordered_json results = ordered_json::array();
  bool pass = true;
  for (const std::string& folder : flags.folders) {
    const Verdict verdict = check(folder);
    pass &= verdict.pass;
    results.push_back(verdict.json);
    if (flags.json) continue;
    fmt::print("{} {:<24} {}\n", verdict.pass ? "pass" : "FAIL", printable(verdict.name), printable(verdict.summary));
    for (const std::string& failure : verdict.failures) fmt::print("       {}\n", printable(failure));
    std::fflush(stdout);
  }
  if (flags.json)
    std::cout << ordered_json{{"results", results}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace)
              << std::endl;
  return pass;
}

Result<bool> golden(const EvalFlags& flags) {
  GoldenOptions options;
  BOLIDE_TRY(options.open, to_model_options(flags.model));
  options.model = flags.engine;
  options.no_reference_kernels = flags.no_reference;
  return report_verdicts(flags, [&](const std::string& folder) { return golden_verdict(folder, options); });
}

Command add_command(const Command& eval, const char* name, const char* what) {
  const Command command = eval.add_command(name, what);
  command.keep_to_itself();
  return command;
}

template <size_t N>
void add_own(const Command& command, EvalFlags& flags, const Option<EvalFlags> (&table)[N]) {
  const auto bound = bind_options(flags, table);
  command.add_options(bound);
}

void add_model_flags(const Command& command, EvalFlags& flags) {
  const auto bound = bind_options(flags.model, kModelOptions);
  command.add_options(bound, "Model");
}

void finish(Outcome& outcome, const Result<>& done) {
  if (!done) outcome.code = report(done.error());
}

}  // namespace

void add_eval(const Command& app, Outcome& outcome) {
  const Command eval =
      app.add_command("eval", "Measure how good a model's answers are, and check them against references");
  eval.footer(kFooter);
  eval.require_command();
  auto flags = std::make_shared<EvalFlags>();

  Command command = add_command(eval, "perplexity", "Perplexity on a text, as llama.cpp defines it");
  command.add_option("model", flags->path, "a GGUF file, a Hugging Face folder, an engine or synth:NAME").required();
  command.add_option("file", flags->other, "a UTF-8 text").required();
  add_own(command, *flags, kWindows);
  add_own(command, *flags, kSkip);
  add_own(command, *flags, kJson);
  add_model_flags(command, *flags);
  command.callback([flags, &outcome] { finish(outcome, perplexity(*flags)); });

  command = add_command(eval, "agree", "How closely a model follows a reference: KL divergence, same first choice");
  command.add_option("model", flags->path, "the model: a GGUF file, a Hugging Face folder, an engine or synth:NAME")
      .required();
  command.add_option("reference", flags->other, "the model to follow, computed in float32").required();
  auto text = std::make_shared<std::string>();
  command.add_option("--text", *text, "a UTF-8 text to run over; without it a passage of English that is built in");
  add_own(command, *flags, kWindows);
  add_own(command, *flags, kJson);
  add_model_flags(command, *flags);
  command.callback([flags, text, &outcome] { finish(outcome, agree(*flags, *text)); });

  command = add_command(eval, "golden",
                        "Check checkpoints against the golden files in their folders (tools/golden makes them)");
  command.add_option("folder", flags->folders, "folders with golden.json and golden.safetensors").required();
  add_own(command, *flags, kGolden);
  add_own(command, *flags, kJson);
  add_model_flags(command, *flags);
  command.callback([flags, &outcome] {
    const auto pass = golden(*flags);
    outcome.code = !pass ? report(pass.error()) : *pass ? 0 : 1;
  });

  command =
      add_command(eval, "tokenizer", "Check tokenizers and chat templates against the golden.json in their folders");
  command.add_option("folder", flags->folders, "folders with tokenizer.json and golden.json, plain or .xz").required();
  add_own(command, *flags, kJson);
  command.callback([flags, &outcome] { outcome.code = report_verdicts(*flags, tokenizer_verdict) ? 0 : 1; });
}

}  // namespace bolide::cli
