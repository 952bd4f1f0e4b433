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

Result<Opened> open_parts(const Value& weight, const WeightSource& source, Workers& workers) {
  Opened opened;
  const bool vector = weight.type.dims.size() == 1;
  const int64_t k = vector ? 1 : weight.type.dims.back().factor;
  for (const WeightPart& part : weight.parts) {
    BOLIDE_TRY(WeightData data, source.open_with(part.tensor, workers));
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

// The view that kernels get, without data: vectors are f32 whatever the checkpoint has.
TensorView view_of(const ValueType& type) {
  SymbolValues none;
  if (type.dims.size() == 1) return make_view(nullptr, DType::kF32, type.at(none));
  return make_view(nullptr, type.dtype, type.at(none), type.quant);
}

// Bytes of a weight in a layout.
size_t stored_bytes(const ValueType& type, const Packing* packing) {
  SymbolValues none;
  if (type.dims.size() == 1) return static_cast<size_t>(type.at(none)[0]) * sizeof(float);
  return packing == nullptr ? type.bytes(none) : packing->bytes(type);
}

Result<StoredWeight> own(Buffer buffer, StoredWeight stored) {
  stored.bytes = buffer.size();
  stored.view.data = buffer.data();
  stored.owner = std::make_shared<Buffer>(std::move(buffer));
  return stored;
}

// The elements of a vector as f32.
Result<> decode_vector(const Value& weight, const Opened& opened, MutableBytes dst) {
  auto* out = reinterpret_cast<float*>(dst.data());
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
  return {};
}

Result<StoredWeight> store_vector(const Value& weight, const Opened& opened, StoredWeight stored) {
  BOLIDE_TRY(Buffer buffer, Buffer::host(static_cast<size_t>(opened.rows.rows) * sizeof(float)));
  BOLIDE_TRY(decode_vector(weight, opened, buffer.bytes()));
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
  BOLIDE_TRY(const Opened opened, open_parts(weight, source, workers));
  StoredWeight stored{id, packing, view_of(weight.type), 0, false, nullptr};
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

// ---- To a device.

// Runs of `count` rows from row `begin` on.
std::vector<WeightRows::Run> runs_between(const WeightRows& rows, int64_t begin, int64_t count) {
  std::vector<WeightRows::Run> runs;
  for (const WeightRows::Run& run : rows.runs) {
    const int64_t skipped = std::min(begin, run.rows), taken = std::min(count, run.rows - skipped);
    if (taken > 0) runs.push_back({run.data + static_cast<size_t>(skipped) * rows.row_bytes, taken});
    begin -= skipped;
    count -= taken;
  }
  return runs;
}

// Packs a weight a piece at a time, where its layout can be cut.
Result<> pack_pieces(const ValueType& type, const WeightRows& rows, const Packing& packing, MutableBytes there,
                     WeightUpload& upload, Workers& workers) {
  const int64_t leading = type.dims[0].factor;
  const bool stack = type.dims.size() > 2;
  int64_t step = leading;
  if (packing.piece_rows > 0 && !there.empty()) {
    const int64_t unit = stack ? 1 : packing.piece_rows;
    const uint64_t each = ceil_div(there.size(), static_cast<uint64_t>(leading));
    const auto fitting = static_cast<int64_t>(upload.piece_bytes() / each);
    step = std::max(unit, fitting / unit * unit);
  }
  size_t done = 0;
  for (int64_t begin = 0; begin < leading; begin += step) {
    ValueType piece = type;
    piece.dims[0] = std::min(step, leading - begin);
    const int64_t per_leading = rows.rows / leading;  // of a stack: rows of a matrix
    const auto runs = runs_between(rows, begin * per_leading, piece.dims[0].factor * per_leading);
    WeightRows source = rows;
    source.runs = runs;
    source.rows = piece.dims[0].factor * per_leading;
    const size_t bytes = packing.bytes(piece);
    BOLIDE_CHECK(bytes <= there.size() - done, "{} packs into more bytes in pieces", to_string(type));
    const auto fill = [&](MutableBytes here) -> Result<> {
      auto packed = packing.pack(piece, source, here, workers);
      if (packed || begin == 0) return packed;
      return std::move(packed).context(fmt::format("counting from row {}", begin * per_leading));
    };
    BOLIDE_TRY(upload.put(there.subspan(done, bytes), true, fill));
    done += bytes;
  }
  BOLIDE_CHECK(done == there.size(), "{} packs into fewer bytes in pieces", to_string(type));
  return {};
}

StoredWeight stored_at(ValueId id, const ValueType& type, const Packing* packing, MutableBytes there,
                       const WeightUpload& upload) {
  StoredWeight stored{id, packing, view_of(type), there.size(), false, upload.owner()};
  stored.view.data = there.data();
  stored.view.device = upload.device();
  return stored;
}

Result<StoredWeight> store_on_device(const Value& weight, ValueId id, const Packing* packing,
                                     const WeightSource& source, WeightUpload& upload, Workers& workers) {
  BOLIDE_TRY(const Opened opened, open_parts(weight, source, workers));
  const MutableBytes there = upload.take(stored_bytes(weight.type, packing));
  if (weight.type.dims.size() == 1) {
    const auto fill = [&](MutableBytes here) { return decode_vector(weight, opened, here); };
    BOLIDE_TRY(upload.put(there, false, fill));
  } else if (packing == nullptr) {
    size_t done = 0;
    for (const WeightRows::Run& run : opened.runs) {
      const size_t bytes = static_cast<size_t>(run.rows) * opened.rows.row_bytes;
      BOLIDE_TRY(upload.copy(there.subspan(done, bytes), {run.data, bytes}, workers));
      done += bytes;
    }
  } else {
    BOLIDE_TRY(pack_pieces(weight.type, opened.rows, *packing, there, upload, workers));
  }
  for (const WeightData& data : opened.data) data.release();
  return stored_at(id, weight.type, packing, there, upload);
}

}  // namespace

size_t WeightStore::packed_bytes(const Graph& graph, std::span<const Use> uses) {
  size_t bytes = 0;
  for (const auto& [id, packing] : std::set<Use>(uses.begin(), uses.end()))
    if (packing != nullptr) bytes += round_up(packing->bytes(graph.type(id)), kPackedAlignment);
  return bytes;
}

size_t WeightStore::device_bytes(const Graph& graph, std::span<const Use> uses) {
  uint64_t bytes = 0;
  for (const auto& [id, packing] : std::set<Use>(uses.begin(), uses.end()))
    if (add_overflows(bytes, round_up(stored_bytes(graph.type(id), packing), WeightUpload::kAlignment), &bytes))
      return SIZE_MAX;
  return bytes;
}

Result<WeightStore> WeightStore::pack(const Graph& graph, std::span<const Use> uses, const WeightSource& source,
                                      Workers& workers, const FunctionRef<void(PackProgress)>* progress,
                                      WeightUpload* upload) {
  WeightStore weights;
  PackedMemory memory;
  if (upload != nullptr) {
    BOLIDE_TRY(upload->reserve(device_bytes(graph, uses)));
  } else {
    BOLIDE_TRY(memory, PackedMemory::make(graph, uses));
  }
  size_t done = 0;
  for (const auto& [id, packing] : uses) {
    if (!weights.index_.contains({id, packing})) {
      const Value& weight = graph.value(id);
      auto made = upload != nullptr ? store_on_device(weight, id, packing, source, *upload, workers)
                                    : store(weight, id, packing, source, memory, workers);
      BOLIDE_TRY(StoredWeight stored, std::move(made).context(describe(weight)));
      weights.add(std::move(stored));
    }
    if (progress != nullptr) (*progress)({++done, uses.size()});
  }
  if (upload != nullptr) BOLIDE_TRY(upload->finish());
  return weights;
}

namespace {

// `from` in the checkpoint's own rows, which `unpacked` keeps if they had to be made.
Result<WeightRows::Run> rows_of(const ValueType& type, const StoredWeight& from, Buffer& unpacked, Workers& workers) {
  const int64_t k = type.dims.back().factor;
  SymbolValues none;
  const int64_t rows = type.at(none).elements() / k;
  if (from.packing == nullptr) return WeightRows::Run{from.view.data, rows};
  BOLIDE_TRY(unpacked, Buffer::host(static_cast<size_t>(rows) * row_bytes(type.dtype, type.quant, k)));
  BOLIDE_TRY(from.packing->unpack(type, {from.view.data, from.bytes}, unpacked.bytes(), workers));
  return WeightRows::Run{unpacked.data(), rows};
}

WeightRows as_rows(const ValueType& type, const WeightRows::Run& run) {
  const int64_t k = type.dims.back().factor;
  return {type.dtype, type.quant, run.rows, k, std::span(&run, 1), row_bytes(type.dtype, type.quant, k)};
}

// `from` in the layout of `packing`.
Result<StoredWeight> repack(const ValueType& type, const StoredWeight& from, const Packing* packing, Workers& workers) {
  Buffer unpacked;
  BOLIDE_TRY(const WeightRows::Run run, rows_of(type, from, unpacked, workers));
  StoredWeight stored{from.value, packing, from.view, 0, false, nullptr};
  if (packing == nullptr) return own(std::move(unpacked), std::move(stored));
  BOLIDE_TRY(Buffer buffer, Buffer::host(packing->bytes(type)));
  BOLIDE_TRY(packing->pack(type, as_rows(type, run), buffer.bytes(), workers));
  return own(std::move(buffer), std::move(stored));
}

// The same on a device, where a weight in that layout already is copied too.
Result<StoredWeight> adopt_on_device(const ValueType& type, const StoredWeight& from, const Packing* packing,
                                     WeightUpload& upload, Workers& workers) {
  const MutableBytes there = upload.take(stored_bytes(type, packing));
  if (from.packing == packing) {
    BOLIDE_TRY(upload.copy(there, {from.view.data, from.bytes}, workers));
  } else {
    Buffer unpacked;
    BOLIDE_TRY(const WeightRows::Run run, rows_of(type, from, unpacked, workers));
    if (packing == nullptr)
      BOLIDE_TRY(upload.copy(there, unpacked.bytes(), workers));
    else
      BOLIDE_TRY(pack_pieces(type, as_rows(type, run), *packing, there, upload, workers));
  }
  if (from.mapped) WeightData{{}, {from.view.data, from.bytes}, from.owner, true}.release();
  return stored_at(from.value, type, packing, there, upload);
}

}  // namespace

Result<WeightStore> WeightStore::adopt(const Graph& graph, std::span<const Use> uses,
                                       std::span<const StoredWeight> have, Workers& workers, int* repacked,
                                       WeightUpload* upload) {
  WeightStore weights;
  *repacked = 0;
  if (upload != nullptr) BOLIDE_TRY(upload->reserve(device_bytes(graph, uses)));
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
    *repacked += found->packing != packing;
    if (found->packing == packing && upload == nullptr) {
      weights.add(*found);
      continue;
    }
    auto made = upload != nullptr ? adopt_on_device(graph.type(id), *found, packing, *upload, workers)
                                  : repack(graph.type(id), *found, packing, workers);
    BOLIDE_TRY(StoredWeight stored, std::move(made).context(describe(graph.value(id))));
    weights.add(std::move(stored));
  }
  if (upload != nullptr) BOLIDE_TRY(upload->finish());
  return weights;
}

WeightStore WeightStore::outline(const Graph& graph, std::span<const Use> uses) {
  WeightStore weights;
  for (const auto& [id, packing] : std::set<Use>(uses.begin(), uses.end()))
    weights.add({id, packing, view_of(graph.type(id)), stored_bytes(graph.type(id), packing), false, nullptr});
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
