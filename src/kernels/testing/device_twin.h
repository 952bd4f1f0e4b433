// DeviceTwin: copies of a test's host memory on a device, each followed by a guard band, and the way back.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "device/device.h"
#include "kernels/batch.h"
#include "kernels/testing/guarded.h"

namespace bolide::testing {

class DeviceTwin {
 public:
  DeviceTwin(Device& device, Stream& stream) : device_(device), stream_(stream) {}

  // From now on `there` knows where this memory is on the device.
  Result<> add(MutableBytes host) {
    if (host.empty()) return {};
    BOLIDE_TRY(Buffer buffer, device_.allocate(host.size() + kGuard, Memory::kDevice));
    BOLIDE_TRY(stream_.fill(buffer.bytes(), kGuardByte));
    BOLIDE_TRY(copy_bytes(stream_, buffer.bytes().first(host.size()), host));
    pieces_.push_back({host, std::move(buffer)});
    return {};
  }

  std::byte* there(const std::byte* host) const {
    if (host == nullptr) return nullptr;
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece)  // latest first: histories may overlap
      if (host >= piece->host.data() && host <= piece->host.data() + piece->host.size())
        return piece->buffer.data() + (host - piece->host.data());
    BOLIDE_CHECK(false, "memory that was not added");
    return nullptr;
  }
  std::vector<TensorView> there(std::vector<TensorView> views) const {
    for (TensorView& view : views) {
      view.data = there(view.data);
      view.device = device_.info().id;
    }
    return views;
  }

  // A batch whose arrays, pools, histories and biases lie on the device. The result refers to this twin.
  Result<BatchInputs> there(BatchInputs batch) {
    const auto tokens = static_cast<size_t>(batch.sizes[Symbol::kTokens]);
    const auto sequences = static_cast<size_t>(batch.sizes[Symbol::kSequences]);
    const size_t table = sequences * static_cast<size_t>(batch.block_table_stride);
    int64_t blocks = 0;
    // Entries beyond a sequence's context are arbitrary.
    for (size_t s = 0; batch.block_table != nullptr && s < sequences; ++s)
      for (int64_t b = 0; b * batch.kv.block_tokens < batch.context[s]; ++b)
        blocks =
            std::max(blocks, int64_t{batch.block_table[static_cast<int64_t>(s) * batch.block_table_stride + b]} + 1);
    for (size_t i = 0; batch.slots != nullptr && i < tokens; ++i)
      blocks = std::max<int64_t>(blocks, batch.slots[i] / batch.kv.block_tokens + 1);
    layers_.assign(batch.kv.layers.begin(), batch.kv.layers.end());
    const auto pool = static_cast<size_t>(blocks * batch.kv.block_stride() * bits_of(batch.kv.dtype) / 8);
    for (KvLayer& layer : layers_) {
      if (layer.k == nullptr) continue;
      BOLIDE_TRY(add({layer.k, pool}));
      BOLIDE_TRY(add({layer.v, pool}));
      layer = {there(layer.k), there(layer.v)};
    }
    batch.kv.layers = layers_;
    BOLIDE_TRY(move(batch.ids, tokens));
    BOLIDE_TRY(move(batch.positions, tokens));
    BOLIDE_TRY(move(batch.slots, tokens));
    BOLIDE_TRY(move(batch.rows, static_cast<size_t>(batch.sizes[Symbol::kRows])));
    BOLIDE_TRY(move(batch.cu_tokens, sequences + 1));
    BOLIDE_TRY(move(batch.context, sequences));
    BOLIDE_TRY(move(batch.rope_length, sequences));
    BOLIDE_TRY(move(batch.block_table, table));
    rows_.assign(batch.sampling.begin(), batch.sampling.end());
    for (SamplingRow& row : rows_) {
      BOLIDE_TRY(move(row.history, static_cast<size_t>(row.history_count)));
      BOLIDE_TRY(move(row.biases, static_cast<size_t>(row.bias_count)));
    }
    const SamplingRow* rows = rows_.data();
    BOLIDE_TRY(move(rows, rows_.size()));
    batch.sampling = {rows, rows_.size()};
    return batch;
  }

  // Everything as it is on the device now, where it was added from; an error if a kernel wrote behind it.
  Result<> fetch() {
    for (const Piece& piece : pieces_) {
      std::vector<std::byte> guard(kGuard);
      BOLIDE_TRY(copy_bytes(stream_, piece.host, piece.buffer.bytes().first(piece.host.size())));
      BOLIDE_TRY(copy_bytes(stream_, guard, piece.buffer.bytes().last(kGuard)));
      BOLIDE_TRY(stream_.synchronize());
      if (!std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kGuardByte; }))
        return error(Code::kInternal, "wrote behind its buffers");
    }
    return {};
  }

 private:
  struct Piece {
    MutableBytes host;
    Buffer buffer;
  };

  template <class T>
  Result<> move(const T*& array, size_t count) {
    if (array == nullptr || count == 0) return {};
    const MutableBytes host{reinterpret_cast<std::byte*>(const_cast<T*>(array)), count * sizeof(T)};
    BOLIDE_TRY(add(host));
    array = reinterpret_cast<const T*>(there(host.data()));
    return {};
  }

  Device& device_;
  Stream& stream_;
  std::deque<Piece> pieces_;
  std::vector<KvLayer> layers_;
  std::vector<SamplingRow> rows_;
};

}  // namespace bolide::testing
