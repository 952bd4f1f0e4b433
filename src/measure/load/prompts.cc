#include "measure/load/prompts.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"

namespace bolide::load {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 64> kWords = {
    "time",  "year",   "people", "way",     "day",     "man",     "thing",    "woman",   "life",       "child",
    "world", "school", "state",  "family",  "student", "group",   "country",  "problem", "hand",       "part",
    "place", "case",   "week",   "company", "system",  "program", "question", "work",    "government", "number",
    "night", "point",  "home",   "water",   "room",    "mother",  "area",     "money",   "story",      "fact",
    "month", "lot",    "right",  "study",   "book",    "eye",     "job",      "word",    "business",   "issue",
    "side",  "kind",   "head",   "house",   "service", "friend",  "father",   "power",   "hour",       "game",
    "line",  "end",    "member", "law"};

void append_words(std::string& text, int32_t count, std::mt19937_64& random) {
  for (int32_t i = 0; i < count; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[random() % kWords.size()];
  }
}

}  // namespace

Result<Prompts> Prompts::of_file(const std::filesystem::path& path, const WordOptions& options) {
  constexpr size_t kLinesMax = 1'000'000;
  constexpr uint64_t kOutputTokensMax = 1 << 20;
  BOLIDE_TRY(const std::string text, read_file(path, 256u << 20));
  Prompts prompts(options);
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto bad = [&](std::string_view what) {
      return error(Code::kInvalid, fmt::format("{}:{}: {}", path.string(), number, what));
    };
    if (prompts.lines_.size() == kLinesMax) return bad("more than a million requests");
    const Json parsed = Json::parse(line, nullptr, false);
    if (!parsed.is_object()) return bad("not a JSON object; one a line: {\"prompt\": \"...\", \"output_tokens\": 128}");
    Line entry;
    entry.output_tokens = options.output_tokens;
    if (const auto prompt = parsed.find("prompt"); prompt != parsed.end() && prompt->is_string())
      entry.prompt = *prompt;
    else if (const auto messages = parsed.find("messages"); messages != parsed.end() && messages->is_array())
      entry.messages_json = messages->dump(-1, ' ', false, Json::error_handler_t::replace);
    else
      return bad("has neither \"prompt\" (a text) nor \"messages\" (a list)");
    for (const char* name : {"max_tokens", "output_tokens"}) {
      const auto value = parsed.find(name);
      if (value == parsed.end()) continue;
      const uint64_t number_of_tokens = value->is_number_unsigned() ? value->get<uint64_t>() : 0;
      if (number_of_tokens < 1 || number_of_tokens > kOutputTokensMax)
        return bad(fmt::format("\"{}\" is not a number from 1 to {}", name, kOutputTokensMax));
      entry.output_tokens = static_cast<int32_t>(number_of_tokens);
    }
    prompts.has_messages_ = prompts.has_messages_ || !entry.messages_json.empty();
    prompts.lines_.push_back(std::move(entry));
  }
  if (prompts.lines_.empty()) return error(Code::kInvalid, path.string() + ": has no request in it");
  return prompts;
}

void Prompts::fill(int64_t index, RequestFields* fields) const {
  if (!lines_.empty()) {
    const Line& line = lines_[static_cast<size_t>(index) % lines_.size()];
    fields->prompt = line.prompt;
    fields->messages_json = line.messages_json;
    fields->output_tokens = line.output_tokens;
    return;
  }
  fields->messages_json.clear();
  fields->prompt.clear();
  fields->output_tokens = options_.output_tokens;
  std::mt19937_64 shared(options_.seed);
  append_words(fields->prompt, options_.shared_words, shared);
  std::seed_seq seeds{static_cast<uint32_t>(options_.seed), static_cast<uint32_t>(options_.seed >> 32),
                      static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)};
  std::mt19937_64 random(seeds);
  append_words(fields->prompt, options_.prompt_words, random);
}

}  // namespace bolide::load
