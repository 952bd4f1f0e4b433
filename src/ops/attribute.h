// Attributes that are one of a few words.
#pragma once

#include <initializer_list>
#include <string_view>

#include "ir/op_def.h"

namespace bolide {

// The index in `words` of an attribute's text, `otherwise` if there is none. kInvalid names the attribute and the
// words.
Result<size_t> choice_of(const RunContext& c, std::string_view name, std::string_view otherwise,
                         std::initializer_list<std::string_view> words);

}  // namespace bolide
