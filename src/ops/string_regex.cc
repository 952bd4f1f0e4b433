#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <memory>

#include "ops/string_parts.h"

namespace bolide::strings {
namespace {

// A pattern that needs more steps than these for a string is refused.
constexpr uint32_t kStepsMax = 10'000'000, kHeapKbMax = 64 << 10;

template <auto kFree>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    kFree(p);
  }
};

}  // namespace

// The operator has RE2's syntax, which PCRE2's contains but for rarities (\C).
Result<> run_regex_full_match(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const std::string pattern, c.attributes().text("pattern", ""));
  if (!x->is_string()) return error(Code::kInvalid, fmt::format("X is of {}", to_string(x->dtype())));
  int code = 0;
  size_t at = 0;
  const std::unique_ptr<pcre2_code, Freed<pcre2_code_free>> compiled(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY, &code, &at, nullptr));
  if (compiled == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(code, text, sizeof(text));
    return error(Code::kInvalid,
                 fmt::format("pattern {:.200}: {} at byte {}", pattern, reinterpret_cast<const char*>(text), at));
  }
  const std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>> match(
      pcre2_match_data_create_from_pattern(compiled.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>> limits(
      pcre2_match_context_create(nullptr));
  if (match == nullptr || limits == nullptr) return error(Code::kOutOfMemory, "no memory for a pattern");
  pcre2_set_match_limit(limits.get(), kStepsMax);
  pcre2_set_heap_limit(limits.get(), kHeapKbMax);
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kBool, x->shape()));
  for (size_t i = 0; i < static_cast<size_t>(x->elements()); ++i) {
    const std::string& text = x->as<std::string>()[i];
    const int found = pcre2_match(compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                  PCRE2_ANCHORED | PCRE2_ENDANCHORED, match.get(), limits.get());
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT || found == PCRE2_ERROR_DEPTHLIMIT)
      return error(Code::kInvalid, fmt::format("pattern {:.200} takes too long for string {}", pattern, i));
    y->mutate<uint8_t>()[i] = found >= 0 ? 1 : 0;  // text that is no UTF-8 matches nothing
  }
  return {};
}

}  // namespace bolide::strings
