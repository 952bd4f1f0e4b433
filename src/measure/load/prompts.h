// What is asked: random words of a given number, or the lines of a file.
//
// Thread rules: immutable once made.
#pragma once

#include <filesystem>
#include <vector>

#include "measure/load/dialect.h"

namespace bolide::load {

struct WordOptions {
  int32_t prompt_words = 128, shared_words = 0;  // shared: the same at the beginning of every prompt
  int32_t output_tokens = 128;
  uint64_t seed = 1;
};

class Prompts {
 public:
  // Words that most tokenizers have as one token; no prompt is like another, so that only what is shared can be cached.
  static Prompts of_words(const WordOptions& options) { return Prompts(options); }
  // A JSON object a line: "prompt" (text) or "messages" (OpenAI's), and "output_tokens" or "max_tokens" if it is not
  // `options`'s. Errors name file and line. At most a million lines.
  static Result<Prompts> of_file(const std::filesystem::path& path, const WordOptions& options);

  // Sets prompt, messages and output_tokens; the lines of a file come round. `index` 0 and up; any number the same
  // every time.
  void fill(int64_t index, RequestFields* fields) const;
  bool has_messages() const { return has_messages_; }
  size_t lines() const { return lines_.size(); }

 private:
  struct Line {
    std::string prompt, messages_json;
    int32_t output_tokens = 0;
  };
  explicit Prompts(const WordOptions& options) : options_(options) {}
  WordOptions options_;
  std::vector<Line> lines_;
  bool has_messages_ = false;
};

}  // namespace bolide::load
