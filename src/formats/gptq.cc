// GPTQ (arXiv:2210.17323) as AutoGPTQ and GPTQModel store it. For a module with weight [N, K], P = 32 / bits:
//   qweight i32 [K / P, N]  codes of column n, P successive k in a word, lowest bits first
//   qzeros  i32 [groups, N / P]  zero points of P successive n in a word
//   scales  [groups, N], g_idx i32 [K] (optional): the group of each k
// weight[n, k] = scales[g, n] * (code - zero) with g = g_idx[k], or k / group_size without g_idx.
// Codes of 4 bits in groups of 32, 64 or 128 in order of k become w4_* blocks, which have the same values; others, and
// scales that are not f16, float32.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "formats/quantised_checkpoint.h"

namespace bolide {
namespace {

constexpr int64_t kColumns = 16;  // a cache line of qweight, which lies across the rows of the result

// The eight nibbles of a word as bytes, lowest first.
uint64_t spread(uint32_t word) {
  uint64_t x = word;
  x = (x | x << 16) & 0x0000ffff0000ffffu;
  x = (x | x << 8) & 0x00ff00ff00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

class GptqSource final : public QuantisedSource {
 public:
  GptqSource(std::shared_ptr<const WeightSource> inner, const QuantizationConfig& config)
      : QuantisedSource(std::move(inner)), config_(config), per_word_(32 / config.bits) {}

  Result<> set_up() {
    for (const std::string& module : modules_with(inner(), ".qweight")) BOLIDE_TRY(set_up(module));
    return {};
  }

 private:
  // Elements of a group; of the last one it may be fewer.
  int64_t group_size(int64_t k) const { return config_.group_size == -1 ? k : config_.group_size; }
  int64_t groups_of(int64_t k) const {
    return static_cast<int64_t>(ceil_div(static_cast<uint64_t>(k), static_cast<uint64_t>(group_size(k))));
  }

  Result<> set_up(const std::string& module) {
    const Shape packed = inner().find(module + ".qweight")->shape;
    if (packed.rank != 2 || packed[0] < 1 || packed[1] < 1 || packed[1] % per_word_ != 0)
      return module_error(module, fmt::format("qweight has shape {}, expected [K / {}, N] with N a multiple of {}",
                                              to_string(packed), per_word_, per_word_));
    const int64_t k = packed[0] * per_word_;
    const int64_t n = packed[1];
    BOLIDE_TRY(require(module + ".qweight", DType::kI32, packed));
    BOLIDE_TRY(require(module + ".qzeros", DType::kI32, {groups_of(k), n / per_word_}));
    BOLIDE_TRY(require(module + ".scales", DType::kNone, {groups_of(k), n}));
    bool in_order = true;
    if (inner().has(module + ".g_idx")) {
      BOLIDE_TRY(require(module + ".g_idx", DType::kI32, {k}));
      BOLIDE_TRY(in_order, is_in_order(module, k));
    } else if (config_.desc_act) {
      return module_error(module, "has no g_idx, which desc_act in the configuration needs");
    }
    for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"}) hide(module + part);
    add(module, info_of_groups(module, {n, k}, in_order ? config_.bits : 0, group_size(k)));
    return {};
  }

  // Whether g_idx says what its absence would.
  Result<bool> is_in_order(const std::string& module, int64_t k_count) const {
    BOLIDE_TRY(const auto index, inner().open(module + ".g_idx"));
    for (int64_t k = 0; k < k_count; ++k)
      if (load_unaligned<int32_t>(index.bytes.data() + k * 4) != k / group_size(k_count)) return false;
    return true;
  }

  Result<std::vector<int32_t>> group_of_each_k(const std::string& module, int64_t k_count) const {
    std::vector<int32_t> groups(static_cast<size_t>(k_count));
    if (!inner().has(module + ".g_idx")) {
      for (int64_t k = 0; k < k_count; ++k)
        groups[static_cast<size_t>(k)] = static_cast<int32_t>(k / group_size(k_count));
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

  // One less than the true zero point was stored, modulo the codes' range, but by the second version of the format.
  uint32_t zero_at(const WeightData& zeros, int64_t g, int64_t n, int64_t n_count) const {
    const uint32_t mask = (1u << config_.bits) - 1;
    const int64_t word = g * (n_count / per_word_) + n / per_word_;
    const uint32_t stored =
        (load_unaligned<uint32_t>(zeros.bytes.data() + word * 4) >> (n % per_word_ * config_.bits)) & mask;
    return config_.zero_offset ? (stored + 1) & mask : stored;
  }

  Result<> make(const std::string& module, const WeightInfo& info, MutableBytes out, Workers& workers) const override {
    BOLIDE_TRY(const auto codes, inner().open_with(module + ".qweight", workers));
    BOLIDE_TRY(const auto zeros, inner().open_with(module + ".qzeros", workers));
    if (info.quant != nullptr) {
      BOLIDE_TRY(const auto scales, inner().open(module + ".scales"));
      make_blocks(info, codes, zeros, scales, out, workers);
    } else {
      BOLIDE_TRY(make_floats(module, info, codes, zeros, reinterpret_cast<float*>(out.data()), workers));
    }
    codes.release();
    return {};
  }

  static int64_t chunks_of(int64_t n_count) { return (n_count + kColumns - 1) / kColumns; }

  void make_blocks(const WeightInfo& info, const WeightData& codes, const WeightData& zeros, const WeightData& scales,
                   MutableBytes out, Workers& workers) const {
    const QuantScheme& scheme = *info.quant;
    const int64_t n_count = info.shape[0], words = scheme.block_elements / 8;
    workers.run(chunks_of(n_count), [&](int64_t chunk, int) {
      const int64_t n_begin = chunk * kColumns, columns = std::min(kColumns, n_count - n_begin);
      for (int64_t g = 0; g < info.shape[1] / scheme.block_elements; ++g) {
        uint32_t tile[16][kColumns] = {};  // words of a group
        for (int64_t w = 0; w < words; ++w)
          std::memcpy(tile[w], codes.bytes.data() + ((g * words + w) * n_count + n_begin) * 4,
                      static_cast<size_t>(columns) * 4);
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t n = n_begin + c;
          std::byte* block = out.data() + static_cast<size_t>(n) * info.row_size() + g * scheme.block_bytes;
          std::byte* to = begin_w4_block(block, load_unaligned<uint16_t>(scales.bytes.data() + (g * n_count + n) * 2),
                                         zero_at(zeros, g, n, n_count));
          for (int64_t w = 0; w < words; w += 4, to += 16) {
            const uint64_t halves[2] = {spread(tile[w][c]) | spread(tile[w + 2][c]) << 4,
                                        spread(tile[w + 1][c]) | spread(tile[w + 3][c]) << 4};
            std::memcpy(to, halves, sizeof halves);
          }
        }
      }
    });
  }

  Result<> make_floats(const std::string& module, const WeightInfo& info, const WeightData& codes,
                       const WeightData& packed_zeros, float* out, Workers& workers) const {
    const int64_t n_count = info.shape[0], k_count = info.shape[1];
    const uint32_t mask = (1u << config_.bits) - 1;
    BOLIDE_TRY(const auto groups, group_of_each_k(module, k_count));
    BOLIDE_TRY(const auto scales, read_floats(inner(), module + ".scales"));
    std::vector<float> zeros(scales.size());
    for (int64_t g = 0; g < groups_of(k_count); ++g)
      for (int64_t n = 0; n < n_count; ++n)
        zeros[static_cast<size_t>(g * n_count + n)] = static_cast<float>(zero_at(packed_zeros, g, n, n_count));
    workers.run(chunks_of(n_count), [&](int64_t chunk, int) {
      for (int64_t k = 0; k < k_count; ++k)
        for (int64_t n = chunk * kColumns; n < std::min((chunk + 1) * kColumns, n_count); ++n) {
          const auto at = static_cast<size_t>(int64_t{groups[static_cast<size_t>(k)]} * n_count + n);
          const auto word = load_unaligned<uint32_t>(codes.bytes.data() + (k / per_word_ * n_count + n) * 4);
          const auto code = static_cast<float>((word >> (k % per_word_ * config_.bits)) & mask);
          out[n * k_count + k] = scales[at] * (code - zeros[at]);
        }
    });
    return {};
  }

  QuantizationConfig config_;
  int64_t per_word_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> read_gptq(std::shared_ptr<const WeightSource> inner,
                                                      const QuantizationConfig& config) {
  auto source = std::make_shared<GptqSource>(std::move(inner), config);
  BOLIDE_TRY(source->set_up());
  return std::shared_ptr<const WeightSource>(std::move(source));
}

}  // namespace bolide
