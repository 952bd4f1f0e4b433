#include "plan/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tensor/block_codec.h"

namespace bolide {
namespace {

// The opened tensors of a weight, and the runs of rows that it is made of.
struct Opened {
  std::vector<WeightData> data;
  std::vector<WeightRows::Run> runs;
  WeightRows rows;
};

// Rows along the flattened leading axes; the rows of a vector are its elements.
int64_t row_width(const Shape& shape) { return shape.rank <= 1 ? 1 : shape[-1]; }

Result<Opened> open_parts(const Value& weight, const WeightSource& source) {
  Opened opened;
  const bool vector = weight.type.dims.size() == 1;
  const int64_t k = vector ? 1 : weight.type.dims.back().factor;
  for (const WeightPart& part : weight.parts) {
    BOLIDE_TRY(WeightData data, source.open(part.tensor));
    const Shape& shape = data.info.shape;
    if (shape.rank == 0 || row_width(shape) != k || part.begin + part.rows > shape.elements() / k ||
        data.info.quant != weight.type.quant || (!vector && data.info.dtype != weight.type.dtype))
      return error(Code::kInvalid, fmt::format("{}: shape {} does not fit the graph", part.tensor, to_string(shape)));
    const size_t bytes = row_bytes(data.info.dtype, data.info.quant, k);
    opened.runs.push_back({data.bytes.data() + static_cast<size_t>(part.begin) * bytes, part.rows});
    opened.data.push_back(std::move(data));
  }
  opened.rows = {
      weight.type.dtype, weight.type.quant, 0, k, opened.runs, row_bytes(weight.type.dtype, weight.type.quant, k)};
  for (const WeightPart& part : weight.parts) opened.rows.rows += part.rows;
  return opened;
}

// Rows in errors count through the parts, so their numbers are named too.
std::string describe(const Value& weight) {
  const std::string& first = weight.parts.front().tensor;
  if (weight.parts.size() == 1) return first;
  return weight.parts.size() <= 4 ? to_string(std::span(weight.parts))
                                  : fmt::format("{} and {} more", first, weight.parts.size() - 1);
}

Result<StoredWeight> own(Buffer buffer, StoredWeight stored) {
  stored.bytes = buffer.size();
  stored.view.data = buffer.data();
  stored.owner = std::make_shared<Buffer>(std::move(buffer));
  return stored;
}

Result<StoredWeight> store_vector(const Value& weight, const Opened& opened, StoredWeight stored) {
  BOLIDE_TRY(Buffer buffer, Buffer::host(static_cast<size_t>(opened.rows.rows) * sizeof(float)));
  auto* out = reinterpret_cast<float*>(buffer.data());
  for (size_t i = 0; i < opened.runs.size(); ++i) {
    const auto count = opened.runs[i].rows;
    decode_row(opened.data[i].info.dtype, nullptr, opened.runs[i].data, count, out);
    for (int64_t j = 0; j < count; ++j)
      if (!std::isfinite(out[j]))
        return error(Code::kInvalid, fmt::format("{}element {} is {}: the checkpoint is damaged; download it again",
                                                 weight.parts.size() == 1 ? "" : weight.parts[i].tensor + ": ",
                                                 weight.parts[i].begin + j, out[j]));
    out += count;
  }
  stored.view = make_view(nullptr, DType::kF32, Shape{opened.rows.rows});
  return own(std::move(buffer), std::move(stored));
}

Result<StoredWeight> store_rows(const Opened& opened, StoredWeight stored) {
  if (opened.runs.size() == 1 && opened.data[0].mapped) {
    stored.view.data = const_cast<std::byte*>(opened.runs[0].data);
    stored.bytes = static_cast<size_t>(opened.rows.rows) * opened.rows.row_bytes;
    stored.mapped = true;
    stored.owner = opened.data[0].owner;
    return stored;
  }
  BOLIDE_TRY(Buffer buffer, Buffer::host(static_cast<size_t>(opened.rows.rows) * opened.rows.row_bytes));
  std::byte* out = buffer.data();
  for (const WeightRows::Run& run : opened.runs) {
    const size_t bytes = static_cast<size_t>(run.rows) * opened.rows.row_bytes;
    std::memcpy(out, run.data, bytes);
    out += bytes;
  }
  for (const WeightData& data : opened.data) data.release();
  return own(std::move(buffer), std::move(stored));
}

constexpr size_t kPackedAlignment = 64;

// The memory of all packed weights, in the order in which a step reads them: prefetchers then run from one weight into
// the next (q4_1 [3072, 576] from cold memory at T = 1, Zen 4: 63 us in allocations of its own, 42 us in one).
class PackedMemory {
 public:
  static Result<PackedMemory> make(const Graph& graph, std::span<const WeightStore::Use> uses) {
    PackedMemory memory;
    BOLIDE_TRY(Buffer buffer, Buffer::host(WeightStore::packed_bytes(graph, uses)).context("packed weights"));
    memory.buffer_ = std::make_shared<Buffer>(std::move(buffer));
    return memory;
  }
  // The next `bytes`, zeroed.
  MutableBytes take(size_t bytes) {
    const MutableBytes part = buffer_->bytes().subspan(used_, bytes);
    used_ += round_up(bytes, kPackedAlignment);
    return part;
  }
  std::shared_ptr<const void> owner() const { return buffer_; }

 private:
  std::shared_ptr<Buffer> buffer_;
  size_t used_ = 0;
};

Result<StoredWeight> store(const Value& weight, ValueId id, const Packing* packing, const WeightSource& source,
                           PackedMemory& memory, Workers& workers) {
  BOLIDE_TRY(const Opened opened, open_parts(weight, source));
  StoredWeight stored{id, packing, {}, 0, false, nullptr};
  SymbolValues none;
  stored.view = make_view(nullptr, weight.type.dtype, weight.type.at(none), weight.type.quant);
  if (weight.type.dims.size() == 1) return store_vector(weight, opened, std::move(stored));
  if (packing == nullptr) return store_rows(opened, std::move(stored));
  const MutableBytes packed = memory.take(packing->bytes(weight.type));
  BOLIDE_TRY(packing->pack(weight.type, opened.rows, packed, workers));
  for (const WeightData& data : opened.data) data.release();
  stored.bytes = packed.size();
  stored.view.data = packed.data();
  stored.owner = memory.owner();
  return stored;
}

}  // namespace

size_t WeightStore::packed_bytes(const Graph& graph, std::span<const Use> uses) {
  size_t bytes = 0;
  for (const auto& [id, packing] : std::set<Use>(uses.begin(), uses.end()))
    if (packing != nullptr) bytes += round_up(packing->bytes(graph.type(id)), kPackedAlignment);
  return bytes;
}

Result<WeightStore> WeightStore::pack(const Graph& graph, std::span<const Use> uses, const WeightSource& source,
                                      Workers& workers, const FunctionRef<void(PackProgress)>* progress) {
  WeightStore weights;
  BOLIDE_TRY(PackedMemory memory, PackedMemory::make(graph, uses));
  size_t done = 0;
  for (const auto& [id, packing] : uses) {
    if (!weights.index_.contains({id, packing})) {
      const Value& weight = graph.value(id);
      BOLIDE_TRY(StoredWeight stored, store(weight, id, packing, source, memory, workers).context(describe(weight)));
      weights.add(std::move(stored));
    }
    if (progress != nullptr) (*progress)({++done, uses.size()});
  }
  return weights;
}

namespace {

// `from` in the layout of `packing`.
Result<StoredWeight> repack(const ValueType& type, const StoredWeight& from, const Packing* packing, Workers& workers) {
  const int64_t k = type.dims.back().factor;
  const size_t bytes = row_bytes(type.dtype, type.quant, k);
  SymbolValues none;
  const int64_t rows = type.at(none).elements() / k;
  Buffer unpacked;
  const std::byte* data = from.view.data;
  if (from.packing != nullptr) {
    BOLIDE_TRY(unpacked, Buffer::host(static_cast<size_t>(rows) * bytes));
    BOLIDE_TRY(from.packing->unpack(type, {data, from.bytes}, unpacked.bytes(), workers));
    data = unpacked.data();
  }
  StoredWeight stored{from.value, packing, from.view, 0, false, nullptr};
  if (packing == nullptr) return own(std::move(unpacked), std::move(stored));
  const WeightRows::Run run{data, rows};
  const WeightRows source{type.dtype, type.quant, rows, k, std::span(&run, 1), bytes};
  BOLIDE_TRY(Buffer buffer, Buffer::host(packing->bytes(type)));
  BOLIDE_TRY(packing->pack(type, source, buffer.bytes(), workers));
  return own(std::move(buffer), std::move(stored));
}

}  // namespace

Result<WeightStore> WeightStore::adopt(const Graph& graph, std::span<const Use> uses,
                                       std::span<const StoredWeight> have, Workers& workers, int* repacked) {
  WeightStore weights;
  *repacked = 0;
  std::map<ValueId, const StoredWeight*> any;
  std::map<Use, const StoredWeight*> exact;
  for (const StoredWeight& weight : have) {
    any.emplace(weight.value, &weight);
    exact.emplace(Use{weight.value, weight.packing}, &weight);
  }
  for (const auto& [id, packing] : uses) {
    if (weights.contains(id, packing)) continue;
    const auto same = exact.find({id, packing});
    const auto other = any.find(id);
    const StoredWeight* found = same != exact.end() ? same->second : other != any.end() ? other->second : nullptr;
    if (found == nullptr) return error(Code::kInvalid, fmt::format("weight {} is missing", describe(graph.value(id))));
    if (found->packing == packing) {
      weights.add(*found);
      continue;
    }
    BOLIDE_TRY(StoredWeight stored,
               repack(graph.type(id), *found, packing, workers).context(describe(graph.value(id))));
    weights.add(std::move(stored));
    ++*repacked;
  }
  return weights;
}

void WeightStore::add(StoredWeight weight) {
  index_[{weight.value, weight.packing}] = weights_.size();
  weights_.push_back(std::move(weight));
}

const StoredWeight& WeightStore::find(ValueId value, const Packing* packing) const {
  const auto it = index_.find({value, packing});
  BOLIDE_CHECK(it != index_.end(), "weight %{} was never packed", value);
  return weights_[it->second];
}

size_t WeightStore::bytes() const {
  size_t sum = 0;
  for (const StoredWeight& weight : weights_) sum += weight.bytes;
  return sum;
}

size_t WeightStore::anonymous_bytes() const {
  size_t sum = 0;
  for (const StoredWeight& weight : weights_) sum += weight.mapped ? 0 : weight.bytes;
  return sum;
}

}  // namespace bolide
