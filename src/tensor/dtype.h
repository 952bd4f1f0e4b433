// Element types. Sub-byte types (kI4, kU4) and the codes of quantised blocks are described by QuantScheme (quant.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bolide {

enum class DType : uint8_t {
  kNone,  // no storage: ordering edges of the graph
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kI4,
  kU64,
  kU32,
  kU16,
  kU8,
  kU4,
  kBool,
};

// Bits of one element: 4 for kI4/kU4, 0 for kNone.
int bits_of(DType dtype);
bool is_float(DType dtype);
std::string_view to_string(DType dtype);  // "f32", "bf16", "f8e4m3", "i32", ...
std::optional<DType> dtype_from_string(std::string_view name);

}  // namespace bolide
