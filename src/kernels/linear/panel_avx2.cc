#include "kernels/simd/vec_avx2.h"
//
#include "kernels/linear/panel_fill_impl.h"

namespace bolide::avx2 {
void fill_panel(const PanelRows& rows) { fill_floats(rows); }
}  // namespace bolide::avx2
