// Rows of attention_linear.cc.
#pragma once

#include "ir/op_def.h"

namespace bolide {

Result<> run_linear_attention(RunContext& c);
Result<> run_causal_conv_with_state(RunContext& c);
Result<> run_tensor_scatter(RunContext& c);

}  // namespace bolide
