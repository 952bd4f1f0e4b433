#include "kernels/linear/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/linear/float_strips.h"
#include "kernels/linear/product.h"
#include "kernels/linear/strips.h"
#include "tensor/half.h"

namespace bolide {
namespace {

ValueType type_of(int64_t n, int64_t k, bool bf16) { return {bf16 ? DType::kBF16 : DType::kF32, nullptr, {n, k}}; }

const ProductMethod* method_for(const ValueType& weight, Compute compute, const DeviceInfo& device) {
  const std::array floats = {&kFloatAvx512, &kFloatAvx2}, narrow = {&kBf16Amx, &kBf16Dot};
  for (const ProductMethod* method : compute == Compute::kBF16 ? narrow : floats)
    if (method->supports(weight, compute, device)) return method;
  return nullptr;
}

// Columns of rows [k, k + 1) or pairs of them to their places in one strip, whose memory is zeros.
void pack_strip(const PackedMatrix::Source& s, int64_t first, bool bf16, std::byte* strip) {
  const int64_t rows = std::min<int64_t>(kStripRows, s.n - first);
  for (int64_t k = 0; k < s.k; ++k) {
    const float* from = s.data + k * s.k_stride + first * s.n_stride;
    if (!bf16) {
      auto* to = reinterpret_cast<float*>(strip) + k * kStripRows;
      for (int64_t r = 0; r < rows; ++r) to[r] = from[r * s.n_stride];
    } else {
      auto* to = reinterpret_cast<uint16_t*>(strip) + k / 2 * kStripRows * 2 + k % 2;
      for (int64_t r = 0; r < rows; ++r) to[r * 2] = f32_to_bf16(from[r * s.n_stride]);
    }
  }
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> PackedMatrix::make(const Source& source, DType compute, const DeviceInfo& device,
                                                         Workers& workers) {
  if (source.k < 1 || source.n < 1) return nullptr;
  std::unique_ptr<PackedMatrix> made(new PackedMatrix);
  made->k_ = source.k, made->n_ = source.n;
  if (compute == DType::kBF16) {
    made->method_ = method_for(type_of(source.n, source.k, true), Compute::kBF16, device);
    made->bf16_ = made->method_ != nullptr;
  }
  if (made->method_ == nullptr) made->method_ = method_for(type_of(source.n, source.k, false), Compute::kF32, device);
  if (made->method_ == nullptr) return nullptr;
  FloatShape shape;
  BOLIDE_CHECK(float_shape(made->bf16_ ? DType::kBF16 : DType::kF32, source.k, &shape), "no strips");
  const int64_t strips = strips_of(source.n);
  BOLIDE_TRY(made->memory_, Buffer::host(static_cast<size_t>(strips) * shape.bytes));
  workers.run(strips, [&](int64_t strip, int) {
    pack_strip(source, strip * kStripRows, made->bf16_,
               made->memory_.data() + static_cast<size_t>(strip) * shape.bytes);
  });
  return made;
}

size_t PackedMatrix::workspace(int64_t rows, int threads) const {
  return method_->workspace(type_of(n_, k_, bf16_), rows, threads);
}

void PackedMatrix::run(const Rows& rows, MutableBytes workspace, Workers& workers) const {
  if (rows.rows < 1) return;
  Product p;
  p.dtype = bf16_ ? DType::kBF16 : DType::kF32;
  p.n = n_, p.k = k_;
  p.weights = memory_.data();
  p.compute = bf16_ ? Compute::kBF16 : Compute::kF32;
  p.tokens = rows.rows;
  p.x = rows.x, p.x_stride = rows.x_stride;
  p.out = rows.out, p.out_stride = rows.out_stride;
  p.bias = rows.bias;
  p.residual = rows.residual, p.residual_stride = rows.residual_stride;
  p.finish = rows.finish;
  p.workspace = workspace;
  method_->run(p, workers);
}

std::string_view PackedMatrix::kernel() const { return method_->linear_name; }

}  // namespace bolide
