#include "ops/elementwise.h"

#include <algorithm>
#include <vector>

#include "ops/ops.h"

namespace bolide {
namespace {

constexpr int64_t kPieceElements = 16384;  // that a worker takes at a time: some 10 us
constexpr int64_t kHalfBlock = 512;        // f16 or bf16 elements that are f32 at a time

template <class T>
void map_halves(const T* x, T* y, int64_t n, FunctionRef<void(const float*, float*, int64_t)> f) {
  std::array<float, kHalfBlock> in, out;
  for (int64_t begin = 0; begin < n; begin += kHalfBlock) {
    const int64_t count = std::min(kHalfBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) in[static_cast<size_t>(i)] = widen(x[begin + i]);
    f(in.data(), out.data(), count);
    for (int64_t i = 0; i < count; ++i) y[begin + i] = narrow<T>(out[static_cast<size_t>(i)]);
  }
}

}  // namespace

Walk walk_of(const Shape& wide, std::initializer_list<const Shape*> inputs) {
  Walk walk;
  for (const int64_t dim : wide.span()) {
    if (dim != 0) continue;
    walk.shape = {0};  // the product of the others may be beyond i64
    return walk;
  }
  std::array<Strides, kWalkInputs> full{};
  size_t count = 0;
  for (const Shape* shape : inputs) full[count++] = broadcast_strides(*shape, wide);
  // From the last dim to the first, reversed at the end.
  for (int axis = wide.rank - 1; axis >= 0; --axis) {
    const auto d = static_cast<size_t>(axis);
    if (wide[axis] == 1) continue;
    bool runs_on = walk.shape.rank > 0;
    const auto last = static_cast<size_t>(std::max(walk.shape.rank - 1, 0));
    for (size_t k = 0; runs_on && k < count; ++k) runs_on = full[k][d] == walk.strides[k][last] * walk.shape.dims[last];
    if (runs_on) {
      walk.shape.dims[last] *= wide[axis];
      continue;
    }
    for (size_t k = 0; k < count; ++k) walk.strides[k][static_cast<size_t>(walk.shape.rank)] = full[k][d];
    walk.shape.dims[static_cast<size_t>(walk.shape.rank++)] = wide[axis];
  }
  if (walk.shape.rank == 0) walk.shape = {1};
  const auto rank = static_cast<size_t>(walk.shape.rank);
  std::reverse(walk.shape.dims.begin(), walk.shape.dims.begin() + walk.shape.rank);
  for (size_t k = 0; k < count; ++k)
    std::reverse(walk.strides[k].begin(), walk.strides[k].begin() + static_cast<int64_t>(rank));
  return walk;
}

void for_each_range(int64_t n, Workers& workers, FunctionRef<void(int64_t, int64_t)> f) {
  const int64_t chunks = (n + kPieceElements - 1) / kPieceElements;
  if (chunks <= 2) {
    if (n > 0) f(0, n);
    return;
  }
  workers.run(chunks,
              [&](int64_t chunk, int) { f(chunk * kPieceElements, std::min(n, (chunk + 1) * kPieceElements)); });
}

void for_each_piece(const Walk& walk, int64_t begin, int64_t end, FunctionRef<void(const Piece&)> f) {
  if (begin >= end) return;
  const int row_axis = walk.shape.rank - 1;
  const int64_t row = walk.shape[row_axis];
  // Where `begin` is in the merged shape.
  std::array<int64_t, kRankMax> at{};
  int64_t rest = begin;
  for (int axis = row_axis; axis >= 0; --axis)
    at[static_cast<size_t>(axis)] = rest % walk.shape[axis], rest /= walk.shape[axis];
  Piece piece;
  for (size_t k = 0; k < kWalkInputs; ++k) {
    piece.step[k] = walk.strides[k][static_cast<size_t>(row_axis)];
    for (size_t d = 0; d <= static_cast<size_t>(row_axis); ++d) piece.in[k] += walk.strides[k][d] * at[d];
  }
  for (piece.out = begin; piece.out < end; piece.out += piece.n) {
    auto& column = at[static_cast<size_t>(row_axis)];
    piece.n = std::min(end - piece.out, row - column);
    f(piece);
    column += piece.n;
    for (size_t k = 0; k < kWalkInputs; ++k) piece.in[k] += piece.step[k] * piece.n;
    for (int axis = row_axis; axis > 0 && at[static_cast<size_t>(axis)] == walk.shape[axis]; --axis) {
      const auto d = static_cast<size_t>(axis);
      at[d] = 0, ++at[d - 1];
      for (size_t k = 0; k < kWalkInputs; ++k)
        piece.in[k] += walk.strides[k][d - 1] - walk.strides[k][d] * walk.shape[axis];
    }
  }
}

void for_each_piece(const Walk& walk, Workers& workers, FunctionRef<void(const Piece&)> f) {
  for_each_range(walk.shape.elements(), workers,
                 [&](int64_t begin, int64_t end) { for_each_piece(walk, begin, end, f); });
}

Result<> map_float_rows(RunContext& c, FunctionRef<void(const float*, float*, int64_t)> f32,
                        FunctionRef<void(const double*, double*, int64_t)> f64) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  return dispatch(kFloats, x->dtype(), "input 0", [&]<class T>() -> Result<> {
    BOLIDE_TRY(Tensor * y, c.make(0, x->dtype(), x->shape()));
    const T* const from = x->as<T>().data();
    T* const to = y->mutate<T>().data();
    for_each_range(x->elements(), c.workers(), [&](int64_t begin, int64_t end) {
      if constexpr (std::same_as<T, float>)
        f32(from + begin, to + begin, end - begin);
      else if constexpr (std::same_as<T, double>)
        f64(from + begin, to + begin, end - begin);
      else
        map_halves(from + begin, to + begin, end - begin, f32);
    });
    return {};
  });
}

Result<Tensor> combine_rows(RunContext& c, const Tensor& a, const Tensor& b, DType result, CombineRows rows) {
  BOLIDE_TRY(const Shape shape, broadcast(a.shape(), b.shape()));
  BOLIDE_TRY(Tensor out, c.scratch(result, shape));
  std::byte* const to = out.mutable_data();
  for_each_piece(walk_of(shape, {&a.shape(), &b.shape()}), c.workers(),
                 [&](const Piece& piece) { rows(a.data(), b.data(), to, piece); });
  return out;
}

Result<Operands> operands_of(RunContext& c) {
  BOLIDE_TRY(const Tensor* a, c.tensor(0));
  BOLIDE_TRY(const Tensor* b, c.tensor(1));
  Operands both{a, *b};
  if (c.version() >= 7) return both;
  BOLIDE_TRY(const int64_t spread, c.attributes().integer("broadcast", 0));
  if (spread == 0) return both;
  BOLIDE_TRY(const int64_t given, c.attributes().integer("axis", a->rank() - b->rank()));
  // The second's dims are those of the first from `axis` on.
  if (b->elements() == 1) {
    both.b = b->reshaped({});
    return both;
  }
  if (b->rank() > a->rank() || given < -a->rank() || given > a->rank() - b->rank())
    return error(Code::kInvalid,
                 fmt::format("axis {} to broadcast {} to {}", given, to_string(b->shape()), to_string(a->shape())));
  const auto axis = static_cast<int>(given < 0 ? given + a->rank() : given);
  if (axis + b->rank() > a->rank())
    return error(Code::kInvalid,
                 fmt::format("axis {} to broadcast {} to {}", given, to_string(b->shape()), to_string(a->shape())));
  Shape shape = b->shape();
  while (axis + shape.rank < a->rank()) shape.dims[static_cast<size_t>(shape.rank++)] = 1;
  both.b = b->reshaped(shape);
  return both;
}

std::span<const OpDef> elementwise_ops() {
  static const std::vector<OpDef> kRows = [] {
    std::vector<OpDef> rows;
    for (const std::span<const OpDef> part : {arithmetic_ops(), logic_ops(), unary_ops()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return kRows;
}

}  // namespace bolide
