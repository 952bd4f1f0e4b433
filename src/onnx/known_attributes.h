// Which attributes the standard's operators have: others are misspelled, or an exporter's own.
//
// Thread rules: a function of constants.
#pragma once

#include <string>
#include <string_view>

namespace bolide {

// True if some version of the operator has the attribute, or nothing is known of the operator. Domain "" is ai.onnx.
bool is_known_attribute(std::string_view domain, std::string_view op, std::string_view attribute);

}  // namespace bolide
