#include "server/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/json_body.h"

namespace bolide::server {
namespace {

Error too_long(size_t tokens, bool at_least, int32_t context, std::string* code) {
  *code = "context_length_exceeded";
  return error(Code::kInvalid,
               fmt::format("the prompt has {}{} tokens; the context of {} tokens holds {} with one of an answer",
                           at_least ? "more than " : "", tokens, context, context - 1));
}

Result<std::vector<int32_t>> fitting(const ServedModel& model, std::vector<int32_t> ids, std::string* code) {
  if (ids.empty()) return error(Code::kInvalid, "the prompt has no tokens");
  if (ids.size() >= static_cast<size_t>(model.context)) return too_long(ids.size(), false, model.context, code);
  return ids;
}

// The arguments of calls in messages, as text or as objects. True: there are some.
bool write_arguments(nlohmann::ordered_json& messages, bool as_objects) {
  RequestLimits limits;
  limits.object_keys_max = 256;  // there may be many calls
  bool any = false;
  for (auto& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (auto& call : *calls) {
      auto& function = call["function"];
      const auto it = function.find("arguments");
      if (it == function.end()) continue;
      any = true;
      if (!as_objects && it->is_object()) *it = it->dump();
      if (!as_objects || !it->is_string()) continue;
      const auto& text = it->get_ref<const std::string&>();
      // What is in no object (a model wrote it) stays as it is.
      if (text.empty()) {
        *it = nlohmann::ordered_json::object();
      } else if (auto parsed = parse_json_body(text, limits)) {
        *it = *std::move(parsed);
      }
    }
  }
  return any;
}

// Clients send the arguments of calls as OpenAI's API has them: text that is an object. Most templates want the object,
// and would write text of text; those that put them together with other text fail with one, and want the text.
Result<std::string> render(const ChatTemplate& chat_template, ChatInput& input) {
  const bool calls = write_arguments(input.messages, /*as_objects=*/true);
  auto text = chat_template.render(input);
  if (text || !calls) return text;
  write_arguments(input.messages, /*as_objects=*/false);
  auto again = chat_template.render(input);
  return again ? std::move(again) : std::move(text);
}

}  // namespace

// Tokenising takes many times the memory of the text. Of a long prompt a beginning is tokenised first, which says
// whether the whole can fit: what follows it changes its last few tokens at most.
Result<std::vector<int32_t>> text_ids(const ServedModel& model, std::string_view text, bool add_special,
                                      std::string* code) {
  constexpr size_t kShortBytes = 1u << 18, kTokenBytes = 8, kSlack = 64;
  size_t bytes = std::max(kShortBytes, static_cast<size_t>(model.context) * kTokenBytes);
  if (text.size() > bytes) {
    while ((static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;  // not inside a character
    BOLIDE_TRY(const auto ids, model.tokenizer.encode(text.substr(0, bytes), {.add_special = false}).context("prompt"));
    if (ids.size() >= static_cast<size_t>(model.context) + kSlack)
      return too_long(ids.size() - kSlack, true, model.context, code);
  }
  return model.tokenizer.encode(text, {.add_special = add_special, .parse_special = true}).context("prompt");
}

Result<std::vector<int32_t>> chat_ids(const ServedModel& model, const ChatRequest& request, std::string* code) {
  if (!model.chat_template)
    return error(
        Code::kInvalid,
        fmt::format("model {} has no chat template: use /v1/completions, or start the server with one", model.name));
  ChatInput input;
  input.messages = request.messages;
  input.add_generation_prompt = request.add_generation_prompt;
  if (!request.tools_off) input.tools = request.tools;
  const Tokenizer& tokenizer = model.tokenizer;
  if (const auto id = tokenizer.bos_id()) input.special_tokens.emplace_back("bos_token", tokenizer.token_text(*id));
  if (const auto id = tokenizer.eos_id()) input.special_tokens.emplace_back("eos_token", tokenizer.token_text(*id));
  input.variables = request.template_variables;
  BOLIDE_TRY(const std::string text, render(*model.chat_template, input));
  BOLIDE_TRY(std::vector<int32_t> ids, text_ids(model, text, /*add_special=*/false, code));
  return fitting(model, std::move(ids), code);
}

Result<std::vector<int32_t>> prompt_ids(const ServedModel& model, const Prompt& prompt, std::string* code) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    BOLIDE_TRY(std::vector<int32_t> ids, text_ids(model, *text, /*add_special=*/true, code));
    return fitting(model, std::move(ids), code);
  }
  const auto& ids = std::get<std::vector<int32_t>>(prompt);
  for (const int32_t id : ids)
    if (id >= model.vocab)
      return error(Code::kInvalid, fmt::format("prompt: token {} is not in the vocabulary of {}", id, model.vocab));
  return fitting(model, ids, code);
}

Result<> check_wishes(const ServedModel& model, const Wishes& wishes, std::string* param) {
  for (const int32_t id : wishes.stop_ids)
    if (id >= model.vocab) {
      *param = "stop_token_ids";
      return error(Code::kInvalid, fmt::format("stop_token_ids: {} is not in the vocabulary of {}", id, model.vocab));
    }
  return {};
}

Result<Request> make_request(const ServedModel& model, const Wishes& wishes, std::vector<int32_t> prompt,
                             int32_t tokens_max, uint64_t seed, std::string* param) {
  Request request;
  SamplingWishes sampling = wishes.sampling;
  const bool has_default = model.generation.do_sample.value_or(false) && model.generation.temperature.has_value();
  if (!sampling.temperature && !has_default) sampling.temperature = 1;
  sampling.seed = wishes.seed.value_or(seed);
  request.sampling = choose_sampling(sampling, model.generation);
  const int32_t room = model.context - static_cast<int32_t>(prompt.size());
  const int32_t most = std::min(wishes.tokens_max.value_or(tokens_max > 0 ? tokens_max : room), room);
  request.tokens_max = std::max(most, 1);  // what a prompt alone draws is not shown
  request.prompt = std::move(prompt);
  if (!wishes.ignore_eos) request.stop_ids = model.stop_ids;
  request.stop_ids.insert(request.stop_ids.end(), wishes.stop_ids.begin(), wishes.stop_ids.end());
  if (wishes.tokens_min > most) {
    *param = "min_tokens";
    return error(Code::kInvalid,
                 fmt::format("min_tokens: {}, but max_tokens or the context allow {}", wishes.tokens_min, most));
  }
  auto biases = make_logit_biases(wishes.logit_bias, request.stop_ids, wishes.tokens_min, model.vocab);
  if (!biases) {
    *param = biases.error().text.substr(0, biases.error().text.find(':'));
    return std::move(biases).error();
  }
  request.sampling.biases = *std::move(biases);
  request.choices = wishes.choices;
  request.priority = wishes.priority;
  request.top_logprobs = wishes.top_logprobs;
  request.prompt_logprobs = wishes.prompt_logprobs;
  return request;
}

}  // namespace bolide::server
