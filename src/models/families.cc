#include "models/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace bolide {

// Each is defined in its own file, as `extern const Family kName{...}`.
extern const Family kLlama, kMistral, kQwen2, kQwen3, kPhi3, kMixtral, kGpt2;

namespace {

constexpr std::array kFamilies = {&kLlama, &kMistral, &kQwen2, &kQwen3, &kPhi3, &kMixtral, &kGpt2};

// Edit distance (Levenshtein 1966), for "did you mean".
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

Result<const Family*> find_family(const ModelConfig& config) {
  const bool by_type = !config.has("architectures") && config.has("model_type");
  BOLIDE_TRY(const std::string wanted, by_type ? config.string("model_type") : config.architecture());
  std::string_view nearest;
  size_t best = SIZE_MAX;
  for (const Family* family : kFamilies)
    for (const std::string_view name : by_type ? std::span(&family->name, 1) : family->architectures) {
      if (name == wanted) return family;
      if (const size_t d = distance(wanted.substr(0, 100), name); d < best) best = d, nearest = name;
    }
  return config.field_error(
      by_type ? "model_type" : "architectures",
      fmt::format("'{}' is not supported; the nearest that is: {}", wanted.substr(0, 100), nearest),
      Code::kUnsupported);
}

}  // namespace bolide
