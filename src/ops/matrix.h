// The product that Gemm and its fused kin compute.
#pragma once

#include "base/function_ref.h"
#include "ir/op_def.h"

namespace bolide {

// Output 0 = f(alpha A B + beta C) of the node's inputs and attributes; f may be null.
Result<> gemm_then(RunContext& c, const FunctionRef<double(double)>* f);

// matrix_dense.cc
Result<> run_dense(RunContext& c);

}  // namespace bolide
