// LanguageModel over src/app: words become options, internal results become public ones.
#include <limits>

#include "api/convert.h"
#include "app/conversation.h"
#include "app/model.h"
#include "app/model_flags.h"
#include "app/sampling.h"
#include "bolide/bolide.h"

namespace bolide {
namespace {

Result<ModelOptions> to_model_options(const OpenOptions& options) {
  ModelConfigFlags flags;
  flags.threads = options.threads;
  flags.context = options.context;
  flags.isa = options.isa;
  if (!options.dtype.empty()) flags.dtype = options.dtype;
  if (!options.kv_type.empty()) flags.kv_type = options.kv_type;
  flags.deterministic = options.deterministic;
  flags.config = options.config.string();
  BOLIDE_TRY(check_options(bind_options(flags, kModelOptions)));
  return to_model_options(flags);
}

// Checks the ranges of the table that the flags have; values that were not set keep their defaults there.
Result<SamplingWishes> to_wishes(const SamplingOptions& options) {
  SamplingFlags flags;
  flags.temperature = options.temperature.value_or(0);
  flags.top_k = options.top_k.value_or(0);
  flags.top_p = options.top_p.value_or(1);
  flags.min_p = options.min_p.value_or(0);
  flags.repetition_penalty = options.repetition_penalty.value_or(1);
  flags.presence_penalty = options.presence_penalty.value_or(0);
  flags.frequency_penalty = options.frequency_penalty.value_or(0);
  BOLIDE_TRY(check_options(bind_options(flags, kSamplingOptions)));
  return SamplingWishes{options.temperature,
                        options.top_p,
                        options.min_p,
                        options.top_k,
                        options.repetition_penalty,
                        options.presence_penalty,
                        options.frequency_penalty,
                        options.seed};
}

Answer to_answer(GenerateResult result) {
  Answer answer;
  answer.text = std::move(result.text);
  answer.tokens = std::move(result.tokens);
  answer.logprobs = std::move(result.logprobs);
  switch (result.finish) {
    case FinishReason::kStop: answer.finish = Finish::kStop; break;
    case FinishReason::kLength: answer.finish = Finish::kLength; break;
    case FinishReason::kCancelled: answer.finish = Finish::kCancelled; break;
  }
  const GenerateTimings& t = result.timings;
  answer.timings = {t.prompt_tokens, t.computed_tokens, t.generated_tokens, t.prompt_ms, t.decode_ms};
  return answer;
}

}  // namespace

struct LanguageModel::Impl {
  Impl(Model opened, std::optional<ChatTemplate> parsed)
      : model(std::move(opened)), chat_template(std::move(parsed)), generator(*model.runner, model.tokenizer) {
    const DeviceInfo& device = model.device->info();
    info.name = model.name;
    info.format = model.format;
    info.machine = device.name;
    info.isa = to_string(device.isa);
    info.threads = device.threads;
    info.context = model.runner->options().context;
    info.vocab = static_cast<int32_t>(model.runner->vocab());
    info.has_chat_template = chat_template.has_value();
    info.load_ms = model.times.total_ms;
  }

  // Every call is a request of its own: the draws of two calls with one seed differ only by their prompts.
  Result<Answer> generate(std::vector<int32_t> prompt, const GenerateOptions& options, const TextCallback& on_text) {
    for (const int32_t id : prompt)
      if (id < 0 || id >= info.vocab)
        return error(Code::kInvalid,
                     "token id " + std::to_string(id) + " is not in the vocabulary of " + std::to_string(info.vocab));
    if (options.max_tokens < 0) return error(Code::kInvalid, "max_tokens must be at least 0");
    GenerateRequest request;
    request.prompt = std::move(prompt);
    BOLIDE_TRY(const SamplingWishes wishes, to_wishes(options.sampling));
    request.sampling = choose_sampling(wishes, model.generation);
    request.tokens_max = options.max_tokens > 0 ? options.max_tokens : -1;
    request.stop_ids = model.stop_ids;
    request.stop = options.stop;
    request.cancel = options.cancel;
    BOLIDE_TRY(GenerateResult result, generator.generate(request, [&](std::string_view text) {
      if (on_text) on_text(text);
    }));
    return to_answer(std::move(result));
  }

  Conversation conversation(const std::vector<Message>& messages) const {
    Conversation made(model.tokenizer, chat_template, nlohmann::ordered_json::object());
    for (const Message& message : messages) made.add(message.role, message.content);
    return made;
  }

  Result<Answer> chat(const std::vector<Message>& messages, const GenerateOptions& options,
                      const TextCallback& on_text) {
    if (messages.empty()) return error(Code::kInvalid, "a chat needs at least one message");
    int dropped = 0;
    BOLIDE_TRY(auto prompt, conversation(messages).encode(std::numeric_limits<int32_t>::max(), &dropped));
    return generate(std::move(prompt), options, on_text);
  }

  Result<Answer> complete(std::string_view prompt, const GenerateOptions& options, const TextCallback& on_text) {
    BOLIDE_TRY(auto ids, model.tokenizer.encode(prompt).context("prompt"));
    return generate(std::move(ids), options, on_text);
  }

  Model model;
  std::optional<ChatTemplate> chat_template;
  Generator generator;
  ModelInfo info;
};

LanguageModel::LanguageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;
LanguageModel::~LanguageModel() = default;

Expected<LanguageModel> LanguageModel::open(const std::filesystem::path& path, const OpenOptions& options) {
  const auto progress = [&](PackProgress at) { options.on_progress(at.done, at.total); };
  const FunctionRef<void(PackProgress)> reference(progress);
  const auto opened = [&]() -> Result<std::unique_ptr<Impl>> {
    BOLIDE_TRY(const ModelOptions model_options, to_model_options(options));
    BOLIDE_TRY(Model model, open_model(path, model_options, options.on_progress ? &reference : nullptr));
    BOLIDE_TRY(auto chat_template, choose_template(model.chat_template, model.chat_template_file, {}, /*raw=*/false));
    return std::make_unique<Impl>(std::move(model), std::move(chat_template));
  };
  auto impl = opened();
  if (!impl) return to_status(std::move(impl).error());
  return LanguageModel(*std::move(impl));
}

Expected<Answer> LanguageModel::complete(std::string_view prompt, const GenerateOptions& options,
                                         const TextCallback& on_text) {
  return to_expected(impl_->complete(prompt, options, on_text));
}

Expected<Answer> LanguageModel::chat(const std::vector<Message>& messages, const GenerateOptions& options,
                                     const TextCallback& on_text) {
  return to_expected(impl_->chat(messages, options, on_text));
}

Expected<Answer> LanguageModel::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                                         const TextCallback& on_text) {
  return to_expected(impl_->generate({prompt.begin(), prompt.end()}, options, on_text));
}

Expected<std::string> LanguageModel::render(const std::vector<Message>& messages) const {
  return to_expected(impl_->conversation(messages).render());
}

Expected<std::vector<int32_t>> LanguageModel::tokenize(std::string_view text, bool add_special) const {
  return to_expected(impl_->model.tokenizer.encode(text, {.add_special = add_special}));
}

std::string LanguageModel::detokenize(std::span<const int32_t> tokens, bool skip_special) const {
  return impl_->model.tokenizer.decode(tokens, skip_special);
}

const ModelInfo& LanguageModel::info() const { return impl_->info; }

}  // namespace bolide
