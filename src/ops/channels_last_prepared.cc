// Pools of channels-last images made ready.
#include "ops/channels_last.h"
//
#include "kernels/channels_last/channels_last.h"

namespace bolide {
namespace {

enum class Pool : uint8_t { kMax, kMean, kGlobalMean };

class PreparedPool final : public PreparedOp {
 public:
  PreparedPool(Isa isa, Pool pool) : isa_(isa >= Isa::kAvx512 ? Isa::kAvx512 : Isa::kAvx2), pool_(pool) {}

  std::string_view kernel() const override {
    constexpr std::string_view kNames[][2] = {{"max_pool_f32_avx2", "max_pool_f32_avx512"},
                                              {"average_pool_f32_avx2", "average_pool_f32_avx512"},
                                              {"mean_of_pixels_f32_avx2", "mean_of_pixels_f32_avx512"}};
    return kNames[static_cast<size_t>(pool_)][isa_ == Isa::kAvx512 ? 1 : 0];
  }

  Result<bool> run(RunContext& c) const override {
    BOLIDE_TRY(const Tensor* x, c.tensor(0));
    if (x->dtype() != DType::kF32 || (x->rank() != 3 && x->rank() != 4) || c.outputs() > 1) return false;
    const int64_t N = x->dim(0), C = x->dim(-1);
    const float* const in = x->as<float>().data();
    if (pool_ == Pool::kGlobalMean) {
      Shape shape = x->shape();
      for (int i = 1; i + 1 < shape.rank; ++i) shape[i] = 1;
      BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
      if (y->elements() > 0)
        channels_last::mean_of_pixels(c.workers(), isa_, N, x->elements() / N / C, C, in, y->mutate<float>().data());
      return true;
    }
    BOLIDE_TRY(const int64_t ceil, c.attributes().integer("ceil_mode", 0));
    BOLIDE_TRY(const int64_t padded, c.attributes().integer("count_include_pad", 0));
    BOLIDE_TRY(const Window window, forward_window(c, as_channels_first(*x), {}, ceil != 0));
    Shape shape{N};
    for (size_t i = 0; i < static_cast<size_t>(window.rank); ++i)
      shape.dims[static_cast<size_t>(shape.rank++)] = window.output[i];
    shape.dims[static_cast<size_t>(shape.rank++)] = C;
    BOLIDE_TRY(Tensor * y, c.make(0, DType::kF32, shape));
    if (y->elements() == 0) return true;
    const igemm::Windows windows = windows_of(window, C);
    float* const out = y->mutate<float>().data();
    if (pool_ == Pool::kMax) {
      channels_last::max_pool(c.workers(), isa_, windows, N, in, out);
      return true;
    }
    const int64_t end[2] = {window.rank == 2 ? window.end[0] : 0, window.end[static_cast<size_t>(window.rank - 1)]};
    channels_last::average_pool(c.workers(), isa_, windows, N, in, out, padded != 0, end);
    return true;
  }

 private:
  Isa isa_;
  Pool pool_;
};

Result<std::unique_ptr<PreparedOp>> prepare(const PrepareContext& context, Pool pool) {
  if (!channels_last::supports(context.device.isa)) return nullptr;
  return std::make_unique<PreparedPool>(context.device.isa, pool);
}

}  // namespace

Result<std::unique_ptr<PreparedOp>> prepare_channels_last_max_pool(const PrepareContext& context) {
  return prepare(context, Pool::kMax);
}
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_average_pool(const PrepareContext& context) {
  return prepare(context, Pool::kMean);
}
Result<std::unique_ptr<PreparedOp>> prepare_channels_last_global_average_pool(const PrepareContext& context) {
  return prepare(context, Pool::kGlobalMean);
}

}  // namespace bolide
