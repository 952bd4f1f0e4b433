// Resize, Pad and Tile on GPUs: elements picked by a map for each axis, or sums of taps.
#include <algorithm>
#include <cstring>

#include "ops/device/device_op.h"
#include "ops/image.h"
#include "ops/layout.h"

namespace bolide {
namespace {

bool are_known(const DeviceContext& c) {
  for (size_t i = 1; i < c.inputs(); ++i)
    if (c.has(i) && c.known(i) == nullptr) return false;
  return true;
}

Result<const void*> table_of(DeviceContext& c, const std::vector<int64_t>& numbers) {
  const std::vector<int32_t> narrow(numbers.begin(), numbers.end());
  return c.table(Tensor::vector(DType::kI32, std::span<const int32_t>(narrow)));
}

// Axes as they lie in a tensor, the last fastest.
std::vector<size_t> order_of(const DeviceTensor& tensor) {
  std::vector<size_t> axes;
  for (int d = 0; d < tensor.shape.rank; ++d) axes.push_back(static_cast<size_t>(d));
  if (tensor.channels_last) std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
  return axes;
}

bool is_identity(const std::vector<int64_t>& map, int64_t dim) {
  if (static_cast<int64_t>(map.size()) != dim) return false;
  for (size_t i = 0; i < map.size(); ++i)
    if (map[i] != static_cast<int64_t>(i)) return false;
  return true;
}

// Elements along the fastest axis are moved in words of up to 16 bytes where nothing happens to it.
void widen_words(MappedJob& job) {
  const int last = job.rank - 1;
  if (job.maps[last] != nullptr || job.in_strides[last] != 1 || job.out_strides[last] != 1) return;
  const auto can = [&] {
    const auto aligned = [&](const void* data) {
      return reinterpret_cast<uintptr_t>(data) % (2U * static_cast<unsigned>(job.bytes)) == 0;
    };
    bool even = job.dims[last] % 2 == 0 && aligned(job.in) && aligned(job.out);
    for (int d = 0; d < last; ++d) even = even && job.in_strides[d] % 2 == 0 && job.out_strides[d] % 2 == 0;
    return even;
  };
  while (job.bytes < 16 && can()) {
    job.bytes *= 2, job.dims[last] /= 2;
    for (int d = 0; d < last; ++d) job.in_strides[d] /= 2, job.out_strides[d] /= 2;
  }
}

Result<bool> move(DeviceContext& c, const layout::Moves& moves) {
  if (!can_copy(c.dtype(0)) || moves.shape.rank == 0) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), moves.shape, x.channels_last));
  if (moves.shape.elements() == 0) return true;
  if (x.shape.elements() >= int64_t{1} << 31 || moves.shape.elements() >= int64_t{1} << 31) return false;
  MappedJob job{.in = x.data(), .out = y.data(), .rank = moves.shape.rank};
  job.bytes = static_cast<int>(element_bytes(x.dtype));
  if (moves.fill) {
    BOLIDE_TRY(const Tensor fill, narrowed_to(moves.fill, x.dtype, c.workers()));
    for (size_t at = 0; at < sizeof job.fill; at += fill.bytes())
      std::memcpy(reinterpret_cast<std::byte*>(job.fill) + at, fill.data(), fill.bytes());
  }
  const Strides from = x.strides(), to = y.strides();
  int d = 0;
  for (const size_t axis : order_of(y)) {
    job.dims[d] = moves.shape.dims[axis], job.in_strides[d] = from[axis], job.out_strides[d] = to[axis];
    if (const auto& map = moves.maps[axis]; !is_identity(map, x.shape.dims[axis])) {
      BOLIDE_TRY(const void* table, table_of(c, map));
      job.maps[d] = static_cast<const int32_t*>(table);
    }
    ++d;
  }
  widen_words(job);
  BOLIDE_TRY(launch_mapped(c.stream(), job));
  return true;
}

template <Result<layout::Moves> (*of)(const RunContext&)>
Result<bool> run_moves(DeviceContext& c) {
  if (!are_known(c) || !can_copy(c.dtype(0))) return false;
  layout::Moves moves;
  BOLIDE_TRY(c.with_shapes([&](RunContext& r) -> Result<> {
    BOLIDE_TRY(moves, of(r));
    return {};
  }));
  return move(c, moves);
}

// True if every axis has one tap.
bool picks(const image::Resampling& how) {
  return std::all_of(how.axes.begin(), how.axes.end(), [](const auto& axis) { return axis.weights.empty(); });
}

Result<bool> run_resize(DeviceContext& c) {
  if (!are_known(c) || c.shape(0).rank < 1) return false;
  std::optional<image::Resampling> how;
  BOLIDE_TRY(c.with_shapes([&](RunContext& r) -> Result<> {
    BOLIDE_TRY(how, image::resampling_of(r, c.name() == "Upsample" || c.version() < 11));
    return {};
  }));
  if (!how) return false;
  if (picks(*how)) {
    layout::Moves moves{how->shape, std::vector<std::vector<int64_t>>(static_cast<size_t>(how->shape.rank)), {}};
    if (how->shape.elements() > 0)
      for (int d = 0; d < how->shape.rank; ++d)
        for (int64_t i = 0; i < how->shape[d]; ++i) moves.maps[static_cast<size_t>(d)].push_back(i);
    for (image::Resampling::Axis& axis : how->axes)
      moves.maps[static_cast<size_t>(axis.axis)] = std::move(axis.indices);
    return move(c, moves);
  }
  constexpr size_t kAxesMax = std::size(ResampleJob{}.tapped);
  if (!c.is_half_or_single(0) || how->axes.size() > kAxesMax || how->shape.elements() >= int64_t{1} << 31) return false;
  BOLIDE_TRY(const DeviceTensor x, c.any(0));
  BOLIDE_TRY(const DeviceTensor y, c.make(0, c.dtype(0), how->shape, x.channels_last));
  ResampleJob job{.in = x.data(), .out = y.data(), .dtype = x.dtype, .rank = how->shape.rank};
  const Strides from = x.strides(), to = y.strides();
  int d = 0;
  for (const size_t axis : order_of(y)) {
    job.dims[d] = how->shape.dims[axis], job.in_strides[d] = from[axis], job.out_strides[d] = to[axis];
    for (const image::Resampling::Axis& one : how->axes) {
      if (static_cast<size_t>(one.axis) != axis) continue;
      ResampleJob::Axis& tapped = job.tapped[job.axes++];
      tapped.axis = d, tapped.count = static_cast<int>(one.count);
      std::vector<float> weights(one.weights.begin(), one.weights.end());
      if (weights.empty()) weights.assign(one.indices.size(), 1.f);
      BOLIDE_TRY(const void* indices, table_of(c, one.indices));
      BOLIDE_TRY(const void* table, c.table(Tensor::vector(DType::kF32, std::span<const float>(weights))));
      tapped.indices = static_cast<const int32_t*>(indices), tapped.weights = static_cast<const float*>(table);
    }
    ++d;
  }
  BOLIDE_TRY(launch_resample(c.stream(), job));
  return true;
}

constexpr DeviceOp kRows[] = {
    {"", "Resize", run_resize},
    {"", "Upsample", run_resize},
    {"", "Pad", run_moves<layout::moves_of_pad>},
    {"", "Tile", run_moves<layout::moves_of_tile>},
};

}  // namespace

std::span<const DeviceOp> device_image_ops() { return kRows; }

}  // namespace bolide
