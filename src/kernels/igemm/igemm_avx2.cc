#include "kernels/simd/vec_avx2.h"
//
#include "kernels/igemm/igemm_body.h"

namespace bolide::igemm {
const Functions kAvx2 = {
    6, 1, {{BOLIDE_TILES_6(2)}, {}}, pack_rows, pack_windows, pack_lines, pack_strip, activate_rows};
}  // namespace bolide::igemm
