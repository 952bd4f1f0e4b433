// Ops of com.microsoft (ONNX Runtime's own), by file.
#pragma once

#include "ir/op_def.h"

namespace bolide {

// microsoft_attention.cc
Result<> run_microsoft_attention(RunContext& c);
Result<> run_multi_head_attention(RunContext& c);
Result<> run_microsoft_rotary_embedding(RunContext& c);
// microsoft_group_attention.cc
Result<> run_group_query_attention(RunContext& c);
// microsoft_recurrent.cc
Result<> run_dynamic_quantize_lstm(RunContext& c);
Result<std::unique_ptr<PreparedOp>> prepare_dynamic_quantize_lstm(const PrepareContext& context);
// microsoft_quantised.cc
Result<> run_matmul_nbits(RunContext& c);
Result<> run_dynamic_quantize_matmul(RunContext& c);
Result<> run_matmul_integer_to_float(RunContext& c);
Result<> run_qgemm(RunContext& c);
Result<> run_qlinear_add(RunContext& c);
Result<> run_qlinear_mul(RunContext& c);
Result<> run_qlinear_concat(RunContext& c);
Result<> run_qlinear_sigmoid(RunContext& c);
Result<> run_qlinear_leaky_relu(RunContext& c);
Result<> run_qlinear_global_average_pool(RunContext& c);

}  // namespace bolide
