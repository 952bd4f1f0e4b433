// What a QConv or QMatMul does to its sums, as the int8 kernels have it.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/igemm_int8/pack.h"
#include "ops/quantised.h"

namespace bolide {

// Weights of u8 are packed less 128, and so is their zero.
inline int32_t packed_zero(const QuantisedSpec& s, int64_t n) {
  return s.w_zero_of(n) - (s.w_dtype == DType::kU8 ? 128 : 0);
}
inline bool zeros_vanish(const QuantisedSpec& s) {
  for (size_t i = 0; i < s.w_zero.size(); ++i)
    if (packed_zero(s, static_cast<int64_t>(i)) != 0) return false;
  return true;
}

// Arrays by column; those of each packed matrix begin at a multiple of a panel.
struct FinishConstants {
  std::vector<int32_t> offsets, zeros;
  std::vector<float> scales;
  bool needs_row_sums = false, scales_below_one = true;

  size_t bytes() const { return (offsets.size() + zeros.size() + scales.size()) * 4; }

  // K: of the weights, without padding. `lifted`: 128 is added to bytes of x that are signed.
  static Result<FinishConstants> make(const QuantisedSpec& s, std::span<const PackedInt8> weights, int64_t K,
                                      bool lifted = true) {
    FinishConstants to;
    const int32_t x_zero = s.x.zero + (lifted && s.x.dtype == DType::kI8 ? 128 : 0);
    to.needs_row_sums = !zeros_vanish(s);
    int64_t column = 0;
    for (const PackedInt8& w : weights) {
      const size_t base = to.offsets.size(), end = base + static_cast<size_t>(padded(w.n, kInt8PanelColumns));
      to.offsets.resize(end), to.scales.resize(end);
      if (to.needs_row_sums) to.zeros.resize(end);
      for (int64_t i = 0; i < w.n; ++i, ++column) {
        const size_t at = base + static_cast<size_t>(i);
        const int32_t zero = packed_zero(s, column);
        uint32_t offset = s.bias.empty() ? 0 : static_cast<uint32_t>(s.bias[static_cast<size_t>(column)]);
        offset -= static_cast<uint32_t>(x_zero) * static_cast<uint32_t>(w.sums.as<int32_t>()[static_cast<size_t>(i)]);
        offset += static_cast<uint32_t>(K) * static_cast<uint32_t>(x_zero) * static_cast<uint32_t>(zero);
        to.offsets[at] = static_cast<int32_t>(offset);
        to.scales[at] = s.factor(column);
        to.scales_below_one = to.scales_below_one && to.scales[at] < 1;
        if (to.needs_row_sums) to.zeros[at] = zero;
      }
    }
    return to;
  }

  Int8Finish of(const QuantisedSpec& s, const Tensor* residual, std::byte* out, int64_t columns) const {
    Int8Finish f;
    f.offsets = offsets.data(), f.scales = scales.data();
    f.out = out, f.out_stride = columns;
    f.kind = !s.has_codes ? Int8Finish::kF32 : s.has_residual ? Int8Finish::kAdded : Int8Finish::kCodes;
    if (!s.has_codes) {
      f.low = -std::numeric_limits<float>::infinity(), f.high = -f.low;
      return f;
    }
    f.low = s.y.low, f.high = s.y.high, f.zero = s.y.zero;
    f.is_signed = s.out_dtype() == DType::kI8;
    const QuantisedSpec::Codes& last = s.has_residual ? s.sum : s.y;
    f.capped = s.y.high + static_cast<float>(s.y.zero) < (f.is_signed ? 127.f : 255.f) || !scales_below_one;
    f.bounded = last.low + static_cast<float>(last.zero) > (f.is_signed ? -128.f : 0.f);
    if (!s.has_residual) return f;
    f.residual = reinterpret_cast<const uint8_t*>(residual->data()), f.residual_stride = columns;
    f.residual_signed = s.residual.dtype == DType::kI8;
    const QuantisedSpec::Sum sum = s.second_sum();
    f.ratio = sum.ratio, f.residual_ratio = sum.residual_ratio, f.rest = sum.rest, f.low2 = sum.low, f.high2 = sum.high;
    const float most = 255 * (std::abs(sum.ratio) + std::abs(sum.residual_ratio)) + std::abs(sum.rest);
    f.capped = sum.high < (f.is_signed ? 127.f : 255.f) || !(most < 0x1p30f);
    return f;
  }
};

}  // namespace bolide
