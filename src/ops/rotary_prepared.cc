// RotaryEmbedding of ai.onnx and com.microsoft with vector instructions.
#include <algorithm>

#include "ops/attend.h"
#include "ops/dense.h"
#include "ops/prepared_rows.h"

namespace bolide {
namespace {

class PreparedRotary final : public PreparedOp {
 public:
  struct Options {
    bool microsoft = false;  // position_ids come before the caches, and may be one position
    int64_t heads = 0, dim = 0;
    bool interleaved = false;
  };
  PreparedRotary(const isa::RowFunctions& rows, const Options& options) : rows_(rows), options_(options) {}
  std::string_view kernel() const override { return "rotary_rows"; }

  // Whatever does not fit is left to the row, which says what is wrong.
  Result<bool> run(RunContext& c) const override {
    const Tensor* x = f32_at(c, 0);
    const size_t first = options_.microsoft ? 2 : 1, positions_at = options_.microsoft ? 1 : 3;
    const Tensor *cosines = f32_at(c, first), *sines = f32_at(c, first + 1);
    if (x == nullptr || cosines == nullptr || sines == nullptr || sines->shape() != cosines->shape() ||
        (x->rank() != 3 && x->rank() != 4) || cosines->rank() < 2)
      return false;
    const bool split = x->rank() == 4;
    const int64_t B = x->dim(0), S = x->dim(split ? 2 : 1), dim = 2 * cosines->dim(-1);
    int64_t H = split ? x->dim(1) : options_.heads, D = split ? x->dim(3) : 0;
    if (!split) {
      // com.microsoft's heads are as long as what is rotated, unless it says otherwise.
      if (options_.microsoft && options_.heads <= 0 && options_.dim <= 0 && dim > 0) H = x->dim(2) / dim;
      if (H < 1 || x->dim(2) % H != 0) return false;
      D = x->dim(2) / H;
      if (options_.microsoft && options_.heads <= 0 && D != dim) return false;
    }
    if (dim > D || dim < 2 || (options_.dim != 0 && options_.dim != dim)) return false;
    if (!options_.microsoft && options_.dim == 0 && dim != D) return false;
    const bool listed = c.has(positions_at);
    if (listed ? cosines->rank() != 2 : options_.microsoft || cosines->shape() != Shape{B, S, dim / 2}) return false;
    BOLIDE_TRY(const auto positions, c.integers(positions_at, {}, int64_t{1} << 40));
    const int64_t rows = listed ? cosines->dim(0) : B * S;
    const bool offset = options_.microsoft && positions.size() == 1;
    if (listed && !offset && c.value(positions_at)->tensor()->shape() != Shape{B, S}) return false;
    for (const int64_t position : positions)
      if (position < 0 || position >= rows || (offset && S > rows - position)) return false;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, x->shape()));
    const auto view = [&]<class T>(T* data) {
      return split ? Heads<T>::head_major(data, H, S, D) : Heads<T>::row_major(data, H, S, D);
    };
    const Heads<const float> from = view(x->as<float>().data());
    const Heads<float> to = view(y->mutate<float>().data());
    const float *c_rows = cosines->as<float>().data(), *s_rows = sines->as<float>().data();
    for_row_ranges(c.workers(), B * S, H * D, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / S, s = i % S;
        const int64_t at = (!listed ? i : offset ? positions[0] + s : positions[static_cast<size_t>(i)]) * (dim / 2);
        for (int64_t h = 0; h < H; ++h) turn(from.at(b, h, s), c_rows + at, s_rows + at, dim, D, to.at(b, h, s));
      }
    });
    return true;
  }

 private:
  void turn(const float* x, const float* cosines, const float* sines, int64_t dim, int64_t D, float* y) const {
    if (!options_.interleaved) {
      rows_.rotate(x, cosines, sines, y, dim / 2);
    } else {
      for (int64_t i = 0; i < dim / 2; ++i) {
        const float real = x[2 * i], imaginary = x[2 * i + 1];
        y[2 * i] = cosines[i] * real - sines[i] * imaginary;
        y[2 * i + 1] = sines[i] * real + cosines[i] * imaginary;
      }
    }
    std::copy(x + dim, x + D, y + dim);
  }

  const isa::RowFunctions& rows_;
  Options options_;
};

Prepared rotary(const PrepareContext& c, bool microsoft) {
  const isa::RowFunctions* rows = row_functions(c.device.isa);
  if (rows == nullptr) return nullptr;
  PreparedRotary::Options options{.microsoft = microsoft};
  BOLIDE_TRY(options.heads, c.attributes.integer("num_heads", 0));
  BOLIDE_TRY(options.dim, c.attributes.integer("rotary_embedding_dim", 0));
  BOLIDE_TRY(const int64_t interleaved, c.attributes.integer("interleaved", 0));
  options.interleaved = interleaved != 0;
  return std::make_unique<PreparedRotary>(*rows, options);
}

}  // namespace

Prepared prepare_rotary(const PrepareContext& c) { return rotary(c, false); }
Prepared prepare_microsoft_rotary(const PrepareContext& c) { return rotary(c, true); }

}  // namespace bolide
