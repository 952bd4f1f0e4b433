#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "base/utf8.h"

namespace bolide {
namespace {

// A tokenizer's expression takes some ten steps a character; this is reached by runaway backtracking only.
constexpr uint32_t kMatchSteps = 100'000'000;
constexpr uint32_t kHeapKibibytes = 64 * 1024;
constexpr size_t kJitStackBytes = size_t{8} << 20;
constexpr size_t kPatternBytesMax = 64 * 1024;

template <class T, void (*kFree)(T*)>
struct Freer {
  void operator()(T* p) const { kFree(p); }
};
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context, pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context, pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freer<pcre2_jit_stack, pcre2_jit_stack_free>>;

// What a thread needs to match; made on its first match and kept.
struct Workspace {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)};
  bool usable = false;
  Workspace() {
    if (data == nullptr || context == nullptr) return;
    pcre2_set_match_limit(context.get(), kMatchSteps);
    pcre2_set_depth_limit(context.get(), kMatchSteps);
    pcre2_set_heap_limit(context.get(), kHeapKibibytes);
    if (stack != nullptr) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    usable = true;
  }
};

Workspace& workspace() {
  thread_local Workspace w;
  return w;
}

std::string pcre2_text(int number) {
  unsigned char buffer[256];
  if (pcre2_get_error_message(number, buffer, sizeof buffer) < 0) return fmt::format("PCRE2 error {}", number);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  std::string pattern;
  bool jit = false;
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() { pcre2_code_free(code); }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax)
    return error(Code::kInvalid,
                 fmt::format("a regular expression of {} bytes; at most {}", pattern.size(), kPatternBytesMax));
  BOLIDE_TRY(const std::string translated, translate_regex(pattern));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return error(Code::kOutOfMemory, "no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int number = 0;
  PCRE2_SIZE at = 0;
  auto code = std::make_shared<Compiled>();
  // Ruby's ^ and $ match at every line.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &number, &at,
                             context.get());
  if (code->code == nullptr)
    return error(Code::kInvalid, fmt::format("regular expression \"{}\": {} (at {} of \"{}\")", pattern,
                                             pcre2_text(number), at, translated));
  code->pattern = std::string(pattern);
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

Result<RegexMatch> Regex::find(std::string_view text, size_t from) const {
  Workspace& w = workspace();
  if (!w.usable) return error(Code::kOutOfMemory, "no memory to match a regular expression");
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) {
    rc = pcre2_jit_match(code_->code, subject, text.size(), from, 0, w.data.get(), w.context.get());
  }
  // The interpreter keeps its backtracking points on the heap, so it goes on where the JIT's stack is full.
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w.data.get(),
                     w.context.get());
  }
  if (rc == PCRE2_ERROR_NOMATCH) return RegexMatch{};
  if (rc < 0)
    return error(Code::kInvalid, fmt::format("splitting the text by \"{}\" was given up at byte {}: {}", code_->pattern,
                                             from, pcre2_text(rc)));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(w.data.get());
  // \K in a lookahead can put the start after the end, or before where we began.
  if (offsets[0] > offsets[1] || offsets[0] < from || offsets[1] > text.size())
    return error(Code::kInvalid, fmt::format("regular expression \"{}\" matches backwards", code_->pattern));
  return RegexMatch{offsets[0], offsets[1], true};
}

Result<RegexMatch> RegexMatches::next() {
  while (from_ <= text_.size()) {
    BOLIDE_TRY(const RegexMatch match, regex_.find(text_, from_));
    if (!match.found) break;
    if (match.begin == match.end && match.end == last_end_) {
      from_ += from_ < text_.size() ? decode_utf8(text_, from_).size : 1;
      continue;
    }
    from_ = match.end;
    last_end_ = match.end;
    return match;
  }
  from_ = text_.size() + 1;
  return RegexMatch{};
}

}  // namespace bolide
