#include "load/family_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace bolide {
namespace {

struct Entry {
  WeightInfo info;
  std::string inner;
  bool transposed = false;
};

// True if `name` is `pattern` with digits for {l} and {e}.
bool matches(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (pattern.starts_with('{')) {
      const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
      if (digits == 0) return false;
      name.remove_prefix(digits);
      pattern.remove_prefix(std::min<size_t>(3, pattern.size()));
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      name.remove_prefix(1);
      pattern.remove_prefix(1);
    }
  }
  return name.empty();
}

bool is_transposed(const Family& family, std::string_view name) {
  constexpr std::string_view kEnding = ".weight";
  if (!name.ends_with(kEnding)) return false;
  name.remove_suffix(kEnding.size());
  return std::any_of(family.weights.begin(), family.weights.end(), [&](const WeightRule& rule) {
    return rule.layout == Layout::kInOut && matches(rule.module, name);
  });
}

// In tiles, so that the lines that are read and written stay in the first cache.
template <size_t kBytes>
void transpose(const std::byte* from, int64_t rows, int64_t columns, std::byte* to) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < columns; c0 += kTile)
      for (int64_t c = c0; c < std::min(c0 + kTile, columns); ++c)
        for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r)
          std::memcpy(to + static_cast<size_t>(c * rows + r) * kBytes,
                      from + static_cast<size_t>(r * columns + c) * kBytes, kBytes);
}

class FamilyWeights final : public WeightSource {
 public:
  FamilyWeights(std::shared_ptr<const WeightSource> inner, std::map<std::string, Entry, std::less<>> entries)
      : inner_(std::move(inner)), entries_(std::move(entries)) {}

  const WeightInfo* find(std::string_view name) const override {
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second.info;
  }

  Result<WeightData> open(std::string_view name) const override {
    Workers alone(1);
    return open_with(name, alone);
  }

  Result<WeightData> open_with(std::string_view name, Workers& workers) const override {
    const auto it = entries_.find(name);
    if (it == entries_.end()) return error(Code::kNotFound, fmt::format("{}: has no tensor {}", label(), name));
    const Entry& entry = it->second;
    BOLIDE_TRY(WeightData from, inner_->open_with(entry.inner, workers));
    if (!entry.transposed) {
      from.info = entry.info;
      return from;
    }
    BOLIDE_TRY(WritableWeight to, allocate_weight(entry.info));
    const int64_t rows = from.info.shape[0], columns = from.info.shape[1];
    switch (row_bytes(entry.info.dtype, nullptr, 1)) {
      case 1: transpose<1>(from.bytes.data(), rows, columns, to.bytes.data()); break;
      case 2: transpose<2>(from.bytes.data(), rows, columns, to.bytes.data()); break;
      case 4: transpose<4>(from.bytes.data(), rows, columns, to.bytes.data()); break;
      default: transpose<8>(from.bytes.data(), rows, columns, to.bytes.data()); break;
    }
    from.release();
    return std::move(to.data);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    list.reserve(entries_.size());
    for (const auto& [name, entry] : entries_) list.push_back(name);
    return list;
  }

  const std::string& label() const override { return inner_->label(); }

 private:
  std::shared_ptr<const WeightSource> inner_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> family_weights(std::shared_ptr<const WeightSource> inner,
                                                           const Family& family) {
  const bool transposes = std::any_of(family.weights.begin(), family.weights.end(),
                                      [](const WeightRule& rule) { return rule.layout == Layout::kInOut; });
  if (family.prefix.empty() && family.leftovers.empty() && !transposes) return inner;
  std::map<std::string, Entry, std::less<>> entries;
  for (const std::string& stored : inner->names()) {
    std::string name = stored.starts_with(family.prefix) ? stored.substr(family.prefix.size()) : stored;
    if (std::any_of(family.leftovers.begin(), family.leftovers.end(),
                    [&](std::string_view ending) { return name.ends_with(ending); }))
      continue;
    Entry entry{*inner->find(stored), stored, is_transposed(family, name)};
    entry.info.name = name;
    if (entry.transposed) {
      const Shape& shape = entry.info.shape;
      const size_t bytes = row_bytes(entry.info.dtype, nullptr, 1);
      if (shape.rank != 2 || entry.info.quant != nullptr || !is_float(entry.info.dtype) ||
          (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8))
        return error(Code::kUnsupported,
                     fmt::format("{}: tensor {}: has shape {} and type {}, expected a matrix of "
                                 "floats, stored [in, out]",
                                 inner->label(), stored, to_string(shape), to_string(entry.info.dtype)));
      entry.info.shape = {shape[1], shape[0]};
    }
    if (!entries.emplace(std::move(name), std::move(entry)).second)
      return error(Code::kInvalid, fmt::format("{}: tensor {} is there with the prefix {} and without it",
                                               inner->label(), stored, family.prefix));
  }
  return std::shared_ptr<const WeightSource>(std::make_shared<FamilyWeights>(std::move(inner), std::move(entries)));
}

}  // namespace bolide
