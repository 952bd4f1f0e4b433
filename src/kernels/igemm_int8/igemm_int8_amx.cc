// Int8 products with AMX: see igemm_int8_amx_impl.h.
#include <immintrin.h>

#include "kernels/igemm_int8/igemm_int8.h"
#include "kernels/linear/amx_tiles.h"

namespace bolide::amx {
namespace {

#include "kernels/igemm_int8/igemm_int8_finish_avx512.h"

#include "kernels/igemm_int8/igemm_int8_amx_impl.h"

}  // namespace

void int8_block(const Int8BlockArgs& args) { amx_block(args); }
void int8_lines(const Int8LinesArgs& args) { amx_lines(args); }

}  // namespace bolide::amx
