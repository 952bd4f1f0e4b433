// Reference: the angle is a product in f32, as checkpoints were trained and transformers computes it; its cosine and
// sine, and the rotation, are in f64 with one rounding at the end.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/common/launch.h"
#include "kernels/rope/rope_parts.h"
#include "tensor/half.h"

namespace bolide::rope {
namespace {

// x, out [heads * head_dim] of one token.
void rotate(const float* x, int64_t heads, int64_t head_dim, const RopeSpec& rope, const float* frequencies,
            int32_t position, float* out) {
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    const double cosine = std::cos(double{angle}) * rope.attention_factor;
    const double sine = std::sin(double{angle}) * rope.attention_factor;
    for (int64_t h = 0; h < heads; ++h) {
      const double a = x[h * head_dim + i], b = x[h * head_dim + half + i];
      out[h * head_dim + i] = static_cast<float>(a * cosine - b * sine);
      out[h * head_dim + half + i] = static_cast<float>(b * cosine + a * sine);
    }
  }
  for (int64_t h = 0; h < heads && out != x; ++h)
    for (int64_t i = rope.rotary_dim; i < head_dim; ++i) out[h * head_dim + i] = x[h * head_dim + i];
}

void store(const float* x, int64_t count, DType dtype, std::byte* pool, int64_t element) {
  if (dtype == DType::kF32) {
    std::memcpy(pool + element * 4, x, static_cast<size_t>(count) * 4);
    return;
  }
  if (dtype == DType::kF8E4M3) {
    std::transform(x, x + count, reinterpret_cast<uint8_t*>(pool) + element, f32_to_f8e4m3);
    return;
  }
  auto* out = reinterpret_cast<uint16_t*>(pool) + element;
  for (int64_t i = 0; i < count; ++i) out[i] = f32_to_bf16(x[i]);
}

// One token's rows [G * D] of keys and values.
void store_token(const KvTarget& target, int64_t token, const float* k, const float* v) {
  const int64_t dim = target.kv->head_dim;
  for (int64_t g = 0; g < target.kv->kv_heads; ++g) {
    const int64_t element = target.element(token, g);
    if (element < 0) return;
    store(k + g * dim, dim, target.kv->dtype, target.layer->k, element);
    store(v + g * dim, dim, target.kv->dtype, target.layer->v, element);
  }
}

}  // namespace

// (x [T, H*D], positions i32 [T]) -> [T, H*D].
Result<> rope_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<Rope>(launch);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  const TokenFrequencies frequencies(op.rope, launch.batch, x.rows());
  for (int64_t t = 0; t < x.rows(); ++t)
    rotate(x.row<float>(t), x.cols() / op.head_dim, op.head_dim, op.rope, frequencies.of_token(t),
           launch.in[1].as<int32_t>()[t], out.row<float>(t));
  return {};
}

// (q [T, H*D], k [T, G*D], v [T, G*D], positions i32 [T]) -> (rotated q [T, H*D], order edge).
Result<> rope_kv_write_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<RopeKvWrite>(launch);
  const TensorView &q = launch.in[0], &k = launch.in[1], &v = launch.in[2], &out = launch.out[0];
  const int32_t* positions = launch.in[3].as<int32_t>();
  const KvTarget target = kv_target(launch, op.layer, op.kv_heads, op.head_dim);
  const TokenFrequencies frequencies(op.rope, launch.batch, q.rows());
  std::vector<float> key(static_cast<size_t>(k.cols()));
  for (int64_t t = 0; t < q.rows(); ++t) {
    const float* f = frequencies.of_token(t);
    rotate(q.row<float>(t), op.heads, op.head_dim, op.rope, f, positions[t], out.row<float>(t));
    rotate(k.row<float>(t), op.kv_heads, op.head_dim, op.rope, f, positions[t], key.data());
    store_token(target, t, key.data(), v.row<float>(t));
  }
  return {};
}

// (k [T, G*D], v [T, G*D]) -> order edge.
Result<> kv_write_ref(const Launch& launch, Stream&) {
  const auto& op = attributes<KvWrite>(launch);
  const TensorView &k = launch.in[0], &v = launch.in[1];
  const KvTarget target = kv_target(launch, op.layer, op.kv_heads, op.head_dim);
  for (int64_t t = 0; t < k.rows(); ++t) store_token(target, t, k.row<float>(t), v.row<float>(t));
  return {};
}

}  // namespace bolide::rope
