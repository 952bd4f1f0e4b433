#include "kernels/linear/packed_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/linear/int8_kernels.h"
#include "kernels/linear/product.h"

namespace bolide {
namespace {

constexpr int64_t kFewRows = 8;      // more: the weights are decoded once for all of them
constexpr int64_t kBlockMost = 256;  // of a scheme: larger ones are several with one scale

constexpr QuantScheme scheme_of(std::string_view name, int bits, bool zeros, int32_t block) {
  const int32_t elements = std::max(block, 32);
  return {name,
          bits == 4 ? DType::kU4 : DType::kU8,
          DType::kF32,
          zeros ? DType::kU8 : DType::kNone,
          block,
          1,
          BlockLayout::kBlock,
          elements,
          elements * bits / 8 + elements / block * (zeros ? 5 : 4)};
}
constexpr QuantScheme kInt4[] = {scheme_of("int4_b32", 4, false, 32), scheme_of("int4_b64", 4, false, 64),
                                 scheme_of("int4_b128", 4, false, 128), scheme_of("int4_b256", 4, false, 256)};
constexpr QuantScheme kInt4Zero[] = {scheme_of("int4_zero_b16", 4, true, 16), scheme_of("int4_zero_b32", 4, true, 32),
                                     scheme_of("int4_zero_b64", 4, true, 64), scheme_of("int4_zero_b128", 4, true, 128),
                                     scheme_of("int4_zero_b256", 4, true, 256)};
constexpr QuantScheme kInt8[] = {scheme_of("int8_zero_b32", 8, true, 32), scheme_of("int8_zero_b64", 8, true, 64),
                                 scheme_of("int8_zero_b128", 8, true, 128), scheme_of("int8_zero_b256", 8, true, 256)};
constexpr StripScheme kSchemes[] = {
    {&kInt4[0], kStrip4Float, 8},
    {&kInt4[1], kStrip4Float, 8},
    {&kInt4[2], kStrip4Float, 8},
    {&kInt4[3], kStrip4Float, 8},
    {&kInt4Zero[1], kStrip4FloatZero, 0},
    {&kInt4Zero[2], kStrip4FloatZero, 0},
    {&kInt4Zero[3], kStrip4FloatZero, 0},
    {&kInt4Zero[4], kStrip4FloatZero, 0},
    {&kInt4Zero[0], kStrip4FloatZeroBy16, 0},
    {&kInt8[0], kStrip8FloatZero, 0},
    {&kInt8[1], kStrip8FloatZero, 0},
    {&kInt8[2], kStrip8FloatZero, 0},
    {&kInt8[3], kStrip8FloatZero, 0},
};

const StripScheme* find_scheme(int bits, bool zeros, int64_t block) {
  for (const StripScheme& scheme : kSchemes)
    if (strip_format(scheme.kind).code_bits == bits && scheme.quant->group_k == block &&
        (strip_has_zeros(strip_format(scheme.kind)) || !zeros))
      return &scheme;
  return nullptr;
}

// Strip `strip` of `to`, whose memory is zeros.
void pack_strip(const PackedBlocks::Source& s, const StripScheme& scheme, const StripShape& shape, int64_t strip,
                uint8_t* to) {
  const StripFormat format = strip_format(scheme.kind);
  const int64_t blocks = s.blocks(), block_bytes = s.block * s.bits / 8, zero_bytes = (blocks * s.bits + 7) / 8;
  const int64_t each = scheme.quant->group_k, scales = (shape.groups * format.parts) >> shape.shift;
  const int64_t rows = std::min<int64_t>(kStripRows, s.n - strip * kStripRows);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = strip * kStripRows + r;
    const uint8_t* codes = s.codes + row * blocks * block_bytes;
    for (int64_t g = 0; g < shape.groups; ++g) {
      // What is behind the last block counts for nothing: its activations are zeros.
      const int64_t bytes = std::clamp<int64_t>(blocks * block_bytes - g * 4 * s.bits, 0, 4 * s.bits);
      uint8_t group[32] = {};
      std::memcpy(group, codes + g * 4 * s.bits, static_cast<size_t>(bytes));
      uint8_t* lanes = to + g * strip_group_bytes(format) + r * 4;
      if (s.bits == 8) {
        for (int j = 0; j < 8; ++j) std::memcpy(lanes + j * 64, group + j * 4, 4);
        continue;
      }
      const auto code = [&](int i) { return static_cast<uint8_t>((group[i / 2] >> (i % 2 * 4)) & 15); };
      for (int i = 0; i < 16; ++i) lanes[i / 4 * 64 + i % 4] = static_cast<uint8_t>(code(i) | code(16 + i) << 4);
    }
    for (int64_t i = 0; i < scales; ++i) {
      const int64_t block = i * each / s.block;
      if (block >= blocks) break;
      std::memcpy(to + shape.scales + static_cast<size_t>((i * kStripRows + r) * 4), s.scales + row * blocks + block,
                  4);
      if (!strip_has_zeros(format)) continue;
      uint8_t zero = s.bits == 4 ? 8 : 128;
      if (s.zeros != nullptr) {
        const uint8_t* of_row = s.zeros + row * zero_bytes;
        zero = s.bits == 8 ? of_row[block] : static_cast<uint8_t>((of_row[block / 2] >> (block % 2 * 4)) & 15);
      }
      to[shape.minima + static_cast<size_t>(i * kStripRows + r)] = zero;
    }
  }
}

const ProductMethod* method_for(const ValueType& weight, bool int8, const DeviceInfo& device) {
  const std::array exact = {&kDecodedAvx512, &kDecodedAvx2};
  const std::array rounded = {&kInt8Amx, &kInt8Vnni, &kInt8Avx2};
  const auto first = [&](const auto& methods, Compute compute) -> const ProductMethod* {
    for (const ProductMethod* method : methods)
      if (method->supports(weight, compute, device)) return method;
    return nullptr;
  };
  return int8 ? first(rounded, Compute::kInt8) : first(exact, Compute::kF32);
}

}  // namespace

std::span<const StripScheme> block_strip_schemes() { return kSchemes; }

ValueType PackedBlocks::type() const { return {scheme_->quant->code, scheme_->quant, {n_, depth_}}; }

Result<std::unique_ptr<PackedBlocks>> PackedBlocks::make(const Source& source, bool int8, const DeviceInfo& device,
                                                         Workers& workers) {
  if (source.k < 1 || source.n < 1 || (source.bits != 4 && source.bits != 8) || source.block < 1) return nullptr;
  const StripScheme* scheme = find_scheme(source.bits, source.zeros != nullptr, std::min(source.block, kBlockMost));
  if (scheme == nullptr) return nullptr;
  std::unique_ptr<PackedBlocks> made(new PackedBlocks);
  made->scheme_ = scheme;
  made->k_ = source.k, made->n_ = source.n;
  made->depth_ = static_cast<int64_t>(
      round_up(static_cast<uint64_t>(source.k), static_cast<uint64_t>(scheme->quant->block_elements)));
  made->method_ = method_for(made->type(), int8, device);
  if (made->method_ == nullptr) return nullptr;
  if (!int8) made->few_ = made->method_ == &kDecodedAvx512 ? vnni::exact_strips : avx2::exact_strips;
  const StripShape shape = strip_shape(*scheme, made->depth_);
  const int64_t strips = strips_of(source.n);
  BOLIDE_TRY(made->memory_, Buffer::host(static_cast<size_t>(strips) * shape.bytes));
  workers.run(strips, [&](int64_t strip, int) {
    auto* to = reinterpret_cast<uint8_t*>(made->memory_.data()) + static_cast<size_t>(strip) * shape.bytes;
    pack_strip(source, *scheme, shape, strip, to);
  });
  return made;
}

size_t PackedBlocks::workspace(int64_t rows, int threads) const {
  const size_t padded = depth_ == k_ ? 0 : round_up(static_cast<size_t>(rows * depth_) * sizeof(float), 64);
  if (few_ != nullptr && rows <= kFewRows) return padded + static_cast<size_t>(rows * depth_ / 16) * sizeof(float);
  return padded + method_->workspace(type(), rows, threads);
}

void PackedBlocks::run(const Rows& given, MutableBytes workspace, Workers& workers) const {
  if (given.rows < 1) return;
  Rows rows = given;
  if (depth_ != k_) {
    auto* to = reinterpret_cast<float*>(workspace.data());
    for (int64_t r = 0; r < rows.rows; ++r, to += depth_) {
      std::copy_n(given.x + r * given.x_stride, k_, to);
      std::fill(to + k_, to + depth_, 0.0f);
    }
    rows.x = reinterpret_cast<const float*>(workspace.data()), rows.x_stride = depth_;
    workspace = workspace.subspan(round_up(static_cast<size_t>(rows.rows * depth_) * sizeof(float), 64));
  }
  if (few_ != nullptr && rows.rows <= kFewRows) return run_few(rows, workspace, workers);
  const ValueType weight = type();
  Product p;
  p.dtype = weight.dtype, p.quant = weight.quant;
  p.n = n_, p.k = depth_;
  p.weights = memory_.data();
  p.compute = few_ != nullptr ? Compute::kF32 : Compute::kInt8;
  p.tokens = rows.rows;
  p.x = rows.x, p.x_stride = rows.x_stride;
  p.out = rows.out, p.out_stride = rows.out_stride;
  p.bias = rows.bias;
  // Methods count from the end of what they asked for.
  p.workspace = workspace.first(method_->workspace(weight, rows.rows, workers.threads()));
  method_->run(p, workers);
}

void PackedBlocks::run_few(const Rows& rows, MutableBytes workspace, Workers& workers) const {
  const StripShape shape = strip_shape(*scheme_, depth_);
  const int parts = strip_format(scheme_->kind).parts;
  const int64_t sums = shape.groups * parts, each = depth_ / sums;
  auto* const to = reinterpret_cast<float*>(workspace.data());
  for (int64_t i = 0; i < rows.rows * sums; ++i) {
    const float* x = rows.x + i / sums * rows.x_stride + i % sums * each;
    float four[4] = {};
    for (int64_t j = 0; j < each; j += 4)
      for (int l = 0; l < 4; ++l) four[l] += x[j + l];
    to[i] = (four[0] + four[1]) + (four[2] + four[3]);
  }
  const int64_t strips = strips_of(n_);
  const ChunkPlan plan = plan_chunks(strips, 1, shape.bytes, kStripRows * depth_, workers.threads());
  workers.run(plan.chunks(), [&](int64_t chunk, int) {
    const int64_t first = chunk * plan.strips_per_chunk, column = first * kStripRows;
    ExactStripArgs args{.kind = scheme_->kind, .zero = scheme_->zero};
    args.strips = std::min(plan.strips_per_chunk, strips - first);
    args.shape = shape;
    args.weights = reinterpret_cast<const uint8_t*>(memory_.data()) + static_cast<size_t>(first) * shape.bytes;
    args.x = rows.x, args.x_stride = rows.x_stride;
    args.sums = to, args.sums_stride = sums;
    args.target = {.out = rows.out + column,
                   .out_stride = rows.out_stride,
                   .scale = nullptr,
                   .bias = rows.bias != nullptr ? rows.bias + column : nullptr,
                   .residual = nullptr,
                   .residual_stride = 0,
                   .columns = n_ - column,
                   .tokens = static_cast<int>(rows.rows)};
    few_(args);
  });
}

std::string_view PackedBlocks::kernel() const { return method_->linear_name; }

}  // namespace bolide
