// Conv made ready: weights packed for igemm, or for the depthwise kernel, and run on images with their channels last.
// A joined one reads its parts where they lie.
#include <fmt/format.h>

#include "kernels/channels_last/channels_last.h"
#include "ops/channels_last.h"
#include "ops/convolution.h"
#include "ops/shape.h"
#include "tensor/caching_pool.h"

namespace bolide {
namespace {

constexpr size_t kInputs = 4;  // X, W, B, Z

enum class Layout : uint8_t { kFirst, kLast, kJoined };  // where channels are; joined: last, in several tensors

class PreparedConv final : public PreparedOp {
 public:
  PreparedConv(const PrepareContext& context, Layout layout, FusedActivation activation)
      : isa_(context.device.isa >= Isa::kAvx512 ? Isa::kAvx512 : Isa::kAvx2),
        channels_last_(layout != Layout::kFirst),
        joined_(layout == Layout::kJoined),
        activation_(activation) {}

  Result<> pack(const PrepareContext& context, int64_t groups) {
    const Tensor& w = *context.constant(1);
    w_shape_ = w.shape();
    groups_ = groups, outputs_ = w.dim(0), channels_ = w.dim(1) * groups;
    taps_ = w.dim(0) * w.dim(1) == 0 ? 0 : w.elements() / w.dim(0) / w.dim(1);
    depthwise_ = w.dim(1) == 1 && outputs_ == groups_ && groups_ > 1;
    if (const Tensor* b = context.constant(2)) {
      BOLIDE_TRY(bias_, Tensor::make(DType::kF32, b->shape()));
      std::copy(b->as<float>().begin(), b->as<float>().end(), bias_.mutate<float>().begin());
    }
    const float* const from = w.as<float>().data();
    const int64_t channels = w.dim(1), depth = channels * taps_, rows = outputs_ / groups_;
    if (depthwise_) {  // [taps, channels]
      BOLIDE_TRY(weights_, Tensor::make(DType::kF32, {w.elements()}, packed_pool()));
      float* const to = weights_.mutate<float>().data();
      for (int64_t m = 0; m < outputs_; ++m)
        for (int64_t t = 0; t < taps_; ++t) to[t * outputs_ + m] = from[m * taps_ + t];
      return {};
    }
    strips_size_ = igemm::strips_size(depth, rows);
    BOLIDE_TRY(weights_, Tensor::make(DType::kF32, {groups_ * strips_size_}, packed_pool()));
    float* const strips = weights_.mutate<float>().data();
    const int64_t count = (rows + igemm::kStrip - 1) / igemm::kStrip;
    // Strip by strip: its rows of [channels, taps] become [taps, channels], then columns.
    std::vector<std::vector<float>> turned(static_cast<size_t>(context.workers.threads()));
    context.workers.run(groups_ * count, [&](int64_t chunk, int thread) {
      std::vector<float>& lines = turned[static_cast<size_t>(thread)];
      lines.resize(static_cast<size_t>(igemm::kStrip * depth));
      const int64_t first = chunk % count * igemm::kStrip, columns = std::min(igemm::kStrip, rows - first);
      const float* block = from + (chunk / count * rows + first) * depth;
      if (taps_ > 1) {
        for (int64_t m = 0; m < columns; ++m)
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t t = 0; t < taps_; ++t)
              lines[static_cast<size_t>(m * depth + t * channels + c)] = block[m * depth + c * taps_ + t];
        block = lines.data();
      }
      igemm::pack_strips(isa_, block, 1, depth, depth, columns, 0, 1,
                         strips + chunk / count * strips_size_ + chunk % count * depth * igemm::kStrip);
    });
    return {};
  }

  std::string_view kernel() const override {
    if (depthwise_) return isa_ == Isa::kAvx512 ? "depthwise_f32_avx512" : "depthwise_f32_avx2";
    return isa_ == Isa::kAvx512 ? "igemm_f32_avx512" : "igemm_f32_avx2";
  }
  size_t bytes() const override { return weights_.bytes() + bias_.bytes(); }
  bool holds(size_t input) const override { return input == 1; }

  Result<bool> run(RunContext& c) const override {
    const Tensor* given[kInputs] = {};
    for (size_t i = 0; i < std::min(kInputs, c.inputs()); ++i) {
      if (holds(i)) continue;
      BOLIDE_TRY(given[i], c.tensor_if(i));
    }
    const Tensor *x = given[0], *z = given[3];
    if (x == nullptr || x->dtype() != DType::kF32 || x->rank() != w_shape_.rank)
      return error(Code::kInvalid,
                   fmt::format("X is {}, W f32{}", x == nullptr ? "missing" : described(*x), to_string(w_shape_)));
    if (z != nullptr && z->dtype() != DType::kF32) return error(Code::kInvalid, "Z is " + described(*z));
    const Tensor* const b = bias_ ? &bias_ : given[2];
    if (b != nullptr && b->dtype() != DType::kF32) return error(Code::kInvalid, "B is " + described(*b));
    std::vector<igemm::Part> parts;
    Shape read = x->shape();
    if (joined_) {
      BOLIDE_TRY(parts, read_parts(c));
      read[read.rank - 1] = 0;
      for (const igemm::Part& part : parts) read[read.rank - 1] += part.depth;
    }
    const Tensor image = Tensor::over(nullptr, nullptr, DType::kF32, read);
    const Tensor first = channels_last_ ? as_channels_first(image) : image;
    const Tensor w = Tensor::over(nullptr, nullptr, DType::kF32, w_shape_);
    BOLIDE_TRY(const Convolution convolution, read_convolution(c, first, w, b));
    Shape last{convolution.shape[0]};
    for (int i = 2; i < convolution.shape.rank; ++i) last.dims[static_cast<size_t>(last.rank++)] = convolution.shape[i];
    last.dims[static_cast<size_t>(last.rank++)] = convolution.shape[1];
    const Shape& shape = channels_last_ ? last : convolution.shape;
    if (z != nullptr && z->shape() != shape)
      return error(Code::kInvalid, fmt::format("Z is {}, expected {}", described(*z), to_string(shape)));
    if (parts.size() > 1 && !convolution.window.is_pointwise())
      return error(Code::kUnsupported, "several parts are read by convolutions of single pixels alone");
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
    if (y->elements() == 0) return true;
    if (channels_last_) {
      if (parts.empty()) parts.push_back({x->as<float>().data(), channels_, channels_});
      compute(c, convolution, parts, data_of(b), data_of(z), y->mutate<float>().data());
      return true;
    }
    BOLIDE_TRY(const Tensor turned_x, to_channels_last(c, isa_, *x));
    BOLIDE_TRY(const Tensor turned_z, z == nullptr ? Result<Tensor>(Tensor()) : to_channels_last(c, isa_, *z));
    BOLIDE_TRY(Tensor turned_y, c.scratch(DType::kF32, last));
    parts.push_back({turned_x.as<float>().data(), channels_, channels_});
    compute(c, convolution, parts, data_of(b), z == nullptr ? nullptr : data_of(&turned_z),
            turned_y.mutate<float>().data());
    BOLIDE_TRY(to_channels_first(c, isa_, turned_y, *y));
    return true;
  }

 private:
  static std::string described(const Tensor& t) {
    return fmt::format("{}{}", to_string(t.dtype()), to_string(t.shape()));
  }
  static const float* data_of(const Tensor* t) { return t == nullptr ? nullptr : t->as<float>().data(); }

  static Result<std::vector<igemm::Part>> read_parts(const RunContext& c) {
    BOLIDE_TRY(const std::vector<ChannelsPart> parts, joined_parts(c));
    std::vector<igemm::Part> to;
    for (const ChannelsPart& part : parts)
      to.push_back({part.x->as<float>().data() + part.first, part.x->dim(-1), part.count});
    return to;
  }

  // Several parts: of a convolution that reads each pixel by itself.
  void compute(RunContext& c, const Convolution& convolution, std::span<const igemm::Part> parts, const float* bias,
               const float* z, float* y) const {
    const float* const x = parts[0].a;
    igemm::Windows windows = windows_of(convolution.window, channels_);
    windows.pixel_stride = parts[0].stride;
    if (depthwise_) {
      channels_last::depthwise(c.workers(), isa_,
                               {.windows = windows,
                                .images = convolution.N,
                                .x = x,
                                .weights = weights_.as<float>().data(),
                                .bias = bias,
                                .residual = z,
                                .y = y,
                                .activation = activation_.kind,
                                .alpha = activation_.alpha,
                                .beta = activation_.beta});
      return;
    }
    windows.channels = channels_ / groups_;
    const int64_t rows = outputs_ / groups_;
    std::vector<igemm::Item> items;
    for (int64_t g = 0; g < groups_; ++g)
      items.push_back({x + g * windows.channels, weights_.as<float>().data() + g * strips_size_, y + g * rows,
                       bias == nullptr ? nullptr : bias + g * rows, z == nullptr ? nullptr : z + g * rows});
    igemm::multiply(c.workers(), isa_,
                    {.items = items,
                     .M = convolution.N * convolution.window.outputs(),
                     .N = rows,
                     .K = windows.depth(),
                     .parts = parts.size() > 1 ? parts : std::span<const igemm::Part>(),
                     .a_stride = parts[0].stride,
                     .windows = convolution.window.is_pointwise() ? nullptr : &windows,
                     .c_stride = outputs_,
                     .residual_stride = outputs_,
                     .activation = activation_.kind,
                     .alpha = activation_.alpha,
                     .beta = activation_.beta});
  }

  Isa isa_;
  bool channels_last_, joined_;
  FusedActivation activation_;
  bool depthwise_ = false;
  int64_t groups_ = 1, outputs_ = 0, channels_ = 0, taps_ = 0, strips_size_ = 0;
  Shape w_shape_;
  Tensor weights_, bias_;
};

Result<std::unique_ptr<PreparedOp>> prepare(const PrepareContext& context, Layout layout) {
  if (!igemm::supports(context.device.isa)) return nullptr;
  const Tensor *w = context.constant(1), *b = context.constant(2);
  if (w == nullptr || w->dtype() != DType::kF32 || (w->rank() != 3 && w->rank() != 4) || w->elements() == 0)
    return nullptr;
  if (b != nullptr && (b->dtype() != DType::kF32 || b->rank() != 1 || b->elements() != w->dim(0))) return nullptr;
  const auto groups = context.attributes.integer("group", 1);
  const auto activation = fused_activation(context.attributes);
  if (!groups || !activation || *groups < 1 || w->dim(0) % *groups != 0) return nullptr;  // the row says what is wrong
  if (layout == Layout::kJoined && *groups > 1) return nullptr;
  int64_t size = 0;
  if (__builtin_mul_overflow(w->dim(1), *groups, &size)) return nullptr;
  auto made = std::make_unique<PreparedConv>(context, layout, *activation);
  BOLIDE_TRY(made->pack(context, *groups));
  return made;
}

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_conv(const PrepareContext& context) {
  return prepare(context, Layout::kFirst);
}
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_conv(const PrepareContext& context) {
  return prepare(context, Layout::kLast);
}
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_joined_conv(const PrepareContext& context) {
  return prepare(context, Layout::kJoined);
}

}  // namespace bolide
