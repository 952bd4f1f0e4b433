#include "ops/moves.h"

#include <algorithm>
#include <cstring>

#include "base/memory.h"
#include "ops/number.h"

namespace bolide {

Result<DType> dtype_of_code(int64_t code) {
  using enum DType;
  constexpr DType kTypes[] = {kNone,       kF32,    kU8,         kI8,  kU16, kI16,    kI32,    kI64,  kString,
                              kBool,       kF16,    kF64,        kU32, kU64, kNone,   kNone,   kBF16, kF8E4M3,
                              kF8E4M3FNUZ, kF8E5M2, kF8E5M2FNUZ, kU4,  kI4,  kF4E2M1, kF8E8M0, kU2,   kI2};
  if (code < 0 || code >= static_cast<int64_t>(std::size(kTypes)) || kTypes[code] == kNone)
    return error(Code::kInvalid, fmt::format("element type {}: there is none", code));
  return kTypes[code];
}

void copy_block(const Tensor& from, int64_t i, Tensor& to, int64_t j, int64_t n) {
  if (n == 0) return;
  if (from.is_string()) {
    std::copy_n(from.as<std::string>().data() + i, n, to.mutate<std::string>().data() + j);
    return;
  }
  const auto size = static_cast<int64_t>(element_bytes(from.dtype()));
  std::memcpy(to.mutable_data() + j * size, from.data() + i * size, static_cast<size_t>(n * size));
}

void clear(Tensor& to) {
  if (!to.is_string() && to.elements() > 0) std::memset(to.mutable_data(), 0, to.bytes());
}

void fill_block(const Tensor& from, int64_t i, Tensor& to, int64_t j, int64_t n) {
  const auto fill = [&]<class T>() -> Result<> {
    std::fill_n(to.mutate<T>().data() + j, n, from.as<T>()[static_cast<size_t>(i)]);
    return {};
  };
  (void)dispatch_moves(from.dtype(), fill).has_value();
}

Result<> copy_strided(const Tensor& from, int64_t offset, const Strides& strides, Tensor& to) {
  if (to.elements() == 0) return {};
  if (to.rank() == 0) {
    copy_block(from, offset, to, 0, 1);
    return {};
  }
  const int last = to.rank() - 1;
  const int64_t n = to.dim(last), step = strides[static_cast<size_t>(last)];
  Shape rows = to.shape();
  rows.rank = last;
  return dispatch_moves(from.dtype(), [&]<class T>() -> Result<> {
    const T* source = from.as<T>().data() + offset;
    T* target = to.mutate<T>().data();
    for_each_offset(rows, strides, strides, [&](int64_t, int64_t at, int64_t) {
      const T* row = source + at;
      if (step == 1)
        target = std::copy_n(row, n, target);
      else
        for (int64_t i = 0; i < n; ++i) *target++ = row[i * step];
    });
    return {};
  });
}

Result<> copy_mapped(const Tensor& from, std::span<const std::vector<int64_t>> maps, const Tensor* fill, Tensor& to,
                     Workers& workers) {
  if (to.elements() == 0) return {};
  if (to.rank() == 0) {
    copy_block(from, 0, to, 0, 1);
    return {};
  }
  const Strides strides = strides_of(from.shape());
  const int last = to.rank() - 1;
  const std::vector<int64_t>& inner = maps[static_cast<size_t>(last)];
  bool straight = true;  // rows are copied as they lie
  for (size_t i = 0; i < inner.size(); ++i) straight = straight && inner[i] == static_cast<int64_t>(i);
  const int64_t width = to.dim(last), count = to.elements() / width;
  constexpr int64_t kElements = 16 * 1024;  // that are worth a chunk
  const int64_t chunks =
      std::clamp(to.elements() / kElements, int64_t{1}, std::min(count, int64_t{4} * workers.threads()));
  return dispatch_moves(to.dtype(), [&]<class T>() -> Result<> {
    const T* source = from.as<T>().data();
    T* const targets = to.mutate<T>().data();
    const T nothing = fill == nullptr ? T{} : fill->as<T>()[0];
    const auto copy = [&](int64_t first, int64_t end) {
      T* target = targets + first * width;
      std::array<int64_t, kRankMax> at{};
      for (int64_t rest = first, d = last - 1; d >= 0; --d) {
        at[static_cast<size_t>(d)] = rest % to.dim(static_cast<int>(d));
        rest /= to.dim(static_cast<int>(d));
      }
      for (int64_t rows = end - first; rows > 0; --rows) {
        int64_t offset = 0;
        bool inside = true;
        for (size_t d = 0; d < static_cast<size_t>(last); ++d) {
          const int64_t index = maps[d][static_cast<size_t>(at[d])];
          inside = inside && index >= 0;
          offset += index * strides[d];
        }
        if (inside && straight)
          target = std::copy_n(source + offset, width, target);
        else if (inside)
          for (const int64_t index : inner) *target++ = index < 0 ? nothing : source[offset + index];
        else
          target = std::fill_n(target, to.dim(last), nothing);
        for (int d = last - 1; d >= 0; --d) {
          if (++at[static_cast<size_t>(d)] < to.dim(d)) break;
          at[static_cast<size_t>(d)] = 0;
        }
      }
    };
    workers.run(chunks, [&](int64_t chunk, int) { copy(count * chunk / chunks, count * (chunk + 1) / chunks); });
    return {};
  });
}

Result<Tensor> transposed(const Tensor& from, std::span<const int> order, TensorPool& pool) {
  const Strides own = strides_of(from.shape());
  Shape shape;
  Strides strides{};
  bool same = true;
  for (const int axis : order) {
    same = same && axis == shape.rank;
    strides[static_cast<size_t>(shape.rank)] = own[static_cast<size_t>(axis)];
    shape.dims[static_cast<size_t>(shape.rank++)] = from.dim(axis);
  }
  if (same) return from;
  BOLIDE_TRY(Tensor to, Tensor::make(from.dtype(), shape, pool));
  BOLIDE_TRY(copy_strided(from, 0, strides, to));
  return to;
}

Result<Tensor> part_of(const Tensor& from, int axis, int64_t start, int64_t count, TensorPool& pool) {
  if (count == from.dim(axis)) return from;
  Shape shape = from.shape();
  shape[axis] = count;
  BOLIDE_TRY(Tensor to, Tensor::make(from.dtype(), shape, pool));
  if (to.elements() == 0) return to;
  const auto [before, after] = around(shape, axis);
  for (int64_t i = 0; i < before; ++i)
    copy_block(from, (i * from.dim(axis) + start) * after, to, i * count * after, count * after);
  return to;
}

Result<Tensor> item_of(const Tensor& from, int axis, int64_t index, TensorPool& pool) {
  BOLIDE_TRY(const Tensor part, part_of(from, axis, index, 1, pool));
  Shape shape;
  for (int d = 0; d < from.rank(); ++d)
    if (d != axis) shape.dims[static_cast<size_t>(shape.rank++)] = from.dim(d);
  return part.reshaped(shape);
}

Result<Tensor> concatenated(std::span<const Tensor* const> parts, int64_t axis, TensorPool& pool) {
  if (parts.empty()) return error(Code::kInvalid, "no tensors to concatenate");
  const Tensor& first = *parts[0];
  BOLIDE_TRY(const int along, axis_of(axis, first.rank()));
  Shape shape = first.shape();
  shape[along] = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor& part = *parts[i];
    bool fits = part.dtype() == first.dtype() && part.rank() == first.rank();
    for (int d = 0; fits && d < first.rank(); ++d) fits = d == along || part.dim(d) == first.dim(d);
    if (!fits)
      return error(Code::kInvalid, fmt::format("tensor {} is {}{}, which does not continue {}{} along axis {}", i,
                                               to_string(part.dtype()), to_string(part.shape()),
                                               to_string(first.dtype()), to_string(first.shape()), along));
    if (__builtin_add_overflow(shape[along], part.dim(along), &shape[along]))
      return error(Code::kInvalid, fmt::format("axis {} becomes too long", along));
  }
  BOLIDE_TRY(Tensor to, Tensor::make(first.dtype(), shape, pool));
  if (to.elements() == 0) return to;
  const auto [before, after] = around(shape, along);
  int64_t at = 0;
  for (const Tensor* part : parts) {
    const int64_t run = part->dim(along) * after;
    for (int64_t i = 0; i < before; ++i) copy_block(*part, i * run, to, i * shape[along] * after + at, run);
    at += run;
  }
  return to;
}

Result<Tensor> stacked(std::span<const Tensor* const> parts, int64_t axis, TensorPool& pool) {
  if (parts.empty()) return error(Code::kInvalid, "no tensors to stack");
  const int rank = parts[0]->rank() + 1;
  if (rank > kRankMax) return error(Code::kUnsupported, fmt::format("a stack of tensors of {} dims", rank - 1));
  BOLIDE_TRY(const int along, axis_of(axis, rank));
  std::vector<Tensor> wider;
  wider.reserve(parts.size());
  std::vector<const Tensor*> list;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i]->shape() != parts[0]->shape())
      return error(Code::kInvalid, fmt::format("tensor {} is {}, the first is {}: they do not stack", i,
                                               to_string(parts[i]->shape()), to_string(parts[0]->shape())));
    Shape shape;
    shape.rank = rank;
    for (int d = 0, from = 0; d < rank; ++d) shape[d] = d == along ? 1 : parts[i]->dim(from++);
    list.push_back(&wider.emplace_back(parts[i]->reshaped(shape)));
  }
  return concatenated(list, along, pool);
}

Result<std::vector<double>> doubles_of(const Tensor& tensor) {
  BOLIDE_TRY(expect_memory(tensor.elements(), sizeof(double)));
  std::vector<double> list(static_cast<size_t>(tensor.elements()));
  BOLIDE_TRY(dispatch(kNumbers + Types<Bool>{}, tensor.dtype(), "a tensor", [&]<class T>() -> Result<> {
    const auto from = tensor.as<T>();
    for (size_t i = 0; i < from.size(); ++i) list[i] = static_cast<double>(widen(from[i]));
    return {};
  }));
  return list;
}

Result<std::vector<double>> doubles_of(const RunContext& c, size_t i) {
  BOLIDE_TRY(const Tensor* tensor, c.tensor_if(i));
  if (tensor == nullptr) return std::vector<double>();
  return doubles_of(*tensor).context(fmt::format("input {}", i));
}

Result<Tensor> wide_integers(const RunContext& c, size_t i) {
  BOLIDE_TRY(const Tensor* t, c.tensor(i));
  if (t->dtype() == DType::kI64) return *t;
  if (t->dtype() != DType::kI32)
    return error(Code::kInvalid, fmt::format("input {} is of {}, expected i64 or i32", i, to_string(t->dtype())));
  BOLIDE_TRY(Tensor wide, c.scratch(DType::kI64, t->shape()));
  std::copy_n(t->as<int32_t>().data(), t->elements(), wide.mutate<int64_t>().data());
  return wide;
}

}  // namespace bolide
