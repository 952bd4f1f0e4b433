// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear; products of quantised tensors are in quantise_product.cc.
#include "ops/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/prepared_op.h"
#include "ops/quantise_prepared.h"
#include "ops/quantised.h"

namespace bolide {
namespace {

constexpr int64_t kBlock = 512;

// A scale or zero point in the shape in which it broadcasts to x: one for all, one for each index of the axis, or one
// for `block` neighbours along it (repeated here).
Result<Tensor> spread(const RunContext& c, const Tensor& p, const Shape& x, int64_t axis, int64_t block,
                      std::string_view name) {
  if (p.rank() == 0 || (p.elements() == 1 && p.rank() == 1)) return p.reshaped({});
  BOLIDE_TRY(const int at, axis_of(axis, x.rank));
  const auto misfit = [&] {
    return error(Code::kInvalid, fmt::format("{} of shape {} for x of shape {}, axis {}, block_size {}", name,
                                             to_string(p.shape()), to_string(x), axis, block));
  };
  if (block == 0) {
    if (p.rank() != 1 || p.dim(0) != x[at]) return misfit();
    Shape shape;
    shape.rank = x.rank - at;
    for (int i = 0; i < shape.rank; ++i) shape[i] = i == 0 ? x[at] : 1;
    return p.reshaped(shape);
  }
  if (block < 0 || p.rank() != x.rank) return misfit();
  for (int i = 0; i < x.rank; ++i) {
    const int64_t expected = i == at ? x[i] / block + (x[i] % block != 0) : x[i];
    if (p.dim(i) != expected) return misfit();
  }
  BOLIDE_TRY(Tensor out, c.scratch(p.dtype(), x));
  int64_t inner = 1, outer = 1;
  if (out.elements() == 0) return out;
  for (int i = 0; i < at; ++i) outer *= x[i];
  for (int i = at + 1; i < x.rank; ++i) inner *= x[i];
  const size_t bytes = element_bytes(p.dtype());
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < x[at]; ++i) {
      const std::byte* const from = p.data() + static_cast<size_t>((o * p.dim(at) + i / block) * inner) * bytes;
      std::copy_n(from, static_cast<size_t>(inner) * bytes,
                  out.mutable_data() + static_cast<size_t>((o * x[at] + i) * inner) * bytes);
    }
  return out;
}

// Inputs 1 and 2, scale and zero point (0 if there is none), as f32.
struct Steps {
  Tensor scale, zero;
  DType scale_type = DType::kNone, zero_type = DType::kNone;
};
Result<Steps> steps_of(const RunContext& c, const Shape& x) {
  BOLIDE_TRY(const Tensor* scale, c.tensor(1));
  BOLIDE_TRY(const Tensor* zero, c.tensor_if(2));
  BOLIDE_TRY(const int64_t axis, c.attributes().integer("axis", 1));
  BOLIDE_TRY(const int64_t block, c.attributes().integer("block_size", 0));
  Steps steps;
  if (scale->is_string() || (zero != nullptr && zero->is_string()))
    return error(Code::kInvalid, "a scale or zero point of strings");
  steps.scale_type = scale->dtype();
  BOLIDE_TRY(const Tensor wide, cast(*scale, DType::kF32, c.pool()));
  BOLIDE_TRY(steps.scale, spread(c, wide, x, axis, block, "a scale"));
  steps.zero = Tensor::scalar(DType::kF32, 0.0f);
  if (zero == nullptr) return steps;
  if (zero->shape() != scale->shape() && zero->elements() != scale->elements())
    return error(Code::kInvalid, fmt::format("a zero point of shape {} for a scale of {}", to_string(zero->shape()),
                                             to_string(scale->shape())));
  steps.zero_type = zero->dtype();
  BOLIDE_TRY(const Tensor wide_zero, cast(*zero, DType::kF32, c.pool()));
  BOLIDE_TRY(steps.zero, spread(c, wide_zero.reshaped(scale->shape()), x, axis, block, "a zero point"));
  return steps;
}

bool is_code(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2FNUZ:
    case DType::kF4E2M1: return true;
    default: return code_range(dtype).has_value();
  }
}

Result<> run_quantise(RunContext& c) {
  BOLIDE_TRY(const Tensor* given, c.tensor(0));
  BOLIDE_TRY(dispatch(kFloats + Types<int32_t>{}, given->dtype(), "input 0", []<class>() -> Result<> { return {}; }));
  BOLIDE_TRY(const Steps steps, steps_of(c, given->shape()));
  BOLIDE_TRY(const int64_t output, c.attributes().integer("output_dtype", 0));
  BOLIDE_TRY(const int64_t precision, c.attributes().integer("precision", 0));
  BOLIDE_TRY(const int64_t saturate, c.attributes().integer("saturate", 1));
  DType to = steps.zero_type == DType::kNone ? DType::kU8 : steps.zero_type;
  if (output != 0) {
    BOLIDE_TRY(const DType asked, dtype_of_number(output).context("attribute output_dtype"));
    if (steps.zero_type != DType::kNone && steps.zero_type != asked)
      return error(Code::kInvalid,
                   fmt::format("output_dtype is {}, the zero point {}", to_string(asked), to_string(steps.zero_type)));
    to = asked;
  }
  if (!is_code(to)) return error(Code::kInvalid, fmt::format("{} is no type to quantise to", to_string(to)));
  DType quotient = steps.scale_type;
  if (precision != 0) {
    BOLIDE_TRY(quotient, dtype_of_number(precision).context("attribute precision"));
  }
  BOLIDE_TRY(const Tensor x, cast(*given, DType::kF32, c.pool()));
  BOLIDE_TRY(Tensor * y, c.make(0, to, x.shape()));
  const auto range = code_range(to);
  CastRules rules;
  rules.saturate = saturate != 0;
  const float* const from = x.as<float>().data();
  const float* const scales = steps.scale.as<float>().data();
  const float* const zeros = steps.zero.as<float>().data();
  for_each_piece(walk_of(x.shape(), {&x.shape(), &steps.scale.shape(), &steps.zero.shape()}), c.workers(),
                 [&](const Piece& p) {
                   std::array<double, kBlock> block;
                   for (int64_t begin = 0; begin < p.n; begin += kBlock) {
                     const int64_t n = std::min(kBlock, p.n - begin);
                     for (int64_t j = 0; j < n; ++j) {
                       const int64_t i = begin + j;
                       float v = from[p.in[0] + i] / scales[p.in[1] + i * p.step[1]];
                       if (quotient == DType::kF16) v = f16_to_f32(f32_to_f16(v));
                       if (quotient == DType::kBF16) v = bf16_to_f32(f32_to_bf16(v));
                       const double zero = static_cast<double>(zeros[p.in[2] + i * p.step[2]]);
                       const double wide = static_cast<double>(v);
                       block[static_cast<size_t>(j)] =
                           range ? std::clamp(std::nearbyint(wide) + zero, range->first, range->second) : wide + zero;
                     }
                     store(*y, p.out + begin, n, block.data(), rules);
                   }
                 });
  return {};
}

Result<> run_dequantise(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (!is_code(x->dtype()) && x->dtype() != DType::kI32)
    return error(Code::kInvalid, fmt::format("input 0 is of {}, which is no type of codes", to_string(x->dtype())));
  BOLIDE_TRY(const Steps steps, steps_of(c, x->shape()));
  BOLIDE_TRY(const int64_t output, c.attributes().integer("output_dtype", 0));
  if (steps.zero_type != DType::kNone && steps.zero_type != x->dtype())
    return error(Code::kInvalid,
                 fmt::format("a zero point of {} for {}", to_string(steps.zero_type), to_string(x->dtype())));
  DType to = steps.scale_type;
  if (output != 0) {
    BOLIDE_TRY(to, dtype_of_number(output).context("attribute output_dtype"));
  }
  BOLIDE_TRY(dispatch(kFloats, to, "the output", []<class>() -> Result<> { return {}; }));
  BOLIDE_TRY(Tensor * y, c.make(0, to, x->shape()));
  const float* const scales = steps.scale.as<float>().data();
  const float* const zeros = steps.zero.as<float>().data();
  for_each_piece(
      walk_of(x->shape(), {&x->shape(), &steps.scale.shape(), &steps.zero.shape()}), c.workers(), [&](const Piece& p) {
        std::array<double, kBlock> block;
        for (int64_t begin = 0; begin < p.n; begin += kBlock) {
          const int64_t n = std::min(kBlock, p.n - begin);
          load(*x, p.in[0] + begin, n, block.data());
          for (int64_t j = 0; j < n; ++j) {
            const int64_t i = begin + j;
            const auto code =
                static_cast<float>(block[static_cast<size_t>(j)] - static_cast<double>(zeros[p.in[2] + i * p.step[2]]));
            block[static_cast<size_t>(j)] = static_cast<double>(code * scales[p.in[1] + i * p.step[1]]);
          }
          store(*y, p.out + begin, n, block.data());
        }
      });
  return {};
}

// Outputs: u8 codes, the scale and the zero point of a range that has 0.
Result<> run_dynamic_quantise(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  if (x->dtype() != DType::kF32)
    return error(Code::kInvalid, fmt::format("input 0 is of {}, expected f32", to_string(x->dtype())));
  float least = 0, most = 0;
  for (const float v : x->as<float>()) least = std::min(least, v), most = std::max(most, v);
  const float scale = most == least ? 1.0f / 255 : (most - least) / 255;
  const float zero = std::nearbyint(std::clamp(-least / scale, 0.0f, 255.0f));
  const uint8_t zero_code = std::isnan(zero) ? uint8_t{0} : static_cast<uint8_t>(zero);
  BOLIDE_TRY(Tensor * y, c.make(0, DType::kU8, x->shape()));
  const auto to = y->mutate<uint8_t>();
  for (size_t i = 0; i < to.size(); ++i) {
    const float code = std::nearbyint(x->as<float>()[i] / scale) + static_cast<float>(zero_code);
    to[i] = std::isnan(code) ? zero_code : static_cast<uint8_t>(std::clamp(code, 0.0f, 255.0f));
  }
  c.set(1, Tensor::scalar(DType::kF32, scale));
  c.set(2, Tensor::scalar(DType::kU8, zero_code));
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "QuantizeLinear", .since = 10, .run = run_quantise, .prepare = prepare_quantise},
    {.domain = "", .name = "DequantizeLinear", .since = 10, .run = run_dequantise, .prepare = prepare_dequantise},
    {.domain = "",
     .name = "DynamicQuantizeLinear",
     .since = 11,
     .run = run_dynamic_quantise,
     .prepare = prepare_dynamic_quantise},
};

}  // namespace

std::optional<std::pair<double, double>> code_range(DType dtype) {
  switch (dtype) {
    case DType::kU8: return {{0, 255}};
    case DType::kI8: return {{-128, 127}};
    case DType::kU16: return {{0, 65535}};
    case DType::kI16: return {{-32768, 32767}};
    case DType::kU4: return {{0, 15}};
    case DType::kI4: return {{-8, 7}};
    case DType::kU2: return {{0, 3}};
    case DType::kI2: return {{-2, 1}};
    default: return std::nullopt;
  }
}

std::span<const OpDef> quantise_ops() {
  static const std::vector<OpDef> kAll = [] {
    std::vector<OpDef> rows(std::begin(kRows), std::end(kRows));
    rows.insert(rows.end(), quantised_ops().begin(), quantised_ops().end());
    rows.insert(rows.end(), quantised_product_ops().begin(), quantised_product_ops().end());
    return rows;
  }();
  return kAll;
}

}  // namespace bolide
