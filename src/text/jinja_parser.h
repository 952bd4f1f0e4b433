// Tokens to the tree of jinja_ast.h.
#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace bolide::jinja {

// `source` may have any line ends. Errors: kInvalid (syntax, with line and column), kUnsupported (include, import,
// extends, block, recursive loops and the like, by name).
Result<Template> parse_template(std::string_view source);

}  // namespace bolide::jinja
