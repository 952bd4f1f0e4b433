// Element types. In files and quantised blocks (quant.h) sub-byte types are packed; tensors of general graphs (value.h)
// have a byte for each of their elements.
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
  // Of general graphs alone:
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E8M0,  // powers of two
  kF4E2M1,
  kI2,
  kU2,
  kString,
};

// Bits of one element as files store it: 4 for kI4, kU4 and kF4E2M1, 2 for kI2 and kU2, 0 for kNone and kString.
int bits_of(DType dtype);
bool is_float(DType dtype);
std::string_view to_string(DType dtype);  // "f32", "bf16", "f8e4m3", "i32", ...
std::optional<DType> dtype_from_string(std::string_view name);

}  // namespace bolide
