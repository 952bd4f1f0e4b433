#include "kernels/linear/cublaslt_tune_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "device/cuda/matmul.h"
#include "tensor/half.h"

namespace bolide {
namespace {

constexpr int kCandidates = 48;
constexpr int64_t kColdBytes = int64_t{160} << 20;  // of weights between two uses of one: beyond any level 2
constexpr int kCopiesMax = 8, kTimes = 5;
constexpr int64_t kCompared = 64;  // rows of results, from the first and from the last on

// Values of a normal distribution, again and again: random enough for the power that products draw.
std::vector<std::byte> random_values(DType dtype, int64_t count, float spread, std::mt19937& random) {
  constexpr int64_t kDrawn = 65536 + 17;
  const auto size = static_cast<int64_t>(bits_of(dtype)) / 8;
  std::normal_distribution<float> normal(0, spread);
  std::vector<std::byte> bytes(static_cast<size_t>(count * size));
  const int64_t drawn = std::min(count, kDrawn);
  for (int64_t i = 0; i < drawn; ++i) {
    const float value = normal(random);
    std::byte* at = bytes.data() + i * size;
    if (dtype == DType::kF32) {
      std::memcpy(at, &value, sizeof value);
    } else if (dtype == DType::kBF16) {
      const uint16_t bits = f32_to_bf16(value);
      std::memcpy(at, &bits, sizeof bits);
    } else {
      *at = static_cast<std::byte>(f32_to_f8e4m3(value));
    }
  }
  for (int64_t done = drawn; done < count; done += drawn)
    std::memcpy(bytes.data() + done * size, bytes.data(), static_cast<size_t>(std::min(drawn, count - done) * size));
  return bytes;
}

class TunableMatmul final : public Tunable {
 public:
  TunableMatmul(const MatmulShape& shape, Device& device) : shape_(shape), device_(device) {}

  Result<> prepare() {
    BOLIDE_TRY(stream_, device_.make_stream());
    BOLIDE_TRY(matmuls_, as_cuda(*stream_).state().matmuls());
    BOLIDE_TRY(begin_, device_.make_event());
    BOLIDE_TRY(end_, device_.make_event());
    const int64_t weight_bytes = shape_.n * shape_.k * bits_of(shape_.in) / 8;
    copies_ = static_cast<int>(std::clamp<int64_t>(kColdBytes / weight_bytes, 1, kCopiesMax));
    std::mt19937 random(1);
    BOLIDE_TRY(make(&weights_, shape_.in, shape_.n * shape_.k, 0.05f, random, copies_));
    BOLIDE_TRY(make(&x_, shape_.in, shape_.tokens * shape_.k, 1, random));
    BOLIDE_TRY(make(&out_, shape_.out, shape_.tokens * shape_.n, 1, random));
    if (shape_.has_residual) BOLIDE_TRY(make(&residual_, shape_.out, shape_.tokens * shape_.n, 1, random));
    if (shape_.has_bias)
      BOLIDE_TRY(make(&bias_, shape_.in == DType::kF8E4M3 ? DType::kBF16 : shape_.out, shape_.n, 1, random));
    if (shape_.has_scales) {
      BOLIDE_TRY(make(&x_scale_, DType::kF32, shape_.tokens, 0.5f, random));
      BOLIDE_TRY(make(&weight_scale_, DType::kF32, shape_.n, 0.5f, random));
    }
    BOLIDE_TRY(workspace_, device_.allocate(Matmuls::workspace_bytes(shape_.tokens, shape_.n), Memory::kDevice));
    BOLIDE_TRY(algorithms_, matmuls_->candidates(product(0), workspace_.bytes(), kCandidates));
    if (algorithms_.empty())
      return error(Code::kUnsupported, fmt::format("cuBLASLt has no product {}", key_of(shape_)));
    captured_.resize(algorithms_.size());
    return {};
  }

  int candidates() const override { return static_cast<int>(algorithms_.size()); }
  Tactic tactic(int candidate) const override {
    Tactic tactic;
    if (candidate > 0) tactic.bytes = algorithms_[static_cast<size_t>(candidate)];
    return tactic;
  }
  double flops() const override {
    return 2. * static_cast<double>(shape_.tokens) * static_cast<double>(shape_.n) * static_cast<double>(shape_.k);
  }

  Result<double> difference(int candidate) override {
    if (expected_.empty()) {
      BOLIDE_TRY(expected_, results(0));
    }
    BOLIDE_TRY(const std::vector<float> got, results(candidate));
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double a = static_cast<double>(got[i]), b = static_cast<double>(expected_[i]);
      error += (a - b) * (a - b), size += b * b;
    }
    return std::sqrt(error / size);
  }

  Result<double> seconds(int candidate) override {
    auto& captured = captured_[static_cast<size_t>(candidate)];
    if (captured == nullptr) {
      BOLIDE_TRY(enqueue(candidate, 0, *stream_));  // what it needs is made before it is captured
      BOLIDE_TRY(stream_->synchronize());
      const auto all = [this, candidate](Stream& stream) -> Result<> {
        for (int copy = 0; copy < copies_; ++copy) BOLIDE_TRY(enqueue(candidate, copy, stream));
        return {};
      };
      BOLIDE_TRY(captured, stream_->capture(all));
      BOLIDE_TRY(captured->launch(*stream_));
    }
    std::vector<double> times;
    for (int i = 0; i < kTimes; ++i) {
      BOLIDE_TRY(stream_->record(*begin_));
      BOLIDE_TRY(captured->launch(*stream_));
      BOLIDE_TRY(stream_->record(*end_));
      BOLIDE_TRY(end_->synchronize());
      BOLIDE_TRY(const double time, end_->seconds_since(*begin_));
      times.push_back(time / copies_);
    }
    std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
    return times[kTimes / 2];
  }

 private:
  Result<> make(Buffer* buffer, DType dtype, int64_t count, float spread, std::mt19937& random, int copies = 1) {
    const std::vector<std::byte> values = random_values(dtype, count, spread, random);
    const size_t bytes = (values.size() + 255) / 256 * 256;
    BOLIDE_TRY(*buffer, device_.allocate(bytes * static_cast<size_t>(copies), Memory::kDevice));
    for (int i = 0; i < copies; ++i)
      BOLIDE_TRY(copy_bytes(*stream_, buffer->bytes().subspan(static_cast<size_t>(i) * bytes, values.size()), values));
    return stream_->synchronize();
  }

  Matmul product(int copy) {
    const int64_t weight_bytes = static_cast<int64_t>(weights_.bytes().size()) / copies_;
    Matmul p{.tokens = shape_.tokens, .n = shape_.n, .k = shape_.k};
    p.x = {x_.bytes().data(), shape_.in, shape_.k};
    p.weight = {weights_.bytes().data() + copy * weight_bytes, shape_.in, shape_.k};
    p.out = {out_.bytes().data(), shape_.out, shape_.n};
    if (shape_.has_residual) p.residual = {residual_.bytes().data(), shape_.out, shape_.n};
    if (shape_.has_bias) p.bias = bias_.bytes().data();
    if (shape_.has_scales) {
      p.x_scale = reinterpret_cast<const float*>(x_scale_.bytes().data());
      p.weight_scale = reinterpret_cast<const float*>(weight_scale_.bytes().data());
    }
    return p;
  }

  Result<> enqueue(int candidate, int copy, Stream& stream) {
    return matmuls_->run(product(copy), algorithms_[static_cast<size_t>(candidate)], workspace_.bytes(),
                         as_cuda(stream).handle());
  }

  Result<std::vector<float>> results(int candidate) {
    BOLIDE_TRY(stream_->fill(out_.bytes(), std::byte{0xff}));
    BOLIDE_TRY(enqueue(candidate, 0, *stream_));
    const auto size = static_cast<size_t>(bits_of(shape_.out)) / 8, row = static_cast<size_t>(shape_.n) * size;
    const auto rows = static_cast<size_t>(std::min(shape_.tokens, kCompared));
    std::vector<float> values;
    for (const size_t first : {size_t{0}, static_cast<size_t>(shape_.tokens) - rows}) {
      std::vector<std::byte> bytes(rows * row);
      BOLIDE_TRY(copy_bytes(*stream_, bytes, out_.bytes().subspan(first * row, bytes.size())));
      BOLIDE_TRY(stream_->synchronize());
      for (size_t i = 0; i < bytes.size(); i += size)
        values.push_back(size == 2 ? bf16_to_f32(load_unaligned<uint16_t>(bytes.data() + i))
                                   : load_unaligned<float>(bytes.data() + i));
    }
    return values;
  }

  const MatmulShape shape_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> begin_, end_;
  Matmuls* matmuls_ = nullptr;
  int copies_ = 1;
  Buffer weights_, x_, out_, residual_, bias_, x_scale_, weight_scale_, workspace_;
  std::vector<MatmulAlgorithm> algorithms_;
  std::vector<std::unique_ptr<Captured>> captured_;
  std::vector<float> expected_;
};

}  // namespace

std::string key_of(const MatmulShape& shape) {
  return fmt::format("{} [{}, {}] to {}{}{}{}, {} tokens", to_string(shape.in), shape.n, shape.k, to_string(shape.out),
                     shape.has_scales ? ", scales" : "", shape.has_bias ? ", bias" : "",
                     shape.has_residual ? ", residual" : "", std::bit_ceil(static_cast<uint64_t>(shape.tokens)));
}

Result<std::unique_ptr<Tunable>> tunable_matmul(const MatmulShape& shape, Device& device) {
  auto made = std::make_unique<TunableMatmul>(shape, device);
  BOLIDE_TRY(made->prepare());
  return std::unique_ptr<Tunable>(std::move(made));
}

}  // namespace bolide
