#include "kernels/simd/vec_avx512.h"
//
#include "kernels/igemm/igemm_body.h"

namespace bolide::igemm {
const Functions kAvx512 = {
    14,           2, {{BOLIDE_TILES_14(1)}, {BOLIDE_TILES_14(2)}}, pack_rows, pack_windows, pack_lines, pack_strip,
    activate_rows};
}  // namespace bolide::igemm
