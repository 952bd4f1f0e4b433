// AWQ (arXiv:2306.00978) in AutoAWQ's "gemm" layout, 4 bits. For a module with weight [N, K]:
//   qweight i32 [K, N / 8], qzeros i32 [groups, N / 8]: eight successive n in a word, in the order of kOrder
//   scales  [groups, N]
// weight[n, k] = scales[g, n] * (code - zero) with g = k / group_size.
// Groups of 32, 64 or 128 with scales of f16 become w4_* blocks, which have the same values; others float32.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/quantised_checkpoint.h"

namespace bolide {
namespace {

constexpr int64_t kPerWord = 8;
constexpr std::array<int64_t, kPerWord> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};  // nibble i of a word holds this n
constexpr int64_t kWords = 16;  // a cache line of qweight, which lies across the rows of the result

class AwqSource final : public QuantisedSource {
 public:
  AwqSource(std::shared_ptr<const WeightSource> inner, int64_t group_size)
      : QuantisedSource(std::move(inner)), group_size_(group_size) {}

  Result<> set_up() {
    for (const std::string& module : modules_with(inner(), ".qweight")) BOLIDE_TRY(set_up(module));
    return {};
  }

 private:
  int64_t group_size(int64_t k) const { return group_size_ == -1 ? k : group_size_; }
  int64_t groups_of(int64_t k) const {
    return static_cast<int64_t>(ceil_div(static_cast<uint64_t>(k), static_cast<uint64_t>(group_size(k))));
  }

  Result<> set_up(const std::string& module) {
    const Shape packed = inner().find(module + ".qweight")->shape;
    if (packed.rank != 2 || packed[0] < 1 || packed[1] < 1 || packed[1] > INT64_MAX / kPerWord)
      return module_error(module, fmt::format("qweight has shape {}, expected [K, N / 8]", to_string(packed)));
    const int64_t k = packed[0];
    const int64_t n = packed[1] * kPerWord;
    BOLIDE_TRY(require(module + ".qweight", DType::kI32, packed));
    BOLIDE_TRY(require(module + ".qzeros", DType::kI32, {groups_of(k), packed[1]}));
    BOLIDE_TRY(require(module + ".scales", DType::kNone, {groups_of(k), n}));
    for (const char* part : {".qweight", ".qzeros", ".scales"}) hide(module + part);
    add(module, info_of_groups(module, {n, k}, 4, group_size(k)));
    return {};
  }

  static uint32_t word(const WeightData& data, int64_t index) {
    return load_unaligned<uint32_t>(data.bytes.data() + index * 4);
  }

  Result<> make(const std::string& module, const WeightInfo& info, MutableBytes out, Workers& workers) const override {
    BOLIDE_TRY(const auto codes, inner().open(module + ".qweight"));
    BOLIDE_TRY(const auto zeros, inner().open(module + ".qzeros"));
    if (info.quant != nullptr) {
      BOLIDE_TRY(const auto scales, inner().open(module + ".scales"));
      make_blocks(info, codes, zeros, scales, out, workers);
    } else {
      BOLIDE_TRY(const auto scales, read_floats(inner(), module + ".scales"));
      make_floats(info, codes, zeros, scales, reinterpret_cast<float*>(out.data()), workers);
    }
    codes.release();
    return {};
  }

  static void make_blocks(const WeightInfo& info, const WeightData& codes, const WeightData& zeros,
                          const WeightData& scales, MutableBytes out, Workers& workers) {
    const QuantScheme& scheme = *info.quant;
    const int64_t n_count = info.shape[0], words = n_count / kPerWord, size = scheme.block_elements;
    workers.run((words + kWords - 1) / kWords, [&](int64_t chunk, int) {
      const int64_t w_begin = chunk * kWords, w_count = std::min(kWords, words - w_begin);
      for (int64_t g = 0; g < info.shape[1] / size; ++g) {
        uint32_t tile[kWords][128];  // words of a group, those of the same rows together
        for (int64_t k = 0; k < size; ++k)
          for (int64_t w = 0; w < w_count; ++w) tile[w][k] = word(codes, (g * size + k) * words + w_begin + w);
        for (int64_t w = 0; w < w_count; ++w) {
          const uint32_t zero_word = word(zeros, g * words + w_begin + w);
          for (size_t i = 0; i < kOrder.size(); ++i) {
            const int64_t n = (w_begin + w) * kPerWord + kOrder[i];
            std::byte* block = out.data() + static_cast<size_t>(n) * info.row_size() + g * scheme.block_bytes;
            const auto scale = load_unaligned<uint16_t>(scales.bytes.data() + (g * n_count + n) * 2);
            std::byte* to = begin_w4_block(block, scale, (zero_word >> (4 * i)) & 15);
            for (int64_t k = 0; k < size; k += 32, to += 16)
              for (int64_t j = 0; j < 16; ++j) {
                const uint32_t low = (tile[w][k + j] >> (4 * i)) & 15, high = (tile[w][k + 16 + j] >> (4 * i)) & 15;
                to[j] = static_cast<std::byte>(low | high << 4);
              }
          }
        }
      }
    });
  }

  void make_floats(const WeightInfo& info, const WeightData& codes, const WeightData& zeros,
                   const std::vector<float>& scales, float* out, Workers& workers) const {
    const int64_t n_count = info.shape[0], words = n_count / kPerWord, k_count = info.shape[1];
    workers.run(words, [&](int64_t w, int) {
      for (int64_t k = 0; k < k_count; ++k) {
        const int64_t g = k / group_size(k_count);
        const uint32_t code_word = word(codes, k * words + w), zero_word = word(zeros, g * words + w);
        for (size_t i = 0; i < kOrder.size(); ++i) {
          const int64_t n = w * kPerWord + kOrder[i];
          const auto code = static_cast<float>((code_word >> (4 * i)) & 15);
          const auto zero = static_cast<float>((zero_word >> (4 * i)) & 15);
          out[n * k_count + k] = scales[static_cast<size_t>(g * n_count + n)] * (code - zero);
        }
      }
    });
  }

  int64_t group_size_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> read_awq(std::shared_ptr<const WeightSource> inner,
                                                     const QuantizationConfig& config) {
  auto source = std::make_shared<AwqSource>(std::move(inner), config.group_size);
  BOLIDE_TRY(source->set_up());
  return std::shared_ptr<const WeightSource>(std::move(source));
}

}  // namespace bolide
