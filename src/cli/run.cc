// bolide run: one answer, or a conversation.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/conversation.h"
#include "app/network.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/device_report.h"
#include "cli/line_reader.h"
#include "cli/network.h"
#include "cli/sampling_flags.h"
#include "cli/signals.h"
#include "measure/report.h"

namespace bolide::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  bolide run model.gguf -p "Why is the sky blue?"
  echo "Summarise: ..." | bolide run model.gguf --max-tokens 100 --json
  bolide run ./Qwen2.5-0.5B-Instruct --system "Answer in French." --temperature 0.7 --top-p 0.9
  bolide run network.onnx --input image=photo.npy --output result.npz
In a conversation: Ctrl-C stops the answer, Ctrl-D ends; a line ending in \ goes on, """ begins and ends a block.)";

struct RunFlags {
  ModelConfigFlags model;
  SamplingFlags sampling;
  std::string path, prompt, system, template_file;
  std::vector<std::string> stop, template_args, logit_biases;
  std::vector<std::string> inputs;  // of an ONNX model
  std::vector<std::string> ranges, buckets;
  std::string output;
  bool raw = false, json = false;
};

std::atomic<bool> g_stop{false};         // ends the answer; set by Ctrl-C or when nobody can read it any more
std::atomic<bool> g_interrupted{false};  // it was Ctrl-C

std::atomic<bool> g_answering{false};  // an answer is being made

// The first Ctrl-C ends the answer, a second one within the same answer the program.
void on_interrupt(int signal) {
  if (g_interrupted.exchange(true) && g_answering.load()) end_by_signal(signal);
  g_stop.store(true);
}

void catch_interrupts() {
  if (is_ignored(SIGINT)) return;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

// Ends as a program does that Ctrl-C stopped, so that a shell's loop ends too.
void end_if_interrupted(const GenerateResult& result) {
  if (result.finish == FinishReason::kCancelled && g_interrupted.load()) end_by_signal(SIGINT);
}

// Streams an answer; one that nobody can read any more is not computed further. On a terminal, what would steer it is
// shown, not obeyed: a model can be brought to say anything.
void show_answer(std::string_view answer) {
  static const bool terminal = is_terminal(STDOUT_FILENO);
  const std::string text = terminal ? printable(answer, /*keep_lines=*/true) : std::string(answer);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) g_stop.store(true);
}

constexpr size_t kPromptBytesMax = 16u << 20;  // beyond any context; a pipe may have no end

Result<std::string> read_prompt() {
  std::string prompt;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error(Code::kInvalid, fmt::format("standard input cannot be read: {}", std::strerror(errno)));
    if (n == 0) break;
    prompt.append(buffer, static_cast<size_t>(n));
    if (prompt.size() > kPromptBytesMax)
      return error(Code::kInvalid, fmt::format("the prompt on standard input has more than {} bytes", kPromptBytesMax));
  }
  if (prompt.ends_with('\n')) prompt.pop_back();
  return prompt;
}

// Tokenising takes many times the memory of the text. Of a long prompt a beginning is tokenised first, which says
// whether the whole can fit: what follows it changes its last few tokens at most.
Result<> length_may_fit(const Tokenizer& tokenizer, const Conversation& conversation, int32_t context) {
  constexpr size_t kShortBytes = 1u << 20, kTokenBytes = 8, kSlack = 64;
  size_t bytes = std::max(kShortBytes, static_cast<size_t>(context) * kTokenBytes);
  BOLIDE_TRY(const std::string prompt, conversation.render());
  if (prompt.size() <= bytes) return {};
  while ((static_cast<unsigned char>(prompt[bytes]) & 0xC0) == 0x80) --bytes;  // not inside a character
  BOLIDE_TRY(const auto ids,
             tokenizer.encode(std::string_view(prompt).substr(0, bytes), {.add_special = false}).context("prompt"));
  if (ids.size() < static_cast<size_t>(context) + kSlack) return {};
  return error(Code::kInvalid, fmt::format("the prompt of {:.1f} MB has more than {} tokens, the context holds {} with "
                                           "the answer; shorten it or raise --context",
                                           static_cast<double>(prompt.size()) / 1e6, ids.size() - kSlack, context));
}

// Checked before the model is loaded.
Result<> check_text(std::string_view what, std::string_view text) {
  const size_t at = utf8_invalid_at(text);
  if (at == kUtf8Valid) return {};
  return error(Code::kInvalid, fmt::format("{} is not valid UTF-8: byte 0x{:02x} at position {}", what,
                                           static_cast<unsigned char>(text[at]), at));
}

double per_second(int32_t tokens, double ms) { return ms > 0 ? tokens * 1000. / ms : 0; }

struct Figures {
  double prompt_tokens_per_s, decode_tokens_per_s, ttft_ms, load_ms;
  int64_t peak_bytes;
};

Figures figures_of(const Model& model, const GenerateResult& result) {
  const GenerateTimings& t = result.timings;
  const auto memory = read_process_memory();
  return {per_second(t.computed_tokens, t.prompt_ms), per_second(t.generated_tokens - 1, t.decode_ms), t.prompt_ms,
          model.times.total_ms, memory ? memory->peak_bytes : 0};
}

// `with_load`: loading happened once, so a conversation shows it once.
void print_figures(const Model& model, const GenerateResult& result, bool with_load) {
  const Figures f = figures_of(model, result);
  const GenerateTimings& t = result.timings;
  const std::string peak = f.peak_bytes > 0 ? "; peak memory " + format_bytes(f.peak_bytes) : "";  // 0: not known
  std::fprintf(stderr, "%s\n",
               fmt::format("[prompt {} tokens, {:.1f} tokens/s; decode {} tokens, {:.1f} tokens/s; first token {:.1f} "
                           "ms{}{}]",
                           t.computed_tokens, f.prompt_tokens_per_s, t.generated_tokens, f.decode_tokens_per_s,
                           f.ttft_ms, with_load ? fmt::format("; load {:.1f} ms", f.load_ms) : "", peak)
                   .c_str());
}

void tell_if_cut(const GenerateResult& result, int32_t context) {
  if (!result.context_full) return;
  std::fprintf(stderr, "[the answer is cut: the context of %d tokens is full; a larger --context holds more]\n",
               context);
}

void print_json(const Model& model, const GenerateResult& result) {
  const Figures f = figures_of(model, result);
  const DeviceInfo& device = model.device->info();
  nlohmann::ordered_json out = {{"text", result.text},
                                {"tokens", result.tokens},
                                {"finish_reason", to_string(result.finish)},
                                {"context_full", result.context_full},
                                {"logprobs", result.logprobs},
                                {"prompt_tokens", result.timings.prompt_tokens},
                                {"computed_prompt_tokens", result.timings.computed_tokens},
                                {"generated_tokens", result.timings.generated_tokens},
                                {"prompt_tokens_per_s", f.prompt_tokens_per_s},
                                {"decode_tokens_per_s", f.decode_tokens_per_s},
                                {"ttft_ms", f.ttft_ms},
                                {"load_ms", f.load_ms},
                                {"peak_memory_bytes", f.peak_bytes},
                                {"threads", device.threads},
                                {"isa", to_string(device.isa)},
                                {"machine", device.name}};
  if (f.peak_bytes == 0) out.erase("peak_memory_bytes");
  add_device(out, device);
  std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
}

Result<GenerateRequest> make_request(const Command& app, const RunFlags& flags, const Model& model) {
  GenerateRequest request;
  request.sampling = choose_sampling(app, flags.sampling, model.generation);
  request.tokens_max = flags.sampling.max_tokens > 0 ? flags.sampling.max_tokens : -1;
  request.stop_ids = model.stop_ids;
  request.stop = flags.stop;
  request.tokens_min = flags.sampling.min_tokens;
  BOLIDE_TRY(const std::vector<TokenBias> biases, parse_logit_biases(flags.logit_biases));
  BOLIDE_TRY(request.sampling.biases,
             make_logit_biases(biases, request.stop_ids, request.tokens_min, model.runner->vocab()));
  request.cancel = &g_stop;
  return request;
}

// The ids of a question, which fit the context.
Result<std::vector<int32_t>> encode_question(const ModelOutline& outline, const RunFlags& flags,
                                             std::optional<ChatTemplate> chat_template,
                                             const nlohmann::ordered_json& variables, const std::string& prompt) {
  Conversation conversation(outline.tokenizer, std::move(chat_template), variables);
  if (!flags.system.empty()) conversation.add("system", flags.system);
  conversation.add("user", prompt);
  BOLIDE_TRY(length_may_fit(outline.tokenizer, conversation, outline.context));
  int dropped = 0;
  BOLIDE_TRY(auto ids, conversation.encode(INT32_MAX, &dropped));
  BOLIDE_TRY(prompt_fits(ids.size(), outline.context));
  return ids;
}

Result<> answer_once(const Command& app, const RunFlags& flags, Model& model, std::vector<int32_t> prompt) {
  BOLIDE_TRY(GenerateRequest request, make_request(app, flags, model));
  request.prompt = std::move(prompt);
  Generator generator(*model.runner, model.tokenizer);
  PromptProgress progress;
  const auto show_prompt = [&](int32_t done, int32_t all) { progress.show(done, all); };
  const FunctionRef<void(int32_t, int32_t)> on_prompt(show_prompt);
  request.on_prompt = &on_prompt;
  const auto show = [&](std::string_view text) {
    if (!flags.json) show_answer(text);
  };
  g_answering = true;
  BOLIDE_TRY(const GenerateResult result, generator.generate(request, show));
  progress.clear();
  if (flags.json) {
    print_json(model, result);
  } else {
    std::fputc('\n', stdout);
    std::fflush(stdout);
    tell_if_cut(result, model.runner->options().context);
    print_figures(model, result, /*with_load=*/true);
  }
  end_if_interrupted(result);
  return {};
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Room that a conversation keeps for the answer when old turns must go.
int32_t prompt_room(const RunFlags& flags, int32_t context) {
  const int32_t answer = flags.sampling.max_tokens > 0 ? flags.sampling.max_tokens : context / 4;
  return std::max(1, context - 1 - std::min(answer, context / 2));
}

Result<GenerateResult> answer(const Model& model, Generator& generator, Conversation& conversation,
                              GenerateRequest& request, const RunFlags& flags) {
  int dropped = 0;
  const int32_t context = model.runner->options().context;
  BOLIDE_TRY(length_may_fit(model.tokenizer, conversation, context));
  BOLIDE_TRY(request.prompt, conversation.encode(prompt_room(flags, context), &dropped));
  if (dropped > 0 && static_cast<int64_t>(request.prompt.size()) < context)
    std::fprintf(stderr, "[the context is full: the oldest %d messages were dropped]\n", dropped);
  PromptProgress progress;
  const auto show_prompt = [&](int32_t done, int32_t all) { progress.show(done, all); };
  const FunctionRef<void(int32_t, int32_t)> on_prompt(show_prompt);
  request.on_prompt = &on_prompt;
  return generator.generate(request, [](std::string_view text) { show_answer(text); });
}

Result<> converse(const Command& app, const RunFlags& flags, Model& model, Conversation conversation) {
  if (!flags.system.empty()) conversation.add("system", flags.system);
  Generator generator(*model.runner, model.tokenizer);
  LineReader reader(g_interrupted);
  std::fprintf(stderr, "%s, %s. Ctrl-C stops an answer, Ctrl-D ends.\n", printable(model.name).c_str(),
               model.device->info().name.c_str());
  bool first = true;
  for (uint64_t turn = 0;; ++turn) {
    g_interrupted = false;
    const auto message = reader.read("> ");
    if (!message && !g_interrupted) break;
    if (!message) {  // Ctrl-C at the prompt ends the line, not the conversation
      std::fputc('\n', stderr);
      continue;
    }
    g_stop = g_interrupted = false;
    if (is_blank(*message)) continue;
    nlohmann::ordered_json before = conversation.messages();
    conversation.add("user", *message);
    BOLIDE_TRY(GenerateRequest request, make_request(app, flags, model));
    request.request = turn;
    g_answering = true;
    const auto result = answer(model, generator, conversation, request, flags);
    g_answering = false;
    if (!result) {
      // The conversation goes on as if the message had not been sent: two of one role in a row are an error for many
      // templates.
      report(result.error());
      conversation.restore(std::move(before));
      continue;
    }
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (result->finish == FinishReason::kCancelled) std::fprintf(stderr, "[stopped]\n");
    tell_if_cut(*result, model.runner->options().context);
    print_figures(model, *result, std::exchange(first, false));
    conversation.add("assistant", result->text);
  }
  std::fputc('\n', stderr);
  return {};
}

// Flags that cannot all be meant.
Result<> check_combination(const Command& app, const RunFlags& flags) {
  if (const size_t prompts = app.count("--prompt"); prompts > 1)
    return error(Code::kInvalid, fmt::format("-p is given {} times: one prompt is answered", prompts));
  for (const char* flag : {"--template", "--template-arg", "--system"})
    if (flags.raw && app.count(flag) > 0)
      return error(Code::kInvalid,
                   fmt::format("--raw and {} contradict each other: --raw uses no chat template", flag));
  for (const std::string& stop : flags.stop)
    if (stop.empty()) return error(Code::kInvalid, "--stop: an empty stop text is not allowed");
  if (const SamplingFlags& s = flags.sampling; s.max_tokens > 0 && s.min_tokens > s.max_tokens)
    return error(Code::kInvalid,
                 fmt::format("--min-tokens {} is more than --max-tokens {}", s.min_tokens, s.max_tokens));
  BOLIDE_TRY(parse_logit_biases(flags.logit_biases));
  return {};
}

Result<> run(const Command& app, const RunFlags& flags) {
  if (is_network(flags.path))
    return run_network({.path = flags.path,
                        .inputs = flags.inputs,
                        .shapes = {},
                        .dims = {},
                        .ranges = flags.ranges,
                        .buckets = flags.buckets,
                        .output = flags.output,
                        .threads = flags.model.threads,
                        .skip_passes = flags.model.skip_passes,
                        .device = flags.model.device,
                        .cuda_libs = flags.model.cuda_libs,
                        .tuning_cache = flags.model.tuning_cache,
                        .dtype = flags.model.dtype,
                        .isa = flags.model.isa,
                        .memory_limit = flags.model.memory_limit,
                        .json = flags.json});
  if (app.count("--input") + app.count("--output") + app.count("--profile-shape") + app.count("--bucket") > 0)
    return error(Code::kInvalid,
                 "--input, --output, --profile-shape and --bucket are for ONNX models, files that end in .onnx: a "
                 "language model takes -p");
  BOLIDE_TRY(const ModelOptions options, to_model_options(flags.model));
  BOLIDE_TRY(check_combination(app, flags));
  // What can be wrong with the request is found before the model is loaded.
  BOLIDE_TRY(auto chat_template, choose_template({}, {}, flags.template_file, flags.raw));
  BOLIDE_TRY(auto variables, template_variables(flags.template_args));
  BOLIDE_TRY(check_text("--system", flags.system));
  std::optional<std::string> prompt;
  if (app.count("--prompt") > 0) prompt = flags.prompt;
  if (!prompt && !is_terminal(STDIN_FILENO)) {
    BOLIDE_TRY(prompt, read_prompt());
  }
  if (prompt && prompt->empty())
    return error(Code::kInvalid, app.count("--prompt") > 0
                                     ? "-p: the prompt is empty; leave -p out for a conversation"
                                     : "the prompt on standard input is empty; give one there or with -p");
  BOLIDE_TRY(check_text("the prompt", prompt.value_or("")));
  std::vector<int32_t> ids;
  const auto check_request = [&](const ModelOutline& outline) -> Result<> {
    const LoadedModel& loaded = outline.loaded;
    if (flags.template_file.empty()) {
      BOLIDE_TRY(chat_template, choose_template(loaded.chat_template, loaded.chat_template_file, {}, flags.raw));
    }
    if (!chat_template.has_value() && !flags.raw)
      log::warning("the model has no chat template, so it continues the text; --raw says that this is meant",
                   {{"model", std::string_view(flags.path)}});
    if (!prompt) return {};
    BOLIDE_TRY(ids, encode_question(outline, flags, chat_template, variables, *prompt));
    return {};
  };
  const OutlineCheck check(check_request);
  BOLIDE_TRY(Model model, open_with_progress(flags.path, options, &check));
  catch_interrupts();
  if (prompt) return answer_once(app, flags, model, std::move(ids));
  return converse(app, flags, model, Conversation(model.tokenizer, std::move(chat_template), std::move(variables)));
}

}  // namespace

void add_run(const Command& app, Outcome& outcome) {
  const Command command = app.add_command("run", "Answer a prompt, or hold a conversation");
  auto flags = std::make_shared<RunFlags>();
  command.footer(kFooter);
  command
      .add_option("model", flags->path,
                  "a GGUF file (any shard of a split one), a Hugging Face folder, an engine, "
                  "synth:NAME or an ONNX file")
      .required();
  command.add_option("-p,--prompt", flags->prompt, "answer this and end; without it: standard input, or a conversation")
      .take_last();
  command.add_option("--system", flags->system, "system message").take_last();
  command.add_flag("--raw", flags->raw,
                   "no chat template: the model continues the prompt; excludes --template and --system");
  command.add_option("--template,--template-file", flags->template_file, "Jinja file to use as the chat template")
      .take_last();
  command.add_option("--template-arg", flags->template_args, "KEY=VALUE for the template (may be repeated)").repeated();
  command.add_option("--stop", flags->stop, "end the answer before this text (may be repeated)").repeated();
  command
      .add_option("--logit-bias", flags->logit_biases,
                  "ID=VALUE: added to the score of this token; 100 all but forces it, -100 bans it (may be repeated)")
      .repeated();
  command.add_flag("--json", flags->json, "one JSON object on standard output");
  command
      .add_option(
          "--input", flags->inputs,
          "ONNX: NAME=VALUE for each input (may be repeated): FILE.npy, FILE.npz[:ARRAY], FILE.json, a list as "
          "[[1, 2], [3, 4]], random or random:1x3x224x224, or a photo as "
          "FILE.jpg[:layout=nchw|nhwc,channels=rgb|bgr|gray,size=WxH,mean=A[/B/C],scale=A[/B/C]] (also .png, .bmp): "
          "(pixel - mean) * scale, resized bilinearly")
      .repeated()
      .group("ONNX models");
  command.add_option("--output", flags->output, "ONNX: write all outputs to this .npz file")
      .take_last()
      .group("ONNX models");
  command
      .add_option("--bucket", flags->buckets,
                  "ONNX: NAME=SIZE,SIZE,...: an open dim is filled up with zeros to the next size, and outputs are cut "
                  "back: for models that a mask tells what is there (may be repeated)")
      .repeated();
  command
      .add_option("--profile-shape", flags->ranges,
                  "ONNX: NAME=min,opt,max, three shapes: memory is made ready for them, others are refused (may be "
                  "repeated)")
      .repeated();
  const auto sampling = bind_options(flags->sampling, kSamplingOptions);
  command.add_options(sampling, "Sampling");
  const auto model = bind_options(flags->model, kModelOptions);
  command.add_options(model, "Model");
  command.callback([command, flags, &outcome] {
    if (const auto done = run(command, *flags); !done) outcome.code = report(done.error());
  });
}

}  // namespace bolide::cli
