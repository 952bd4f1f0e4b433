#include "kernels/rows/rows.h"

namespace bolide {

const isa::RowFunctions* row_functions(Isa isa) {
  if (isa >= Isa::kAvx512) return &isa::kRowsAvx512;
  return isa >= Isa::kAvx2 ? &isa::kRowsAvx2 : nullptr;
}

}  // namespace bolide
