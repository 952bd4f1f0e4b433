#include "load/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace bolide {
namespace {

// Bounds what a small file that claims many experts can make us allocate.
constexpr size_t kEntriesMax = 1u << 17;

// GGUF has one name a slot, in every family.
struct Name {
  std::string_view gguf;
  Slot slot;
};

constexpr std::array kTopNames = {
    Name{"token_embd", Slot::kEmbed},
    Name{"position_embd", Slot::kPositions},
    Name{"output_norm", Slot::kFinalNorm},
    Name{"output", Slot::kHead},
};

// Behind "blk.L."; ".weight" or ".bias" follows.
constexpr std::array kLayerNames = {
    Name{"attn_norm", Slot::kAttnNorm},
    Name{"ffn_norm", Slot::kFfnNorm},
    Name{"attn_q", Slot::kQ},
    Name{"attn_k", Slot::kK},
    Name{"attn_v", Slot::kV},
    Name{"attn_qkv", Slot::kQ},
    Name{"attn_output", Slot::kOut},
    Name{"attn_q_norm", Slot::kQNorm},
    Name{"attn_k_norm", Slot::kKNorm},
    Name{"ffn_gate", Slot::kGate},
    Name{"ffn_up", Slot::kUp},
    Name{"ffn_down", Slot::kDown},
    Name{"ffn_gate_inp", Slot::kRouter},
};

// Experts, merged ("ffn_gate_exps": [X, F, E]) or one by one ("ffn_gate.5").
constexpr std::array kExpertNames = {
    Name{"ffn_gate", Slot::kExpertGate},
    Name{"ffn_down", Slot::kExpertDown},
    Name{"ffn_up", Slot::kExpertUp},
};

template <size_t N>
const Name* find_name(const std::array<Name, N>& table, std::string_view gguf) {
  const auto* const it = std::find_if(table.begin(), table.end(), [&](const Name& n) { return n.gguf == gguf; });
  return it == table.end() ? nullptr : it;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

struct LayerName {
  int64_t layer;
  std::string_view stem;    // "attn_q"
  std::string_view ending;  // ".weight"
};

std::optional<LayerName> split_layer_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const size_t dot = name.find('.', kPrefix.size());
  const size_t last = name.rfind('.');
  if (dot == std::string_view::npos || last <= dot) return std::nullopt;
  const auto layer = whole_number(name.substr(kPrefix.size(), dot - kPrefix.size()));
  if (!layer) return std::nullopt;
  return LayerName{*layer, name.substr(dot + 1, last - dot - 1), name.substr(last)};
}

// The rule whose tensor GGUF has under this name. GGUF keeps q, k and v fused under a name of their own, and gate and
// up under that of up.
const WeightRule* rule_of(const Name* name, const Family& family) {
  const WeightRule* rule = name == nullptr ? nullptr : find_rule(family, name->slot);
  if (rule == nullptr) return nullptr;
  const Rows rows = name->gguf == "attn_qkv" ? Rows::kQ : Rows::kAll;
  return rule->rows == rows || (name->gguf == "ffn_up" && rule->rows == Rows::kUp) ? rule : nullptr;
}

// Where a tensor comes from and how its rows are rearranged.
struct Entry {
  WeightInfo info;
  std::string gguf;
  int64_t interleaved_heads = 0;  // > 0: rows of each head lie in pairs (0, D/2), (1, D/2 + 1), ... and are put apart
  int64_t expert = -1;            // >= 0: this slice of the outermost dimension
};

class GgufWeights final : public WeightSource {
 public:
  GgufWeights(std::shared_ptr<const GgufSource> source, std::map<std::string, Entry, std::less<>> entries)
      : source_(std::move(source)), entries_(std::move(entries)) {}

  const WeightInfo* find(std::string_view name) const override {
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second.info;
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    list.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) list.push_back(name);
    return list;
  }

  const std::string& label() const override { return source_->label(); }

  Result<WeightData> open(std::string_view name) const override {
    const auto it = entries_.find(name);
    if (it == entries_.end()) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label(), name));
    const Entry& entry = it->second;
    BOLIDE_TRY(auto data, source_->open(entry.gguf));
    data.info = entry.info;
    if (entry.expert >= 0) {
      const size_t size = entry.info.byte_size();
      data.bytes = data.bytes.subspan(static_cast<size_t>(entry.expert) * size, size);
    }
    if (entry.interleaved_heads > 0) return deinterleave(data, entry.interleaved_heads);
    return data;
  }

 private:
  // Converters to GGUF reorder llama's q and k rows so that the two rows a rotation mixes lie side by side: row
  // (head, i, s) with i < D/2, s < 2. Hugging Face has (head, s, i). Whole rows move, so any row format will do; a
  // bias is a column of rows of one element.
  static Result<WeightData> deinterleave(const WeightData& from, int64_t heads) {
    const bool is_bias = from.info.shape.rank == 1;
    const int64_t rows = from.info.shape[0];
    const size_t row_size = is_bias ? row_bytes(from.info.dtype, nullptr, 1) : from.info.row_size();
    BOLIDE_TRY(auto to, allocate_weight(from.info));
    const int64_t half = rows / heads / 2;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = r / (2 * half);
      const int64_t s = r / half % 2;
      const int64_t source_row = head * 2 * half + r % half * 2 + s;
      std::copy_n(from.bytes.data() + static_cast<size_t>(source_row) * row_size, row_size,
                  to.bytes.data() + static_cast<size_t>(r) * row_size);
    }
    from.release();
    return std::move(to.data);
  }

  std::shared_ptr<const GgufSource> source_;
  std::map<std::string, Entry, std::less<>> entries_;
};

// Heads whose rows the converter interleaved in this tensor; 0: none.
int64_t interleaved_heads(const LayerName& name, const GgufDims& dims) {
  if (dims.architecture != "llama") return 0;
  if (name.stem == "attn_q") return dims.heads;
  if (name.stem == "attn_k") return dims.kv_heads;
  return 0;
}

Result<> add_experts(const LayerName& name, const WeightRule& rule, const WeightInfo& info, const std::string& label,
                     std::map<std::string, Entry, std::less<>>& entries, const GgufDims& dims) {
  if (info.shape.rank != 3 || info.shape[0] != dims.experts)
    return error(Code::kInvalid,
                 fmt::format("{}: tensor {}: has shape {}, expected three dimensions, {} experts outermost", label,
                             info.name, to_string(info.shape), dims.experts));
  if (entries.size() + static_cast<size_t>(dims.experts) > kEntriesMax)
    return error(Code::kUnsupported, fmt::format("{}: has more than {} tensors of single experts", label, kEntriesMax));
  for (int64_t expert = 0; expert < dims.experts; ++expert) {
    Entry entry{.info = info, .gguf = info.name, .expert = expert};
    entry.info.name = module_name(rule, name.layer, expert) + std::string(name.ending);
    entry.info.shape = {info.shape[1], info.shape[2]};
    entries.emplace(entry.info.name, std::move(entry));
  }
  return {};
}

}  // namespace

std::string hf_name(std::string_view gguf_name, const Family& family) {
  const size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::string(gguf_name);
  const std::string ending(gguf_name.substr(dot));
  if (const WeightRule* top = rule_of(find_name(kTopNames, gguf_name.substr(0, dot)), family))
    return module_name(*top, 0) + ending;
  const auto name = split_layer_name(gguf_name);
  if (!name) return std::string(gguf_name);
  if (const WeightRule* rule = rule_of(find_name(kLayerNames, name->stem), family))
    return module_name(*rule, name->layer) + ending;
  if (const size_t middle = name->stem.find('.'); middle != std::string_view::npos) {
    const auto expert = whole_number(name->stem.substr(middle + 1));
    const WeightRule* rule = rule_of(find_name(kExpertNames, name->stem.substr(0, middle)), family);
    if (expert && rule != nullptr) return module_name(*rule, name->layer, *expert) + ending;
  }
  return std::string(gguf_name);
}

Result<std::shared_ptr<const WeightSource>> rename_gguf(std::shared_ptr<const GgufSource> source,
                                                        const GgufDims& dims) {
  std::map<std::string, Entry, std::less<>> entries;
  for (const std::string& gguf : source->names()) {
    const WeightInfo& info = *source->find(gguf);
    const auto name = split_layer_name(gguf);
    if (name && name->stem.ends_with("_exps")) {
      const WeightRule* rule =
          rule_of(find_name(kExpertNames, name->stem.substr(0, name->stem.size() - 5)), *dims.family);
      if (rule != nullptr) {
        BOLIDE_TRY(add_experts(*name, *rule, info, source->label(), entries, dims));
        continue;
      }
    }
    Entry entry{.info = info, .gguf = gguf};
    entry.info.name = hf_name(gguf, *dims.family);
    if (name) entry.interleaved_heads = interleaved_heads(*name, dims);
    if (entry.interleaved_heads > 0 && info.shape[0] % (2 * entry.interleaved_heads) != 0)
      return error(Code::kInvalid, fmt::format("{}: tensor {}: has {} rows, no multiple of two for each of {} heads",
                                               source->label(), gguf, info.shape[0], entry.interleaved_heads));
    std::string key = entry.info.name;
    if (!entries.emplace(std::move(key), std::move(entry)).second)
      return error(Code::kInvalid, fmt::format("{}: tensor {} is there under two names", source->label(), gguf));
  }
  return std::shared_ptr<const WeightSource>(std::make_shared<GgufWeights>(std::move(source), std::move(entries)));
}

}  // namespace bolide
