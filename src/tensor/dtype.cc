#include "tensor/dtype.h"

#include <array>

namespace bolide {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
  bool floating;
};

constexpr std::array kRows = {
    Row{DType::kNone, "none", 0, false},
    Row{DType::kF64, "f64", 64, true},
    Row{DType::kF32, "f32", 32, true},
    Row{DType::kF16, "f16", 16, true},
    Row{DType::kBF16, "bf16", 16, true},
    Row{DType::kF8E4M3, "f8e4m3", 8, true},
    Row{DType::kF8E5M2, "f8e5m2", 8, true},
    Row{DType::kI64, "i64", 64, false},
    Row{DType::kI32, "i32", 32, false},
    Row{DType::kI16, "i16", 16, false},
    Row{DType::kI8, "i8", 8, false},
    Row{DType::kI4, "i4", 4, false},
    Row{DType::kU64, "u64", 64, false},
    Row{DType::kU32, "u32", 32, false},
    Row{DType::kU16, "u16", 16, false},
    Row{DType::kU8, "u8", 8, false},
    Row{DType::kU4, "u4", 4, false},
    Row{DType::kBool, "bool", 8, false},
    Row{DType::kF8E4M3FNUZ, "f8e4m3fnuz", 8, true},
    Row{DType::kF8E5M2FNUZ, "f8e5m2fnuz", 8, true},
    Row{DType::kF8E8M0, "f8e8m0", 8, true},
    Row{DType::kF4E2M1, "f4e2m1", 4, true},
    Row{DType::kI2, "i2", 2, false},
    Row{DType::kU2, "u2", 2, false},
    Row{DType::kString, "string", 0, false},
};

constexpr const Row& row(DType dtype) { return kRows[static_cast<size_t>(dtype)]; }

constexpr bool in_order() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  return true;
}
static_assert(in_order(), "kRows is indexed by DType");

}  // namespace

int bits_of(DType dtype) { return row(dtype).bits; }
bool is_float(DType dtype) { return row(dtype).floating; }
std::string_view to_string(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_string(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return r.dtype;
  return std::nullopt;
}

}  // namespace bolide
