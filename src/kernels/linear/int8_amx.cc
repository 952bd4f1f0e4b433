// Block-quantised weights times int8 activations with AMX: see int8_amx_impl.h.
#include <immintrin.h>

#include "kernels/linear/amx_tiles.h"
#include "kernels/linear/int8_kernels.h"

namespace bolide::amx {
namespace {

#include "kernels/linear/int8_avx512_ops.h"
#include "kernels/linear/int8_strips_impl.h"

#include "kernels/linear/int8_amx_impl.h"

}  // namespace

void int8_strips(const StripArgs& args) {
  with_format(args.kind, [&]<StripFormat F>() { amx_strips<F>(args); });
}

}  // namespace bolide::amx
