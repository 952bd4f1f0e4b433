// Template and variables from bytes: the template up to the first zero byte, then JSON. Nothing may crash, hang or
// grow.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(bytes.find('\0'), bytes.size());
  auto parsed = bolide::ChatTemplate::parse(std::string(bytes.substr(0, zero)), "fuzz");
  if (!parsed) return 0;
  bolide::ChatInput input;
  input.add_generation_prompt = true;
  input.local_seconds = 1'735'787'045;
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.limits = {.steps_max = 20'000, .memory_bytes_max = 8 << 20, .output_bytes_max = 1 << 20};
  const std::string_view json = bytes.substr(std::min(zero + 1, bytes.size()));
  nlohmann::ordered_json variables = nlohmann::ordered_json::parse(json, nullptr, false);
  if (variables.is_array())
    input.messages = std::move(variables);
  else if (variables.is_object())
    input.variables = std::move(variables);
  else
    input.messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", "Hi <é世>"}, {"n", 2.5}}});
  const auto text = parsed->render(input);
  if (text && text->size() > (1U << 20)) __builtin_trap();
  return 0;
}
