#include "ops/attribute.h"

#include <fmt/format.h>

namespace bolide {

Result<size_t> choice_of(const RunContext& c, std::string_view name, std::string_view otherwise,
                         std::initializer_list<std::string_view> words) {
  BOLIDE_TRY(const std::string given, c.attributes().text(name, otherwise));
  std::string expected;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words.begin()[i];
    if (std::string_view(given) == word) return i;
    expected += fmt::format("{}{}", i == 0 ? "" : ", ", word);
  }
  return error(Code::kInvalid, fmt::format("attribute {} is '{:.60}', expected one of {}", name, given, expected));
}

}  // namespace bolide
