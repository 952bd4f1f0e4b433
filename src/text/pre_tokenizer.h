// Cuts a normalised text into the pieces that the model sees.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"
#include "text/regex.h"

namespace bolide {

struct Piece {
  uint32_t begin = 0, end = 0;  // bytes of Pieces::text
  bool first = false;           // starts where the caller's whole text starts
};

struct Pieces {
  std::string text;
  std::vector<Piece> pieces;  // in order, none empty
};

// Immutable, any thread.
class PreTokenizer {
 public:
  // Errors: kInvalid or kUnsupported for expressions that cannot be used.
  static Result<PreTokenizer> create(const std::vector<pretokenizer::Step>& steps);

  // In: pieces of valid UTF-8. Errors: kInvalid if an expression exceeds its limits.
  Result<> run(Pieces& pieces) const;

 private:
  struct Step {
    pretokenizer::Step spec;
    Regex regex;
  };
  std::vector<Step> steps_;
};

}  // namespace bolide
