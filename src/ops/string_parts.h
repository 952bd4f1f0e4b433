// The kernels of string_regex.cc and string_tf_idf.cc, whose rows are in string.cc.
#pragma once

#include "ir/op_def.h"

namespace bolide::strings {

Result<> run_regex_full_match(RunContext& c);
Result<> run_tf_idf(RunContext& c);

}  // namespace bolide::strings
