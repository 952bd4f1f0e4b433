// QConv with packed weights: kernels/igemm_int8.
#include <algorithm>
#include <array>

#include "ops/dense.h"
#include "ops/quantised_prepared.h"
#include "ops/shape.h"
#include "tensor/caching_pool.h"

namespace bolide {
namespace {

constexpr int64_t kTapsMax = 4096;
constexpr int64_t kFewChannels = 16;  // fewer: a row of taps is one run of a copy with padding around it

// Weights [M, C / group, taps] as [M][taps][channels padded].
std::vector<int8_t> by_taps(const Tensor& w, int64_t channels, int64_t padded_channels, uint8_t flip) {
  const int64_t M = w.dim(0), taps = w.elements() / std::max<int64_t>(1, M * channels);
  std::vector<int8_t> to(static_cast<size_t>(M * taps * padded_channels));
  const uint8_t* from = bytes_of(w);
  for (int64_t m = 0; m < M; ++m)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t t = 0; t < taps; ++t)
        to[static_cast<size_t>((m * taps + t) * padded_channels + c)] = static_cast<int8_t>(*from++ ^ flip);
  return to;
}

// Three planes as pixels of four bytes, of which the last is 0.
void interleave(const uint8_t* __restrict a, const uint8_t* __restrict b, const uint8_t* __restrict c, int64_t n,
                uint8_t* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i * 4] = a[i], to[i * 4 + 1] = b[i], to[i * 4 + 2] = c[i], to[i * 4 + 3] = 0;
}

class PreparedQConv : public PreparedOp {
 public:
  PreparedQConv(const Int8Engine& engine, QuantisedSpec spec, bool first)
      : engine_(engine), spec_(std::move(spec)), channels_first_(first) {}

  std::string_view kernel() const override { return kernel_; }
  size_t bytes() const override {
    size_t bytes = finish_.bytes() + lines_finish_.bytes();
    for (const PackedInt8& packed : packed_) bytes += packed.bytes();
    return bytes;
  }
  bool holds(size_t input) const override { return input == kW; }

  // `dense`: no dilation along a row.
  Result<bool> pack(const Tensor& w, int64_t groups, bool dense) {
    const int64_t M = w.dim(0);
    shape_of_w_ = Tensor::over(nullptr, nullptr, w.dtype(), w.shape());
    channels_ = w.dim(1);
    depthwise_ = channels_ == 1 && groups == M && groups > 1;
    copied_ = !depthwise_ && groups == 1 && (channels_first_ || channels_ % 4 != 0 || channels_ < kFewChannels);
    if (!depthwise_ && !copied_ && channels_ % 4 != 0) return false;
    if (channels_first_ && !copied_) return false;
    depth_ = copied_ ? padded(channels_, 4) : channels_;
    const uint8_t flip = w.dtype() == DType::kU8 ? 0x80 : 0;
    const std::vector<int8_t> rows = by_taps(w, channels_, depth_, flip);
    taps_ = M == 0 ? 0 : static_cast<int64_t>(rows.size()) / (M * depth_);
    if (M == 0 || depth_ == 0 || taps_ < 1 || taps_ > kTapsMax || depth_ > (1 << 24) / taps_) return false;
    if (depthwise_) {
      BOLIDE_TRY(PackedInt8 packed, pack_int8_depthwise(M, taps_, rows.data()));
      packed_.push_back(std::move(packed));
    } else if (copied_ && lines_fit(w, dense)) {
      const int64_t width = w.dim(3) * depth_, height = w.dim(2), K = height * kLineBytes;
      std::vector<int8_t> lines(static_cast<size_t>(M * K));  // a row of the kernel each, zeros behind it
      for (int64_t i = 0; i < M * height; ++i)
        std::copy_n(rows.data() + i * width, width, lines.data() + i * kLineBytes);
      BOLIDE_TRY(PackedInt8 packed, pack_int8(engine_, M, K, lines.data(), K, 1, 0, packed_pool()));
      packed_.push_back(std::move(packed));
      lines_ = true;
    } else {
      const int64_t each = M / groups, K = taps_ * depth_;
      lines_ = !copied_ && groups == 1 && engine_.lines != nullptr && depth_ % kLineBytes == 0;
      for (int64_t g = 0; g < groups; ++g) {
        BOLIDE_TRY(PackedInt8 packed, pack_int8(engine_, each, K, rows.data() + g * each * K, K, 1, 0, packed_pool()));
        packed_.push_back(std::move(packed));
      }
    }
    kernel_ = fmt::format("{}_int8_{}", depthwise_ ? "depthwise" : "conv", engine_.isa);
    BOLIDE_TRY(finish_, FinishConstants::make(spec_, packed_, taps_ * depth_));
    if (lines_) {
      BOLIDE_TRY(lines_finish_, FinishConstants::make(spec_, packed_, taps_ * depth_, false));
    }
    return true;
  }

  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(kX));
    BOLIDE_TRY(check_codes(*x, spec_.x.dtype, "x"));
    if (x->rank() != 4) return error(Code::kInvalid, fmt::format("x is {}, expected 4 dims", to_string(x->shape())));
    BOLIDE_TRY(const Convolution conv, quantised_convolution(c, *x, shape_of_w_, channels_first_));
    const Shape shape = channels_last(conv.shape);
    const Tensor* residual = nullptr;
    bool row = false;
    if (spec_.has_residual) {
      BOLIDE_TRY(residual, c.tensor(kResidual));
      BOLIDE_TRY(row, check_residual(*residual, spec_, shape));
    }
    BOLIDE_TRY(Tensor * y, c.make(0, spec_.out_dtype(), shape));
    if (y->elements() == 0) return true;
    Int8Job job;
    job.engine = &engine_, job.weights = packed_.data();
    job.rows = conv.N * conv.window.outputs(), job.taps = taps_, job.quads = depth_ / 4;
    job.flip = spec_.x.dtype == DType::kI8;
    const bool by_lines = lines_ && (copied_ || conv.window.outputs() >= kTileRows);
    job.finish = (by_lines ? lines_finish_ : finish_).of(spec_, residual, y->mutable_data(), conv.M);
    if (row) job.finish.residual_stride = 0;
    if (by_lines && !copied_) return run_lines(c, conv, *x, job);
    return copied_ ? run_copied(c, conv, *x, job) : run_in_place(c, conv, *x, job);
  }

 private:
  static Result<Tensor> scratch_of(RunContext& c, const Int8Job& job) {
    return c.scratch(DType::kU8, {static_cast<int64_t>(job.scratch_bytes(c.workers().threads()))});
  }

  bool lines_fit(const Tensor& w, bool dense) const {
    return engine_.lines != nullptr && dense && w.rank() == 4 && w.dim(3) * depth_ <= kLineBytes;
  }

  // Outputs of a line read pixels that follow each other: of x itself, or of a copy with padding, one for each place
  // that a window's taps have between two windows.
  Result<bool> run_lines(RunContext& c, const Convolution& conv, const Tensor& x, const Int8Job& plain) const {
    const Window& g = conv.window;
    const int64_t C = conv.C, H = g.input[0], W = g.input[1], out_h = g.output[0], out_w = g.output[1];
    Int8LinesJob job{.engine = &engine_, .weights = plain.weights, .image = {}, .finish = plain.finish};
    job.images = conv.N, job.results = out_h * out_w;
    const std::array stride{g.stride[0], g.stride[1]};
    const bool in_place =
        g.begin[0] == 0 && g.begin[1] == 0 && g.end[0] == 0 && g.end[1] == 0 && stride[0] == 1 && stride[1] == 1;
    std::array<int64_t, 2> size{H, W};  // of what is read
    if (!in_place)
      for (size_t d = 0; d < 2; ++d) size[d] = g.output[d] + (g.kernel[d] - 1) * g.dilation[d] / stride[d];
    std::vector<int64_t> taps, places;
    for (int64_t ky = 0; ky < g.kernel[0]; ++ky)
      for (int64_t kx = 0; kx < g.kernel[1]; ++kx) {
        const int64_t yy = ky * g.dilation[0], xx = kx * g.dilation[1];
        const int64_t place = yy % stride[0] * stride[1] + xx % stride[1];
        auto it = std::find(places.begin(), places.end(), place);
        if (it == places.end()) it = places.insert(places.end(), place);
        taps.push_back((((it - places.begin()) * size[0] + yy / stride[0]) * size[1] + xx / stride[1]) * C);
      }
    Tensor copy;
    if (!in_place) {
      const auto count = static_cast<int64_t>(places.size());
      BOLIDE_TRY(copy, c.scratch(DType::kU8, {conv.N, count, size[0], size[1], C}));
      copy_places(c.workers(), g, bytes_of(x), C, places, size, bytes_of(copy), conv.N);
      job.image_stride = count * size[0] * size[1] * C;
    } else {
      job.image_stride = H * W * C;
    }
    Int8LinesArgs& image = job.image;
    image.base = in_place ? bytes_of(x) : bytes_of(copy);
    image.row_stride = C, image.line_stride = size[1] * C;
    image.taps = taps.data(), image.tap_count = taps_, image.tap_bytes = C;
    image.is_signed = spec_.x.dtype == DType::kI8;
    image.period = size[1], image.valid = out_w, image.positions = (out_h - 1) * size[1] + out_w;
    if (taps_ == 1) {  // images, too, follow each other
      job.images = 1, job.results = image.positions = image.period = image.valid = conv.N * out_h * out_w;
      image.line_stride = image.period * C;
    }
    run_int8_lines(job, c.workers());
    return true;
  }
  // Pixels of the padded image at one place between windows, [N][places][size[0]][size[1]][C].
  void copy_places(Workers& workers, const Window& g, const uint8_t* x, int64_t C, const std::vector<int64_t>& places,
                   std::array<int64_t, 2> size, uint8_t* to, int64_t N) const {
    const auto count = static_cast<int64_t>(places.size());
    const int64_t H = g.input[0], W = g.input[1], line = size[1] * C;
    const auto zero = static_cast<uint8_t>(spec_.x.zero);
    parallel(workers, N * count * size[0], std::max<int64_t>(1, 16384 / line), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t place = places[static_cast<size_t>(i / size[0] % count)];
        const int64_t yy = i % size[0] * g.stride[0] + place / g.stride[1] - g.begin[0];
        uint8_t* const at = to + i * line;
        if (yy < 0 || yy >= H) {
          std::fill_n(at, line, zero);
          continue;
        }
        const uint8_t* const from = x + (i / size[0] / count * H + yy) * W * C;
        const int64_t x0 = place % g.stride[1] - g.begin[1];  // the first column's, which padding may have
        const int64_t first = std::clamp<int64_t>((-x0 + g.stride[1] - 1) / g.stride[1], 0, size[1]);
        const int64_t last = x0 >= W ? first : std::clamp((W - 1 - x0) / g.stride[1] + 1, first, size[1]);
        std::fill_n(at, first * C, zero);
        if (g.stride[1] == 1)
          std::copy_n(from + (x0 + first) * C, (last - first) * C, at + first * C);
        else
          for (int64_t j = first; j < last; ++j) std::copy_n(from + (x0 + j * g.stride[1]) * C, C, at + j * C);
        std::fill_n(at + last * C, line - last * C, zero);
      }
    });
  }

  // Channels lie side by side in x: taps are where they are, or a row of zero points.
  Result<bool> run_in_place(RunContext& c, const Convolution& conv, const Tensor& x, Int8Job job) const {
    const Window& g = conv.window;
    BOLIDE_TRY(Tensor zeros, c.scratch(DType::kU8, {padded(conv.C, 64)}));
    std::fill_n(bytes_of(zeros), conv.C, static_cast<uint8_t>(spec_.x.zero));
    const int64_t H = g.input[0], W = g.input[1], C = conv.C, KW = g.kernel[1];
    BOLIDE_TRY(Tensor scratch, scratch_of(c, job));
    const uint8_t* const no_pixel = zeros.as<uint8_t>().data();
    const auto groups = static_cast<int64_t>(packed_.size());
    for (int64_t group = 0; group < groups; ++group) {
      const uint8_t* const from = bytes_of(x) + group * channels_;
      const bool pointwise = g.is_pointwise();
      const auto point = [&](int64_t row0, int64_t rows, const uint8_t** to, int64_t stride) {
        if (pointwise) {
          for (int64_t i = 0; i < rows; ++i) to[i] = from + (row0 + i) * C;
          return;
        }
        int64_t ox = row0 % g.output[1] - 1, oy = row0 / g.output[1] % g.output[0];
        int64_t image = row0 / (g.output[0] * g.output[1]);
        for (int64_t i = 0; i < rows; ++i) {
          if (++ox == g.output[1]) {
            ox = 0;
            if (++oy == g.output[0]) oy = 0, ++image;
          }
          const int64_t y0 = oy * g.stride[0] - g.begin[0], x0 = ox * g.stride[1] - g.begin[1];
          const int64_t first = (image * H + y0) * W + x0;
          const bool inside =
              y0 >= 0 && y0 + (g.kernel[0] - 1) * g.dilation[0] < H && x0 >= 0 && x0 + (KW - 1) * g.dilation[1] < W;
          const uint8_t** at = to + i;
          for (int64_t ky = 0; ky < g.kernel[0]; ++ky) {
            const int64_t yy = y0 + ky * g.dilation[0];
            for (int64_t kx = 0; kx < KW; ++kx, at += stride) {
              const int64_t xx = x0 + kx * g.dilation[1];
              const bool there = inside || (yy >= 0 && yy < H && xx >= 0 && xx < W);
              *at = there ? from + (first + ky * g.dilation[0] * W + kx * g.dilation[1]) * C : no_pixel;
            }
          }
        }
      };
      if (depthwise_) {
        run_int8_depthwise(job, point, bytes_of(scratch), c.workers());
        break;
      }
      run_int8(job, point, bytes_of(scratch), c.workers());
      if (group + 1 < groups) {
        job.weights = &packed_[static_cast<size_t>(group + 1)];
        const int64_t each = packed_[0].n;
        job.finish = advanced(job.finish, 0, each);
        // Constants of a group begin at a full panel of their own.
        job.finish.offsets += padded(each, kInt8PanelColumns) - each;
        job.finish.scales += padded(each, kInt8PanelColumns) - each;
      }
    }
    return true;
  }

  // A copy of x with its padding and channels of a multiple of 4: a row of the kernel is one run of bytes.
  Result<bool> run_copied(RunContext& c, const Convolution& conv, const Tensor& x, Int8Job job) const {
    const Window& g = conv.window;
    const int64_t H = g.input[0], W = g.input[1], C = conv.C;
    const int64_t height = H + g.begin[0] + g.end[0], width = W + g.begin[1] + g.end[1];
    BOLIDE_TRY(const int64_t row_bytes, product_of(std::array{width, depth_}));
    const int64_t period = padded(g.output[1], kTileRows), pixel = g.stride[1] * depth_;
    const int64_t behind = lines_ ? period * pixel + kLineBytes : 0;  // that tiles read at the end of a line
    BOLIDE_TRY(const int64_t all, product_of(std::array{conv.N, height, row_bytes}));
    BOLIDE_TRY(Tensor copy, c.scratch(DType::kU8, {all + behind}));
    const uint8_t* const from = bytes_of(x);
    uint8_t* const to = bytes_of(copy);
    const auto zero = static_cast<uint8_t>(spec_.x.zero);
    parallel(c.workers(), conv.N * height, std::max<int64_t>(1, 16384 / row_bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        uint8_t* row = to + i * row_bytes;
        const int64_t n = i / height, yy = i % height - g.begin[0];
        std::fill_n(row, row_bytes, zero);
        if (yy < 0 || yy >= H) continue;
        row += g.begin[1] * depth_;
        if (channels_first_ && C == 3) {
          const uint8_t* const in = from + (n * C * H + yy) * W;
          interleave(in, in + H * W, in + 2 * H * W, W, row);
          continue;
        }
        for (int64_t k = 0; k < C; ++k) {
          if (channels_first_) {
            const uint8_t* in = from + ((n * C + k) * H + yy) * W;
            for (int64_t j = 0; j < W; ++j) row[j * depth_ + k] = in[j];
          } else {
            const uint8_t* in = from + (n * H + yy) * W * C + k;
            for (int64_t j = 0; j < W; ++j) row[j * depth_ + k] = in[j * C];
          }
        }
      }
    });
    if (lines_) {
      std::vector<int64_t> taps(static_cast<size_t>(g.kernel[0]));
      for (size_t i = 0; i < taps.size(); ++i) taps[i] = static_cast<int64_t>(i) * g.dilation[0] * row_bytes;
      Int8LinesJob lines{.engine = &engine_, .weights = job.weights, .image = {}, .finish = job.finish};
      lines.images = conv.N, lines.image_stride = height * row_bytes, lines.results = g.outputs();
      Int8LinesArgs& image = lines.image;
      image.base = to, image.row_stride = pixel, image.line_stride = g.stride[0] * row_bytes;
      image.taps = taps.data(), image.tap_count = g.kernel[0], image.tap_bytes = kLineBytes;
      image.is_signed = spec_.x.dtype == DType::kI8;
      image.period = period, image.valid = g.output[1], image.positions = g.output[0] * period;
      std::fill_n(to + all, behind, uint8_t{0});
      run_int8_lines(lines, c.workers());
      return true;
    }
    const bool whole_rows = g.dilation[1] == 1;
    const int64_t runs = whole_rows ? 1 : g.kernel[1];
    if (whole_rows) job.taps = g.kernel[0], job.quads = g.kernel[1] * depth_ / 4;
    BOLIDE_TRY(Tensor scratch, scratch_of(c, job));
    const auto point = [&](int64_t row0, int64_t rows, const uint8_t** at, int64_t stride) {
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = row0 + i, ox = row % g.output[1], oy = row / g.output[1] % g.output[0];
        const int64_t image = row / (g.output[0] * g.output[1]);
        const uint8_t* first = to + (image * height + oy * g.stride[0]) * row_bytes + ox * g.stride[1] * depth_;
        for (int64_t ky = 0; ky < g.kernel[0]; ++ky)
          for (int64_t kx = 0; kx < runs; ++kx)
            at[(ky * runs + kx) * stride + i] = first + ky * g.dilation[0] * row_bytes + kx * g.dilation[1] * depth_;
      }
    };
    run_int8(job, point, bytes_of(scratch), c.workers());
    return true;
  }

  const Int8Engine& engine_;
  QuantisedSpec spec_;
  bool channels_first_, depthwise_ = false, copied_ = false;
  bool lines_ = false;                           // weights are packed for Int8LinesJob, or for both
  int64_t channels_ = 0, depth_ = 0, taps_ = 0;  // of a group; depth_: as they lie
  Tensor shape_of_w_;                            // without elements
  std::vector<PackedInt8> packed_;               // by group
  FinishConstants finish_, lines_finish_;
  std::string kernel_;
};

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_quantised_conv(const PrepareContext& context) {
  const Int8Engine* engine = int8_engine(context.device);
  const Tensor* w = context.constant(kW);
  BOLIDE_TRY(const int64_t groups, context.attributes.integer("group", 1));
  BOLIDE_TRY(const int64_t first, context.attributes.integer("x_channels_first", 0));
  if (engine == nullptr || w == nullptr || w->rank() != 4 || groups < 1 || w->dim(0) % groups != 0) return nullptr;
  BOLIDE_TRY(auto spec, constants_of(context, w->dim(0)));
  if (!spec || spec->w_dtype != w->dtype() || !zeros_vanish(*spec)) return nullptr;
  auto prepared = std::make_unique<PreparedQConv>(*engine, *std::move(spec), first != 0);
  BOLIDE_TRY(const auto dilations, context.attributes.integers("dilations"));
  BOLIDE_TRY(const bool packed, prepared->pack(*w, groups, dilations.empty() || dilations.back() == 1));
  if (!packed) return nullptr;
  return std::unique_ptr<PreparedOp>(std::move(prepared));
}

}  // namespace bolide
