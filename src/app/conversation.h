// Conversation: messages, the model's chat template, and the ids that they become; drops the oldest turns when the
// context is full.
//
// Thread rules: one thread.
#pragma once

#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace bolide {

class Conversation {
 public:
  // Without a template (std::nullopt) the messages' contents follow each other as they are.
  Conversation(const Tokenizer& tokenizer, std::optional<ChatTemplate> chat_template, nlohmann::ordered_json variables)
      : tokenizer_(tokenizer), template_(std::move(chat_template)), variables_(std::move(variables)) {}

  void add(std::string role, std::string content);
  // To go back to where it was when a message cannot be answered.
  const nlohmann::ordered_json& messages() const { return messages_; }
  void restore(nlohmann::ordered_json messages) { messages_ = std::move(messages); }
  bool has_template() const { return template_.has_value(); }
  // The text that the model reads, up to where its answer begins.
  Result<std::string> render() const;
  // Its ids. If they are more than `tokens_max`, the oldest turns (never a system message or the last user's) are
  // dropped until they fit; `dropped` counts the messages. If the last message alone does not fit, the ids are more.
  Result<std::vector<int32_t>> encode(int32_t tokens_max, int* dropped);

 private:
  Result<std::vector<int32_t>> encode_all() const;

  const Tokenizer& tokenizer_;
  std::optional<ChatTemplate> template_;
  nlohmann::ordered_json variables_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

// The template of the model, which is in `model_file`, or that of `file`, if given; std::nullopt with `raw` or if there
// is none.
Result<std::optional<ChatTemplate>> choose_template(const std::string& model_template, const std::string& model_file,
                                                    const std::string& file, bool raw);

// "key=value" flags: a value that reads as JSON (true, 3, "x") is that, anything else a string. Errors: no "=", a
// variable that Conversation sets itself.
Result<nlohmann::ordered_json> template_variables(const std::vector<std::string>& flags);

}  // namespace bolide
