// AWQ (arXiv:2306.00978) in AutoAWQ's "gemm" layout, 4 bits. For a module with weight [N, K]:
//   qweight i32 [K, N / 8], qzeros i32 [groups, N / 8]: eight successive n in a word, in the order of kOrder
//   scales  [groups, N]
// weight[n, k] = scales[g, n] * (code - zero) with g = k / group_size.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "formats/quantised_checkpoint.h"

namespace bolide {
namespace {

constexpr int64_t kPerWord = 8;
constexpr std::array<int64_t, kPerWord> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};  // nibble i of a word holds this n

class AwqSource final : public ExpandingSource {
 public:
  AwqSource(std::shared_ptr<const WeightSource> inner, int64_t group_size)
      : ExpandingSource(std::move(inner)), group_size_(group_size) {}

  Result<> set_up() {
    for (const std::string& module : modules_with(inner(), ".qweight")) BOLIDE_TRY(add(module));
    return {};
  }

 private:
  int64_t groups_of(int64_t k) const {
    if (group_size_ == -1) return 1;
    return static_cast<int64_t>(ceil_div(static_cast<uint64_t>(k), static_cast<uint64_t>(group_size_)));
  }

  Result<> add(const std::string& module) {
    const Shape packed = inner().find(module + ".qweight")->shape;
    if (packed.rank != 2 || packed[0] < 1 || packed[1] < 1 || packed[1] > INT64_MAX / kPerWord)
      return module_error(module, fmt::format("qweight has shape {}, expected [K, N / 8]", to_string(packed)));
    const int64_t k = packed[0];
    const int64_t n = packed[1] * kPerWord;
    BOLIDE_TRY(require(module + ".qweight", DType::kI32, packed));
    BOLIDE_TRY(require(module + ".qzeros", DType::kI32, {groups_of(k), packed[1]}));
    BOLIDE_TRY(require(module + ".scales", DType::kNone, {groups_of(k), n}));
    for (const char* part : {".qweight", ".qzeros", ".scales"}) hide(module + part);
    add_module(module, {n, k});
    return {};
  }

  Result<> expand(const std::string& module, const Shape& shape, float* out) const override {
    const int64_t words = shape[0] / kPerWord;
    const int64_t k_count = shape[1];
    const int64_t group = group_size_ == -1 ? k_count : group_size_;
    BOLIDE_TRY(const auto scales, read_floats(inner(), module + ".scales"));
    BOLIDE_TRY(const auto codes, inner().open(module + ".qweight"));
    BOLIDE_TRY(const auto zeros, inner().open(module + ".qzeros"));
    const auto word = [](const WeightData& data, int64_t index) {
      return load_unaligned<uint32_t>(data.bytes.data() + index * 4);
    };
    for (int64_t w = 0; w < words; ++w)
      for (int64_t k = 0; k < k_count; ++k) {
        const int64_t g = k / group;
        const uint32_t code_word = word(codes, k * words + w);
        const uint32_t zero_word = word(zeros, g * words + w);
        for (size_t i = 0; i < kOrder.size(); ++i) {
          const int64_t n = w * kPerWord + kOrder[i];
          const auto code = static_cast<float>((code_word >> (4 * i)) & 15);
          const auto zero = static_cast<float>((zero_word >> (4 * i)) & 15);
          out[n * k_count + k] = scales[static_cast<size_t>(g * shape[0] + n)] * (code - zero);
        }
      }
    codes.release();
    return {};
  }

  int64_t group_size_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> expand_awq(std::shared_ptr<const WeightSource> inner,
                                                       const QuantizationConfig& config) {
  auto source = std::make_shared<AwqSource>(std::move(inner), config.group_size);
  BOLIDE_TRY(source->set_up());
  return std::shared_ptr<const WeightSource>(std::move(source));
}

}  // namespace bolide
