#include "kernels/simd/vec_avx512.h"
//
#include "kernels/panels/panels_body.h"

namespace bolide::isa {
const PanelFunctions kPanelsAvx512 = kPanelFunctions;
}  // namespace bolide::isa
