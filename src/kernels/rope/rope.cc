#include "kernels/rope/rope.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/launch.h"
#include "kernels/rope/rope_isa.h"
#include "kernels/rope/rope_parts.h"
#include "tensor/half.h"

namespace bolide {
namespace {

// Bounds of the stack arrays below; larger heads are the reference's.
constexpr int64_t kHeadDimMax = 1024;

template <class Attributes>
bool supports_ref(const Problem& problem) {
  return attributes<Attributes>(problem) != nullptr && problem.in[0].dtype == DType::kF32;
}
template <class Attributes, Isa kIsa>
bool supports(const Problem& problem) {
  return supports_ref<Attributes>(problem) && has_isa(problem, kIsa) &&
         attributes<Attributes>(problem)->head_dim <= kHeadDimMax;
}

// Cosines and sines of one token.
struct Angles {
  alignas(64) float cosine[kHeadDimMax / 2];
  alignas(64) float sine[kHeadDimMax / 2];
};

// (x [T, H*D], positions i32 [T]) -> [T, H*D].
template <const isa::RopeFunctions& kFunctions>
Result<> rope_launch(const Launch& launch, Stream& stream) {
  const auto& op = attributes<Rope>(launch);
  const TensorView &x = launch.in[0], &out = launch.out[0];
  const int32_t* positions = launch.in[1].as<int32_t>();
  const rope::TokenFrequencies frequencies(op.rope, launch.batch, x.rows());
  const int64_t half = op.rope.rotary_dim / 2;
  for_rows(stream.workers(), x.rows(), x.cols() / 4 + half, [&](int64_t begin, int64_t end) {
    Angles angles;
    for (int64_t t = begin; t < end; ++t) {
      kFunctions.angles(static_cast<float>(positions[t]), frequencies.of_token(t), op.rope.attention_factor, half,
                        angles.cosine, angles.sine);
      for (int64_t i = 0; i < x.cols(); i += op.head_dim)
        kFunctions.rotate(x.row<float>(t) + i, angles.cosine, angles.sine, half, op.head_dim, out.row<float>(t) + i);
    }
  });
  return {};
}

// Stores one head's row [D] in a pool.
template <const isa::RopeFunctions& kFunctions>
void store_head(const KvView& kv, const float* x, std::byte* pool, int64_t element) {
  if (kv.dtype == DType::kF32) {
    std::memcpy(pool + element * 4, x, static_cast<size_t>(kv.head_dim) * 4);
  } else if (kv.dtype == DType::kF8E4M3) {
    std::transform(x, x + kv.head_dim, reinterpret_cast<uint8_t*>(pool) + element, f32_to_f8e4m3);
  } else {
    kFunctions.to_bf16(x, kv.head_dim, reinterpret_cast<uint16_t*>(pool) + element);
  }
}

// (q [T, H*D], k [T, G*D], v [T, G*D], positions i32 [T]) -> (rotated q [T, H*D], order edge).
template <const isa::RopeFunctions& kFunctions>
Result<> rope_kv_write(const Launch& launch, Stream& stream) {
  const auto& op = attributes<RopeKvWrite>(launch);
  const TensorView &q = launch.in[0], &k = launch.in[1], &v = launch.in[2], &out = launch.out[0];
  const int32_t* positions = launch.in[3].as<int32_t>();
  const rope::KvTarget target = rope::kv_target(launch, op.layer, op.kv_heads, op.head_dim);
  const rope::TokenFrequencies frequencies(op.rope, launch.batch, q.rows());
  const int64_t half = op.rope.rotary_dim / 2, dim = op.head_dim;
  for_rows(stream.workers(), q.rows(), (q.cols() + 2 * k.cols()) / 4 + half, [&](int64_t begin, int64_t end) {
    Angles angles;
    alignas(64) float key[kHeadDimMax];
    for (int64_t t = begin; t < end; ++t) {
      kFunctions.angles(static_cast<float>(positions[t]), frequencies.of_token(t), op.rope.attention_factor, half,
                        angles.cosine, angles.sine);
      for (int64_t h = 0; h < op.heads; ++h)
        kFunctions.rotate(q.row<float>(t) + h * dim, angles.cosine, angles.sine, half, dim,
                          out.row<float>(t) + h * dim);
      for (int64_t g = 0; g < op.kv_heads; ++g) {
        const int64_t element = target.element(t, g);
        if (element < 0) break;
        kFunctions.rotate(k.row<float>(t) + g * dim, angles.cosine, angles.sine, half, dim, key);
        store_head<kFunctions>(*target.kv, key, target.layer->k, element);
        store_head<kFunctions>(*target.kv, v.row<float>(t) + g * dim, target.layer->v, element);
      }
    }
  });
  return {};
}

// (k [T, G*D], v [T, G*D]) -> order edge.
template <const isa::RopeFunctions& kFunctions>
Result<> kv_write(const Launch& launch, Stream& stream) {
  const auto& op = attributes<KvWrite>(launch);
  const TensorView &k = launch.in[0], &v = launch.in[1];
  const rope::KvTarget target = rope::kv_target(launch, op.layer, op.kv_heads, op.head_dim);
  for_rows(stream.workers(), k.rows(), k.cols() / 2, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t g = 0; g < op.kv_heads; ++g) {
        const int64_t element = target.element(t, g);
        if (element < 0) break;
        store_head<kFunctions>(*target.kv, k.row<float>(t) + g * op.head_dim, target.layer->k, element);
        store_head<kFunctions>(*target.kv, v.row<float>(t) + g * op.head_dim, target.layer->v, element);
      }
  });
  return {};
}

constexpr Kernel kKernels[] = {
    {.name = "rope_avx512", .supports = supports<Rope, Isa::kAvx512>, .launch = rope_launch<isa::kRopeAvx512>},
    {.name = "rope_avx2", .supports = supports<Rope, Isa::kAvx2>, .launch = rope_launch<isa::kRopeAvx2>},
    {.name = "rope_ref", .supports = supports_ref<Rope>, .launch = rope::rope_ref, .reference = true},
    {.name = "rope_kv_write_avx512",
     .supports = supports<RopeKvWrite, Isa::kAvx512>,
     .launch = rope_kv_write<isa::kRopeAvx512>},
    {.name = "rope_kv_write_avx2",
     .supports = supports<RopeKvWrite, Isa::kAvx2>,
     .launch = rope_kv_write<isa::kRopeAvx2>},
    {.name = "rope_kv_write_ref",
     .supports = supports_ref<RopeKvWrite>,
     .launch = rope::rope_kv_write_ref,
     .reference = true},
    {.name = "kv_write_avx512", .supports = supports<KvWrite, Isa::kAvx512>, .launch = kv_write<isa::kRopeAvx512>},
    {.name = "kv_write_avx2", .supports = supports<KvWrite, Isa::kAvx2>, .launch = kv_write<isa::kRopeAvx2>},
    {.name = "kv_write_ref", .supports = supports_ref<KvWrite>, .launch = rope::kv_write_ref, .reference = true},
};

}  // namespace

std::span<const Kernel> rope_kernels() { return kKernels; }

}  // namespace bolide
