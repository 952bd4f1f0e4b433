#include "formats/round_to_bf16.h"

#include <map>

#include "tensor/half.h"

namespace bolide {
namespace {

using Infos = std::map<std::string, WeightInfo, std::less<>>;

class RoundedToBF16 final : public WeightSource {
 public:
  RoundedToBF16(std::shared_ptr<const WeightSource> inner, Infos rounded)
      : inner_(std::move(inner)), rounded_(std::move(rounded)) {}

  const WeightInfo* find(std::string_view name) const override {
    const auto it = rounded_.find(name);
    return it == rounded_.end() ? inner_->find(name) : &it->second;
  }

  Result<WeightData> open(std::string_view name) const override {
    Workers alone(1);
    return open_with(name, alone);
  }

  Result<WeightData> open_with(std::string_view name, Workers& workers) const override {
    BOLIDE_TRY(WeightData from, inner_->open_with(name, workers));
    const auto it = rounded_.find(name);
    if (it == rounded_.end()) return from;
    BOLIDE_TRY(WritableWeight to, allocate_weight(it->second));
    auto* out = reinterpret_cast<uint16_t*>(to.bytes.data());
    const int64_t k = from.info.shape[-1];
    workers.run(from.info.rows(), [&](int64_t row, int) {
      const std::byte* in = from.row(row);
      uint16_t* rounded = out + row * k;
      if (from.info.dtype == DType::kF32)
        for (int64_t i = 0; i < k; ++i) rounded[i] = f32_to_bf16(load_unaligned<float>(in + i * 4));
      else
        for (int64_t i = 0; i < k; ++i) rounded[i] = f32_to_bf16(f16_to_f32(load_unaligned<uint16_t>(in + i * 2)));
    });
    from.release();
    return std::move(to.data);
  }

  std::vector<std::string> names() const override { return inner_->names(); }
  const std::string& label() const override { return inner_->label(); }

 private:
  std::shared_ptr<const WeightSource> inner_;
  Infos rounded_;
};

}  // namespace

std::shared_ptr<const WeightSource> round_to_bf16(std::shared_ptr<const WeightSource> inner,
                                                  FunctionRef<bool(const std::string& name)> keeps) {
  Infos rounded;
  for (const std::string& name : inner->names()) {
    const WeightInfo* info = inner->find(name);
    const bool wide = info->quant == nullptr && (info->dtype == DType::kF32 || info->dtype == DType::kF16);
    if (!wide || info->shape.rank < 2 || info->shape[-1] == 0 || keeps(name)) continue;
    rounded[name] = *info;
    rounded[name].dtype = DType::kBF16;
  }
  if (rounded.empty()) return inner;
  return std::make_shared<RoundedToBF16>(std::move(inner), std::move(rounded));
}

}  // namespace bolide
