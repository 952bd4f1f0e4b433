#include "formats/weight_source.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tensor/block_codec.h"

namespace bolide {

void WeightData::release() const {
  if (!mapped || bytes.empty()) return;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uint64_t>(bytes.data());
  const uint64_t first = round_up(begin, page);
  const uint64_t last = (begin + bytes.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

Result<WritableWeight> allocate_weight(WeightInfo info) {
  auto buffer = Buffer::host(info.byte_size());
  if (!buffer) return std::move(buffer).error().context(info.name);
  auto owner = std::make_shared<Buffer>(*std::move(buffer));
  WritableWeight weight;
  weight.bytes = owner->bytes();
  weight.data.info = std::move(info);
  weight.data.bytes = weight.bytes;
  weight.data.owner = std::move(owner);
  return weight;
}

Result<std::vector<float>> read_floats(const WeightSource& source, std::string_view name) {
  BOLIDE_TRY(const WeightData data, source.open(name));
  if (data.info.quant == nullptr && !is_float(data.info.dtype) && data.info.scale.empty())
    return error(Code::kInvalid, fmt::format("{}: tensor {}: has type {}, expected a float type", source.label(), name,
                                             to_string(data.info.dtype)));
  std::vector<float> values(static_cast<size_t>(data.info.shape.elements()));
  const int64_t k = data.info.shape.rank == 0 ? 1 : data.info.shape[-1];
  if (values.empty()) return values;
  for (int64_t r = 0; r < data.info.rows(); ++r)
    decode_row(data.info.dtype, data.info.quant, data.row(r), k, values.data() + r * k);
  if (data.info.scale.empty()) return values;
  BOLIDE_TRY(const std::vector<float> scales, read_floats(source, data.info.scale));
  if (scales.size() != static_cast<size_t>(data.info.rows()))
    return error(Code::kInvalid, fmt::format("{}: tensor {}: has {} scales for {} rows", source.label(), name,
                                             scales.size(), data.info.rows()));
  for (size_t i = 0; i < values.size(); ++i) values[i] *= scales[i / static_cast<size_t>(k)];
  return values;
}

}  // namespace bolide
