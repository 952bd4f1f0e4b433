// From token texts back to text, as a pipeline that can be fed one token at a time: what decode() does at once and
// the incremental detokeniser does step by step is the same code, so the two cannot differ.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"
#include "text/regex.h"

namespace bolide {

// A TokenizerSpec's decoders with their expressions compiled. Immutable, any thread.
class DecoderPlan {
 public:
  static Result<DecoderPlan> create(const std::vector<decoder::Step>& steps);

 private:
  friend class DecodeStream;
  struct Step {
    decoder::Step spec;
    Regex regex;
  };
  std::vector<Step> steps_;
};

// One stage of the pipeline. Fragments are whole characters of valid UTF-8.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void text(std::string_view fragment) = 0;  // more of the current token
  virtual void end_token() = 0;
  virtual void finish() = 0;  // after the last end_token
};

// One decoding in progress; owned by one thread. The plan must outlive it.
class DecodeStream {
 public:
  explicit DecodeStream(const DecoderPlan& plan);
  DecodeStream(DecodeStream&&) = default;
  DecodeStream& operator=(DecodeStream&&) = default;

  void push(std::string_view token) {
    stages_.back()->text(token);
    stages_.back()->end_token();
  }
  void finish() { stages_.back()->finish(); }
  // What is certain by now and was not taken before. Always whole characters.
  std::string take() { return std::exchange(*out_, {}); }

 private:
  std::unique_ptr<std::string> out_;                  // where the last stage writes
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // last stage first; each points at the one before it
};

}  // namespace bolide
