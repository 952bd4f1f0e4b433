// Chat templates: the conversation a client sends becomes the text a model was trained on.
//
// A template is written in Jinja2, comes in tokenizer_config.json or a GGUF's `tokenizer.chat_template`, and is
// rendered exactly as transformers' apply_chat_template does. What the language has: jinja_builtins.h and the parser.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace bolide {

// What one rendering may use at most; a template that needs more gives an error, within about a second.
struct ChatLimits {
  uint64_t steps_max = 10'000'000;  // expressions evaluated, items visited, and bytes of text handled / 128
  uint64_t memory_bytes_max = 64ull << 20;
  uint64_t output_bytes_max = 32ull << 20;
};

struct ChatInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // as in OpenAI's API; keys keep their order
  bool add_generation_prompt = false;
  nlohmann::ordered_json tools;      // an array of tools, or null for none
  nlohmann::ordered_json documents;  // an array of documents, or null for none
  // bos_token, eos_token and so on: those the tokenizer has; the others stay undefined in the template.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  // Further variables (enable_thinking, ...), an object or null. They win over special tokens of the same name.
  nlohmann::ordered_json variables;
  // The clock of strftime_now: seconds since 1970 as the local calendar shows them; absent: now.
  std::optional<int64_t> local_seconds;
  ChatLimits limits;
};

// Immutable; render may be called from any number of threads at once.
class ChatTemplate {
 public:
  // `name` says in errors where the template is from. Errors: kInvalid with line and column; kUnsupported for tags
  // that need other templates (include, import, extends, block) and recursive loops.
  static Result<ChatTemplate> parse(std::string source, std::string name);

  // Errors: kInvalid. All name the template; those it raises itself (raise_exception) quote its message, all others
  // say the line.
  Result<std::string> render(const ChatInput& input) const;

  const std::string& source() const;
  const std::string& name() const;
  // Whether the template mentions the variable at all: `tools`, `enable_thinking`, ...
  bool mentions(std::string_view variable) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace bolide
