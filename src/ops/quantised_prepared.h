// What QConv and QMatMul with packed weights share.
#pragma once

#include <optional>

#include "kernels/igemm_int8/pack.h"
#include "ops/int8_finish.h"
#include "ops/prepared_op.h"
#include "ops/quantised.h"

namespace bolide {

constexpr int64_t kLineBytes = 64, kTileRows = 16;  // of Int8LinesArgs

inline uint8_t* bytes_of(Tensor& t) { return reinterpret_cast<uint8_t*>(t.mutable_data()); }
inline const uint8_t* bytes_of(const Tensor& t) { return reinterpret_cast<const uint8_t*>(t.data()); }

// Errors: `t`, called `name`, is of another type than its zero point.
Result<> check_codes(const Tensor& t, DType dtype, std::string_view name);
// Whether the residual is one row for all of the outputs of this shape.
Result<bool> check_residual(const Tensor& residual, const QuantisedSpec& spec, const Shape& shape);
// All scales and zeros; nothing if they are not constants. columns < 0: not known, so weights have one scale.
Result<std::optional<QuantisedSpec>> constants_of(const PrepareContext& context, int64_t columns);

}  // namespace bolide
