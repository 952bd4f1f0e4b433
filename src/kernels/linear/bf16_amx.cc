// bf16 weights times bf16 activations with AMX: see bf16_amx_impl.h.
#include <immintrin.h>

#include "kernels/linear/amx_tiles.h"
#include "kernels/linear/float_kernels.h"

namespace bolide::amx {
namespace {

#include "kernels/linear/bf16_finish_avx512.h"

#include "kernels/linear/bf16_amx_impl.h"

}  // namespace

void bf16_strips(const AmxBf16Args& args) { amx_bf16_strips(args); }

}  // namespace bolide::amx
