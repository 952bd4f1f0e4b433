// The pieces that rope.cc puts into the list, and what they share.
#pragma once

#include <vector>

#include "kernels/kernel.h"

namespace bolide::rope {

Result<> rope_ref(const Launch& launch, Stream& stream);
Result<> rope_kv_write_ref(const Launch& launch, Stream& stream);
Result<> kv_write_ref(const Launch& launch, Stream& stream);

// Where one layer's keys and values go: token t, kv head g at element slot(t, g), or nowhere if that is negative.
struct KvTarget {
  const KvView* kv;
  const KvLayer* layer;
  const int64_t* slots;

  int64_t element(int64_t token, int64_t head) const {
    const int64_t slot = slots[token];
    if (slot < 0) return -1;
    const int64_t block = slot / kv->block_tokens, offset = slot % kv->block_tokens;
    return block * kv->block_stride() + (head * kv->block_tokens + offset) * kv->head_dim;
  }
};

// The target of this launch; aborts if the batch's cache is not of the op's shape.
KvTarget kv_target(const Launch& launch, int64_t layer, int64_t kv_heads, int64_t head_dim);

// Frequencies of every sequence of the batch, and which of them each token uses. Computed once a launch.
class TokenFrequencies {
 public:
  TokenFrequencies(const RopeSpec& rope, const BatchInputs* batch, int64_t tokens);
  // [rotary_dim / 2]
  const float* of_token(int64_t token) const;

 private:
  const RopeSpec* rope_;
  std::vector<float> frequencies_;  // [S, rotary_dim / 2]; empty if they depend on nothing
  std::vector<int32_t> sequence_;   // [T]
};

}  // namespace bolide::rope
