// Row functions of act_avx2.cc and act_avx512.cc. Indexed by ActKind.
#pragma once

#include <cstdint>

namespace bolide::isa {

struct ActFunctions {
  void (*gated[4])(const float* gate, const float* up, float* out, int64_t count);  // out = act(gate) up
  void (*plain[4])(const float* x, float* out, int64_t count);                      // out = act(x)
  void (*add)(const float* x, const float* y, float* out, int64_t count);
};
extern const ActFunctions kActAvx2, kActAvx512;

}  // namespace bolide::isa
