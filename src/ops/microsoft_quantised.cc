// com.microsoft: products with quantised weights, and ops on tensors of affine 8 and 16-bit integers,
// real = scale * (value - zero point).
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/dense.h"
#include "ops/microsoft.h"
#include "ops/shape.h"

namespace bolide {
namespace {

// Integers as f64.
Result<Tensor> as_f64(const RunContext& c, const Tensor& t) {
  BOLIDE_TRY(Tensor to, make_wide<double>(c, t.shape()));
  BOLIDE_TRY(dispatch(kNumbers, t.dtype(), "an input", [&]<class T>() -> Result<> {
    for (size_t i = 0; i < t.as<T>().size(); ++i) to.mutate<double>()[i] = static_cast<double>(widen(t.as<T>()[i]));
    return {};
  }));
  return to;
}

struct Affine {
  double scale = 1, zero = 0;

  static Result<Affine> read(const RunContext& c, size_t scale, size_t zero) {
    Affine affine;
    BOLIDE_TRY(affine.scale, c.number(scale, 1));
    BOLIDE_TRY(affine.zero, c.number(zero, 0));
    return affine;
  }
  // In f32, as ONNX Runtime computes it: ties of the rounding that follows fall alike.
  double real(double value) const {
    return static_cast<double>(static_cast<float>(scale) * static_cast<float>(value - zero));
  }
};

// Input i dequantised by the scale and zero point in the two inputs after it.
Result<Tensor> dequantised(const RunContext& c, size_t i) {
  BOLIDE_TRY(const Tensor* x, c.tensor(i));
  BOLIDE_TRY(const Affine affine, Affine::read(c, i + 1, i + 2));
  BOLIDE_TRY(Tensor wide, as_f64(c, *x));
  for (double& value : wide.mutate<double>()) value = affine.real(value);
  return wide;
}

// Sets output 0 to values rounded half to even, plus `zero`, saturated.
Result<> emit_rounded(RunContext& c, DType dtype, const Tensor& values, double zero) {
  BOLIDE_TRY(Tensor * y, c.make(0, dtype, values.shape()));
  constexpr Types<uint8_t, int8_t, uint16_t, int16_t> kTypes;
  return dispatch(kTypes, dtype, "the output", [&]<class T>() -> Result<> {
    for (size_t i = 0; i < values.as<double>().size(); ++i) {
      const double value = std::nearbyint(values.as<double>()[i]) + zero;
      y->mutate<T>()[i] = std::isnan(value)
                              ? T{}
                              : static_cast<T>(std::clamp(value, static_cast<double>(std::numeric_limits<T>::min()),
                                                          static_cast<double>(std::numeric_limits<T>::max())));
    }
    return {};
  });
}

Result<> quantise(RunContext& c, DType dtype, Tensor real, const Affine& to) {
  for (double& value : real.mutate<double>())
    value = static_cast<double>(static_cast<float>(value) / static_cast<float>(to.scale));
  return emit_rounded(c, dtype, real, to.zero);
}

// A, its scale and zero point, B, its, then those of the result. f(a's affine, b's, the result's) is what makes an
// element of the result from the elements; `zero` is added after it is rounded.
template <class F>
Result<> qlinear_binary(RunContext& c, bool zero_after, F&& f) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(3));
  BOLIDE_TRY(const Tensor left, as_f64(c, *a));
  BOLIDE_TRY(const Tensor right, as_f64(c, *b));
  BOLIDE_TRY(const Affine left_affine, Affine::read(c, 1, 2));
  BOLIDE_TRY(const Affine right_affine, Affine::read(c, 4, 5));
  BOLIDE_TRY(const Affine to, Affine::read(c, 6, 7));
  BOLIDE_TRY(const Shape shape, broadcast(left.shape(), right.shape()));
  BOLIDE_TRY(Tensor values, make_wide<double>(c, shape));
  const auto element = f(left_affine, right_affine, to);
  for_each_offset(shape, broadcast_strides(left.shape(), shape), broadcast_strides(right.shape(), shape),
                  [&](int64_t i, int64_t x, int64_t y) {
                    values.mutate<double>()[static_cast<size_t>(i)] =
                        static_cast<double>(element(static_cast<float>(left.as<double>()[static_cast<size_t>(x)]),
                                                    static_cast<float>(right.as<double>()[static_cast<size_t>(y)])));
                  });
  return emit_rounded(c, a->dtype(), values, zero_after ? to.zero : 0);
}

template <class F>
Result<> qlinear_unary(RunContext& c, F&& f) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(Tensor real, dequantised(c, 0));
  BOLIDE_TRY(const Affine to, Affine::read(c, 3, 4));
  for (double& value : real.mutate<double>()) value = f(value);
  return quantise(c, x->dtype(), real, to);
}

// One value for all of B, or one for each of its columns.
Result<Tensor> by_column(const RunContext& c, size_t i, int64_t N, double standard) {
  BOLIDE_TRY(const Tensor* given, c.tensor_if(i));
  BOLIDE_TRY(Tensor to, make_wide<double>(c, {N}));
  const auto out = to.mutate<double>();
  std::fill(out.begin(), out.end(), standard);
  if (given == nullptr) return to;
  if (given->elements() != 1 && given->elements() != N)
    return error(Code::kInvalid,
                 fmt::format("input {} is {}, expected one value or {}", i, to_string(given->shape()), N));
  BOLIDE_TRY(const Tensor wide, as_f64(c, *given));
  for (size_t j = 0; j < out.size(); ++j) out[j] = wide.as<double>()[given->elements() == 1 ? 0 : j];
  return to;
}

// y = a_scale b_scale (A - a's zero point) (B - b's) + bias; A holds its integers less the zero point.
Result<> multiply_affine(RunContext& c, const Tensor& a, const Tensor& a_scale, const Tensor& b, size_t b_scale,
                         size_t b_zero, size_t bias, DType dtype) {
  if (a.rank() < 1 || b.rank() != 2 || a.dim(-1) != b.dim(0))
    return error(Code::kUnsupported,
                 fmt::format("the product of A {} and B {}", to_string(a.shape()), to_string(b.shape())));
  const int64_t K = b.dim(0), N = b.dim(1);
  Shape shape = a.shape();
  shape[-1] = N;
  BOLIDE_TRY(const int64_t total, product_of(shape.span()));
  const int64_t M = N == 0 ? 0 : total / N;
  BOLIDE_TRY(const Tensor scales, by_column(c, b_scale, N, 1));
  BOLIDE_TRY(const Tensor zeros, by_column(c, b_zero, N, 0));
  BOLIDE_TRY(const Tensor biases, by_column(c, bias, N, 0));
  BOLIDE_TRY(Tensor weights, as_f64(c, b));
  for (int64_t i = 0; i < K * N; ++i)
    weights.mutate<double>()[static_cast<size_t>(i)] -= zeros.as<double>()[static_cast<size_t>(i % N)];
  BOLIDE_TRY(Tensor y, make_wide<double>(c, shape));
  multiply<double>(c.workers(), M, N, K, 1, [&](int64_t) {  // exact: sums of integers below 2^53
    return Product<double>{
        {a.as<double>().data(), K, 1}, {weights.as<double>().data(), N, 1}, y.mutate<double>().data(), N};
  });
  for (int64_t i = 0; i < total; ++i) {
    const auto at = static_cast<size_t>(i), j = static_cast<size_t>(i % N);
    const double scale =
        a_scale.as<double>()[a_scale.elements() == 1 ? 0 : static_cast<size_t>(i / N % a_scale.elements())];
    y.mutate<double>()[at] = y.as<double>()[at] * scale * scales.as<double>()[j] + biases.as<double>()[j];
  }
  return emit(c, 0, dtype, std::move(y));
}

}  // namespace

// A [..., K] times the transpose of B [N, blocks, block_size * bits / 8], packed from the low bits on.
Result<> run_matmul_nbits(RunContext& c) {
  const Attributes& attributes = c.attributes();
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  BOLIDE_TRY(const Tensor* scales, c.tensor(2));
  BOLIDE_TRY(const Tensor* zeros, c.tensor_if(3));
  BOLIDE_TRY(const auto groups, c.integers(4, {}, int64_t{1} << 32));
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(5));
  BOLIDE_TRY(const int64_t K, attributes.integer("K", 0));
  BOLIDE_TRY(const int64_t N, attributes.integer("N", 0));
  BOLIDE_TRY(const int64_t bits, attributes.integer("bits", 4));
  BOLIDE_TRY(const int64_t block, attributes.integer("block_size", 0));
  if (K < 1 || N < 1 || K > int64_t{1} << 31 || N > int64_t{1} << 31)
    return error(Code::kInvalid, fmt::format("K is {} and N {}", K, N));
  if ((bits != 2 && bits != 4 && bits != 8) || block < 16 || block > int64_t{1} << 20 || (block & (block - 1)) != 0)
    return error(Code::kInvalid, fmt::format("bits is {} and block_size {}", bits, block));
  const int64_t blocks = (K + block - 1) / block, bytes = block * bits / 8, zero_bytes = (blocks * bits + 7) / 8;
  if (a->rank() < 1 || a->dim(-1) != K)
    return error(Code::kInvalid, fmt::format("A is {}, K is {}", to_string(a->shape()), K));
  const auto count = [](const Tensor& t, int64_t expected, std::string_view name) -> Result<> {
    if (t.elements() == expected) return {};
    return error(Code::kInvalid, fmt::format("{} is {}, expected {} elements", name, to_string(t.shape()), expected));
  };
  if (b->dtype() != DType::kU8) return error(Code::kInvalid, fmt::format("B is of {}", to_string(b->dtype())));
  BOLIDE_TRY(count(*b, N * blocks * bytes, "B"));
  BOLIDE_TRY(count(*scales, N * blocks, "scales"));
  const bool packed = zeros != nullptr && zeros->dtype() == DType::kU8;
  if (zeros != nullptr) BOLIDE_TRY(count(*zeros, N * (packed ? zero_bytes : blocks), "zero_points"));
  if (bias != nullptr) BOLIDE_TRY(expect_shape(*bias, {N}, "bias"));
  if (c.has(4) && static_cast<int64_t>(groups.size()) < K)
    return error(Code::kInvalid, fmt::format("g_idx has {} values, K is {}", groups.size(), K));
  for (const int64_t group : groups)
    if (group < 0 || group >= blocks) return error(Code::kInvalid, fmt::format("g_idx has {} of {}", group, blocks));
  Shape shape = a->shape();
  shape[-1] = N;
  BOLIDE_TRY(const int64_t total, product_of(shape.span()));
  return in_float(a->dtype(), "A", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *a));
    BOLIDE_TRY(const Tensor scale, widened<T>(c, *scales));
    BOLIDE_TRY(const Tensor zero, zeros != nullptr && !packed ? widened<T>(c, *zeros) : Result<Tensor>(Tensor()));
    BOLIDE_TRY(const Tensor added, widened_if<T>(c, 5));
    BOLIDE_TRY(Tensor weights, make_wide<T>(c, {N, K}));
    const int64_t mask = (int64_t{1} << bits) - 1, each = 8 / bits;
    parallel(c.workers(), N, std::max<int64_t>(1, 16384 / K), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        for (int64_t k = 0; k < K; ++k) {
          const int64_t group = groups.empty() ? k / block : groups[static_cast<size_t>(k)];
          const auto unpack = [&](const Tensor& from, int64_t row, int64_t i) {
            const uint8_t byte = from.as<uint8_t>()[static_cast<size_t>(row + i / each)];
            return static_cast<T>((byte >> (i % each * bits)) & mask);
          };
          const T zero_point = zero     ? zero.as<T>()[static_cast<size_t>(n * blocks + group)]
                               : packed ? unpack(*zeros, n * zero_bytes, group)
                                        : static_cast<T>(int64_t{1} << (bits - 1));
          weights.mutate<T>()[static_cast<size_t>(n * K + k)] =
              (unpack(*b, n * blocks * bytes, k) - zero_point) * scale.as<T>()[static_cast<size_t>(n * blocks + group)];
        }
    });
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    multiply<T>(c.workers(), total / N, N, K, 1, [&](int64_t) {
      return Product<T>{{wide.as<T>().data(), K, 1}, {weights.as<T>().data(), 1, K}, y.mutate<T>().data(), N};
    });
    if (added)
      for (int64_t i = 0; i < total; ++i)
        y.mutate<T>()[static_cast<size_t>(i)] += added.as<T>()[static_cast<size_t>(i % N)];
    return emit(c, 0, a->dtype(), std::move(y));
  });
}

// A (f32) is quantised to u8 over its range, as DynamicQuantizeLinear does.
Result<> run_dynamic_quantize_matmul(RunContext& c) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  if (a->dtype() != DType::kF32) return error(Code::kInvalid, fmt::format("A is of {}", to_string(a->dtype())));
  float least = 0, most = 0;
  for (const float value : a->as<float>()) least = std::min(least, value), most = std::max(most, value);
  const float scale = most == least ? 1 : (most - least) / 255;
  const float zero = std::nearbyint(std::clamp(-least / scale, 0.0f, 255.0f));
  BOLIDE_TRY(Tensor wide, make_wide<double>(c, a->shape()));
  for (size_t i = 0; i < a->as<float>().size(); ++i)
    wide.mutate<double>()[i] =
        static_cast<double>(std::clamp(std::nearbyint(a->as<float>()[i] / scale) + zero, 0.0f, 255.0f) - zero);
  const double scales[] = {static_cast<double>(scale)};
  return multiply_affine(c, wide, Tensor::vector<double>(DType::kF64, scales), *b, 2, 3, 4, DType::kF32);
}

// A [M, K], its scale and zero point, B [K, N], its, C i32, then scale and zero point of the result (f32 without them).
Result<> run_qgemm(RunContext& c) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(3));
  BOLIDE_TRY(const Affine a_affine, Affine::read(c, 1, 2));
  BOLIDE_TRY(const int64_t ta, c.attributes().integer("transA", 0));
  BOLIDE_TRY(const int64_t tb, c.attributes().integer("transB", 0));
  BOLIDE_TRY(const float alpha, c.attributes().number("alpha", 1));
  if (a->rank() != 2 || b->rank() != 2)
    return error(Code::kInvalid, fmt::format("A is {}, B {}", to_string(a->shape()), to_string(b->shape())));
  const int64_t M = a->dim(ta != 0 ? 1 : 0), K = a->dim(ta != 0 ? 0 : 1), N = b->dim(tb != 0 ? 0 : 1);
  if (b->dim(tb != 0 ? 1 : 0) != K)
    return error(Code::kInvalid, fmt::format("A is {}, B {}", to_string(a->shape()), to_string(b->shape())));
  BOLIDE_TRY(const Tensor* bias, c.tensor_if(6));
  if (bias != nullptr && (bias->dtype() != DType::kI32 || (bias->elements() != N && bias->elements() != M * N)))
    return error(Code::kInvalid, fmt::format("C is {}{}", to_string(bias->dtype()), to_string(bias->shape())));
  BOLIDE_TRY(Tensor left, as_f64(c, *a));
  for (double& value : left.mutate<double>()) value -= a_affine.zero;
  BOLIDE_TRY(Tensor right, as_f64(c, *b));
  BOLIDE_TRY(const Tensor scales, by_column(c, 4, N, 1));
  BOLIDE_TRY(const Tensor zeros, by_column(c, 5, N, 0));
  for (int64_t n = 0; n < N; ++n)
    for (int64_t k = 0; k < K; ++k)
      right.mutate<double>()[static_cast<size_t>(tb != 0 ? n * K + k : k * N + n)] -=
          zeros.as<double>()[static_cast<size_t>(n)];
  BOLIDE_TRY(Tensor y, make_wide<double>(c, {M, N}));
  multiply<double>(c.workers(), M, N, K, 1, [&](int64_t) {
    return Product<double>{{left.as<double>().data(), ta != 0 ? 1 : K, ta != 0 ? M : 1},
                           {right.as<double>().data(), tb != 0 ? 1 : N, tb != 0 ? K : 1},
                           y.mutate<double>().data(),
                           N};
  });
  const bool codes = c.has(7);
  BOLIDE_TRY(const Affine to, Affine::read(c, 7, 8));
  BOLIDE_TRY(const Tensor* zero, c.tensor_if(8));
  for (int64_t i = 0; i < M * N; ++i) {
    const auto at = static_cast<size_t>(i), n = static_cast<size_t>(i % N);
    double sum = y.as<double>()[at];
    if (bias != nullptr) sum += bias->as<int32_t>()[bias->elements() == N ? n : at];
    const float factor = alpha * static_cast<float>(a_affine.scale) * static_cast<float>(scales.as<double>()[n]) /
                         (codes ? static_cast<float>(to.scale) : 1.0f);
    y.mutate<double>()[at] = static_cast<double>(static_cast<float>(sum) * factor);
  }
  if (!codes) return emit(c, 0, DType::kF32, std::move(y));
  return emit_rounded(c, zero == nullptr ? a->dtype() : zero->dtype(), y, to.zero);
}

// A and B are integers; scales of A for all, or for each row.
Result<> run_matmul_integer_to_float(RunContext& c) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  BOLIDE_TRY(const Tensor* scale, c.tensor(2));
  BOLIDE_TRY(const double zero, c.number(4, 0));
  BOLIDE_TRY(Tensor wide, as_f64(c, *a));
  for (double& value : wide.mutate<double>()) value -= zero;
  BOLIDE_TRY(const Tensor scales, as_f64(c, *scale));
  if (scales.elements() != 1 && (a->rank() < 2 || scales.elements() != a->dim(-2)))
    return error(Code::kInvalid,
                 fmt::format("a_scale is {} for A {}", to_string(scale->shape()), to_string(a->shape())));
  return multiply_affine(c, wide, scales, *b, 3, 5, 6, scale->dtype());
}

Result<> run_qlinear_add(RunContext& c) {
  return qlinear_binary(c, false, [](const Affine& a, const Affine& b, const Affine& to) {
    const float ratio_a = static_cast<float>(a.scale) / static_cast<float>(to.scale);
    const float ratio_b = static_cast<float>(b.scale) / static_cast<float>(to.scale);
    const float rest =
        static_cast<float>(to.zero) - (ratio_a * static_cast<float>(a.zero) + ratio_b * static_cast<float>(b.zero));
    return [=](float x, float y) { return ratio_a * x + (ratio_b * y + rest); };
  });
}
Result<> run_qlinear_mul(RunContext& c) {
  return qlinear_binary(c, true, [](const Affine& a, const Affine& b, const Affine& to) {
    const float ratio = static_cast<float>(a.scale) * static_cast<float>(b.scale) / static_cast<float>(to.scale);
    const auto zero_a = static_cast<float>(a.zero), zero_b = static_cast<float>(b.zero);
    return [=](float x, float y) { return (x - zero_a) * (y - zero_b) * ratio; };
  });
}
Result<> run_qlinear_sigmoid(RunContext& c) {
  return qlinear_unary(c, [](double x) { return 1 / (1 + std::exp(-x)); });
}
Result<> run_qlinear_leaky_relu(RunContext& c) {
  BOLIDE_TRY(const float alpha, c.attributes().number("alpha", 0.01f));
  return qlinear_unary(c, [a = static_cast<double>(alpha)](double x) { return x >= 0 ? x : a * x; });
}

// Scale and zero point of the result, then tensor, scale and zero point of each part.
Result<> run_qlinear_concat(RunContext& c) {
  BOLIDE_TRY(const Affine to, Affine::read(c, 0, 1));
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", 0));
  if (c.inputs() < 5 || (c.inputs() - 2) % 3 != 0)
    return error(Code::kInvalid, fmt::format("{} inputs, expected 2 and 3 for each part", c.inputs()));
  BOLIDE_TRY(const Tensor* first, c.tensor(2));
  BOLIDE_TRY(const int axis, axis_of(given, first->rank()));
  Shape shape = first->shape();
  shape[axis] = 0;
  std::vector<Tensor> parts;
  for (size_t i = 2; i < c.inputs(); i += 3) {
    BOLIDE_TRY(Tensor part, dequantised(c, i));
    Shape expected = first->shape();
    if (part.rank() == expected.rank) expected[axis] = part.dim(axis);
    BOLIDE_TRY(expect_shape(part, expected, fmt::format("input {}", i)));
    shape[axis] += part.dim(axis);
    parts.push_back(std::move(part));
  }
  BOLIDE_TRY(product_of(shape.span()));
  BOLIDE_TRY(Tensor real, make_wide<double>(c, shape));
  int64_t inner = 1, outer = 1, at = 0;
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (int i = axis + 1; i < shape.rank; ++i) inner *= shape[i];
  for (const Tensor& part : parts) {
    const int64_t run = part.dim(axis) * inner;
    for (int64_t o = 0; o < outer; ++o)
      std::copy_n(part.as<double>().data() + o * run, run, real.mutate<double>().data() + o * shape[axis] * inner + at);
    at += run;
  }
  return quantise(c, first->dtype(), real, to);
}

Result<> run_qlinear_global_average_pool(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t last, c.attributes().integer("channels_last", 0));
  if (x->rank() < 3) return error(Code::kInvalid, fmt::format("X is {}", to_string(x->shape())));
  BOLIDE_TRY(const Tensor wide, dequantised(c, 0));
  BOLIDE_TRY(const Affine to, Affine::read(c, 3, 4));
  Shape shape = x->shape();
  int64_t plane = 1;
  for (int i = 0; i < x->rank() - 2; ++i) {
    plane *= x->dim(last != 0 ? i + 1 : i + 2);
    shape[last != 0 ? i + 1 : i + 2] = 1;
  }
  const int64_t C = x->dim(last != 0 ? -1 : 1);
  BOLIDE_TRY(Tensor real, make_wide<double>(c, shape));
  for (int64_t i = 0; i < real.elements(); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < plane; ++j)
      sum += wide.as<double>()[static_cast<size_t>(last != 0 ? (i / C * plane + j) * C + i % C : i * plane + j)];
    real.mutate<double>()[static_cast<size_t>(i)] = plane == 0 ? 0 : sum / static_cast<double>(plane);
  }
  return quantise(c, x->dtype(), real, to);
}

}  // namespace bolide
