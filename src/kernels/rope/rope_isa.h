// Functions of rope_avx2.cc and rope_avx512.cc.
#pragma once

#include <cstdint>

namespace bolide::isa {

struct RopeFunctions {
  // cosine, sine [half]: factor times those of position * frequency, the product rounded to f32.
  void (*angles)(float position, const float* frequencies, float factor, int64_t half, float* cosine, float* sine);
  // x, out [head_dim]; dims from 2 half on are copied. out may be x.
  void (*rotate)(const float* x, const float* cosine, const float* sine, int64_t half, int64_t head_dim, float* out);
  // Nearest even.
  void (*to_bf16)(const float* x, int64_t count, uint16_t* out);
};
extern const RopeFunctions kRopeAvx2, kRopeAvx512;

}  // namespace bolide::isa
