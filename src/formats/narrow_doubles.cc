#include "formats/narrow_doubles.h"

#include <map>

namespace bolide {
namespace {

using Infos = std::map<std::string, WeightInfo, std::less<>>;

class NarrowDoubles final : public WeightSource {
 public:
  NarrowDoubles(std::shared_ptr<const WeightSource> inner, Infos narrowed)
      : inner_(std::move(inner)), narrowed_(std::move(narrowed)) {}

  const WeightInfo* find(std::string_view name) const override {
    const auto it = narrowed_.find(name);
    return it == narrowed_.end() ? inner_->find(name) : &it->second;
  }

  Result<WeightData> open(std::string_view name) const override {
    Workers alone(1);
    return open_with(name, alone);
  }

  Result<WeightData> open_with(std::string_view name, Workers& workers) const override {
    BOLIDE_TRY(WeightData from, inner_->open_with(name, workers));
    const auto it = narrowed_.find(name);
    if (it == narrowed_.end()) return from;
    BOLIDE_TRY(WritableWeight to, allocate_weight(it->second));
    auto* values = reinterpret_cast<float*>(to.bytes.data());
    for (size_t i = 0; i < to.bytes.size() / sizeof(float); ++i)
      values[i] = static_cast<float>(load_unaligned<double>(from.bytes.data() + i * sizeof(double)));
    from.release();
    return std::move(to.data);
  }

  std::vector<std::string> names() const override { return inner_->names(); }
  const std::string& label() const override { return inner_->label(); }

 private:
  std::shared_ptr<const WeightSource> inner_;
  Infos narrowed_;
};

}  // namespace

std::shared_ptr<const WeightSource> narrow_doubles(std::shared_ptr<const WeightSource> inner) {
  Infos narrowed;
  for (const std::string& name : inner->names()) {
    const WeightInfo* info = inner->find(name);
    if (info->dtype != DType::kF64) continue;
    narrowed[name] = *info;
    narrowed[name].dtype = DType::kF32;
  }
  if (narrowed.empty()) return inner;
  return std::make_shared<NarrowDoubles>(std::move(inner), std::move(narrowed));
}

}  // namespace bolide
