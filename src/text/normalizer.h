// Runs a TokenizerSpec's normalisers over a text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/tokenizer_spec.h"
#include "text/regex.h"

namespace bolide {

// No step may grow a text beyond this: a hostile file can ask to replace each letter by a megabyte.
inline constexpr size_t kNormalizedBytesMax = size_t{512} << 20;
// Nor beyond so many times its size, which no real normaliser comes near (Unicode's own forms: 18), and a little more.
inline constexpr size_t kNormalizedGrowthMax = 64, kNormalizedBytesFree = size_t{1} << 16;

// SentencePiece's string map, checked once; lookups stay inside whatever the file says.
class CharsMap {
 public:
  // Errors: kInvalid if the sizes do not fit.
  static Result<CharsMap> create(std::string_view bytes);
  struct Found {
    size_t size = 0;  // bytes of the text that are replaced; 0: nothing found
    std::string_view replacement;
  };
  Found shortest(std::string_view text) const;
  Found longest(std::string_view text) const;

 private:
  Found search(std::string_view text, bool longest) const;
  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a NUL
};

// Immutable, any thread.
class Normalizer {
 public:
  // Errors: kInvalid or kUnsupported for expressions and maps that cannot be used.
  static Result<Normalizer> create(const std::vector<normalizer::Step>& steps);

  // `text` must be valid UTF-8, and stays so. at_start, at_end: nothing stands before it, behind it. *first_removed is
  // set if the text's first character was removed (the "first" scheme of Metaspace asks).
  Result<> run(std::string& text, bool at_start, bool at_end, bool* first_removed) const;
  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    normalizer::Step spec;
    Regex regex;        // of Replace
    CharsMap charsmap;  // of Precompiled
  };
  std::vector<Step> steps_;
};

}  // namespace bolide
