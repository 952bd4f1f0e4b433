#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "ops/dense.h"
#include "ops/ops.h"
#include "ops/shape.h"

namespace bolide {
namespace {

using Complex = std::complex<double>;

Complex root_of_unity(int64_t k, int64_t n, bool inverse) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  return {std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle)};
}

// Discrete Fourier transforms of one length, not scaled: radix 2 (Cooley & Tukey 1965) for powers of two, all others as
// a convolution of such a length (Bluestein 1970).
class Fourier {
 public:
  Fourier(int64_t n, bool inverse) : n_(n), inverse_(inverse) {
    while (padded_ < (is_power() ? n : 2 * n - 1)) padded_ *= 2;
    for (int64_t k = 0; k < padded_ / 2; ++k) roots_.push_back(root_of_unity(k, padded_, false));
    if (is_power()) return;
    kernel_.resize(static_cast<size_t>(padded_));
    for (int64_t k = 0; k < n; ++k) {
      // exp(-i pi k^2 / n); k^2 modulo 2 n keeps the angle exact.
      const auto square = static_cast<int64_t>(static_cast<unsigned __int128>(k) * static_cast<unsigned __int128>(k) %
                                               static_cast<unsigned __int128>(2 * n));
      chirp_.push_back(root_of_unity(square, 2 * n, inverse));
      kernel_[static_cast<size_t>(k)] = std::conj(chirp_.back());
      if (k > 0) kernel_[static_cast<size_t>(padded_ - k)] = std::conj(chirp_.back());
    }
    transform(kernel_, false);
  }

  void run(std::vector<Complex>& values) const {  // n of them
    if (is_power()) {
      transform(values, inverse_);
      return;
    }
    std::vector<Complex> work(static_cast<size_t>(padded_));
    for (size_t k = 0; k < values.size(); ++k) work[k] = times(values[k], chirp_[k]);
    transform(work, false);
    for (size_t k = 0; k < work.size(); ++k) work[k] = times(work[k], kernel_[k]);
    transform(work, true);
    for (size_t k = 0; k < values.size(); ++k) values[k] = times(work[k], chirp_[k]) / static_cast<double>(padded_);
  }

 private:
  bool is_power() const { return (n_ & (n_ - 1)) == 0; }
  // operator* looks for infinities, which costs a call.
  static Complex times(Complex a, Complex b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
  void transform(std::vector<Complex>& values, bool inverse) const {
    const size_t n = values.size();
    for (size_t i = 1, j = 0; i < n; ++i) {
      size_t bit = n >> 1;
      for (; j & bit; bit >>= 1) j ^= bit;
      j ^= bit;
      if (i < j) std::swap(values[i], values[j]);
    }
    for (size_t half = 1; half < n; half *= 2)
      for (size_t begin = 0; begin < n; begin += 2 * half)
        for (size_t k = 0; k < half; ++k) {
          const Complex root = roots_[k * (n / (2 * half))];
          const Complex odd = times(values[begin + half + k], inverse ? std::conj(root) : root);
          values[begin + half + k] = values[begin + k] - odd;
          values[begin + k] += odd;
        }
  }

  int64_t n_, padded_ = 1;
  bool inverse_;
  std::vector<Complex> roots_, chirp_, kernel_;
};

constexpr int64_t kLengthMax = int64_t{1} << 24;

Result<> run_dft(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const int64_t inverse, c.attributes().integer("inverse", 0));
  BOLIDE_TRY(const int64_t onesided, c.attributes().integer("onesided", 0));
  BOLIDE_TRY(int64_t given, c.attributes().integer("axis", 1));
  if (c.version() >= 20) {
    BOLIDE_TRY(const auto axes, c.integers(2, {-2}, 1));
    if (axes.empty()) return error(Code::kInvalid, "axis has no element");
    given = axes[0];
  }
  BOLIDE_TRY(const int axis, axis_of(given, x->rank()));
  if (x->rank() < 2 || axis == x->rank() - 1 || (x->dim(-1) != 1 && x->dim(-1) != 2))
    return error(Code::kInvalid, fmt::format("no transform of {} along axis {}: expected [..., 1] or [..., 2]",
                                             to_string(x->shape()), given));
  const int64_t size = x->dim(axis), parts = x->dim(-1);
  BOLIDE_TRY(const auto lengths, c.integers(1, {inverse && onesided ? 2 * (size - 1) : size}, 1));
  if (lengths.empty()) return error(Code::kInvalid, "dft_length has no element");
  const int64_t length = lengths[0];
  if (length < 1 || length > kLengthMax)
    return error(Code::kInvalid, fmt::format("a transform of length {}, expected 1 to {}", length, kLengthMax));
  Shape shape = x->shape();
  shape[axis] = onesided != 0 && inverse == 0 ? length / 2 + 1 : length;
  shape[-1] = onesided != 0 && inverse != 0 ? 1 : 2;
  BOLIDE_TRY(product_of(shape.span()));
  return in_float(x->dtype(), "the input", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *x));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    const T* in = wide.as<T>().data();
    T* out = y.mutate<T>().data();
    const int64_t inner = strides_of(x->shape())[static_cast<size_t>(axis)] / std::max<int64_t>(parts, 1);
    const int64_t rows = y.elements() / (shape[axis] * shape[-1]);
    const Fourier fourier(length, inverse != 0);
    parallel(c.workers(), rows, 1, [&](int64_t begin, int64_t end) {
      std::vector<Complex> values;
      for (int64_t row = begin; row < end; ++row) {
        const int64_t outer = row / inner, rest = row % inner;
        values.assign(static_cast<size_t>(length), {});
        for (int64_t k = 0; k < std::min(size, length); ++k) {
          const T* from = in + ((outer * size + k) * inner + rest) * parts;
          values[static_cast<size_t>(k)] = {static_cast<double>(from[0]),
                                            parts == 2 ? static_cast<double>(from[1]) : 0};
        }
        if (onesided != 0 && inverse != 0) {  // the other half is the mirror of this one
          for (int64_t k = length / 2 + 1; k < length; ++k)
            values[static_cast<size_t>(k)] = std::conj(values[static_cast<size_t>(length - k)]);
          values[0] = values[0].real();
          if (length % 2 == 0) values[static_cast<size_t>(length / 2)] = values[static_cast<size_t>(length / 2)].real();
        }
        fourier.run(values);
        const double scale = inverse != 0 ? 1 / static_cast<double>(length) : 1;
        for (int64_t k = 0; k < shape[axis]; ++k) {
          T* to = out + ((outer * shape[axis] + k) * inner + rest) * shape[-1];
          to[0] = static_cast<T>(values[static_cast<size_t>(k)].real() * scale);
          if (shape[-1] == 2) to[1] = static_cast<T>(values[static_cast<size_t>(k)].imag() * scale);
        }
      }
    });
    return emit(c, 0, x->dtype(), std::move(y));
  });
}

// signal [N, length, 1 or 2] (or [N, length]) > [N, frames, bins, 2]
Result<> run_stft(RunContext& c) {
  BOLIDE_TRY(const Tensor* signal, c.tensor(0));
  BOLIDE_TRY(const auto steps, c.integers(1, {}, 1));
  BOLIDE_TRY(const Tensor* window, c.tensor_if(2));
  BOLIDE_TRY(const int64_t onesided, c.attributes().integer("onesided", 1));
  if (signal->rank() < 2 || signal->rank() > 3 || (signal->rank() == 3 && signal->dim(2) != 1 && signal->dim(2) != 2))
    return error(Code::kInvalid,
                 fmt::format("signal is {}, expected [N, length, 1] or [N, length, 2]", to_string(signal->shape())));
  const int64_t N = signal->dim(0), length = signal->dim(1), parts = signal->rank() == 3 ? signal->dim(2) : 1;
  if (window != nullptr && window->rank() != 1)
    return error(Code::kInvalid, fmt::format("window is {}", to_string(window->shape())));
  BOLIDE_TRY(const auto frame_lengths, c.integers(3, {window != nullptr ? window->dim(0) : length}, 1));
  if (steps.empty() || frame_lengths.empty()) return error(Code::kInvalid, "frame_step or frame_length is empty");
  const int64_t frame_step = steps[0], frame = frame_lengths[0];
  if (frame_step < 1 || frame < 1 || frame > length || frame > kLengthMax)
    return error(Code::kInvalid, fmt::format("frames of {} each {} of a signal of {}", frame, frame_step, length));
  if (window != nullptr) BOLIDE_TRY(expect_shape(*window, {frame}, "window"));
  const int64_t frames = (length - frame) / frame_step + 1, bins = onesided != 0 ? frame / 2 + 1 : frame;
  const Shape shape{N, frames, bins, 2};
  BOLIDE_TRY(product_of(shape.span()));
  return in_float(signal->dtype(), "signal", [&]<class T>() -> Result<> {
    BOLIDE_TRY(const Tensor wide, widened<T>(c, *signal));
    BOLIDE_TRY(const Tensor weights, widened_if<T>(c, 2));
    BOLIDE_TRY(Tensor y, make_wide<T>(c, shape));
    const Fourier fourier(frame, false);
    parallel(c.workers(), N * frames, 1, [&](int64_t begin, int64_t end) {
      std::vector<Complex> values;
      for (int64_t i = begin; i < end; ++i) {
        values.assign(static_cast<size_t>(frame), {});
        const T* from = wide.as<T>().data() + (i / frames * length + i % frames * frame_step) * parts;
        for (int64_t k = 0; k < frame; ++k) {
          const double weight = weights ? static_cast<double>(weights.as<T>()[static_cast<size_t>(k)]) : 1;
          values[static_cast<size_t>(k)] = {weight * static_cast<double>(from[k * parts]),
                                            parts == 2 ? weight * static_cast<double>(from[k * parts + 1]) : 0};
        }
        fourier.run(values);
        T* to = y.mutate<T>().data() + i * bins * 2;
        for (int64_t k = 0; k < bins; ++k, to += 2) {
          to[0] = static_cast<T>(values[static_cast<size_t>(k)].real());
          to[1] = static_cast<T>(values[static_cast<size_t>(k)].imag());
        }
      }
    });
    return emit(c, 0, signal->dtype(), std::move(y));
  });
}

// output_datatype, as ONNX numbers types (TensorProto.DataType).
Result<DType> read_output_dtype(const RunContext& c) {
  BOLIDE_TRY(const int64_t number, c.attributes().integer("output_datatype", 1));
  switch (number) {
    case 1: return DType::kF32;
    case 2: return DType::kU8;
    case 3: return DType::kI8;
    case 4: return DType::kU16;
    case 5: return DType::kI16;
    case 6: return DType::kI32;
    case 7: return DType::kI64;
    case 10: return DType::kF16;
    case 11: return DType::kF64;
    case 12: return DType::kU32;
    case 13: return DType::kU64;
    case 16: return DType::kBF16;
    default: return error(Code::kInvalid, fmt::format("output_datatype is {}, which is no number type", number));
  }
}

Result<> emit_as(RunContext& c, DType dtype, const Tensor& f64) {
  BOLIDE_TRY(Tensor * out, c.make(0, dtype, f64.shape()));
  return dispatch(kNumbers, dtype, "the output", [&]<class T>() -> Result<> {
    for (size_t i = 0; i < out->as<T>().size(); ++i)
      out->mutate<T>()[i] = narrow<T>(static_cast<Wide<T>>(f64.as<double>()[i]));
    return {};
  });
}

// weights[0] + weights[1] cos(2 pi i / N) + weights[2] cos(4 pi i / N), N of a periodic window its size, else size - 1.
Result<> cosine_window(RunContext& c, const std::array<double, 3>& weights) {
  BOLIDE_TRY(const auto sizes, c.integers(0, {}, 1));
  BOLIDE_TRY(const int64_t periodic, c.attributes().integer("periodic", 1));
  BOLIDE_TRY(const DType dtype, read_output_dtype(c));
  if (sizes.empty() || sizes[0] < 0)
    return error(Code::kInvalid, fmt::format("size is {}", sizes.empty() ? "missing" : "negative"));
  BOLIDE_TRY(Tensor y, make_wide<double>(c, {sizes[0]}));
  const double N = static_cast<double>(periodic != 0 ? sizes[0] : sizes[0] - 1);
  for (int64_t i = 0; i < sizes[0]; ++i) {
    const double angle = N > 0 ? 2 * std::numbers::pi * static_cast<double>(i) / N : 0;
    y.mutate<double>()[static_cast<size_t>(i)] =
        N > 0 ? weights[0] + weights[1] * std::cos(angle) + weights[2] * std::cos(2 * angle) : 1;
  }
  return emit_as(c, dtype, y);
}

Result<> run_hann_window(RunContext& c) { return cosine_window(c, {0.5, -0.5, 0}); }
// The standard's own coefficients: 25/46 and 21/46.
Result<> run_hamming_window(RunContext& c) { return cosine_window(c, {25.0 / 46, -21.0 / 46, 0}); }
Result<> run_blackman_window(RunContext& c) { return cosine_window(c, {0.42, -0.5, 0.08}); }

// Triangles between neighbouring points of a mel scale: [dft_length / 2 + 1, bands].
Result<> run_mel_weight_matrix(RunContext& c) {
  BOLIDE_TRY(const auto bands_of, c.integers(0, {}, 1));
  BOLIDE_TRY(const auto length_of, c.integers(1, {}, 1));
  BOLIDE_TRY(const auto rate_of, c.integers(2, {}, 1));
  BOLIDE_TRY(const double lower, c.number(3, 0));
  BOLIDE_TRY(const double upper, c.number(4, 0));
  BOLIDE_TRY(const DType dtype, read_output_dtype(c));
  if (bands_of.empty() || length_of.empty() || rate_of.empty()) return error(Code::kInvalid, "an input is empty");
  const int64_t bands = bands_of[0], length = length_of[0], rate = rate_of[0];
  if (bands < 1 || bands > 1 << 20 || length < 1 || length > kLengthMax || rate < 1)
    return error(Code::kInvalid,
                 fmt::format("{} bands of transforms of {} at a sample rate of {}", bands, length, rate));
  const int64_t bins = length / 2 + 1;
  BOLIDE_TRY(Tensor y, make_wide<double>(c, {bins, bands}, true));
  const auto mel_of = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (mel_of(upper) - mel_of(lower)) / static_cast<double>(bands + 2);
  std::vector<int64_t> at;  // the bins where triangles begin, peak and end
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double hertz = 700 * (std::pow(10.0, (static_cast<double>(i) * step + mel_of(lower)) / 2595) - 1);
    const double bin = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(bin >= 0 && bin < static_cast<double>(bins)))
      return error(Code::kInvalid,
                   fmt::format("edges {} to {} Hz lie beyond what a sample rate of {} has", lower, upper, rate));
    at.push_back(static_cast<int64_t>(bin));
  }
  for (size_t i = 0; i < static_cast<size_t>(bands); ++i) {
    const auto set = [&](int64_t bin, double value) {
      y.mutate<double>()[static_cast<size_t>(bin * bands) + i] = value;
    };
    const int64_t left = at[i], peak = at[i + 1], right = at[i + 2];
    if (left == peak) set(peak, 1);
    for (int64_t j = left; left < peak && j <= peak; ++j)
      set(j, static_cast<double>(j - left) / static_cast<double>(peak - left));
    for (int64_t j = peak; j < right; ++j) set(j, static_cast<double>(right - j) / static_cast<double>(right - peak));
  }
  return emit_as(c, dtype, y);
}

constexpr OpDef kOps[] = {
    {"", "DFT", 17, run_dft},
    {"", "STFT", 17, run_stft},
    {"", "HannWindow", 17, run_hann_window},
    {"", "HammingWindow", 17, run_hamming_window},
    {"", "BlackmanWindow", 17, run_blackman_window},
    {"", "MelWeightMatrix", 17, run_mel_weight_matrix},
};

}  // namespace

std::span<const OpDef> signal_ops() { return kOps; }

}  // namespace bolide
