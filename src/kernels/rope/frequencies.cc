// Frequencies that depend on the length of a sequence. Sources: dynamic NTK scaling as transformers'
// modeling_rope_utils defines it; LongRoPE, Ding et al. 2024 (arXiv:2402.13753).
#include <cmath>

#include "kernels/common/launch.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_parts.h"

namespace bolide {

void rope_frequencies(const RopeSpec& rope, int64_t length, float* frequencies) {
  const auto half = static_cast<size_t>(rope.rotary_dim / 2);
  const bool beyond = length > rope.original_context;
  if (rope.kind == RopeKind::kDynamic && beyond && rope.rotary_dim > 2) {
    const auto dims = static_cast<double>(rope.rotary_dim);
    const double stretch =
        double{rope.factor} * static_cast<double>(length) / static_cast<double>(rope.original_context) -
        (double{rope.factor} - 1);
    const double base = rope.theta * std::pow(stretch, dims / (dims - 2));
    for (size_t i = 0; i < half; ++i)
      frequencies[i] = static_cast<float>(1 / std::pow(base, 2 * static_cast<double>(i) / dims));
    return;
  }
  const std::vector<float>& source = rope.kind == RopeKind::kLong && beyond ? rope.inv_freq_long : rope.inv_freq;
  for (size_t i = 0; i < half; ++i) frequencies[i] = source[i];
}

namespace rope {

TokenFrequencies::TokenFrequencies(const RopeSpec& rope, const BatchInputs* batch, int64_t tokens) : rope_(&rope) {
  if (rope.kind == RopeKind::kFixed) return;
  BOLIDE_CHECK(batch != nullptr && batch->rope_length != nullptr && batch->cu_tokens != nullptr,
               "rope that depends on the length needs the batch's sequences");
  const int64_t sequences = batch->sizes[Symbol::kSequences], half = rope.rotary_dim / 2;
  frequencies_.resize(static_cast<size_t>(sequences * half));
  sequence_.assign(static_cast<size_t>(tokens), 0);
  for (int64_t s = 0; s < sequences; ++s) {
    rope_frequencies(rope, batch->rope_length[s], frequencies_.data() + s * half);
    for (int64_t t = batch->cu_tokens[s]; t < batch->cu_tokens[s + 1] && t < tokens; ++t)
      sequence_[static_cast<size_t>(t)] = static_cast<int32_t>(s);
  }
}

const float* TokenFrequencies::of_token(int64_t token) const {
  if (rope_->kind == RopeKind::kFixed) return rope_->inv_freq.data();
  return frequencies_.data() + sequence_[static_cast<size_t>(token)] * (rope_->rotary_dim / 2);
}

KvTarget kv_target(const Launch& launch, int64_t layer, int64_t kv_heads, int64_t head_dim) {
  const BatchInputs* batch = launch.batch;
  BOLIDE_CHECK(batch != nullptr && batch->slots != nullptr, "a cache write without a batch");
  const KvView& kv = batch->kv;
  BOLIDE_CHECK(kv.kv_heads == kv_heads && kv.head_dim == head_dim && kv.block_tokens > 0 &&
                   (kv.dtype == DType::kBF16 || kv.dtype == DType::kF32 || kv.dtype == DType::kF8E4M3),
               "the cache has {} heads of {}, {}; the op {} of {}", kv.kv_heads, kv.head_dim, to_string(kv.dtype),
               kv_heads, head_dim);
  BOLIDE_CHECK(layer >= 0 && static_cast<size_t>(layer) < kv.layers.size(), "layer {} of {}", layer, kv.layers.size());
  return {&kv, &kv.layers[static_cast<size_t>(layer)], batch->slots};
}

}  // namespace rope
}  // namespace bolide
