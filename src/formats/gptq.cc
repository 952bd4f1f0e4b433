// GPTQ (arXiv:2210.17323) as AutoGPTQ and GPTQModel store it. For a module with weight [N, K], P = 32 / bits:
//   qweight i32 [K / P, N]  codes of column n, P successive k in a word, lowest bits first
//   qzeros  i32 [groups, N / P]  zero points of P successive n in a word
//   scales  [groups, N], g_idx i32 [K] (optional): the group of each k
// weight[n, k] = scales[g, n] * (code - zero) with g = g_idx[k], or k / group_size without g_idx.
#include <fmt/format.h>

#include <algorithm>

#include "formats/quantised_checkpoint.h"

namespace bolide {
namespace {

constexpr int64_t kRowsAtOnce = 16;  // a cache line of qweight, which lies across the rows of the result

class GptqSource final : public ExpandingSource {
 public:
  GptqSource(std::shared_ptr<const WeightSource> inner, const QuantizationConfig& config)
      : ExpandingSource(std::move(inner)), config_(config), per_word_(32 / config.bits) {}

  Result<> set_up() {
    for (const std::string& module : modules_with(inner(), ".qweight")) BOLIDE_TRY(add(module));
    return {};
  }

 private:
  int64_t groups_of(int64_t k) const {
    if (config_.group_size == -1) return 1;
    return static_cast<int64_t>(ceil_div(static_cast<uint64_t>(k), static_cast<uint64_t>(config_.group_size)));
  }

  Result<> add(const std::string& module) {
    const Shape packed = inner().find(module + ".qweight")->shape;
    if (packed.rank != 2 || packed[0] < 1 || packed[1] < 1 || packed[1] % per_word_ != 0)
      return module_error(module, fmt::format("qweight has shape {}, expected [K / {}, N] with N a multiple of {}",
                                              to_string(packed), per_word_, per_word_));
    const int64_t k = packed[0] * per_word_;
    const int64_t n = packed[1];
    BOLIDE_TRY(require(module + ".qweight", DType::kI32, packed));
    BOLIDE_TRY(require(module + ".qzeros", DType::kI32, {groups_of(k), n / per_word_}));
    BOLIDE_TRY(require(module + ".scales", DType::kNone, {groups_of(k), n}));
    if (inner().has(module + ".g_idx")) {
      BOLIDE_TRY(require(module + ".g_idx", DType::kI32, {k}));
    } else if (config_.desc_act) {
      return module_error(module, "has no g_idx, which desc_act in the configuration needs");
    }
    for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"}) hide(module + part);
    add_module(module, {n, k});
    return {};
  }

  Result<std::vector<int32_t>> group_of_each_k(const std::string& module, int64_t k_count) const {
    std::vector<int32_t> groups(static_cast<size_t>(k_count));
    if (!inner().has(module + ".g_idx")) {
      const int64_t size = config_.group_size == -1 ? k_count : config_.group_size;
      for (int64_t k = 0; k < k_count; ++k) groups[static_cast<size_t>(k)] = static_cast<int32_t>(k / size);
      return groups;
    }
    BOLIDE_TRY(const auto index, inner().open(module + ".g_idx"));
    for (size_t k = 0; k < groups.size(); ++k) {
      groups[k] = load_unaligned<int32_t>(index.bytes.data() + k * 4);
      if (groups[k] < 0 || groups[k] >= groups_of(k_count))
        return module_error(module,
                            fmt::format("g_idx[{}] is {}, expected 0 to {}", k, groups[k], groups_of(k_count) - 1));
    }
    return groups;
  }

  Result<> expand(const std::string& module, const Shape& shape, float* out) const override {
    const int64_t n_count = shape[0];
    const int64_t k_count = shape[1];
    const uint32_t mask = (1u << config_.bits) - 1;
    BOLIDE_TRY(const auto groups, group_of_each_k(module, k_count));
    BOLIDE_TRY(const auto scales, read_floats(inner(), module + ".scales"));
    BOLIDE_TRY(const auto codes, inner().open(module + ".qweight"));
    BOLIDE_TRY(const auto packed_zeros, inner().open(module + ".qzeros"));
    const auto field = [&](const WeightData& words, int64_t word, int64_t index) {
      return (load_unaligned<uint32_t>(words.bytes.data() + word * 4) >> (index * config_.bits)) & mask;
    };
    // One less than the true zero point was stored, modulo the codes' range, but by the second version of the format.
    std::vector<float> zeros(scales.size());
    for (int64_t g = 0; g < groups_of(k_count); ++g)
      for (int64_t n = 0; n < n_count; ++n) {
        const uint32_t stored = field(packed_zeros, g * (n_count / per_word_) + n / per_word_, n % per_word_);
        zeros[static_cast<size_t>(g * n_count + n)] =
            static_cast<float>(config_.zero_offset ? (stored + 1) & mask : stored);
      }
    for (int64_t n_begin = 0; n_begin < n_count; n_begin += kRowsAtOnce)
      for (int64_t k = 0; k < k_count; ++k)
        for (int64_t n = n_begin; n < std::min(n_begin + kRowsAtOnce, n_count); ++n) {
          const auto at = static_cast<size_t>(int64_t{groups[static_cast<size_t>(k)]} * n_count + n);
          const auto code = static_cast<float>(field(codes, k / per_word_ * n_count + n, k % per_word_));
          out[n * k_count + k] = scales[at] * (code - zeros[at]);
        }
    codes.release();
    return {};
  }

  QuantizationConfig config_;
  int64_t per_word_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> expand_gptq(std::shared_ptr<const WeightSource> inner,
                                                        const QuantizationConfig& config) {
  auto source = std::make_shared<GptqSource>(std::move(inner), config);
  BOLIDE_TRY(source->set_up());
  return std::shared_ptr<const WeightSource>(std::move(source));
}

}  // namespace bolide
