// Reference: one query row of one head at a time; scores and sums in f64.
#include <cmath>

#include "kernels/attention/attention_parts.h"
#include "kernels/common/launch.h"
#include "tensor/half.h"

namespace bolide::attention {
namespace {

double cached(const KvView& kv, const std::byte* pool, int64_t element) {
  if (kv.dtype == DType::kF32) return reinterpret_cast<const float*>(pool)[element];
  if (kv.dtype == DType::kF8E4M3) return f8e4m3_to_f32(reinterpret_cast<const uint8_t*>(pool)[element]);
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(pool)[element]);
}

struct Sequence {
  const int32_t* blocks;
  const KvView* kv;
  const KvLayer* layer;

  // Element of cached position `position` in the pools.
  int64_t element(int64_t position, int64_t kv_head) const {
    const int64_t block = blocks[position / kv->block_tokens], offset = position % kv->block_tokens;
    return block * kv->block_stride() + (kv_head * kv->block_tokens + offset) * kv->head_dim;
  }
};

// Softmax attention of one query row [D] over cached positions [begin, end).
void attend(const PagedAttention& op, const Sequence& sequence, int64_t kv_head, int64_t begin, int64_t end,
            const float* q, float* out) {
  const auto dim = static_cast<size_t>(op.head_dim);
  std::vector<double> scores(static_cast<size_t>(end - begin)), sums(dim);
  double largest = -INFINITY;
  for (int64_t j = begin; j < end; ++j) {
    const int64_t element = sequence.element(j, kv_head);
    double score = 0;
    for (size_t d = 0; d < dim; ++d)
      score += q[d] * cached(*sequence.kv, sequence.layer->k, element + static_cast<int64_t>(d));
    score *= op.scale;
    if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
    scores[static_cast<size_t>(j - begin)] = score;
    largest = std::max(largest, score);
  }
  double total = 0;
  for (int64_t j = begin; j < end; ++j) {
    const int64_t element = sequence.element(j, kv_head);
    const double weight = std::exp(scores[static_cast<size_t>(j - begin)] - largest);
    total += weight;
    for (size_t d = 0; d < dim; ++d)
      sums[d] += weight * cached(*sequence.kv, sequence.layer->v, element + static_cast<int64_t>(d));
  }
  for (size_t d = 0; d < dim; ++d) out[d] = static_cast<float>(sums[d] / total);
}

}  // namespace

void check_cache(const PagedAttention& op, const BatchInputs* batch) {
  BOLIDE_CHECK(
      batch != nullptr && batch->cu_tokens != nullptr && batch->context != nullptr && batch->block_table != nullptr,
      "attention without a batch");
  const KvView& kv = batch->kv;
  BOLIDE_CHECK(kv.kv_heads == op.kv_heads && kv.head_dim == op.head_dim && kv.block_tokens > 0 &&
                   (kv.dtype == DType::kBF16 || kv.dtype == DType::kF32 || kv.dtype == DType::kF8E4M3),
               "the cache has {} heads of {}, {}; the op {} of {}", kv.kv_heads, kv.head_dim, to_string(kv.dtype),
               op.kv_heads, op.head_dim);
  BOLIDE_CHECK(op.layer >= 0 && static_cast<size_t>(op.layer) < kv.layers.size(), "layer {} of {}", op.layer,
               kv.layers.size());
}

// (q [T, H*D], order edge) -> [T, H*D].
Result<> attention_ref(const Launch& launch, Stream& stream) {
  const auto& op = attributes<PagedAttention>(launch);
  check_cache(op, launch.batch);
  const BatchInputs& batch = *launch.batch;
  const TensorView &q = launch.in[0], &out = launch.out[0];
  for (int64_t s = 0; s < batch.sizes[Symbol::kSequences]; ++s) {
    const int64_t first = batch.cu_tokens[s], count = batch.cu_tokens[s + 1] - first;
    const Sequence sequence{batch.block_table + s * batch.block_table_stride, &batch.kv,
                            &batch.kv.layers[static_cast<size_t>(op.layer)]};
    stream.workers().run(count, [&](int64_t i, int) {
      const int64_t end = batch.context[s] - count + i + 1;
      const int64_t begin = op.window > 0 ? std::max<int64_t>(0, end - op.window) : 0;
      for (int64_t h = 0; h < op.heads; ++h)
        attend(op, sequence, h / (op.heads / op.kv_heads), begin, end, q.row<float>(first + i) + h * op.head_dim,
               out.row<float>(first + i) + h * op.head_dim);
    });
  }
  return {};
}

}  // namespace bolide::attention
