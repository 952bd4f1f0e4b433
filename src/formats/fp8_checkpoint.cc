// Checkpoints with float8_e4m3fn weights and float scales beside them: weight[n, k] = float32(code) * float32(scale).
// compressed-tensors "float-quantized": `weight_scale`, one for the tensor ([], [1] or [1, 1]) or for each row ([N] or
// [N, 1]). "fp8": `weight_scale_inv` (in spite of its name a factor), one for each block of [N, K].
// Codes stay as they are and the scales become a tensor f32 [N] beside them, so a Linear's sum is scaled once, where
// the definition scales every weight. Two kinds are float32 instead: blocks, and the weights of experts and their
// routers, which go into MoeFfn and not into a Linear.
#include <fmt/format.h>

#include "formats/quantised_checkpoint.h"
#include "tensor/block_codec.h"

namespace bolide {
namespace {

// How far one scale reaches.
struct Grid {
  int64_t rows = 0, columns = 0;            // elements that share a scale
  int64_t row_count = 0, column_count = 0;  // scales
};

class Fp8Source final : public QuantisedSource {
 public:
  Fp8Source(std::shared_ptr<const WeightSource> inner, const QuantizationConfig& config)
      : QuantisedSource(std::move(inner)), config_(config) {}

  Result<> set_up() {
    for (const std::string& module : modules_with(inner(), ".weight")) {
      const WeightInfo& weight = *inner().find(module + ".weight");
      if (weight.dtype == DType::kF8E4M3) BOLIDE_TRY(set_up(module, weight.shape));
    }
    return {};
  }

 private:
  std::string scale_name(const std::string& module) const {
    std::string name = module + ".weight_scale";
    return inner().has(name) ? name : name + "_inv";
  }

  Result<> set_up(const std::string& module, const Shape& shape) {
    if (shape.rank != 2 || shape.elements() == 0)
      return module_error(module, fmt::format("weight has shape {}, expected [N, K]", to_string(shape)));
    BOLIDE_TRY(const Grid grid, grid_of(module, shape));
    hide(scale_name(module));
    hide(module + ".input_scale");
    WeightInfo info{.name = module + ".weight", .dtype = DType::kF32, .shape = shape};
    info.rounds_input_to_fp8 = config_.dynamic_inputs;
    if (grid.column_count > 1 || (grid.rows != 1 && grid.row_count > 1) || is_of_experts(module)) {
      add(module, info);
      return {};
    }
    info.dtype = DType::kF8E4M3;
    info.scale = scale_name(module);
    add(module, {.name = info.scale, .dtype = DType::kF32, .shape = {shape[0]}});
    add_stored(info);
    return {};
  }

  static bool is_of_experts(const std::string& module) {
    return module.find(".experts.") != std::string::npos || module.ends_with(".gate");
  }

  Result<Grid> grid_of(const std::string& module, const Shape& shape) const {
    const std::string name = scale_name(module);
    const WeightInfo* info = inner().find(name);
    if (info == nullptr) return module_error(module, "has float8 weights, but no weight_scale");
    const int64_t n = shape[0];
    const int64_t k = shape[1];
    Grid grid{n, k, 1, 1};
    if (!config_.block_size.empty()) {
      grid.rows = config_.block_size[0];
      grid.columns = config_.block_size[1];
      grid.row_count = static_cast<int64_t>(ceil_div(static_cast<uint64_t>(n), static_cast<uint64_t>(grid.rows)));
      grid.column_count = static_cast<int64_t>(ceil_div(static_cast<uint64_t>(k), static_cast<uint64_t>(grid.columns)));
      BOLIDE_TRY(require(name, DType::kNone, {grid.row_count, grid.column_count}));
      return grid;
    }
    if (info->shape.rank <= 2 && info->shape.elements() == 1) return grid;
    if (info->shape == Shape{n} || info->shape == Shape{n, 1}) return Grid{1, k, n, 1};
    return module_error(module, fmt::format("{} has shape {}, expected one scale or one for each of {} rows",
                                            name.substr(module.size() + 1), to_string(info->shape), n));
  }

  Result<> make(const std::string& module, const WeightInfo& info, MutableBytes bytes,
                Workers& workers) const override {
    auto* out = reinterpret_cast<float*>(bytes.data());
    const Shape& shape = inner().find(module + ".weight")->shape;
    BOLIDE_TRY(const auto grid, grid_of(module, shape));
    BOLIDE_TRY(const auto scales, read_floats(inner(), scale_name(module)));
    if (info.shape.rank == 1) {  // the scales of codes that stay
      for (int64_t n = 0; n < shape[0]; ++n) out[n] = scales[static_cast<size_t>(n / grid.rows)];
      return {};
    }
    BOLIDE_TRY(const auto codes, inner().open_with(module + ".weight", workers));
    const int64_t k = shape[1];
    workers.run(shape[0], [&](int64_t n, int) {
      float* row = out + n * k;
      decode_row(DType::kF8E4M3, nullptr, codes.row(n), k, row);
      const float* row_scales = scales.data() + n / grid.rows * grid.column_count;
      for (int64_t c = 0; c < k; ++c) row[c] *= row_scales[c / grid.columns];
    });
    codes.release();
    return {};
  }

  QuantizationConfig config_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> read_fp8(std::shared_ptr<const WeightSource> inner,
                                                     const QuantizationConfig& config) {
  auto source = std::make_shared<Fp8Source>(std::move(inner), config);
  BOLIDE_TRY(source->set_up());
  return std::shared_ptr<const WeightSource>(std::move(source));
}

}  // namespace bolide
