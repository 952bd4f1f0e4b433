#include "kernels/simd/vec_avx2.h"
//
#include "kernels/panels/panels_body.h"

namespace bolide::isa {
const PanelFunctions kPanelsAvx2 = kPanelFunctions;
}  // namespace bolide::isa
