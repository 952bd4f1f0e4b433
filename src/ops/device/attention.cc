// Attention and its com.microsoft kin on GPUs, without caches of keys and values.
#include <algorithm>
#include <cmath>

#include "ops/device/device_op.h"

namespace bolide {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";
constexpr int64_t kSizeMax = 256;  // of a head

// What is added to the scores [B, H, S, L]: input i, which broadcasts to them; or a mask of bools.
Result<bool> add_bias(DeviceContext& c, size_t i, AttendJob& job, DeviceTensor& held) {
  if (!c.has(i)) return true;
  if (!c.is_half_or_single(i) && c.dtype(i) != DType::kBool) return false;
  const Shape& shape = c.shape(i);
  const int64_t scores[] = {job.B, job.H, job.S};
  if (shape.rank < 1 || shape.rank > 4 || shape[-1] > job.L) return false;
  job.bias_keys = shape[-1];
  int64_t stride = shape[-1];
  for (int axis = 2; axis >= 0; --axis) {
    const int own = axis - 4 + shape.rank;
    if (own < 0) break;
    if (shape[own] != 1 && shape[own] != scores[axis]) return false;
    job.bias_strides[axis] = shape[own] == 1 ? 0 : stride;
    stride *= shape[own];
  }
  BOLIDE_TRY(held, c.rows(i));
  job.bias = held.data(), job.bias_dtype = held.dtype;
  return true;
}

bool has_any(const DeviceContext& c, std::initializer_list<size_t> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](size_t i) { return c.has(i); });
}
bool has_more_outputs(const DeviceContext& c) {
  for (size_t i = 1; i < c.outputs(); ++i)
    if (c.is_output_used(i)) return true;
  return false;
}

// [B, heads, rows, D] or, where heads are given, [B, rows, heads * D].
struct Side {
  int64_t B = 0, heads = 0, rows = 0, D = 0;
  bool packed = false;
  AttendJob::Heads at(void* data) const {
    if (packed) return {data, rows * heads * D, D, heads * D};
    return {data, heads * rows * D, rows * D, D};
  }
};
std::optional<Side> side_of(const Shape& shape, int64_t heads) {
  if (shape.rank == 4) return Side{shape[0], shape[1], shape[2], shape[3], false};
  if (shape.rank != 3 || heads < 1 || shape[2] % heads != 0) return std::nullopt;
  return Side{shape[0], heads, shape[1], shape[2] / heads, true};
}

Result<bool> attend(DeviceContext& c, const Side& q, const Side& k, const Side& v, size_t bias, AttendJob& job) {
  if (k.B != q.B || v.B != q.B || k.heads != v.heads || k.rows != v.rows || k.D != q.D || k.heads < 1 ||
      q.heads % k.heads != 0 || q.D > kSizeMax || v.D > kSizeMax || k.rows == 0 || q.D == 0 || q.heads > 65535 ||
      q.B > 65535)
    return false;
  job.B = q.B, job.H = q.heads, job.G = k.heads, job.S = q.rows, job.L = k.rows, job.D = q.D, job.Dv = v.D;
  DeviceTensor held;
  BOLIDE_TRY(const bool can, add_bias(c, bias, job, held));
  if (!can) return false;
  BOLIDE_TRY(const DeviceTensor x, c.rows(0));
  BOLIDE_TRY(const DeviceTensor y, c.rows(1));
  BOLIDE_TRY(const DeviceTensor z, c.rows(2));
  const Shape shape = q.packed ? Shape{q.B, q.rows, q.heads * v.D} : Shape{q.B, q.heads, q.rows, v.D};
  BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), shape));
  job.q = q.at(x.data()), job.k = k.at(y.data()), job.v = v.at(z.data());
  job.out = Side{q.B, q.heads, q.rows, v.D, q.packed}.at(out.data());
  job.dtype = x.dtype;
  BOLIDE_TRY(launch_attend(c.stream(), job));
  return true;
}

Result<bool> run_attention(DeviceContext& c) {
  const Attributes& a = c.attributes();
  if (!c.is_half_or_single(0) || c.dtype(1) != c.dtype(0) || c.dtype(2) != c.dtype(0) || has_any(c, {4, 5, 6}) ||
      has_more_outputs(c))
    return false;
  BOLIDE_TRY(const int64_t q_heads, a.integer("q_num_heads", 0));
  BOLIDE_TRY(const int64_t kv_heads, a.integer("kv_num_heads", 0));
  BOLIDE_TRY(const int64_t causal, a.integer("is_causal", 0));
  BOLIDE_TRY(const int64_t left, a.integer("left_window_size", -1));
  BOLIDE_TRY(const int64_t right, a.integer("right_window_size", -1));
  const auto q = side_of(c.shape(0), q_heads), k = side_of(c.shape(1), kv_heads), v = side_of(c.shape(2), kv_heads);
  if (!q || !k || !v || left != -1 || right != -1) return false;
  AttendJob job;
  BOLIDE_TRY(job.scale, a.number("scale", 1 / std::sqrt(static_cast<float>(std::max<int64_t>(q->D, 1)))));
  BOLIDE_TRY(job.softcap, a.number("softcap", 0));
  if (job.softcap < 0) return false;
  job.causal = causal != 0;
  return attend(c, *q, *k, *v, 3, job);
}

Result<bool> run_multi_head(DeviceContext& c) {
  const Attributes& a = c.attributes();
  if (!c.is_half_or_single(0) || !c.has(1) || !c.has(2) || c.dtype(1) != c.dtype(0) || c.dtype(2) != c.dtype(0) ||
      has_any(c, {3, 4, 6, 7, 8, 9}) || has_more_outputs(c))
    return false;
  BOLIDE_TRY(const int64_t heads, a.integer("num_heads", 0));
  BOLIDE_TRY(const int64_t causal, a.integer("unidirectional", 0));
  if (c.shape(0).rank != 3 || c.shape(1).rank != 3 || c.shape(2).rank != 3) return false;
  const auto q = side_of(c.shape(0), heads), k = side_of(c.shape(1), heads), v = side_of(c.shape(2), heads);
  if (!q || !k || !v) return false;
  AttendJob job;
  BOLIDE_TRY(const float scale, a.number("scale", 0));
  job.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(std::max<int64_t>(q->D, 1)));
  job.causal = causal != 0;
  return attend(c, *q, *k, *v, 5, job);
}

// x [B, S, I] times weights [I, q | k | v], and attention between the parts.
Result<bool> run_microsoft_attention(DeviceContext& c) {
  const Attributes& a = c.attributes();
  if (!c.is_half_or_single(0) || c.dtype(1) != c.dtype(0) || has_any(c, {3, 4, 6}) || has_more_outputs(c)) return false;
  const Shape &x = c.shape(0), &w = c.shape(1);
  BOLIDE_TRY(const int64_t H, a.integer("num_heads", 0));
  BOLIDE_TRY(const int64_t causal, a.integer("unidirectional", 0));
  BOLIDE_TRY(const int64_t rotary, a.integer("do_rotary", 0));
  const Tensor* weights = c.known(1);
  if (rotary != 0 || H < 1 || x.rank != 3 || w.rank != 2 || w[0] != x[2] || weights == nullptr || x[2] == 0)
    return false;
  const int64_t third = w[1] / 3;
  BOLIDE_TRY(const auto sizes, a.integers("qkv_hidden_sizes", {third, third, third}));
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[2] < 1 || sizes[0] != sizes[1] || sizes[0] > w[1] || sizes[2] > w[1] ||
      2 * sizes[0] + sizes[2] != w[1] || sizes[0] % H != 0 || sizes[2] % H != 0)
    return false;
  if (c.has(2) && (c.shape(2).rank != 1 || c.shape(2)[0] != w[1])) return false;
  AttendJob job;
  job.B = x[0], job.H = job.G = H, job.S = job.L = x[1], job.D = sizes[0] / H, job.Dv = sizes[2] / H;
  if (job.D > kSizeMax || job.Dv > kSizeMax || job.S == 0 || H > 65535 || job.B > 65535) return false;
  BOLIDE_TRY(const float scale, a.number("scale", 0));
  job.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(job.D));
  job.causal = causal != 0;
  DeviceTensor held;
  BOLIDE_TRY(const bool can, add_bias(c, 5, job, held));
  if (!can) return false;
  const int64_t N = w[1], K = x[2], M = x[0] * x[1];
  BOLIDE_TRY(const DeviceTensor in, c.rows(0));
  BOLIDE_TRY(const auto right, constant_rows(c, 1, K, N));
  if (right == nullptr) return false;
  BOLIDE_TRY(const auto parts, c.scratch(static_cast<size_t>(M * N) * element_bytes(in.dtype)));
  ProductJob product{.a = in.data(), .b = right.get(), .out = parts.get(), .dtype = in.dtype, .M = M, .N = N, .K = K};
  product.a_stride = product.b_stride = K, product.out_stride = N, product.b_is_constant = true;
  std::vector<DeviceTensor> ignored;
  BOLIDE_TRY(product.epilogue, c.epilogue(2, in, ignored));
  BOLIDE_TRY(c.product(product));
  BOLIDE_TRY(const DeviceTensor out, c.make(0, c.dtype(0), {x[0], x[1], sizes[2]}));
  const auto part = [&](int64_t column, int64_t D) {
    return AttendJob::Heads{parts.get() + static_cast<size_t>(column) * element_bytes(in.dtype), x[1] * N, D, N};
  };
  job.q = part(0, job.D), job.k = part(sizes[0], job.D), job.v = part(2 * sizes[0], job.Dv);
  job.out = {out.data(), x[1] * sizes[2], job.Dv, sizes[2]};
  job.dtype = in.dtype;
  BOLIDE_TRY(launch_attend(c.stream(), job));
  return true;
}

constexpr DeviceOp kRows[] = {
    {"", "Attention", run_attention},
    {kMicrosoft, "Attention", run_microsoft_attention},
    {kMicrosoft, "MultiHeadAttention", run_multi_head},
};

}  // namespace

std::span<const DeviceOp> device_attention_ops() { return kRows; }

}  // namespace bolide
