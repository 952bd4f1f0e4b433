// Nodes of quantised ops made ready (quantise_prepared.cc); a null result where there is nothing faster.
#pragma once

#include <memory>

#include "base/result.h"

namespace bolide {

class PreparedOp;
struct PrepareContext;

Result<std::unique_ptr<PreparedOp>> prepare_quantise(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_dequantise(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_dynamic_quantise(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_look_up(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_qlinear_add(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_qlinear_global_average_pool(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_matmul_integer(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_matmul_integer_to_float(const PrepareContext& context);
Result<std::unique_ptr<PreparedOp>> prepare_dynamic_quantize_matmul(const PrepareContext& context);

}  // namespace bolide
